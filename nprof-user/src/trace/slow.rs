//! Slow calls of methods with stubs: a stub passes a dedicated place when it has timed one, and a probe there takes the
//! stack of the caller. Other calls do not come near it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::error::{Error, Part};
use crate::attach::{Collect, Engine, Feeds};
use crate::discover::{Proc, libjvm};
use crate::model::{Jvm, Pid, VirtAddr};
use crate::profile::SlowCalls;
use crate::shim;

/// How much of a stack is copied, in bytes.
const STACK_BYTES: u32 = 32 << 10;
/// The most stacks in a second. More slow calls are counted.
const MAX_STACKS: u32 = 200;

/// The probe on slow calls, and what reads the stacks.
#[derive(Debug)]
pub(super) struct Slow {
    calls: Arc<SlowCalls>,
    threshold_ns: u64,
    /// Holds the probe.
    link: Option<OwnedFd>,
}

/// What the kernel is to collect.
pub(super) fn collect(target: Pid, slow: bool) -> Collect {
    if slow {
        Collect { target, slow, stack_bytes: STACK_BYTES, max_stacks: MAX_STACKS, ..Collect::nothing() }
    } else {
        Collect::nothing()
    }
}

impl Slow {
    /// Begins to take stacks of calls that pass `site` in the shim of a JVM.
    ///
    /// # Errors
    /// If the shim or the VM cannot be read, or the kernel refuses the probe.
    pub(super) fn start(
        proc: &Proc,
        jvm: &Jvm,
        (engine, feeds): (&Engine, Feeds),
        site: VirtAddr,
        threshold_ns: u64,
    ) -> Result<Self, Error> {
        let libraries = proc.libraries(jvm.pid)?;
        let gone = || Error::Ended { pid: jvm.pid };
        let shim = shim::among(&libraries).ok_or_else(gone)?;
        if !shim.is_slow_site(site) {
            // The target says where it is, and no probe goes where a target likes.
            return Err(shim::Error::Unexpected { pid: jvm.pid }.into());
        }
        let libjvm = libjvm(&libraries).ok_or_else(gone)?;
        let calls = SlowCalls::start(proc.clone(), jvm.pid, libjvm, feeds, MAX_STACKS)
            .map_err(|error| Error::reading(Part::Stacks, jvm, error))?;
        let link = Some(engine.watch_slow(jvm.pid, &shim.library, site)?);
        Ok(Self { calls: Arc::new(calls), threshold_ns, link })
    }

    /// The calls, to be read at any time, and from how many nanoseconds on a call is slow.
    pub(super) fn calls(&self) -> (Arc<SlowCalls>, u64) {
        (Arc::clone(&self.calls), self.threshold_ns)
    }

    /// Takes the probe away. What was taken stays readable.
    pub(super) fn stop(&mut self) {
        self.link = None;
        if let Err(error) = self.calls.stop() {
            tracing::warn!("{error}");
        }
    }
}
