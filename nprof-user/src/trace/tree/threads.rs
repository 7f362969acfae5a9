//! Threads by the numbers that the host knows: a target in a container has others.

use std::collections::HashMap;

use crate::discover::Proc;
use crate::model::Pid;

/// The threads of a target, by the numbers that they have there.
#[derive(Debug)]
pub(super) struct Tids {
    proc: Proc,
    pid: Pid,
    /// Whether it has numbers of its own.
    is_contained: bool,
    known: HashMap<u32, u32>,
}

impl Tids {
    pub(super) fn new(proc: &Proc, pid: Pid) -> Self {
        let is_contained = proc.thread(pid, pid.0).is_some_and(|first| first.ns_tid != first.tid);
        Self { proc: proc.clone(), pid, is_contained, known: HashMap::new() }
    }

    /// The number on the host of a thread with this number in the target. One that has ended before it was looked for keeps that.
    pub(super) fn on_host(&mut self, ns_tid: u32) -> u32 {
        if !self.is_contained {
            return ns_tid;
        }
        if let Some(&known) = self.known.get(&ns_tid) {
            return known;
        }
        let tids = self.proc.tids(self.pid).unwrap_or_default();
        let threads = tids.into_iter().filter_map(|tid| self.proc.thread(self.pid, tid));
        self.known.extend(threads.map(|thread| (thread.ns_tid, thread.tid)));
        *self.known.entry(ns_tid).or_insert(ns_tid)
    }

    /// What a thread is called, by its number on the host; `None` if it has ended.
    pub(super) fn name(&self, tid: u32) -> Option<String> {
        self.proc.thread(self.pid, tid).map(|thread| thread.name)
    }
}
