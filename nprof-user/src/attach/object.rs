//! The BPF object: maps made by aya, the two uprobe programs loaded as `uprobe_multi`, which aya 0.14 does not know.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{BtfTracePoint, PerfEvent, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader, Pod};
use nprof_common::rows::{JVMS, OWNER_PLACES};
use nprof_common::{SLOTS, globals, maps, programs, shared};

use super::by_record::{ByRecord, ByteTable, ThreadTable};
use super::counters::{self, TaskFields};
use super::error::{Error, refusal};
use super::feeds::{Collect, LastJavaFrameEntry};
use super::jni;
use super::loss_log;
use super::open_frames::Slot;
use super::relocate::{data, relocate};
use super::rows;
use super::vm_table::VmEntry;
use crate::sys::bpf::{self, load_uprobe_multi};

/// The object file that `cargo xtask bpf` has made.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../nprof-ebpf/nprof.bpf.o");

/// How large the maps are made, and what the programs may rely on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Dense indices.
    pub methods: u32,
    /// Shards of each record; a power of two.
    pub shards: u32,
    /// Whether the kernel's own filter by process works.
    pub filtered: bool,
}

/// The loaded object.
#[derive(Debug)]
pub(super) struct Object {
    /// Holds the maps, and the program on the end of threads with its attachment. Others are attached later.
    pub ebpf: Arc<Mutex<Ebpf>>,
    /// Runs on entry.
    pub enter: OwnedFd,
    /// Runs on return.
    pub leave: OwnedFd,
    /// Whether slots say how long their threads have not been running.
    pub off_cpu_in_slots: bool,
    /// Runs on calls that stubs choose, where these are wanted.
    pub chosen: Option<OwnedFd>,
    /// Runs on the return of calls of which nothing else is seen, where these are counted.
    pub result: Option<OwnedFd>,
    /// Runs on threads that have found no row, where these are wanted.
    pub rowless: Option<OwnedFd>,
    /// Runs on the functions of allocators, where it is wanted what these are asked for.
    pub alloc: Option<OwnedFd>,
    /// Run on entry and on return of what the VM does about critical sections, where that is wanted.
    pub lock: Option<[OwnedFd; 2]>,
}

