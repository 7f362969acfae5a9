//! From when on the calls of a function are slow, and how many were: rows beside the records.

use std::mem::offset_of;
use std::sync::Arc;

use nprof_common::SlowStats;

use crate::sys::mapped_array::MappedArray;

const WORDS: usize = size_of::<SlowStats>() / size_of::<u64>();

/// The rows of all functions. Any thread may read and write them.
#[derive(Debug, Clone)]
pub struct SlowTable {
    rows: Arc<MappedArray>,
    shards: usize,
}

/// What became of the slow calls of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlowCount {
    /// All of them.
    pub calls: u64,
    /// Of these, those that were not told because they took less than was asked for.
    pub kept_back: u64,
    /// Of these, those for which the ring had no room.
    pub no_room: u64,
}

impl SlowTable {
    pub(super) fn new(rows: MappedArray, shards: u32) -> Self {
        Self { rows: Arc::new(rows), shards: shards as usize }
    }

    /// Says whether only the slowest calls of a function are of interest, [`nprof_common::slow::SLOWEST`] at most. Then most of the
    /// others are not told.
    pub fn only_slowest(&self, record: u32, only: bool) {
        self.store(record, offset_of!(SlowStats, only_slowest), u64::from(only));
    }

    /// Says from how many nanoseconds on calls of a function are slow. Until then, or with 0, none is.
    pub fn set_threshold(&self, record: u32, threshold_ns: u64) {
        // The first time in question: no slow call takes less.
        self.store(record, offset_of!(SlowStats, next_ns), threshold_ns);
        self.store(record, offset_of!(SlowStats, threshold_ns), threshold_ns);
    }

    /// Says what the arguments of a function are ([`nprof_common::CallArgs::kinds`]).
    pub(super) fn set_kinds(&self, record: u32, kinds: u64) {
        self.store(record, offset_of!(SlowStats, kinds), kinds);
    }

    /// Has slow calls of a function counted and not told that took less.
    pub fn tell_from(&self, record: u32, ns: u64) {
        self.store(record, offset_of!(SlowStats, told_from_ns), ns);
    }

    /// What became of the slow calls of a function.
    #[must_use]
    pub fn count(&self, record: u32) -> SlowCount {
        let sum = |offset: usize| {
            self.places(record, offset).map(|place| self.rows.load(place).unwrap_or(0)).fold(0, u64::wrapping_add)
        };
        SlowCount {
            calls: sum(offset_of!(SlowStats, calls)),
            kept_back: sum(offset_of!(SlowStats, kept_back)),
            no_room: sum(offset_of!(SlowStats, no_room)),
        }
    }

    /// Forgets a function.
    pub(super) fn forget(&self, record: u32) {
        (0..WORDS).for_each(|word| self.store(record, word * size_of::<u64>(), 0));
    }

    fn store(&self, record: u32, offset: usize, value: u64) {
        for place in self.places(record, offset) {
            self.rows.store(place, value);
        }
    }

    /// The words of a field in each shard.
    fn places(&self, record: u32, offset: usize) -> impl Iterator<Item = usize> + use<> {
        let (first, shards) = (record as usize * self.shards, self.shards);
        (first..first + shards).map(move |row| row * WORDS + offset / size_of::<u64>())
    }
}
