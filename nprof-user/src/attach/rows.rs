//! What threads use that make calls with stubs: the programs that keep it up to date in rows that targets map.

use std::any::Any;

use aya::Ebpf;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{PerfEvent, ProgramError, RawTracePoint};
use nprof_common::{Counter, programs};

use super::counters::hook_one as hook_one_for_good;
use super::error::{Error, refusal};

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At this tracepoint.
    Tracepoint(&'static str),
    /// Behind each page fault, when the kernel has counted it.
    Faults,
}

impl Place {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tracepoint(at) => at,
            Self::Faults => "page faults",
        }
    }
}

/// Where a program runs, and for which counters it is needed.
#[derive(Debug, Clone, Copy)]
struct Hook {
    program: &'static str,
    place: Place,
    counters: &'static [Counter],
}

/// What changes when threads are switched: the program there ([`programs::SWITCH`]) keeps that up to date, and the times off the CPU.
pub(super) const BY_SWITCH: u32 = Counter::VoluntarySwitches.bit() | Counter::InvoluntarySwitches.bit();

/// The one table of what else keeps rows up to date. The end of threads is always looked at, to give their rows to others.
const HOOKS: [Hook; 5] = [
    Hook {
        program: programs::ROW_FAULT,
        place: Place::Faults,
        counters: &[Counter::MinorFaults, Counter::MajorFaults, Counter::DiskReadBytes, Counter::DiskWrittenBytes],
    },
    Hook {
        program: programs::ROW_BACK,
        place: Place::Tracepoint("sys_exit"),
        counters: &[
            Counter::MinorFaults,
            Counter::MajorFaults,
            Counter::ReadBytes,
            Counter::WrittenBytes,
            Counter::DiskReadBytes,
            Counter::DiskWrittenBytes,
        ],
    },
    Hook {
        program: programs::ROW_CALL,
        place: Place::Tracepoint("sys_enter"),
        counters: &[Counter::Syscalls, Counter::LockWaits, Counter::MappedBytes],
    },
    Hook {
        program: programs::ROW_RECEIVED,
        place: Place::Tracepoint("sock_recv_length"),
        counters: &[Counter::ReceivedBytes],
    },
    Hook { program: programs::ROW_SENT, place: Place::Tracepoint("sock_send_length"), counters: &[Counter::SentBytes] },
];

impl Hook {
    /// Whether it is needed for any of the counters with these bits.
    fn is_for(&self, counters: u32) -> bool {
        self.counters.iter().any(|counter| counters & counter.bit() != 0)
    }
}

/// A program that runs where it is attached, until this is dropped.
pub(super) type Hooked = Box<dyn Any + Send + Sync>;

/// Loads the programs that keep rows up to date. None runs yet but the one that takes the rows of threads that end: it has to as long as
/// one has a row, which may outlast its JVM's tracing.
///
/// # Errors
/// If the kernel refuses one.
pub(super) fn load(ebpf: &mut Ebpf, counters: u32) -> Result<(), Error> {
    hook_one_for_good(ebpf, programs::ROW_END, "sched_process_exit")?;
    HOOKS.iter().filter(|hook| hook.is_for(counters)).try_for_each(|hook| load_one(ebpf, hook.program, hook.place))
}

/// Has the programs run that keep rows up to date.
///
/// # Errors
/// If the kernel refuses one, or has no such place.
pub(super) fn hook(ebpf: &mut Ebpf, counters: u32) -> Result<Vec<Hooked>, Error> {
    let mut hooked = Vec::new();
    for hook in HOOKS.iter().filter(|hook| hook.is_for(counters)) {
        hooked.append(&mut hook_one(ebpf, hook.program, hook.place)?);
    }
    Ok(hooked)
}

fn load_one(ebpf: &mut Ebpf, name: &'static str, place: Place) -> Result<(), Error> {
    let program = ebpf.program_mut(name).ok_or(Error::Object { kind: "program", name })?;
    let failed = |source| refusal(name, source, |source| Error::Counter { place: place.as_str(), source });
    let loaded = match place {
        Place::Tracepoint(_) => <&mut RawTracePoint>::try_from(program).map_err(failed)?.load(),
        Place::Faults => <&mut PerfEvent>::try_from(program).map_err(failed)?.load(),
    };
    loaded.map_err(failed)
}

fn hook_one(ebpf: &mut Ebpf, name: &'static str, place: Place) -> Result<Vec<Hooked>, Error> {
    let program = ebpf.program_mut(name).ok_or(Error::Object { kind: "program", name })?;
    let failed = |source| refusal(name, source, |source| Error::Counter { place: place.as_str(), source });
    let hooked = match place {
        Place::Tracepoint(at) => program.try_into().and_then(|program: &mut RawTracePoint| {
            let link = program.attach(at)?;
            Ok(vec![Box::new(program.take_link(link)?) as Hooked])
        }),
        Place::Faults => program.try_into().and_then(hook_faults),
    };
    hooked.map_err(failed)
}

/// At each single one of both kinds, on each CPU.
fn hook_faults(program: &mut PerfEvent) -> Result<Vec<Hooked>, ProgramError> {
    let mut hooked = Vec::new();
    for cpu in aya::util::online_cpus().map_err(|(_, source)| ProgramError::IOError(source))? {
        for kind in [SoftwareEvent::PageFaultsMin, SoftwareEvent::PageFaultsMaj] {
            let scope = PerfEventScope::AllProcessesOneCpu { cpu };
            let link = program.attach(PerfEventConfig::Software(kind), scope, SamplePolicy::Period(1), false)?;
            hooked.push(Box::new(program.take_link(link)?) as Hooked);
        }
    }
    Ok(hooked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every counter of threads is kept up to date by some program, and those of allocators by none of these.
    #[test]
    fn every_counter_has_a_program() {
        for counter in Counter::ALL.into_iter().take(nprof_common::THREAD_COUNTERS) {
            let is_hooked = Counter::OF_ALLOCATORS & counter.bit() == 0;
            let by_switch = BY_SWITCH & counter.bit() != 0;
            let is_kept = by_switch || HOOKS.iter().any(|hook| hook.counters.contains(&counter));
            assert!(is_hooked == is_kept, "{counter:?}");
        }
    }
}
