//! Calls that stubs choose: a stub passes a dedicated place with them, and a probe there takes the stack of the caller. Other
//! calls do not come near it. Slow calls are chosen by their time, those for a recording by chance.

use std::sync::Arc;

use super::error::Error;
use crate::attach::Engine;
use crate::discover::Proc;
use crate::model::{Jvm, VirtAddr};
use crate::shim;
use crate::sys::probe_link::ProbeLink;

/// Which calls stubs are to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// None.
    Nothing,
    /// Those that take at least so many nanoseconds, of methods of which nothing else is said; `u64::MAX`: none of theirs.
    Slow(u64),
    /// Those that chance picks, of all that are timed: whoever records reads them.
    ByChance,
}

impl Choice {
    /// From how many nanoseconds on a call comes into question.
    pub(super) fn threshold_ns(self) -> u64 {
        match self {
            Self::Nothing => u64::MAX,
            // With 0 chance would decide.
            Self::Slow(ns) => ns.max(1),
            Self::ByChance => 0,
        }
    }
}

/// The probe on chosen calls.
#[derive(Debug)]
pub(super) struct Chosen {
    engine: Arc<Engine>,
    /// Where slow ones of them are counted.
    record: Option<u32>,
    /// Holds the probe.
    link: Option<ProbeLink>,
}

impl Chosen {
    /// Begins to take stacks of calls that pass `site` in the shim of a JVM; `None` if stubs choose none.
    ///
    /// # Errors
    /// If the shim cannot be read, or the kernel refuses the probe.
    pub(super) fn start(
        (proc, jvm): (&Proc, &Jvm),
        engine: &Arc<Engine>,
        site: VirtAddr,
        choice: Choice,
    ) -> Result<Option<Self>, Error> {
        if choice == Choice::Nothing {
            return Ok(None);
        }
        let libraries = proc.libraries(jvm.pid)?;
        let shim = shim::among(&libraries).ok_or(Error::Ended { pid: jvm.pid })?;
        if !shim.is_chosen_site(site) {
            // The target says where it is, and no probe goes where a target likes.
            return Err(shim::Error::Unexpected { pid: jvm.pid }.into());
        }
        let mut chosen = Self { engine: Arc::clone(engine), record: engine.take_for_stubs(), link: None };
        chosen.link = Some(engine.watch_chosen(jvm.pid, &shim.library, site, chosen.record)?);
        Ok(Some(chosen))
    }

    /// Where slow calls are counted.
    pub(super) fn record(&self) -> Option<u32> {
        self.record
    }

    /// Takes the probe away.
    pub(super) fn stop(&mut self) {
        self.link = None;
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.link = None;
        self.engine.give_back(self.record.into_iter());
    }
}
