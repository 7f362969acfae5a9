//! Reads how the calls of each function divide among threads.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::maps::MapData;
use nprof_common::ThreadCalls;
use nprof_common::by_thread::of_key;
use zerocopy::transmute;

/// For how many pairs of thread and function there is room: 4 MB. A thread calls some ten of them.
pub(super) const PAIRS: u32 = 1 << 15;

/// [`ThreadCalls`] as aya passes them.
pub(super) type ThreadEntry = [u64; size_of::<ThreadCalls>() / size_of::<u64>()];

/// The calls by thread and function.
pub struct ThreadTable {
    calls: Mutex<aya::maps::HashMap<MapData, u64, ThreadEntry>>,
}

impl ThreadTable {
    pub(super) fn new(calls: aya::maps::HashMap<MapData, u64, ThreadEntry>) -> Self {
        Self { calls: Mutex::new(calls) }
    }

    /// The calls so far by the record of their function, each with its thread. They are in the records, too: who reads those afterwards
    /// has no fewer there.
    #[must_use]
    pub fn read(&self) -> HashMap<u32, Vec<(u32, ThreadCalls)>> {
        let calls = self.calls();
        let entries = calls.iter().take(2 * PAIRS as usize).filter_map(|entry| {
            entry.inspect_err(|error| tracing::warn!("not all calls can be read by thread: {error}")).ok()
        });
        // If something is forgotten meanwhile, the kernel may begin again: each is taken once.
        let each: HashMap<u64, ThreadEntry> = entries.collect();
        let mut by_record: HashMap<u32, Vec<(u32, ThreadCalls)>> = HashMap::new();
        for (key, entry) in each {
            let (tid, record) = of_key(key);
            by_record.entry(record).or_default().push((tid, transmute!(entry)));
        }
        by_record
    }

    /// Forgets the calls of these records, which other functions are to have. Nobody may add to them any more.
    pub(super) fn forget(&self, records: &[u32]) {
        let records: HashSet<u32> = records.iter().copied().collect();
        let mut calls = self.calls();
        let is_theirs = |key: &u64| records.contains(&of_key(*key).1);
        let theirs: Vec<u64> = calls.keys().take(2 * PAIRS as usize).filter_map(Result::ok).filter(is_theirs).collect();
        for key in theirs {
            // It may have been met twice.
            _ = calls.remove(&key);
        }
    }

    fn calls(&self) -> MutexGuard<'_, aya::maps::HashMap<MapData, u64, ThreadEntry>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ThreadTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ThreadTable").finish_non_exhaustive()
    }
}
