//! How long a process, or the calling thread, has used a CPU, to the nanosecond: `/proc` knows it to ten milliseconds.

use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd;

use crate::model::Pid;

/// The CPU time of all threads of a process, those that have ended included.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock(Option<ClockId>);

impl CpuClock {
    /// The clock of a process. One that is gone has used no time.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        let pid = i32::try_from(pid.0).ok();
        Self(pid.and_then(|pid| clock_getcpuclockid(unistd::Pid::from_raw(pid)).ok()))
    }

    /// The clock of the thread that reads it.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(Some(ClockId::CLOCK_THREAD_CPUTIME_ID))
    }

    /// The time up to now; `None` if the process is gone.
    #[must_use]
    pub fn read(self) -> Option<Duration> {
        self.0?.now().ok().map(Duration::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread that works is seen to work, also in the time of its process, and that nobody's clock stands still.
    #[test]
    fn follows_who_works() {
        let clocks = [CpuClock::of(Pid(std::process::id())), CpuClock::of_this_thread()];
        let before = clocks.map(|clock| clock.read().unwrap());
        while clocks[1].read().unwrap() - before[1] < Duration::from_millis(5) {}
        assert!(clocks[0].read().unwrap() - before[0] >= Duration::from_millis(5));
        assert_eq!(CpuClock::of(Pid(u32::MAX)).read(), None);
    }
}
