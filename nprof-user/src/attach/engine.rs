//! The maps and programs in the kernel, which any number of sessions share.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nprof_common::histogram::BUCKETS;
use nprof_common::{Cookie, Lane, Loss, MethodStats, Pace, Switch, maps};

use super::feeds::{Collect, Feeds, fixed_point};
use super::loss_log::{self, LossLog};
use super::object::{Object, Sizes};
use super::{Error, in_full, probe_uprobe_multi, reach};
use crate::model::{Library, Pid, Reach, VirtAddr};
use crate::sys::bpf::{UprobeMulti, c_path, link_uprobe_multi};
use crate::sys::mapped_array::MappedArray;

/// Memory that the records of all methods may take, in bytes, before CPUs have to share shards.
const STATS_BUDGET: usize = 48 << 20;
/// The record that no function gets.
const IDLE_RECORD: u32 = 0;
const WORDS: usize = size_of::<MethodStats>() / size_of::<u64>();

/// Records for functions of nprof's own, which show what probes cost.
const CALIBRATED: u32 = 2;

/// The loaded maps and programs. Nothing is attached by it but the hook on the end of threads.
#[derive(Debug)]
pub struct Engine {
    object: Object,
    records: Arc<MappedArray>,
    capacity: u32,
    shards: u32,
    reach: Reach,
    off_cpu: bool,
    free: Mutex<Free>,
    losses: Mutex<Option<LossLog>>,
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
        Self::load_object(capacity, collect)?.with_feeds()
    }

    /// The same, and without off-CPU times where the kernel has no place to measure them: nobody has asked for them.
    ///
    /// # Errors
    /// See [`Error`]; most likely missing permissions.
    pub fn load_measuring(capacity: u32, collect: &Collect) -> Result<(Arc<Self>, Feeds), Error> {
        let without = Collect { off_cpu: false, ..*collect };
        Self::load_collecting(capacity, collect).or_else(|error| {
            let loaded = Self::load_collecting(capacity, &without)?;
            tracing::warn!("not measured how long threads wait: {}", in_full(&error));
            Ok(loaded)
        })
    }

    fn with_feeds(mut self) -> Result<(Arc<Self>, Feeds), Error> {
        let pace = map_array(&self.object, maps::PACE, 1, size_of::<Pace>())?;
        let object = &mut self.object;
        let (stacks, calls) = (object.take_ring(maps::STACKS)?, object.take_ring(maps::CALLS)?);
        let (anchors, slots, vm) = (object.take_anchors()?, object.take_slots()?, object.take_vm()?);
        let feeds = Feeds { stacks, calls, anchors, slots, vm, pace, off_cpu: object.take_off_cpu() };
        Ok((Arc::new(self), feeds))
    }

    /// Has the stack taken of each call that passes an address of a library in a process: the place where stubs say that they
    /// have chosen one. It ends with what is returned.
    ///
    /// # Errors
    /// If the address is not in the library, the kernel refuses, or such calls were not to be collected.
    pub fn watch_chosen(&self, pid: Pid, library: &Library, site: VirtAddr) -> Result<OwnedFd, Error> {
        if self.reach == Reach::Everyone {
            // The place is one that the target names.
            return Err(Error::StubSiteReachesOthers);
        }
        let failed = |source| Error::Library { library: library.path.clone(), source };
        let missing = || failed(io::ErrorKind::NotFound.into());
        let mapping = library.mappings.iter().find(|mapping| mapping.contains(site)).ok_or_else(missing)?;
        let offset = site.0 - mapping.start.0 + mapping.offset.0;
        let program = self.object.chosen.as_ref().ok_or_else(missing)?;
        let path = c_path(&library.open_path).map_err(failed)?;
        let cookies = [Cookie::new(pid.0, IDLE_RECORD, 0, Lane::A).0];
        let filter = self.filter(pid);
        let to = UprobeMulti { path: &path, offsets: &[offset], cookies: &cookies, on_return: false, pid: filter };
        link_uprobe_multi(program.as_fd(), to).map_err(failed)
    }

    fn load_object(capacity: u32, collect: &Collect) -> Result<Self, Error> {
        Self::load_reaching(capacity, collect, asked_reach()?)
    }

    /// As [`Self::load`], on a kernel that is taken to let probes reach `reach`: never less than they do.
    ///
    /// # Errors
    /// See [`Error`]; most likely missing permissions.
    pub fn load_reaching(capacity: u32, collect: &Collect, reach: Reach) -> Result<Self, Error> {
        let shards = shards_for(capacity, aya::util::nr_cpus().unwrap_or(1));
        // One more, which stays idle, and those of the calibration, which looks may have after it.
        let capacity = capacity.saturating_add(1 + CALIBRATED).min(Cookie::MAX_INDEX);
        let filtered = reach == Reach::Target;
        let mut object = Object::load(Sizes { methods: capacity, shards, filtered }, collect)?;
        let losses = Mutex::new(take_loss_log(&mut object)?);
        let records = map_records(&object, capacity, shards)?;
        let free = Mutex::new(Free { next: IDLE_RECORD + 1, returned: Vec::new() });
        let records = Arc::new(records);
        Ok(Self { object, records, capacity, shards, reach, off_cpu: collect.measures_off_cpu(), free, losses })
    }

    /// Whether it is measured how long threads do not run within calls.
    #[must_use]
    pub fn measures_off_cpu(&self) -> bool {
        self.off_cpu
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
        map_losses(&self.object).map(Arc::new)
    }

    /// Shards of each record.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// The reader of single losses, for the first who asks, and where they are wanted.
    #[must_use]
    pub fn take_loss_log(&self) -> Option<LossLog> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whom the probes reach that are attached with this.
    #[must_use]
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// What keeps a link to one process, where the kernel's own filter by process works. If not, the programs filter.
    pub(super) fn filter(&self, pid: Pid) -> Option<u32> {
        (self.reach == Reach::Target).then_some(pid.0)
    }

    /// The program for one end of a call.
    pub(super) fn program(&self, on_return: bool) -> BorrowedFd<'_> {
        if on_return { self.object.leave.as_fd() } else { self.object.enter.as_fd() }
    }

    /// Takes a record for short looks at a function; `None` if there is none left.
    #[must_use]
    pub fn take_brief(&self) -> Option<u32> {
        let record = self.take()?;
        self.may_outlast(record);
        Some(record)
    }

    /// A call that begins while the probes of its function are taken away may be left without its end, and is no loss.
    pub(super) fn may_outlast(&self, record: u32) {
        self.store(record, offset_of!(MethodStats, brief), 1);
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
    pub fn give_back(&self, records: impl Iterator<Item = u32>) {
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
    pub(super) fn counted(&self, record: u32) -> u64 {
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

/// Asks the kernel what it can do and whom probes reach.
fn asked_reach() -> Result<Reach, Error> {
    if let Err(source) = probe_uprobe_multi() {
        return Err(match source.raw_os_error() {
            // The kernel knows the program type but not this kind of link.
            Some(libc::EINVAL) => Error::NoUprobeMulti,
            _ => Error::Load { name: "nprof_probe", source },
        });
    }
    reach().map_err(Error::Reach)
}

fn map_records(object: &Object, methods: u32, shards: u32) -> Result<MappedArray, Error> {
    map_array(object, maps::STATS, methods as usize * shards as usize, size_of::<MethodStats>())
}

fn map_losses(object: &Object) -> Result<MappedArray, Error> {
    map_array(object, maps::LOSSES, Loss::ALL.len(), size_of::<u64>())
}

/// The reader of single losses, if they are wanted.
fn take_loss_log(object: &mut Object) -> Result<Option<LossLog>, Error> {
    if !loss_log::is_wanted() {
        return Ok(None);
    }
    Ok(Some(LossLog::new(object.take_ring(loss_log::MAP)?, map_losses(object)?)))
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
