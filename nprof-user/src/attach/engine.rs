//! The maps and programs in the kernel, which any number of sessions share.

mod records;
mod watch;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nprof_common::{Consumed, Cookie, Loss, MethodStats, Pace, SlowPace, SlowStats, maps, shared};

use self::records::Free;
use super::by_record::{ByteTable, ThreadTable};
use super::feeds::{Collect, Feeds};
use super::jni::{JniTable, Maps};
use super::loss_log::{self, LossLog};
use super::object::{Object, Sizes};
use super::open_frames::OpenFrames;
use super::row_maps::RowMaps;
use super::sharing::{Sharing, Tables};
use super::slow::SlowTable;
use super::vm_table::VmTable;
use super::{Error, in_full, probe_uprobe_multi, reach};
use crate::model::{Pid, Reach};
use crate::sys::mapped_array::MappedArray;

/// Memory that the records of all methods may take, in bytes, before CPUs have to share shards.
const STATS_BUDGET: usize = 48 << 20;

/// Records for functions of nprof's own, which show what probes cost.
const CALIBRATED: u32 = 2;

/// The loaded maps and programs. Nothing is attached by it but the hook on the end of threads.
#[derive(Debug)]
pub struct Engine {
    object: Object,
    records: Arc<MappedArray>,
    consumed: Option<Arc<MappedArray>>,
    slow: Option<SlowTable>,
    threads: Option<Arc<ThreadTable>>,
    bytes: Option<Arc<ByteTable>>,
    jni: Option<Arc<JniTable>>,
    vms: Arc<VmTable>,
    open: Arc<OpenFrames>,
    /// Whether the calls of functions that call Java are told apart by Java method.
    tells_callees: bool,
    capacity: u32,
    shards: u32,
    reach: Reach,
    off_cpu: bool,
    samples: bool,
    free: Mutex<Free>,
    losses: Mutex<Option<LossLog>>,
    /// Links that serve several targets, where there may be any.
    sharing: Option<Arc<Sharing>>,
    row_maps: Option<Arc<RowMaps>>,
}

