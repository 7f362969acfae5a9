//! Tells the programs where each Java thread notes its last Java frame, so that they can read it at the moment of a
//! sample.

use std::collections::HashMap;

use nprof_common::LastJavaFrame;

use crate::attach::Feeds;
use crate::discover::Proc;
use crate::model::{Pid, VirtAddr};
use crate::sys::remote_memory::{MemoryError, ProcessMemory};
use crate::unwind::Threads;

/// The Java threads that the programs know of.
#[derive(Debug)]
pub(super) struct LastJavaFrames {
    proc: Proc,
    pid: Pid,
    threads: Threads<ProcessMemory>,
    /// For each thread on the host, its number in the target's own namespace.
    numbers: HashMap<u32, u32>,
    /// For each thread, its `JavaThread` as the programs know it.
    noted: HashMap<u32, VirtAddr>,
    /// The names of all threads that were seen.
    names: HashMap<u32, String>,
}

impl LastJavaFrames {
    pub(super) fn new(proc: Proc, pid: Pid, threads: Threads<ProcessMemory>) -> Self {
        Self { proc, pid, threads, numbers: HashMap::new(), noted: HashMap::new(), names: HashMap::new() }
    }

    /// Looks for threads that are new, and tells the programs of them if they are to read anchors. Until then stacks of
    /// such threads are followed through native code alone.
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn refresh(&mut self, feeds: &mut Feeds, tell: bool) -> Result<(), MemoryError> {
        self.threads.refresh()?;
        // Gone with the process, if anything.
        let tids = self.proc.tids(self.pid).unwrap_or_default();
        self.numbers.retain(|tid, _| tids.contains(tid));
        for tid in tids {
            let number = match self.numbers.get(&tid) {
                Some(number) => *number,
                None => {
                    let Some(thread) = self.proc.thread(self.pid, tid) else { continue };
                    self.names.insert(tid, thread.name);
                    *self.numbers.entry(tid).or_insert(thread.ns_tid)
                }
            };
            if tell && let Some(thread) = self.threads.find(number) {
                self.tell(feeds, tid, thread.address);
            }
        }
        Ok(())
    }

    /// The threads of the process on the host, as they were when they were last looked for.
    pub(super) fn tids(&self) -> Vec<u32> {
        self.numbers.keys().copied().collect()
    }

    /// Whether a thread is on a CPU, as far as the kernel says.
    pub(super) fn is_on_cpu(&self, tid: u32) -> bool {
        self.proc.is_on_cpu(self.pid, tid) == Some(true)
    }

    /// The names of all threads that were seen, by number. Threads that are there may have another name by now.
    pub(super) fn into_names(mut self) -> Vec<(u32, String)> {
        for tid in self.numbers.keys() {
            if let Some(thread) = self.proc.thread(self.pid, *tid) {
                self.names.insert(*tid, thread.name);
            }
        }
        let mut names: Vec<_> = self.names.into_iter().collect();
        names.sort_unstable();
        names
    }

    /// The last Java frame as a thread notes it now; `None` if it is in Java, or no Java thread.
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn read(&self, memory: &ProcessMemory, tid: u32) -> Result<Option<LastJavaFrame>, MemoryError> {
        let thread = self.numbers.get(&tid).and_then(|number| self.threads.find(*number));
        let Some(thread) = thread else { return Ok(None) };
        let offsets = self.threads.anchor_offsets();
        let mut words = [0; 3];
        for (word, offset) in words.iter_mut().zip([offsets.sp, offsets.pc, offsets.fp]) {
            let mut bytes = [0; 8];
            match memory.read_exact(VirtAddr(thread.address.0.wrapping_add(offset)), &mut bytes) {
                Ok(()) => *word = u64::from_le_bytes(bytes),
                Err(MemoryError::Unreadable { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let [sp, pc, fp] = words;
        Ok((sp != 0).then_some(LastJavaFrame { sp, pc, fp }))
    }

    /// Learns the name of a thread that has not been seen.
    pub(super) fn note_name(&mut self, tid: u32) {
        let Self { proc, pid, names, .. } = self;
        names
            .entry(tid)
            .or_insert_with(|| proc.thread(*pid, tid).map_or_else(|| tid.to_string(), |thread| thread.name));
    }

    /// Whether a thread was there at the last look, Java or not.
    pub(super) fn has_seen(&self, tid: u32) -> bool {
        self.numbers.contains_key(&tid)
    }

    fn tell(&mut self, feeds: &mut Feeds, tid: u32, address: VirtAddr) {
        if self.noted.get(&tid) == Some(&address) {
            return;
        }
        let offsets = self.threads.anchor_offsets();
        let place = |offset: u64| VirtAddr(address.0.wrapping_add(offset));
        match feeds.set_anchor(tid, [offsets.sp, offsets.pc, offsets.fp].map(place), address) {
            Ok(()) => {
                self.noted.insert(tid, address);
            }
            Err(error) => tracing::debug!("thread {tid}: {error}"),
        }
    }
}
