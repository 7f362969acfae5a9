//! Threads that have no row yet: they pass a dedicated place in the shim, once, and a probe there gives them one.

use super::error::Error;
use crate::attach::{Engine, RowMap};
use crate::discover::Proc;
use crate::model::{Jvm, VirtAddr};
use crate::shim;
use crate::sys::probe_link::ProbeLink;

/// The rows of a JVM's threads, and the probe that gives them to the threads. Both end when this is dropped.
#[derive(Debug)]
pub(super) struct Rows {
    // First: afterwards no thread gets a row of a map that is gone.
    _probe: ProbeLink,
    map: RowMap,
}

impl Rows {
    /// Gives rows to threads of a JVM that pass `site` in its shim.
    ///
    /// # Errors
    /// If the shim is not there any more, says a place that is not its own, or the kernel refuses the probe.
    pub(super) fn give(
        map: RowMap,
        (proc, jvm): (&Proc, &Jvm),
        engine: &Engine,
        site: VirtAddr,
    ) -> Result<Self, Error> {
        let libraries = proc.libraries(jvm.pid)?;
        let shim = shim::among(&libraries).ok_or(Error::Ended { pid: jvm.pid })?;
        if !shim.is_rowless_site(site) {
            // The target says where it is, and no probe goes where a target likes.
            return Err(shim::Error::Unexpected { pid: jvm.pid }.into());
        }
        let probe = engine.watch_rowless(jvm.pid, &shim.library, site, &map)?;
        Ok(Self { _probe: probe, map })
    }

    /// What the JVM is to map.
    pub(super) fn map(&self) -> &RowMap {
        &self.map
    }
}
