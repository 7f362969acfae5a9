//! Whether there are to be stubs in a target at all, and the connection to the shim that makes them.

use std::time::Duration;

use crate::discover::{self, Proc};
use crate::model::{Jvm, Pid};
use crate::shim::{self, Connection, Wanted};
use crate::trace::TierWanted;

/// How long to wait for each answer of the JVM: one that collects garbage may take a while.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the shim in a JVM; `None` where probes are to do. Nobody but the user has a shim loaded: without being
/// told to, one that is there already is used, unless another nprof uses it. `has_stubs` says whether an earlier nprof has left stubs there.
///
/// # Errors
/// If the user wants stubs and the shim cannot be loaded.
pub(in crate::trace) fn connect(
    proc: &Proc,
    jvm: &Jvm,
    tier: TierWanted,
    has_stubs: bool,
) -> Result<Option<Connection>, shim::Error> {
    match tier {
        TierWanted::Kernel => Ok(None),
        TierWanted::Stub => load(proc, jvm, has_stubs).map(Some),
        TierWanted::Auto if shim::find(proc, jvm)?.is_none() => Ok(None),
        TierWanted::Auto if shim::is_in_use(jvm.pid) => {
            tracing::info!("another nprof has stubs in process {}: this one uses probes", jvm.pid);
            Ok(None)
        }
        TierWanted::Auto | TierWanted::StubOrProbe => {
            Ok(load(proc, jvm, has_stubs).inspect_err(|error| fall_back(jvm.pid, error)).ok())
        }
    }
}

/// Says that probes have to do although there is a shim.
pub(in crate::trace) fn fall_back(pid: Pid, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!("{error}: process {pid} is traced by the kernel alone");
}

/// Whether there can be stubs in a JVM. Nothing is done to it.
///
/// # Errors
/// What [`TierWanted::Stub`] would be refused with.
pub fn check_stubs(proc: &Proc, jvm: &Jvm) -> Result<(), shim::Refusal> {
    let libraries = proc.libraries(jvm.pid)?;
    let unsupported = || shim::Refusal::Kind { pid: jvm.pid, kind: jvm.kind };
    let libjvm = discover::libjvm(&libraries).ok_or_else(unsupported)?;
    shim::check(&Wanted { proc, jvm, libjvm, patience: PATIENCE, has_stubs: false }).map(drop)
}

fn load(proc: &Proc, jvm: &Jvm, has_stubs: bool) -> Result<Connection, shim::Error> {
    let libraries = proc.libraries(jvm.pid)?;
    let unsupported = || shim::Refusal::Kind { pid: jvm.pid, kind: jvm.kind };
    let libjvm = discover::libjvm(&libraries).ok_or_else(unsupported)?;
    let wanted = Wanted { proc, jvm, libjvm, patience: PATIENCE, has_stubs };
    for warning in shim::check_when_started(&wanted)? {
        tracing::warn!("{warning}; {}", warning.advice());
    }
    shim::load(&wanted)
}
