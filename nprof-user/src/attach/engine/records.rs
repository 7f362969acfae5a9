//! The records of functions: who has which, and what is written to them.

use std::io;
use std::mem::offset_of;
use std::sync::PoisonError;

use nprof_common::histogram::BUCKETS;
use nprof_common::stats::{BRIEF, CALLEE_SHIFT, HOLDS_SHIFT, KIND_SHIFT, RETURNS_SHIFT};
use nprof_common::{Consumed, JniCallee, JniHolds, JniKind, MethodStats, Returns, Switch};

use super::Engine;
use crate::attach::feeds::fixed_point;

/// The record that no function gets.
pub(super) const IDLE_RECORD: u32 = 0;
const WORDS: usize = size_of::<MethodStats>() / size_of::<u64>();
const CONSUMED_WORDS: usize = size_of::<Consumed>() / size_of::<u64>();

/// The records that no function has.
#[derive(Debug)]
pub(super) struct Free {
    /// Records from this one on were never given out.
    next: u32,
    /// Records that were given back, zeroed.
    returned: Vec<u32>,
}

impl Free {
    /// All of them.
    pub(super) fn all() -> Self {
        Self { next: IDLE_RECORD + 1, returned: Vec::new() }
    }
}

impl Engine {
    /// Takes a record for short looks at a function; `None` if there is none left.
    #[must_use]
    pub fn take_brief(&self) -> Option<u32> {
        let record = self.take()?;
        self.may_outlast(record);
        Some(record)
    }

    /// A call that begins while the probes of its function are taken away may be left without its end, and is no loss.
    pub(in crate::attach) fn may_outlast(&self, record: u32) {
        self.store(record, offset_of!(MethodStats, brief), self.described(record) | BRIEF);
    }

    /// Whether a record is that of a JNI function.
    pub(in crate::attach) fn is_jni_function(&self, record: u32) -> bool {
        self.described(record) >> KIND_SHIFT & 0xff != JniKind::Method as u64
    }

    /// What has been said of a record's function.
    fn described(&self, record: u32) -> u64 {
        let offset = offset_of!(MethodStats, brief) / size_of::<u64>();
        self.shards_of(record).next().map_or(0, |first| self.word(first + offset))
    }

    /// Says what the arguments of a function are, for the programs that tell those of slow calls.
    pub(in crate::attach) fn set_kinds(&self, record: u32, kinds: u64) {
        if let Some(slow) = &self.slow {
            slow.set_kinds(record, kinds);
        }
    }

    /// Says what a function returns, for the programs that count results, and what is looked at if it is a JNI function.
    pub(in crate::attach) fn describe(
        &self,
        record: u32,
        returns: Returns,
        (kind, holds, callee): (JniKind, JniHolds, JniCallee),
    ) {
        let callee = if self.tells_callees { callee } else { JniCallee::Nothing };
        let described = (returns as u64) << RETURNS_SHIFT
            | (kind as u64) << KIND_SHIFT
            | (holds as u64) << HOLDS_SHIFT
            | (callee as u64) << CALLEE_SHIFT;
        self.store(record, offset_of!(MethodStats, brief), described);
    }

