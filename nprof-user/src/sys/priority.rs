//! Priority for what has little to do and has to do it soon.
//!
//! A stack is worth what it was when it was taken: read milliseconds later, code that it names may be gone. On CPUs that
//! are all busy a thread waits so long for its turn, unless it comes before others.

use rustix::process::{Pid, setpriority_process};

/// Half the way to the highest: behind what an administrator has put first.
const NICENESS: i32 = -10;

/// Has the calling thread, or the process that is meant, run before others. Where that is not allowed
/// (`CAP_SYS_NICE`), nothing is wrong but that more stacks are cut on a busy machine.
pub(crate) fn raise(process: Option<Pid>) {
    if let Err(error) = setpriority_process(process, NICENESS) {
        tracing::debug!("no priority for what reads stacks: {error}");
    }
}
