//! The VM of a JVM: opened, described, and asked how many native methods it has.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::error::{Error, Part};
use crate::discover::{Proc, libjvm};
use crate::hotspot::{self, Vm};
use crate::model::{Jvm, Method, NativeCode};
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::{Threads, Unwinder};

/// How long a JVM may take to fill its tables after its start, and how often it is asked.
const STARTING: Duration = Duration::from_secs(5);
const STARTING_STEP: Duration = Duration::from_millis(10);

/// Opens the tables of a JVM's VM. One that has only just been started is given the time to fill them.
pub(super) fn open(proc: &Proc, jvm: &Jvm) -> Result<Vm<ProcessMemory>, Error> {
    let unsupported = || Error::Unsupported { pid: jvm.pid, kind: jvm.kind };
    if !jvm.kind.is_supported() {
        return Err(unsupported());
    }
    let patience = Instant::now() + STARTING;
    loop {
        let libraries = proc.libraries(jvm.pid)?;
        let library = libjvm(&libraries).ok_or_else(unsupported)?;
        match Vm::open(ProcessMemory::new(jvm.pid), library) {
            Err(hotspot::Error::NotReady) if Instant::now() < patience && proc.is_same(jvm) => {
                sleep(STARTING_STEP);
            }
            opened => return opened.map_err(|error| Error::reading(Part::Natives, jvm, error)),
        }
    }
}

/// Waits until a JVM has filled its tables, and puts what it says of itself in the place of what was guessed.
///
/// # Errors
/// If it has none, or does not fill them in time.
pub fn wait_until_ready(proc: &Proc, jvm: &mut Jvm) -> Result<(), Error> {
    let mut vm = open(proc, jvm).map_err(|error| ended_or(error, proc, jvm))?;
    describe(jvm, &mut vm);
    Ok(())
}

/// Puts what the VM says of itself in the place of what was guessed from its files.
pub(super) fn describe(jvm: &mut Jvm, vm: &mut Vm<ProcessMemory>) {
    let Ok(version) = vm.version() else { return };
    if !version.vm_name.is_empty() {
        jvm.vm_name = version.vm_name;
    }
    if !version.release.is_empty() {
        jvm.vm_version = version.release;
    }
}

/// An error is the end of the target, if that has ended: what failed for want of it is no news.
pub(super) fn ended_or(error: Error, proc: &Proc, jvm: &Jvm) -> Error {
    if proc.is_same(jvm) { error } else { Error::Ended { pid: jvm.pid } }
}

/// Whether stacks can be read in a JVM, as `record`, `flamegraph` and `--slow` do.
///
/// # Errors
/// The one that they would end with.
pub fn check_stacks(proc: &Proc, jvm: &Jvm) -> Result<(), Error> {
    let libraries = proc.libraries(jvm.pid)?;
    let libjvm = libjvm(&libraries).ok_or(Error::Ended { pid: jvm.pid })?;
    let memory = ProcessMemory::new(jvm.pid);
    let opened = Unwinder::open(memory.clone(), libjvm).and_then(|_unwinder| Threads::open(memory, libjvm));
    opened.map(drop).map_err(|error| ended_or(Error::reading(Part::Stacks, jvm, error), proc, jvm))
}

/// Reads how many native methods a JVM has and how many of them are bound, and what the VM says of itself.
///
/// # Errors
/// As [`super::Prepared::new`].
pub fn survey(proc: &Proc, jvm: &mut Jvm) -> Result<(usize, usize), Error> {
    let inventory = open(proc, jvm).and_then(|mut vm| {
        describe(jvm, &mut vm);
        Ok(vm.inventory()?)
    });
    let inventory = inventory.map_err(|error| ended_or(error, proc, jvm))?;
    let bound = |method: &&Method| matches!(method.code, NativeCode::Bound(_));
    Ok((inventory.methods.len(), inventory.methods.iter().filter(bound).count()))
}
