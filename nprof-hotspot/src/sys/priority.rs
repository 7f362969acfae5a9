//! Priority for what has little to do and has to do it soon.
//!
//! A stack is worth what it was when it was taken: read milliseconds later, code that it names may be gone. On CPUs that
//! are all busy a thread waits so long for its turn, unless it comes before others.

use rustix::process::{Pid, setpriority_process};

/// The lowest of the priorities that come before all niceness.
const REAL_TIME: i32 = 1;

/// Half the way to the highest: behind what an administrator has put first.
const NICENESS: i32 = -10;

/// Has the calling thread, or the process that is meant, run before others. Where that is not allowed
/// (`CAP_SYS_NICE`), nothing is wrong but that more stacks are cut on a busy machine.
pub fn raise(process: Option<Pid>) {
    if let Err(error) = setpriority_process(process, NICENESS) {
        tracing::debug!("no priority for what reads stacks: {error}");
    }
}

/// Has the calling thread, and those that it starts, run before all that has no real-time priority. It must be one that mostly
/// waits. Where that is not allowed it has the priority of [`raise`].
#[expect(unsafe_code, reason = "the C library's call")]
pub fn raise_above_all() {
    let priority = libc::sched_param { sched_priority: REAL_TIME };
    // SAFETY: the call reads `priority`, which outlives it.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const priority) } != 0 {
        tracing::debug!("no real-time priority: {}", std::io::Error::last_os_error());
        raise(None);
    }
}