impl Object {
    /// Makes the maps, loads the programs and hooks the end of threads, and what else `collect` needs.
    ///
    /// # Errors
    /// See [`Error`]; most likely missing permissions.
    pub(super) fn load(sizes: Sizes, collect: &Collect) -> Result<Self, Error> {
        let (shard_mask, filtered) = (sizes.shards - 1, u32::from(sizes.filtered));
        let (bits, pages, target) = (collect.bits(), collect.pages(), collect.target.0);
        let level = loss_log::level();
        let has_rows = collect.rows != 0;
        let task = TaskFields::find(collect.counters, collect.measures_off_cpu() || has_rows)?;
        let (rows, owners) = if has_rows { (JVMS, OWNER_PLACES) } else { (1, 1) };
        let consumed = if collect.counters == 0 { 1 } else { sizes.methods * sizes.shards };
        let (members, places) = if collect.shares { (shared::SLOTS, shared::ROWS * shared::SITES) } else { (1, 1) };
        let mut loader = EbpfLoader::new();
        if !loss_log::is_wanted() {
            loader.map_max_entries(loss_log::MAP, loss_log::UNUSED_BYTES);
        }
        let mut ebpf = loader
            .map_max_entries(maps::STATS, sizes.methods * sizes.shards)
            .map_max_entries(maps::CONSUMED, consumed)
            .map_max_entries(maps::ROWS, rows)
            .map_max_entries(maps::OWNERS, owners)
            .map_max_entries(maps::ASKED, collect.askers())
            .map_max_entries(maps::STACKS, collect.stack_ring_bytes())
            .map_max_entries(maps::CALLS, collect.call_ring_bytes())
            .map_max_entries(maps::ANCHORS, collect.max_threads())
            .map_max_entries(maps::VM, collect.vms)
            .map_max_entries(maps::MEMBERS, members)
            .map_max_entries(maps::PLACES, places)
            .map_max_entries(maps::SLOW, if collect.has_slow_rows() { sizes.methods * sizes.shards } else { 1 })
            .map_max_entries(maps::WAITS, collect.for_slow(SLOTS))
            .map_max_entries(maps::ROW_WAITS, if has_rows { collect.for_slow(SLOTS) } else { 1 })
            .map_max_entries(maps::ARGS, if collect.tells_args() { SLOTS } else { 1 })
            .map_max_entries(maps::THREADS, collect.threads())
            .map_max_entries(maps::BYTES, collect.byte_counts())
            .map_max_entries(maps::JNI, collect.for_jni(jni::PAIRS))
            .map_max_entries(maps::CALLED, if collect.callees { jni::CALLED } else { 1 })
            .map_max_entries(maps::LOOK_UPS, collect.for_jni(jni::LOOK_UPS))
            .map_max_entries(maps::THROWN, collect.for_jni(jni::THROWN))
            .map_max_entries(maps::UNREAD, collect.for_jni(jni::THREADS))
            .map_max_entries(maps::HOLDS, collect.for_jni(jni::THREADS))
            .map_max_entries(maps::BLOCKS, if collect.collections { jni::THREADS } else { 1 })
            .map_max_entries(maps::HELD, if collect.held { jni::HELD } else { 1 })
            .map_max_entries(maps::LOCALS, if collect.held { jni::LOCALS } else { 1 })
            .map_max_entries(maps::MADE, if collect.held { jni::MADE } else { 1 })
            .override_global(globals::SHARD_MASK, &shard_mask, true)
            .override_global(globals::FILTERED, &filtered, true)
            .override_global(globals::COLLECT, &bits, true)
            .override_global(globals::ANCHOR_FROM_ENV, &collect.anchor_from_env, true)
            .override_global(globals::STACK_PAGES, &pages, true)
            .override_global(globals::TARGET, &target, true)
            .override_global(globals::TASK_PID, &task.pid, true)
            .override_global(globals::TASK_TGID, &task.tgid, true)
            .override_global(globals::TASK_ARRIVAL, &task.arrival, true)
            .override_global(globals::COUNTED, &collect.counters, true)
            .override_global(globals::TASK_OFFSETS, &task.counters, true)
            .override_global(globals::PENDING_FROM_ENV, &collect.pending.from_env, true)
            .override_global(globals::JNI_ENV, &collect.pending.env, true)
            .override_global(loss_log::LEVEL, &level, true)
            // aya has no type for task storage; the programs alone use it.
            .allow_unsupported_maps()
            .load(OBJECT)
            .map_err(|error| Error::Maps(Box::new(error)))?;
        let Uprobes { enter, leave, chosen, rowless, result, alloc, lock } = load_uprobes(&ebpf, collect)?;
        hook_thread_end(&mut ebpf)?;
        if collect.needs_switches() {
            hook_switches(&mut ebpf)?;
        }
        if !collect.only_rows {
            counters::hook(&mut ebpf, collect.counters)?;
        }
        if has_rows {
            rows::load(&mut ebpf, collect.counters)?;
        }
        if let Some(period_ns) = collect.period_ns() {
            hook_timer(&mut ebpf, period_ns)?;
        }
        let ebpf = Arc::new(Mutex::new(ebpf));
        Ok(Self { ebpf, enter, leave, chosen, rowless, result, alloc, lock, off_cpu_in_slots: task.pid != 0 })
    }

    /// The descriptor of one of our maps.
    ///
    /// # Errors
    /// If the object has no such map.
    pub(super) fn map(&self, name: &'static str) -> Result<OwnedFd, Error> {
        let ebpf = self.ebpf();
        let map = ebpf.map(name).and_then(data).ok_or(Error::Object { kind: "map", name })?;
        map.fd().as_fd().try_clone_to_owned().map_err(|source| Error::Map { name, source })
    }