    /// Takes a record that nobody has; `None` if there is none left.
    pub(in crate::attach) fn take(&self) -> Option<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = free.returned.pop() {
            return Some(record);
        }
        let record = Some(free.next).filter(|next| *next < self.capacity)?;
        if let Err(error) = self.map_record(record) {
            tracing::warn!("no room for further functions: their records cannot be mapped: {error}");
            return None;
        }
        free.next += 1;
        Some(record)
    }

    /// How many functions more there are records for.
    #[must_use]
    pub fn room(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.returned.len() + self.capacity.saturating_sub(free.next) as usize
    }

    /// Takes a record for the slow calls that the stubs of a JVM choose; `None` where these are not looked for.
    #[must_use]
    pub fn take_for_stubs(&self) -> Option<u32> {
        self.slow.as_ref().and_then(|_| self.take())
    }

    /// Takes a record for the hits on the allocators of a JVM; `None` if there is none left, or these are not counted.
    #[must_use]
    pub fn take_for_allocators(&self) -> Option<u32> {
        self.object.alloc.as_ref().and_then(|_| self.take())
    }

    /// Has a record mapped, and those before it.
    fn map_record(&self, record: u32) -> io::Result<()> {
        let values = (record as usize + 1) * self.shards as usize;
        self.consumed.as_ref().map_or(Ok(()), |consumed| consumed.reach(values))?;
        self.records.reach(values)
    }

    /// Zeroes records and gives them to whoever wants them next. No program may write to them any more: their links
    /// are closed, and no thread of their process is left that could have an open call.
    pub fn give_back(&self, records: impl Iterator<Item = u32>) {
        let records: Vec<u32> = records.collect();
        for first in records.iter().flat_map(|&record| self.shards_of(record)) {
            for word in first..first + WORDS {
                self.records.store(word, 0);
            }
            let consumed = first / WORDS * CONSUMED_WORDS;
            for word in consumed..consumed + CONSUMED_WORDS {
                self.consumed.as_ref().map(|consumed| consumed.store(word, 0));
            }
        }
        if let Some(slow) = &self.slow {
            records.iter().for_each(|&record| slow.forget(record));
        }
        if let Some(threads) = &self.threads {
            threads.forget(&records);
        }
        if let Some(bytes) = &self.bytes {
            bytes.forget(&records);
        }
        if let Some(jni) = &self.jni {
            jni.forget(&records);
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).returned.extend(records);
    }

    /// Says what is done at a function's hits: a write to memory for each shard, which the next hit sees.
    ///
    /// During a hand-over the word of the first shard counts, and the others only point to it. So they are written
    /// before it when one begins, and after it when one ends.
    pub(in crate::attach) fn switch(&self, record: u32, switch: Switch) {
        let mut shards: Vec<usize> = self.shards_of(record).collect();
        if switch.epoch().is_some() {
            shards.reverse();
        }
        for first in shards {
            self.records.store(first + offset_of!(MethodStats, switch) / size_of::<u64>(), switch.0);
        }
    }

    /// How many timed calls of a function have begun and not ended.
    #[must_use]
    pub fn in_flight(&self, record: u32) -> u64 {
        let sum = |words: std::ops::Range<usize>| -> u64 {
            self.shards_of(record)
                .flat_map(|first| words.clone().map(move |word| first + word))
                .map(|at| self.word(at))
                .sum()
        };
        let field = |offset: usize, words: usize| sum(offset / size_of::<u64>()..offset / size_of::<u64>() + words);
        // Ends before entries: a call that ends in between is then still in flight.
        let ended = field(offset_of!(MethodStats, histogram), BUCKETS) + field(offset_of!(MethodStats, untimed), 1);
        field(offset_of!(MethodStats, entered), 1).saturating_sub(ended)
    }

    /// How many calls of a function have been counted and not timed.
    pub(in crate::attach) fn counted(&self, record: u32) -> u64 {
        let word = offset_of!(MethodStats, counted) / size_of::<u64>();
        self.shards_of(record).map(|first| self.word(first + word)).sum()
    }

    /// Says how likely it is that the stack of one of a function's calls is taken, from 0 to 1.
    pub fn set_sample_probability(&self, record: u32, probability: f64) {
        self.store(record, offset_of!(MethodStats, probability), fixed_point(probability));
    }

    /// Writes a field of each shard of a record.
    fn store(&self, record: u32, offset: usize, value: u64) {
        for first in self.shards_of(record) {
            self.records.store(first + offset / size_of::<u64>(), value);
        }
    }

    /// A record that is never switched on, for probes that do nothing.
    pub(in crate::attach) fn idle_record(&self) -> u32 {
        IDLE_RECORD
    }

    fn word(&self, index: usize) -> u64 {
        self.records.load(index).unwrap_or(0)
    }

    /// The first word of each shard of a record.
    fn shards_of(&self, record: u32) -> impl Iterator<Item = usize> + use<> {
        let shards = self.shards as usize;
        (0..shards).map(move |shard| (record as usize * shards + shard) * WORDS)
    }
}
