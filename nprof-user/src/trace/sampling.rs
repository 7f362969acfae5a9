//! What recordings of calls and of the CPU have in common: the sampler, its timer, and what is known at the start.

use std::time::Duration;

use super::Error;
use crate::attach::{Collect, Feeds};
use crate::discover::{Proc, libjvm};
use crate::model::{About, Jvm, Library};
use crate::profile::{Functions, Setup};

/// The highest frequency: no multiple of what programs do at regular times.
const MAX_FREQUENCY: f64 = 997.0;

/// What a sampler of a JVM needs.
///
/// # Errors
/// If the JVM's mappings cannot be read.
pub(super) fn sampler_setup(
    proc: &Proc,
    jvm: &Jvm,
    feeds: Feeds,
    collect: &Collect,
    functions: Box<dyn Functions>,
) -> Result<Setup, Error> {
    let libjvm = libjvm_of(proc, jvm)?;
    Ok(Setup { pid: jvm.pid, libjvm, feeds, functions, collect: *collect, proc: proc.clone() })
}

pub(super) fn libjvm_of(proc: &Proc, jvm: &Jvm) -> Result<Library, Error> {
    let libraries = proc.libraries(jvm.pid)?;
    libjvm(&libraries).cloned().ok_or(Error::Ended { pid: jvm.pid })
}

/// What is known of a recording when it begins: the JVM and the machine.
pub(super) fn about_jvm(jvm: &Jvm) -> About {
    let names = rustix::system::uname();
    let text = |name: &std::ffi::CStr| name.to_string_lossy().into_owned();
    About {
        nprof: env!("CARGO_PKG_VERSION").to_owned(),
        started: jiff::Timestamp::now(),
        pid: jvm.pid.0,
        main: jvm.main.clone(),
        vm: format!("{} {}", jvm.vm_name, jvm.vm_version).trim().to_owned(),
        kernel: text(names.release()),
        host: text(names.nodename()),
        ..About::default()
    }
}

/// The time from one tick of a CPU to the next, if all CPUs together may tick so often in a second.
pub(super) fn period(max_stacks: u32) -> Duration {
    let cpus = aya::util::nr_cpus().unwrap_or(1).max(1);
    let frequency = (f64::from(max_stacks) / cpus as f64).clamp(1.0, MAX_FREQUENCY);
    Duration::from_secs_f64(1.0 / frequency)
}
