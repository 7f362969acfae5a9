//! Calls that stubs choose: a stub passes a dedicated place with them, and a probe there takes the stack of the caller. Other
//! calls do not come near it. Slow calls are chosen by their time, those for a recording by chance.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::error::{Error, Part};
use crate::attach::{Collect, Engine, Feeds};
use crate::discover::{Proc, libjvm};
use crate::model::{Jvm, Library, Pid, VirtAddr};
use crate::profile::SlowCalls;
use crate::shim;

/// How much of a stack is copied, in bytes.
const STACK_BYTES: u32 = 32 << 10;
/// The most stacks of slow calls in a second. More are counted.
const MAX_STACKS: u32 = 200;

/// Which calls stubs are to choose.
#[derive(Debug)]
pub(super) enum Choice {
    /// None.
    Nothing,
    /// Those that take at least this long: their callers are read.
    Slow(Duration, Box<Feeds>),
    /// Those that chance picks, of all that are timed: whoever records reads them.
    ByChance,
}

impl Choice {
    /// From how many nanoseconds on a call comes into question.
    pub(super) fn threshold_ns(&self) -> u64 {
        match self {
            Self::Nothing => u64::MAX,
            // With 0 chance would decide.
            Self::Slow(time, _) => u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1),
            Self::ByChance => 0,
        }
    }
}

/// The probe on chosen calls.
#[derive(Debug)]
pub(super) struct Chosen {
    /// Slow calls, and from how many nanoseconds on a call is one.
    slow: Option<(Arc<SlowCalls>, u64)>,
    /// Holds the probe.
    link: Option<OwnedFd>,
}

/// What the kernel is to collect for slow calls.
pub(super) fn collect_slow(target: Pid) -> Collect {
    Collect { target, stubs: true, stack_bytes: STACK_BYTES, max_stacks: MAX_STACKS, ..Collect::nothing() }
}

impl Chosen {
    /// Begins to take stacks of calls that pass `site` in the shim of a JVM; `None` if stubs choose none.
    ///
    /// # Errors
    /// If the shim or the VM cannot be read, or the kernel refuses the probe.
    pub(super) fn start(
        (proc, jvm): (&Proc, &Jvm),
        engine: &Engine,
        site: VirtAddr,
        choice: Choice,
    ) -> Result<Option<Self>, Error> {
        let threshold_ns = choice.threshold_ns();
        if matches!(choice, Choice::Nothing) {
            return Ok(None);
        }
        let libraries = proc.libraries(jvm.pid)?;
        let slow = match choice {
            Choice::Slow(_, feeds) => Some((read_slow(proc, jvm, &libraries, *feeds)?, threshold_ns)),
            Choice::Nothing | Choice::ByChance => None,
        };
        Ok(Some(Self { slow, link: Some(watch(jvm, engine, &libraries, site)?) }))
    }

    /// Slow calls, to be read at any time, and from how many nanoseconds on a call is one.
    pub(super) fn slow(&self) -> Option<(Arc<SlowCalls>, u64)> {
        self.slow.clone()
    }

    /// Takes the probe away. What was taken stays readable.
    pub(super) fn stop(&mut self) {
        self.link = None;
        if let Some((slow, _)) = &self.slow
            && let Err(error) = slow.stop()
        {
            tracing::warn!("{error}");
        }
    }
}

fn read_slow(proc: &Proc, jvm: &Jvm, libraries: &[Library], feeds: Feeds) -> Result<Arc<SlowCalls>, Error> {
    let libjvm = libjvm(libraries).ok_or(Error::Ended { pid: jvm.pid })?;
    let calls = SlowCalls::start(proc.clone(), jvm.pid, libjvm, feeds, MAX_STACKS)
        .map_err(|error| Error::reading(Part::Stacks, jvm, error))?;
    Ok(Arc::new(calls))
}

fn watch(jvm: &Jvm, engine: &Engine, libraries: &[Library], site: VirtAddr) -> Result<OwnedFd, Error> {
    let shim = shim::among(libraries).ok_or(Error::Ended { pid: jvm.pid })?;
    if !shim.is_chosen_site(site) {
        // The target says where it is, and no probe goes where a target likes.
        return Err(shim::Error::Unexpected { pid: jvm.pid }.into());
    }
    Ok(engine.watch_chosen(jvm.pid, &shim.library, site)?)
}
