//! Reads what the programs keep for a record and something else: its calls by thread, or by the bytes that they moved.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::maps::MapData;
use nprof_common::by_record::of_key;
use nprof_common::{CallBytes, ThreadCalls};

/// For how many pairs of thread and function there is room: 4 MB. A thread calls some ten of them.
pub(super) const THREADS: u32 = 1 << 15;
/// For how many functions that move bytes there is room, of each number of bytes: 6 MB. Few natives of a JVM do.
pub(super) const BYTES: u32 = 1 << 12;

/// [`ThreadCalls`] as aya passes them, and [`CallBytes`].
pub(super) const THREAD_WORDS: usize = size_of::<ThreadCalls>() / size_of::<u64>();
/// See [`THREAD_WORDS`].
pub(super) const BYTE_WORDS: usize = size_of::<CallBytes>() / size_of::<u64>();

/// The calls of each function by thread.
pub type ThreadTable = ByRecord<THREAD_WORDS>;
/// The same by bytes, of each counter that counts them.
pub type ByteTable = ByRecord<BYTE_WORDS>;

/// What is kept, in values of so many words.
pub struct ByRecord<const WORDS: usize> {
    values: Mutex<aya::maps::HashMap<MapData, u64, [u64; WORDS]>>,
    room: usize,
}

impl<const WORDS: usize> ByRecord<WORDS> {
    /// A map with room for so much.
    pub(super) fn new(values: aya::maps::HashMap<MapData, u64, [u64; WORDS]>, room: u32) -> Self {
        Self { values: Mutex::new(values), room: room as usize }
    }

    /// What there is so far by record, each with what else it is of. It is in the records, too: who reads those afterwards has no less
    /// there.
    #[must_use]
    pub fn read(&self) -> HashMap<u32, Vec<(u32, [u64; WORDS])>> {
        let values = self.values();
        // If something is forgotten meanwhile, the kernel may begin again.
        let entries = values.iter().take(2 * self.room).filter_map(|entry| {
            entry.inspect_err(|error| tracing::warn!("not all can be read that is kept by function: {error}")).ok()
        });
        let each: HashMap<u64, [u64; WORDS]> = entries.collect();
        let mut by_record: HashMap<u32, Vec<(u32, [u64; WORDS])>> = HashMap::new();
        for (key, value) in each {
            let (other, record) = of_key(key);
            by_record.entry(record).or_default().push((other, value));
        }
        by_record
    }

    /// Forgets what is of these records, which other functions are to have. Nobody may add to them any more.
    pub(super) fn forget(&self, records: &[u32]) {
        let records: HashSet<u32> = records.iter().copied().collect();
        let mut values = self.values();
        let is_theirs = |key: &u64| records.contains(&of_key(*key).1);
        let theirs: Vec<u64> = values.keys().take(2 * self.room).filter_map(Result::ok).filter(is_theirs).collect();
        for key in theirs {
            // It may have been met twice.
            _ = values.remove(&key);
        }
    }

    fn values(&self) -> MutexGuard<'_, aya::maps::HashMap<MapData, u64, [u64; WORDS]>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const WORDS: usize> fmt::Debug for ByRecord<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByRecord").finish_non_exhaustive()
    }
}
