//! Threads by the numbers that the host knows: a target in a container has others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::discover::Proc;
use crate::model::{Pid, TreeThread};

/// How long it is believed whose a number is. Until another thread gets it, all other numbers have to be given out.
const FRESH: Duration = Duration::from_secs(1);

/// The threads of a target, by the numbers that they have there.
#[derive(Debug)]
pub(super) struct Tids {
    proc: Proc,
    pid: Pid,
    /// Whether it has numbers of its own.
    is_contained: bool,
    known: HashMap<u32, Known>,
}

/// What a thread's number is on the host, if that is known, and when that was found.
#[derive(Debug, Clone, Copy)]
struct Known {
    tid: Option<u32>,
    looked: Instant,
}

impl Tids {
    pub(super) fn new(proc: &Proc, pid: Pid) -> Self {
        let is_contained = proc.thread(pid, pid.0).is_some_and(|first| first.is_contained);
        Self { proc: proc.clone(), pid, is_contained, known: HashMap::new() }
    }

    /// The thread with this number in the target, by the one that it has on the host. One that has ended before it was looked for keeps the former, and is
    /// not taken for another that has the same on the host.
    pub(super) fn on_host(&mut self, ns_tid: u32) -> TreeThread {
        if !self.is_contained {
            return TreeThread::Platform(ns_tid);
        }
        self.looked_up(ns_tid, Instant::now()).map_or(TreeThread::Contained(ns_tid), TreeThread::Platform)
    }

    fn looked_up(&mut self, ns_tid: u32, now: Instant) -> Option<u32> {
        let known = self.known.get(&ns_tid).copied();
        if let Some(known) = known.filter(|known| now.saturating_duration_since(known.looked) < FRESH) {
            return known.tid;
        }
        let is_the_same = |tid: u32| self.proc.thread(self.pid, tid).is_some_and(|of| of.ns_tid == ns_tid);
        if !known.and_then(|known| known.tid).is_some_and(is_the_same) {
            let tids = self.proc.tids(self.pid).unwrap_or_default();
            let threads = tids.into_iter().filter_map(|tid| self.proc.thread(self.pid, tid));
            self.known.extend(threads.map(|thread| (thread.ns_tid, Known { tid: Some(thread.tid), looked: now })));
        }
        let known = self.known.entry(ns_tid).or_insert(Known { tid: None, looked: now });
        known.looked = now;
        known.tid
    }

    /// What a thread is called, by its number on the host; `None` if it has ended.
    pub(super) fn name(&self, tid: u32) -> Option<String> {
        self.proc.thread(self.pid, tid).map(|thread| thread.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::test_proc::TestProc;

    fn thread(host: &TestProc, tid: u32, numbers: &str) {
        host.file(format!("proc/7/task/{tid}/status"), format!("Name:\tjava\nNSpid:\t{numbers}\n"));
    }

    /// Check that a number of a container's is the host's of the thread that has it now, and stays that of one that has ended until another
    /// has it.
    #[test]
    fn numbers_are_given_again() {
        let host = TestProc::new();
        thread(&host, 7, "7\t1");
        thread(&host, 9, "9\t3");
        let mut tids = Tids::new(&host.proc(), Pid(7));
        let began = Instant::now();
        let mut at = |after: u32, ns_tid: u32| tids.looked_up(ns_tid, began + after * FRESH);
        assert_eq!([at(0, 1), at(0, 3), at(0, 55)], [Some(7), Some(9), None]);
        std::fs::remove_dir_all(host.path("proc/7/task/9")).unwrap();
        assert_eq!(at(1, 3), Some(9));
        thread(&host, 12, "12\t3");
        assert_eq!(at(2, 3), Some(12));
    }

    /// Check that a thread that has ended is not taken for the one that has its number on the host.
    #[test]
    fn numbers_on_both_sides() {
        let host = TestProc::new();
        // The first one's are even the same.
        thread(&host, 7, "7\t7");
        thread(&host, 9, "9\t3");
        let mut tids = Tids::new(&host.proc(), Pid(7));
        let [found, ended] = [3, 9].map(|ns_tid| tids.on_host(ns_tid));
        assert_eq!([found, ended], [TreeThread::Platform(9), TreeThread::Contained(9)]);
    }

    /// Check that numbers on the host are what they are.
    #[test]
    fn on_the_host() {
        let host = TestProc::new();
        thread(&host, 7, "7");
        assert_eq!(Tids::new(&host.proc(), Pid(7)).on_host(3), TreeThread::Platform(3));
    }
}
