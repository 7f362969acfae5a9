//! The maps and programs in the kernel, which any number of sessions share.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nprof_common::histogram::BUCKETS;
use nprof_common::{Cookie, Loss, MethodStats, Pace, Switch, maps};

use super::feeds::{Collect, Feeds, fixed_point};
use super::object::{Object, Sizes};
use super::{Error, pid_filter_works, probe_uprobe_multi};
use crate::sys::mapped_array::MappedArray;

/// Memory that the records of all methods may take, in bytes, before CPUs have to share shards.
const STATS_BUDGET: usize = 48 << 20;
/// The record that no function gets.
const IDLE_RECORD: u32 = 0;
const WORDS: usize = size_of::<MethodStats>() / size_of::<u64>();

/// The loaded maps and programs. Nothing is attached by it but the hook on the end of threads.
#[derive(Debug)]
pub struct Engine {
    object: Object,
    records: Arc<MappedArray>,
    capacity: u32,
    shards: u32,
    filtered: bool,
    free: Mutex<Free>,
}

/// The records that no function has.
#[derive(Debug)]
struct Free {
    /// Records from this one on were never given out.
    next: u32,
    /// Records that were given back, zeroed.
    returned: Vec<u32>,
}

impl Engine {
    /// Loads maps, with records for `capacity` functions, and programs.
    ///
    /// # Errors
    /// See [`Error`]; most likely missing permissions.
    pub fn load(capacity: u32) -> Result<Arc<Self>, Error> {
        Self::load_object(capacity, &Collect::nothing()).map(Arc::new)
    }

    /// The same, and begins to collect what is wanted besides. No stack is taken before the pace is set.
    ///
    /// # Errors
    /// See [`Error`]; most likely missing permissions.
    pub fn load_collecting(capacity: u32, collect: &Collect) -> Result<(Arc<Self>, Feeds), Error> {
        let mut engine = Self::load_object(capacity, collect)?;
        let pace = map_array(&engine.object, maps::PACE, 1, size_of::<Pace>())?;
        let object = &mut engine.object;
        let (stacks, calls) = (object.take_ring(maps::STACKS)?, object.take_ring(maps::CALLS)?);
        let (anchors, slots) = (object.take_anchors()?, object.take_slots()?);
        let feeds = Feeds::new(stacks, calls, anchors, slots, pace);
        Ok((Arc::new(engine), feeds))
    }

    fn load_object(capacity: u32, collect: &Collect) -> Result<Self, Error> {
        if let Err(source) = probe_uprobe_multi() {
            return Err(match source.raw_os_error() {
                // The kernel knows the program type but not this kind of link.
                Some(libc::EINVAL) => Error::NoUprobeMulti,
                _ => Error::Load { name: "nprof_probe", source },
            });
        }
        let shards = shards_for(capacity, aya::util::nr_cpus().unwrap_or(1));
        // One more, which stays idle.
        let capacity = capacity.saturating_add(1).min(Cookie::MAX_INDEX);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let filtered = pid_filter_works(&release);
        let object = Object::load(Sizes { methods: capacity, shards, filtered }, collect)?;
        let records = map_records(&object, capacity, shards)?;
        let free = Mutex::new(Free { next: IDLE_RECORD + 1, returned: Vec::new() });
        let records = Arc::new(records);
        Ok(Self { object, records, capacity, shards, filtered, free })
    }

    /// The records, mapped: value `index * shards + shard` is a [`MethodStats`]. All share one mapping: what each of
    /// several has touched would count as memory of nprof again.
    #[must_use]
    pub fn stats(&self) -> Arc<MappedArray> {
        Arc::clone(&self.records)
    }

    /// The losses of all sessions together, mapped: one word per [`Loss`].
    ///
    /// # Errors
    /// If the kernel does not map them.
    pub fn losses(&self) -> Result<Arc<MappedArray>, Error> {
        map_array(&self.object, maps::LOSSES, Loss::ALL.len(), size_of::<u64>()).map(Arc::new)
    }

