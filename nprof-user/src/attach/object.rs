//! The BPF object: maps made by aya, the two uprobe programs loaded as `uprobe_multi`, which aya 0.14 does not know.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use aya::maps::{Array, HashMap, Map, MapData, RingBuf};
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{BtfTracePoint, PerfEvent, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use nprof_common::stack::collect;
use nprof_common::{globals, maps, programs};

use super::Error;
use super::feeds::{Collect, LastJavaFrameEntry, Slot, VmEntry};
use super::loss_log;
use crate::sys::bpf::{load_uprobe_multi, refused};

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
    /// Holds the maps, and the program on the end of threads with its attachment.
    ebpf: Ebpf,
    /// Runs on entry.
    pub enter: OwnedFd,
    /// Runs on return.
    pub leave: OwnedFd,
    /// Runs on calls that stubs choose, where these are wanted.
    pub chosen: Option<OwnedFd>,
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
        let mut loader = EbpfLoader::new();
        if !loss_log::is_wanted() {
            loader.map_max_entries(loss_log::MAP, loss_log::UNUSED_BYTES);
        }
        let mut ebpf = loader
            .map_max_entries(maps::STATS, sizes.methods * sizes.shards)
            .map_max_entries(maps::STACKS, collect.stack_ring_bytes())
            .map_max_entries(maps::CALLS, collect.call_ring_bytes())
            .map_max_entries(maps::ANCHORS, collect.max_threads())
            .override_global(globals::SHARD_MASK, &shard_mask, true)
            .override_global(globals::FILTERED, &filtered, true)
            .override_global(globals::COLLECT, &bits, true)
            .override_global(globals::ANCHOR_FROM_ENV, &collect.anchor_from_env, true)
            .override_global(globals::STACK_PAGES, &pages, true)
            .override_global(globals::TARGET, &target, true)
            .override_global(loss_log::LEVEL, &level, true)
            // aya has no type for task storage; the programs alone use it.
            .allow_unsupported_maps()
            .load(OBJECT)
            .map_err(|error| Error::Maps(Box::new(error)))?;
        let (enter, leave, chosen) = load_uprobes(&ebpf, collect.stubs)?;
        hook_thread_end(&mut ebpf)?;
        if bits & (collect::OFF_CPU | collect::INSIDE) != 0 {
            hook_switches(&mut ebpf)?;
        }
        if let Some(period_ns) = collect.period_ns() {
            hook_timer(&mut ebpf, period_ns)?;
        }
        Ok(Self { ebpf, enter, leave, chosen })
    }

    /// The descriptor of one of our maps.
    ///
    /// # Errors
    /// If the object has no such map.
    pub(super) fn map(&self, name: &'static str) -> Result<BorrowedFd<'_>, Error> {
        let map = self.ebpf.map(name).and_then(data).ok_or(Error::Object { kind: "map", name })?;
        Ok(map.fd().as_fd())
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
        Array::try_from(self.take(maps::SLOTS)?).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))
    }

    /// The map of where things lie in the VM.
    ///
    /// # Errors
    /// As [`Self::take_ring`].
    pub(super) fn take_vm(&mut self) -> Result<Array<MapData, VmEntry>, Error> {
        Array::try_from(self.take(maps::VM)?).map_err(|error| Error::Maps(Box::new(EbpfError::MapError(error))))
    }

    /// How long threads have not been running; `None` if this kernel's map of that cannot be read.
    pub(super) fn take_off_cpu(&mut self) -> Option<MapData> {
        match self.ebpf.take_map(maps::OFF_CPU) {
            // Task storage, which aya has no type for.
            Some(Map::Unsupported(map)) => Some(map),
            _ => None,
        }
    }

    fn take(&mut self, name: &'static str) -> Result<Map, Error> {
        self.ebpf.take_map(name).ok_or(Error::Object { kind: "map", name })
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
        .map_max_entries(maps::EXECS, ring_bytes)
        .map_max_entries(loss_log::MAP, loss_log::UNUSED_BYTES)
        .override_global(loss_log::LEVEL, &0u8, true)
        .allow_unsupported_maps()
        .load(OBJECT)
        .map_err(|error| Error::Maps(Box::new(error)))
}

fn load_uprobes(ebpf: &Ebpf, with_chosen: bool) -> Result<(OwnedFd, OwnedFd, Option<OwnedFd>), Error> {
    let mut object = aya_obj::Object::parse(OBJECT)?;
    let definitions = object.maps.clone();
    let made = ebpf.maps().filter_map(|(name, map)| Some((name, data(map)?.fd().as_fd().as_raw_fd())));
    let text: HashSet<usize> = object.functions.keys().map(|&(section, _)| section).collect();
    object.relocate_maps(
        made.filter_map(|(name, fd)| definitions.get(name).map(|definition| (name, fd, definition))),
        &text,
    )?;
    object.relocate_calls(&text)?;
    let chosen = with_chosen.then(|| load_uprobe(&object, programs::CHOSEN)).transpose()?;
    Ok((load_uprobe(&object, programs::ENTER)?, load_uprobe(&object, programs::RETURN)?, chosen))
}

fn load_uprobe(object: &aya_obj::Object, name: &'static str) -> Result<OwnedFd, Error> {
    let program = object.programs.get(name).ok_or(Error::Object { kind: "program", name })?;
    let function = object.functions.get(&program.function_key()).ok_or(Error::Object { kind: "function", name })?;
    let license = CString::from(program.license.as_c_str());
    load_uprobe_multi(name, &function.instructions, &license).map_err(|source| Error::Load { name, source })
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

/// The error of a program of aya's: that of our own programs if the verifier refuses it.
pub(super) fn refusal(
    name: &'static str,
    error: ProgramError,
    other: impl FnOnce(Box<ProgramError>) -> Error,
) -> Error {
    match error {
        ProgramError::LoadError { io_error, verifier_log } if !verifier_log.to_string().trim().is_empty() => {
            Error::Load { name, source: refused(io_error, &verifier_log.to_string()) }
        }
        error => other(Box::new(error)),
    }
}

/// What stands behind a map, whatever aya thinks of its type.
fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::RingBuf(data) | Map::Unsupported(data) => Some(data),
        _ => None,
    }
}
