//! The maps and programs in the kernel, which any number of sessions share.

use std::mem::offset_of;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nprof_common::{Loss, MethodStats, Mode, maps};

use super::object::{Object, Sizes};
use super::{Error, pid_filter_works, probe_uprobe_multi};
use crate::sys::mapped_array::MappedArray;

/// Memory that the records of all methods may take, in bytes, before CPUs have to share shards.
const STATS_BUDGET: usize = 48 << 20;
const WORDS: usize = size_of::<MethodStats>() / size_of::<u64>();

/// The loaded maps and programs. Nothing is attached by it but the hook on the end of threads.
#[derive(Debug)]
pub struct Engine {
    object: Object,
    records: MappedArray,
    capacity: u32,
    shards: u32,
    filtered: bool,
    free: Mutex<Free>,
}

/// The records that no function has.
#[derive(Debug, Default)]
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
        if let Err(source) = probe_uprobe_multi() {
            return Err(match source.raw_os_error() {
                // The kernel knows the program type but not this kind of link.
                Some(libc::EINVAL) => Error::NoUprobeMulti,
                _ => Error::Load { name: "nprof_probe", source },
            });
        }
        let shards = shards_for(capacity, aya::util::nr_cpus().unwrap_or(1));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let filtered = pid_filter_works(&release);
        let object = Object::load(Sizes { methods: capacity, shards, filtered })?;
        let records = map_records(&object, capacity, shards)?;
        Ok(Arc::new(Self { object, records, capacity, shards, filtered, free: Mutex::default() }))
    }

    /// The records, mapped: value `index * shards + shard` is a [`MethodStats`].
    ///
    /// # Errors
    /// If the kernel does not map them.
    pub fn stats(&self) -> Result<MappedArray, Error> {
        map_records(&self.object, self.capacity, self.shards)
    }

    /// The losses of all sessions together, mapped: one word per [`Loss`].
    ///
    /// # Errors
    /// If the kernel does not map them.
    pub fn losses(&self) -> Result<MappedArray, Error> {
        map_array(&self.object, maps::LOSSES, Loss::ALL.len(), size_of::<u64>())
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

    /// Switches functions to a mode: a write to memory for each shard, which the next hit sees.
    pub(super) fn switch(&self, records: impl Iterator<Item = u32>, mode: Mode) {
        for first in records.flat_map(|record| self.shards_of(record)) {
            self.records.store(first + offset_of!(MethodStats, mode) / size_of::<u64>(), mode as u64);
        }
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
