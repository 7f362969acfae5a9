//! Where the counters of threads come from: a field that the kernel keeps for each thread, or a program of ours.

use aya::Ebpf;
use aya::programs::RawTracePoint;
use nprof_common::{Counter, THREAD_COUNTERS, programs};

use super::error::{Error, refusal};
use crate::sys::kernel_types::KernelTypes;

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The kernel, in this field of its `task_struct`.
    Task(&'static [&'static str]),
    /// This program of ours, at this tracepoint.
    Program(&'static str, &'static str),
    /// The programs at the calls themselves.
    Calls,
    /// A program at the functions of a target's allocators, which whoever knows the target attaches.
    Allocators,
}

/// The one table of sources.
fn source(counter: Counter) -> Source {
    match counter {
        Counter::MinorFaults => Source::Task(&["min_flt"]),
        Counter::MajorFaults => Source::Task(&["maj_flt"]),
        Counter::VoluntarySwitches => Source::Task(&["nvcsw"]),
        Counter::InvoluntarySwitches => Source::Task(&["nivcsw"]),
        Counter::ReadBytes => Source::Task(&["ioac", "rchar"]),
        Counter::WrittenBytes => Source::Task(&["ioac", "wchar"]),
        Counter::DiskReadBytes => Source::Task(&["ioac", "read_bytes"]),
        Counter::DiskWrittenBytes => Source::Task(&["ioac", "write_bytes"]),
        Counter::ReceivedBytes => Source::Program(programs::RECEIVED, "sock_recv_length"),
        Counter::SentBytes => Source::Program(programs::SENT, "sock_send_length"),
        Counter::Syscalls | Counter::LockWaits | Counter::MappedBytes => {
            Source::Program(programs::SYSCALL, "sys_enter")
        }
        Counter::AllocBytes | Counter::Allocations => Source::Allocators,
        Counter::ZeroResults | Counter::NegativeResults | Counter::Exceptions => Source::Calls,
    }
}

/// The wanted ones of all counters.
fn wanted(bits: u32) -> impl Iterator<Item = Counter> {
    Counter::ALL.into_iter().filter(move |counter| bits & counter.bit() != 0)
}

/// Where the kernel keeps what the programs read of a thread, in bytes from the beginning of its `task_struct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TaskFields {
    /// Its number, by which a thread's slot is found at a switch; 0 if that is not wanted, or not known: then programs look into
    /// task storage.
    pub pid: u32,
    /// The number of its process; 0 as for `pid`.
    pub tgid: u32,
    /// When it last began to run; 0 as for `pid`, and where the kernel does not keep it.
    pub arrival: u32,
    /// Those of the wanted counters that the kernel counts itself; 0 for all others.
    pub counters: [u32; THREAD_COUNTERS],
}

impl TaskFields {
    /// Finds them. The kernel's types are read once, and only where something is looked for.
    ///
    /// # Errors
    /// If the kernel does not keep one of the counters, or does not say where.
    pub(super) fn find(bits: u32, wants_pid: bool) -> Result<Self, Error> {
        let of_kernel = |counter| match source(counter) {
            Source::Task(field) => Some((counter, field)),
            Source::Program(..) | Source::Calls | Source::Allocators => None,
        };
        let fields: Vec<_> = wanted(bits).filter_map(of_kernel).collect();
        let mut found = Self::default();
        if fields.is_empty() && !wants_pid {
            return Ok(found);
        }
        let types = match KernelTypes::read() {
            Ok(types) => types,
            // Nobody has asked for the number.
            Err(_) if fields.is_empty() => return Ok(found),
            Err(error) => return Err(Error::KernelTypes(error)),
        };
        let offset = |field: &[&str]| types.offset_of("task_struct", field);
        if wants_pid {
            found.pid = offset(&["pid"]).unwrap_or(0);
            found.tgid = offset(&["tgid"]).unwrap_or(0);
            found.arrival = offset(&["sched_info", "last_arrival"]).unwrap_or(0);
        }
        for (counter, field) in fields {
            found.counters[counter as usize] =
                offset(field).ok_or_else(|| Error::NotCounted { field: field.join(".") })?;
        }
        Ok(found)
    }
}

/// Has the programs run that count what the kernel does not.
///
/// # Errors
/// If the kernel refuses one, or has no such tracepoint.
pub(super) fn hook(ebpf: &mut Ebpf, bits: u32) -> Result<(), Error> {
    let mut hooked: Vec<&str> = Vec::new();
    for counter in wanted(bits) {
        let Source::Program(name, tracepoint) = source(counter) else { continue };
        if !hooked.contains(&name) {
            hook_one(ebpf, name, tracepoint)?;
            hooked.push(name);
        }
    }
    Ok(())
}

/// Has a program run at a tracepoint as long as there is the object.
///
/// # Errors
/// If the kernel refuses it, or has no such tracepoint.
pub(super) fn hook_one(ebpf: &mut Ebpf, name: &'static str, tracepoint: &'static str) -> Result<(), Error> {
    let program = ebpf.program_mut(name).ok_or(Error::Object { kind: "program", name })?;
    let failed = |source| refusal(name, source, |source| Error::Counter { place: tracepoint, source });
    let program: &mut RawTracePoint = program.try_into().map_err(failed)?;
    program.load().map_err(failed)?;
    program.attach(tracepoint).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what the kernel counts itself is found in this one, and that nothing is looked for that is not wanted.
    #[test]
    fn offsets_of_this_kernel() {
        assert_eq!(TaskFields::find(Counter::Syscalls.bit(), false).unwrap(), TaskFields::default());
        let faults = Counter::MinorFaults.bit() | Counter::MajorFaults.bit();
        let Ok(TaskFields { pid, tgid, arrival, counters }) = TaskFields::find(faults, true) else {
            return println!("not run: this kernel has no BTF");
        };
        assert!(pid > 0 && tgid == pid + 4 && arrival > 0, "{pid} {tgid} {arrival}");
        assert!(counters[1] == counters[0] + 8, "{counters:?}");
        assert_eq!(counters[2..], [0; THREAD_COUNTERS - 2]);
    }
}
