//! Whether a process may run another program by now: the thread with its number has run since it was last asked.
//!
//! That is the first thread, or after an `exec` the one that did it. The first of nearly every JVM waits for the VM's end and never runs, and
//! what a thread used is read in a twentieth of the time that `/proc/PID/stat` takes, which adds all threads up.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::Proc;
use crate::model::Pid;

/// What is read of a file of three numbers.
const BYTES: usize = 64;
/// What a kernel says that does not know.
const UNKNOWN: &[u8] = b"0 0 0\n";

/// What the first thread of a process had used when it was last asked.
#[derive(Debug)]
pub struct FirstThread {
    /// Stays open: what is read is always that of the thread which has the number. `None` if the kernel has no such file.
    times: Option<File>,
    seen: Option<Vec<u8>>,
}

impl FirstThread {
    pub(super) fn of(proc: &Proc, pid: Pid) -> Self {
        Self { times: File::open(proc.root.join(pid.to_string()).join("schedstat")).ok(), seen: None }
    }

    /// Whether it may have run since the last call of this. `false` is certain.
    pub fn has_run(&mut self) -> bool {
        let now = self.times();
        let has_run = now.is_none() || now != self.seen;
        self.seen = now;
        has_run
    }

    fn times(&self) -> Option<Vec<u8>> {
        let mut bytes = [0; BYTES];
        let read = self.times.as_ref()?.read_at(&mut bytes, 0).ok()?;
        Some(bytes[..read].to_vec()).filter(|times| !times.is_empty() && times != UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::test_proc::TestProc;

    /// Check that a thread that stands still is told from one that has run, and that what is not known is taken for that.
    #[test]
    fn stands_still_or_runs() {
        let host = TestProc::new();
        let pid = Pid(7);
        host.process(pid).add();
        assert!([(); 2].map(|()| FirstThread::of(&host.proc(), pid).has_run()) == [true; 2], "no file");
        let says = |times: &str| std::fs::write(host.path("proc/7/schedstat"), times).unwrap();
        says("10 20 3\n");
        let mut thread = FirstThread::of(&host.proc(), pid);
        assert_eq!([(); 3].map(|()| thread.has_run()), [true, false, false]);
        says("11 20 4\n");
        assert_eq!([(); 2].map(|()| thread.has_run()), [true, false]);
        says("0 0 0\n");
        assert_eq!([(); 2].map(|()| thread.has_run()), [true; 2], "not known");
    }
}