    /// Shards of each record.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// Whether the kernel's own filter by process works. If not, links are made without it.
    pub(super) fn is_filtered(&self) -> bool {
        self.filtered
    }

    /// The program for one end of a call.
    pub(super) fn program(&self, on_return: bool) -> BorrowedFd<'_> {
        if on_return { self.object.leave.as_fd() } else { self.object.enter.as_fd() }
    }

    /// Takes a record that nobody has; `None` if there is none left.
    pub(super) fn take(&self) -> Option<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = free.returned.pop() {
            return Some(record);
        }
        let record = Some(free.next).filter(|next| *next < self.capacity)?;
        free.next += 1;
        Some(record)
    }

    /// Zeroes records and gives them to whoever wants them next. No program may write to them any more: their links
    /// are closed, and no thread of their process is left that could have an open call.
    pub(super) fn give_back(&self, records: impl Iterator<Item = u32>) {
        let records: Vec<u32> = records.collect();
        for first in records.iter().flat_map(|&record| self.shards_of(record)) {
            for word in first..first + WORDS {
                self.records.store(word, 0);
            }
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).returned.extend(records);
    }

    /// Says what is done at a function's hits: a write to memory for each shard, which the next hit sees.
    ///
    /// During a hand-over the word of the first shard counts, and the others only point to it. So they are written
    /// before it when one begins, and after it when one ends.
    pub(super) fn switch(&self, record: u32, switch: Switch) {
        let mut shards: Vec<usize> = self.shards_of(record).collect();
        if switch.epoch().is_some() {
            shards.reverse();
        }
        for first in shards {
            self.records.store(first + offset_of!(MethodStats, switch) / size_of::<u64>(), switch.0);
        }
    }

    /// How many timed calls of a function have begun and not ended.
    pub(super) fn in_flight(&self, record: u32) -> u64 {
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
    pub(super) fn counted(&self, record: u32) -> u64 {
        let word = offset_of!(MethodStats, counted) / size_of::<u64>();
        self.shards_of(record).map(|first| self.word(first + word)).sum()
    }

    /// Says how likely it is that the stack of one of a function's calls is taken, from 0 to 1.
    pub fn set_chance(&self, record: u32, chance: f64) {
        for first in self.shards_of(record) {
            self.records.store(first + offset_of!(MethodStats, chance) / size_of::<u64>(), fixed_point(chance));
        }
    }

    /// A record that is never switched on, for probes that do nothing.
    pub(super) fn idle_record(&self) -> u32 {
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

fn map_records(object: &Object, methods: u32, shards: u32) -> Result<MappedArray, Error> {
    map_array(object, maps::STATS, methods as usize * shards as usize, size_of::<MethodStats>())
}

fn map_array(object: &Object, name: &'static str, values: usize, value_size: usize) -> Result<MappedArray, Error> {
    MappedArray::map(object.map(name)?, values, value_size).map_err(|source| Error::Map { name, source })
}

/// Shards per record: the number of CPUs rounded up to a power of two, halved until the records fit the budget.
fn shards_for(methods: u32, cpus: usize) -> u32 {
    let record = size_of::<MethodStats>() * methods.max(1) as usize;
    let mut shards = u32::try_from(cpus.next_power_of_two()).unwrap_or(1);
    while shards > 1 && record * shards as usize > STATS_BUDGET {
        shards /= 2;
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that shards are a power of two that covers the CPUs, within the budget.
    #[test]
    fn shards_follow_cpus_and_budget() {
        assert_eq!(shards_for(100, 1), 1);
        assert_eq!(shards_for(100, 6), 8);
        assert_eq!(shards_for(2_500, 2), 2);
        assert_eq!(shards_for(2_500, 64), 8);
        assert_eq!(shards_for(16_384, 2), 2);
        assert_eq!(shards_for(1_000_000, 64), 1);
    }
}
