//! The end of a JVM: its process ends, or runs another program from then on.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::pace::shared_moment;
use crate::discover::{FirstThread, Proc, Program};
use crate::model::Pid;
use crate::sys::process_end::ProcessEnd;

/// How often it is looked whether the process still runs the same program: nothing tells of another one.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How a JVM has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its process has.
    Process,
    /// Its process has become another program (`exec`) and lives on.
    Program,
}

/// Waits for the end of one JVM.
#[derive(Debug)]
pub struct TargetEnd {
    process: ProcessEnd,
    proc: Proc,
    pid: Pid,
    /// What it ran; `None` when that has ended, or where it is not known.
    program: Option<Program>,
    /// Without which it runs no other.
    first_thread: FirstThread,
    look: Interval,
}

impl TargetEnd {
    /// Watches a process that runs `program`. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process (any more).
    pub fn watch(proc: &Proc, pid: Pid, program: Option<Program>) -> io::Result<Self> {
        let mut look = interval_at(shared_moment(Instant::now(), LOOK_EVERY), LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (process, first_thread) = (ProcessEnd::watch(pid)?, proc.first_thread(pid));
        Ok(Self { process, proc: proc.clone(), pid, program, first_thread, look })
    }

    /// Waits for an end. When the program has ended, the process may be waited for by the next call. Nothing is lost if the
    /// future is dropped.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub async fn wait(&mut self) -> io::Result<Ending> {
        loop {
            tokio::select! {
                biased;
                ended = self.process.wait() => return ended.map(|()| Ending::Process),
                _ = self.look.tick(), if self.program.is_some() => {
                    if self.runs_another() {
                        self.program = None;
                        return Ok(Ending::Program);
                    }
                }
            }
        }
    }

    /// Whether the same process runs something else by now. One that cannot be looked at is about to end.
    fn runs_another(&mut self) -> bool {
        if !self.first_thread.has_run() {
            return false;
        }
        let now = self.proc.program(self.pid);
        self.program.zip(now.ok()).is_some_and(|(then, now)| now.is_of_same_process(then) && now != then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::test_proc::TestProc;

    /// Check that another program is noticed in the same process, once, and neither in a later process with its pid nor
    /// while nothing can be read.
    #[tokio::test(start_paused = true)]
    async fn another_program() {
        let host = TestProc::new();
        // A pid that can be watched; what it runs is made up.
        let pid = Pid(std::process::id());
        let runs = |start, stack| host.process(pid).start_time(start).stack(stack).add();
        runs(7, 0x7000);
        let program = host.proc().program(pid).unwrap();
        let mut end = TargetEnd::watch(&host.proc(), pid, Some(program)).unwrap();
        let (soon, waits) = (LOOK_EVERY * 3, |result: Result<_, tokio::time::error::Elapsed>| result.is_err());
        assert!(waits(tokio::time::timeout(soon, end.wait()).await));
        runs(8, 0x8000);
        assert!(waits(tokio::time::timeout(soon, end.wait()).await), "another process");
        std::fs::remove_file(host.path(format!("proc/{pid}/stat"))).unwrap();
        assert!(waits(tokio::time::timeout(soon, end.wait()).await), "unreadable");
        runs(7, 0x8000);
        assert_eq!(tokio::time::timeout(soon, end.wait()).await.unwrap().unwrap(), Ending::Program);
        assert!(waits(tokio::time::timeout(soon, end.wait()).await), "told once");
    }
}