    /// A ring buffer, to be read by the caller alone.
    ///
    /// # Errors
    /// If the object has no such ring, or no more.
    pub(super) fn take_ring(&mut self, name: &'static str) -> Result<RingBuf<MapData>, Error> {
        RingBuf::try_from(self.take(name)?).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))
    }

    /// The map of where threads note their last Java frame.
    ///
    /// # Errors
    /// As [`Self::take_ring`].
    pub(super) fn take_anchors(&mut self) -> Result<HashMap<MapData, u32, LastJavaFrameEntry>, Error> {
        HashMap::try_from(self.take(maps::ANCHORS)?).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))
    }

    /// The frames of most threads.
    ///
    /// # Errors
    /// As [`Self::take_ring`].
    pub(super) fn take_slots(&mut self) -> Result<Array<MapData, Slot>, Error> {
        self.take_array(maps::SLOTS)
    }

    /// An array, to be read and written by the caller alone.
    ///
    /// # Errors
    /// As [`Self::take_ring`].
    pub(super) fn take_array<T: Pod>(&mut self, name: &'static str) -> Result<Array<MapData, T>, Error> {
        Array::try_from(self.take(name)?).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))
    }

    /// The map of where things lie in VMs.
    ///
    /// # Errors
    /// As [`Self::take_ring`].
    pub(super) fn take_vms(&mut self) -> Result<HashMap<MapData, u32, VmEntry>, Error> {
        HashMap::try_from(self.take(maps::VM)?).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))
    }

    /// The calls by thread, and by bytes: as far as they are wanted.
    ///
    /// # Errors
    /// As [`Self::take_ring`].
    pub(super) fn take_by_record(
        &mut self,
        collect: &Collect,
    ) -> Result<(Option<ThreadTable>, Option<ByteTable>), Error> {
        let (threads, bytes) = (collect.threads(), collect.byte_counts());
        let threads = (threads > 1).then(|| self.take_of_record(maps::THREADS, threads)).transpose()?;
        let bytes = (bytes > 1).then(|| self.take_of_record(maps::BYTES, bytes)).transpose()?;
        Ok((threads, bytes))
    }

    fn take_of_record<const WORDS: usize>(&mut self, name: &'static str, room: u32) -> Result<ByRecord<WORDS>, Error> {
        let map = HashMap::try_from(self.take(name)?);
        Ok(ByRecord::new(map.map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))?, room))
    }

    /// A map of what is kept of JNI functions.
    ///
    /// # Errors
    /// As [`Self::take_ring`].
    pub(super) fn take_jni<K: Pod, V: Pod>(&mut self, name: &'static str) -> Result<HashMap<MapData, K, V>, Error> {
        HashMap::try_from(self.take(name)?).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))
    }

    /// How long threads have not been running; `None` if this kernel's map of that cannot be read.
    pub(super) fn take_off_cpu(&mut self) -> Option<MapData> {
        match self.ebpf().take_map(maps::OFF_CPU) {
            // Task storage, which aya has no type for.
            Some(Map::Unsupported(map)) => Some(map),
            _ => None,
        }
    }

    fn take(&mut self, name: &'static str) -> Result<Map, Error> {
        self.ebpf().take_map(name).ok_or(Error::Object { kind: "map", name })
    }

    fn ebpf(&self) -> MutexGuard<'_, Ebpf> {
        self.ebpf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the maps for programs that tell of events: room for `ring_bytes` of them, and the least of everything that
/// calls are recorded in. No program is loaded yet.
///
/// # Errors
/// See [`Error`]; most likely missing permissions.
pub(super) fn load_for_events(ring_bytes: u32) -> Result<Ebpf, Error> {
    EbpfLoader::new()
        .map_max_entries(maps::STATS, 1)
        .map_max_entries(maps::SLOTS, 1)
        .map_max_entries(maps::ROWS, 1)
        .map_max_entries(maps::OWNERS, 1)
        .map_max_entries(maps::ASKED, 1)
        .map_max_entries(maps::EXECS, ring_bytes)
        .map_max_entries(loss_log::MAP, loss_log::UNUSED_BYTES)
        .override_global(loss_log::LEVEL, &0u8, true)
        .allow_unsupported_maps()
        .load(OBJECT)
        .map_err(|error| Error::Maps(Box::new(error)))
}