/// The end of a call that a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its entry.
    Entry,
    /// Its return, where there is a probe on the entry.
    Return,
    /// Its return, where there is none.
    OnlyReturn,
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
        // Rows that were wanted for nothing else are not needed then.
        let without =
            Collect { off_cpu: false, rows: if collect.counters == 0 { 0 } else { collect.rows }, ..*collect };
        Self::load_collecting(capacity, collect).or_else(|error| {
            let loaded = Self::load_collecting(capacity, &without)?;
            tracing::warn!("not measured how long threads wait: {}", in_full(&error));
            Ok(loaded)
        })
    }

    fn with_feeds(mut self) -> Result<(Arc<Self>, Feeds), Error> {
        let pace = map_array(&self.object, maps::PACE, 1, size_of::<Pace>())?;
        let slow_pace = map_array(&self.object, maps::SLOW_PACE, 1, size_of::<SlowPace>())?;
        let object = &mut self.object;
        let (stacks, calls) = (object.take_ring(maps::STACKS)?, object.take_ring(maps::CALLS)?);
        let anchors = object.take_anchors()?;
        let (vms, open) = (Arc::clone(&self.vms), Arc::clone(&self.open));
        let feeds = Feeds { stacks, calls, anchors, open, vms, pace, slow_pace };
        Ok((Arc::new(self), feeds))
    }

    /// The rows of threads, by JVM; `None` if there are to be none, or nothing can give them to threads.
    #[must_use]
    pub fn row_maps(&self) -> Option<&Arc<RowMaps>> {
        self.row_maps.as_ref()
    }

    /// Whether there are no rows that were wanted, because the probe that gives them to threads would reach other processes.
    #[must_use]
    pub fn lacks_rows(&self) -> bool {
        self.object.rowless.is_some() && self.row_maps.is_none()
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
        let free = Mutex::new(Free::all());
        let records = Arc::new(records);
        let consumed = (collect.counters != 0).then(|| map_consumed(&object, capacity, shards).map(Arc::new));
        let (consumed, off_cpu) = (consumed.transpose()?, collect.measures_off_cpu());
        let rows = collect.has_slow_rows().then(|| map_slow(&object, capacity, shards)).transpose()?;
        let slow = rows.map(|rows| SlowTable::new(rows, shards));
        let (threads, bytes) = object.take_by_record(collect)?;
        let (threads, bytes) = (threads.map(Arc::new), bytes.map(Arc::new));
        let vms = Arc::new(VmTable::new(object.take_vms()?));
        let (slots, off_cpu_in_slots) = (object.take_slots()?, object.off_cpu_in_slots);
        let open = Arc::new(OpenFrames { slots, off_cpu: object.take_off_cpu(), off_cpu_in_slots });
        let jni = collect.jni.then(|| take_jni(&mut object)).transpose()?.map(Arc::new);
        let sharing = collect.shares.then(|| take_tables(&mut object)).transpose()?;
        let sharing = sharing.map(|tables| Arc::new(Sharing::new(tables, !filtered)));
        let row_maps = (filtered && collect.rows != 0).then(|| row_maps(&object, collect)).transpose()?;
        Ok(Self {
            object,
            records,
            consumed,
            slow,
            threads,
            bytes,
            jni,
            vms,
            open,
            tells_callees: collect.callees,
            capacity,
            shards,
            reach,
            off_cpu,
            samples: collect.returns,
            free,
            losses,
            sharing,
            row_maps,
        })
    }

    /// The calls that threads are in.
    #[must_use]
    pub fn open_frames(&self) -> &Arc<OpenFrames> {
        &self.open
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

    /// What calls have consumed, mapped in the same way: value `index * shards + shard` is a [`Consumed`]. `None` where
    /// nothing of that is collected.
    #[must_use]
    pub fn consumed(&self) -> Option<Arc<MappedArray>> {
        self.consumed.clone()
    }

    /// From when on calls are slow, and how many were; `None` where these are not looked for.
    #[must_use]
    pub fn slow(&self) -> Option<&SlowTable> {
        self.slow.as_ref()
    }

    /// The calls by thread; `None` where these are not told apart.
    #[must_use]
    pub fn threads(&self) -> Option<Arc<ThreadTable>> {
        self.threads.clone()
    }

    /// The calls by bytes; `None` where these are not collected.
    #[must_use]
    pub fn bytes(&self) -> Option<Arc<ByteTable>> {
        self.bytes.clone()
    }

    /// What the programs are told of VMs.
    #[must_use]
    pub fn vms(&self) -> &Arc<VmTable> {
        &self.vms
    }

    /// The calls of JNI functions by native method; `None` where these are not traced.
    #[must_use]
    pub fn jni(&self) -> Option<&Arc<JniTable>> {
        self.jni.as_ref()
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

    /// Whether stacks can be taken of calls that stubs choose.
    #[must_use]
    pub fn takes_chosen(&self) -> bool {
        self.object.chosen.is_some() && self.reach == Reach::Target
    }

    /// Whether stacks are taken of calls that chance picks.
    #[must_use]
    pub fn samples(&self) -> bool {
        self.samples
    }

    /// For how many functions there are records.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
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

    /// Links that serve several targets, where there may be any.
    pub(super) fn sharing(&self) -> Option<&Arc<Sharing>> {
        self.sharing.as_ref()
    }

    /// How many links, or pairs of one on entries and one on returns, serve several targets, and how many of them have to go.
    #[must_use]
    pub fn shared_links(&self) -> (usize, usize) {
        self.sharing.as_ref().map_or((0, 0), |sharing| sharing.groups())
    }

    /// The program for one end of a call; for its return alone the one that counts there, if it was to be loaded.
    pub(super) fn program(&self, end: End) -> Option<BorrowedFd<'_>> {
        match end {
            End::Entry => Some(self.object.enter.as_fd()),
            End::Return => Some(self.object.leave.as_fd()),
            End::OnlyReturn => self.object.result.as_ref().map(OwnedFd::as_fd),
        }
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
    map_first(object, maps::STATS, methods as usize * shards as usize, size_of::<MethodStats>())
}

fn map_consumed(object: &Object, methods: u32, shards: u32) -> Result<MappedArray, Error> {
    map_first(object, maps::CONSUMED, methods as usize * shards as usize, size_of::<Consumed>())
}

fn map_slow(object: &Object, methods: u32, shards: u32) -> Result<MappedArray, Error> {
    map_array(object, maps::SLOW, methods as usize * shards as usize, size_of::<SlowStats>())
}

fn map_losses(object: &Object) -> Result<MappedArray, Error> {
    map_array(object, maps::LOSSES, Loss::ALL.len(), size_of::<u64>())
}

/// The arrays by which hits of shared links find their records.
fn take_tables(object: &mut Object) -> Result<Tables, Error> {
    let strangers = map_array(object, maps::STRANGERS, shared::strangers::WORDS as usize, size_of::<u64>())?;
    Ok(Tables::new(object.take_array(maps::MEMBERS)?, object.take_array(maps::PLACES)?, strangers))
}

/// The maps of what is kept of JNI functions.
fn take_jni(object: &mut Object) -> Result<JniTable, Error> {
    Ok(JniTable::new(Maps {
        calls: object.take_jni(maps::JNI)?,
        called: object.take_jni(maps::CALLED)?,
        look_ups: object.take_jni(maps::LOOK_UPS)?,
        held: object.take_jni(maps::HELD)?,
        thrown: object.take_jni(maps::THROWN)?,
    }))
}

/// The maps of what threads use.
fn row_maps(object: &Object, collect: &Collect) -> Result<Arc<RowMaps>, Error> {
    let maps = [object.map(maps::ROWS)?, object.map(maps::OWNERS)?];
    Ok(Arc::new(RowMaps::new(Arc::clone(&object.ebpf), maps, collect.rows, collect.counters)))
}

/// The reader of single losses, if they are wanted.
fn take_loss_log(object: &mut Object) -> Result<Option<LossLog>, Error> {
    if !loss_log::is_wanted() {
        return Ok(None);
    }
    Ok(Some(LossLog::new(object.take_ring(loss_log::MAP)?, map_losses(object)?)))
}

fn map_array(object: &Object, name: &'static str, values: usize, value_size: usize) -> Result<MappedArray, Error> {
    MappedArray::map(object.map(name)?.as_fd(), values, value_size).map_err(|source| Error::Map { name, source })
}

/// The same of which the rest is mapped as it is given out.
fn map_first(object: &Object, name: &'static str, values: usize, value_size: usize) -> Result<MappedArray, Error> {
    MappedArray::map_first(object.map(name)?.as_fd(), values, value_size).map_err(|source| Error::Map { name, source })
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