/// The programs that run where user space passes.
struct Uprobes {
    enter: OwnedFd,
    leave: OwnedFd,
    chosen: Option<OwnedFd>,
    result: Option<OwnedFd>,
    rowless: Option<OwnedFd>,
    alloc: Option<OwnedFd>,
    lock: Option<[OwnedFd; 2]>,
}

fn load_uprobes(ebpf: &Ebpf, collect: &Collect) -> Result<Uprobes, Error> {
    let mut object = aya_obj::Object::parse(OBJECT)?;
    relocate(&mut object, ebpf)?;
    let lock = || -> Result<_, Error> {
        Ok([load_uprobe(&object, programs::LOCK)?, load_uprobe(&object, programs::LOCK_RETURN)?])
    };
    let load_if = |is_wanted: bool, name| is_wanted.then(|| load_uprobe(&object, name)).transpose();
    Ok(Uprobes {
        enter: load_uprobe(&object, programs::ENTER)?,
        leave: load_uprobe(&object, programs::RETURN)?,
        chosen: load_if(collect.stubs, programs::CHOSEN)?,
        rowless: load_if(collect.rows != 0, programs::ROW)?,
        result: load_if(collect.at_exit, programs::RESULT)?,
        alloc: load_if(collect.counts_allocations(), programs::ALLOC)?,
        lock: collect.collections.then(lock).transpose()?,
    })
}

fn load_uprobe(object: &aya_obj::Object, name: &'static str) -> Result<OwnedFd, Error> {
    let program = object.programs.get(name).ok_or(Error::Object { kind: "program", name })?;
    let function = object.functions.get(&program.function_key()).ok_or(Error::Object { kind: "function", name })?;
    let license = program.license.as_c_str();
    let program = bpf::Program { name, instructions: &function.instructions, license, sleepable: false };
    load_uprobe_multi(program).map_err(|refused| Error::Load { name, source: refused.of_ours() })
}

fn hook_thread_end(ebpf: &mut Ebpf) -> Result<(), Error> {
    let name = programs::EXIT;
    let program = ebpf.program_mut(name).ok_or(Error::Object { kind: "program", name })?;
    let failed = |source| refusal(name, source, |source| Error::Exit { name, source });
    let program: &mut RawTracePoint = program.try_into().map_err(failed)?;
    program.load().map_err(failed)?;
    program.attach("sched_process_exit").map_err(failed)?;
    Ok(())
}

fn hook_switches(ebpf: &mut Ebpf) -> Result<(), Error> {
    let name = programs::SWITCH;
    let program = ebpf.program_mut(name).ok_or(Error::Object { kind: "program", name })?;
    let failed = |source| refusal(name, source, |source| Error::Switches { name, source });
    let program: &mut BtfTracePoint = program.try_into().map_err(failed)?;
    let btf = Btf::from_sys_fs().map_err(|error| failed(ProgramError::Btf(error)))?;
    program.load("sched_switch", &btf).map_err(failed)?;
    program.attach().map_err(failed)?;
    Ok(())
}

/// A timer for each CPU: the time goes on only while something runs there.
fn hook_timer(ebpf: &mut Ebpf, period_ns: u64) -> Result<(), Error> {
    let name = programs::TICK;
    let program = ebpf.program_mut(name).ok_or(Error::Object { kind: "program", name })?;
    let failed = |source| refusal(name, source, |source| Error::Timer { name, source });
    let program: &mut PerfEvent = program.try_into().map_err(failed)?;
    program.load().map_err(failed)?;
    let config = PerfEventConfig::Software(SoftwareEvent::CpuClock);
    let cpus = aya::util::online_cpus().map_err(|(_, source)| failed(ProgramError::IOError(source)))?;
    for cpu in cpus {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        program.attach(config, scope, SamplePolicy::Period(period_ns), false).map_err(failed)?;
    }
    Ok(())
}
