//! Asks the kernel for links to sites of a target.

use std::io;
use std::sync::Arc;

use nprof_common::{Cookie, Lane};

use super::engine::{End, Engine};
use super::links::{IndexedSite, warn_unless_ended};
use super::sharing::{Spot, Spots};
use super::switches::Switches;
use super::target::Target;
use crate::model::{Library, LibraryId, Pid};
use crate::sys::bpf::{UprobeMulti, c_path, link_uprobe_multi};
use crate::sys::probe_link::ProbeLink;

/// The end of a call that a probe is on, or one that does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Entry,
    /// On the entry, in the lane that does not answer.
    OtherLane,
    /// On the entry, in the first lane of a target's own: of a function that a shared link holds.
    FirstLane,
    /// On the entry, for no record at all.
    Idle,
    Return,
}

/// Makes links for a target.
pub(super) struct Linker {
    engine: Arc<Engine>,
    pid: Pid,
}

impl Linker {
    pub(super) fn of(engine: &Arc<Engine>, target: Target) -> Self {
        Self { engine: Arc::clone(engine), pid: target.pid }
    }

    /// A link for sites of a library: of functions whose probe on the entry is there, or on the return in its place ([`Switches::place`]).
    ///
    /// # Errors
    /// What the kernel answers.
    pub(super) fn link(
        &self,
        library: &Library,
        sites: &[IndexedSite],
        kind: Kind,
        switches: &Switches,
    ) -> io::Result<ProbeLink> {
        let path = c_path(&library.open_path)?;
        let offsets: Vec<u64> = sites.iter().map(|site| site.offset).collect();
        let cookies: Option<Vec<u64>> = sites.iter().map(|site| self.cookie(*site, kind, switches)).collect();
        let cookies = cookies.ok_or(io::ErrorKind::InvalidInput)?;
        let pid = self.engine.filter(self.pid);
        let end = match kind {
            Kind::Return => End::Return,
            _ if sites.first().is_some_and(|site| switches.is_at_exit(site.index)) => End::OnlyReturn,
            _ => End::Entry,
        };
        let on_return = end != End::Entry;
        let program = self.engine.program(end).ok_or(io::ErrorKind::Unsupported)?;
        let to = UprobeMulti { path: &path, offsets: &offsets, cookies: &cookies, on_return, pid };
        link_uprobe_multi(program, to)
    }

    /// A link for sites of a library that serves all members.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(super) fn link_shared(
        &self,
        library: &Library,
        (lane, spots): (Lane, &Spots),
        on_return: bool,
    ) -> io::Result<ProbeLink> {
        let path = c_path(&library.open_path)?;
        let offsets: Vec<u64> = spots.keys().copied().collect();
        let cookie = |spot: &Spot| Cookie::shared(spot.number, spot.distance, lane).0;
        let cookies: Vec<u64> = spots.values().map(cookie).collect();
        let to = UprobeMulti { path: &path, offsets: &offsets, cookies: &cookies, on_return, pid: None };
        let program = self.engine.program(if on_return { End::Return } else { End::Entry });
        link_uprobe_multi(program.ok_or(io::ErrorKind::Unsupported)?, to)
    }

    fn cookie(&self, site: IndexedSite, kind: Kind, switches: &Switches) -> Option<u64> {
        let index = site.index;
        let (record, lane) = match kind {
            Kind::Idle => (self.engine.idle_record(), Lane::A),
            Kind::OtherLane => (switches.record(index)?, switches.lane(index).other()),
            Kind::FirstLane => (switches.record(index)?, Lane::A),
            Kind::Entry | Kind::Return => (switches.record(index)?, switches.lane(index)),
        };
        Some(Cookie::new(self.pid.0, record, site.distance, lane).0)
    }

    /// Waits until every hit of these sites is over that began before this was called: the kernel does so when it takes
    /// a probe away, even one that did nothing, and [`ProbeLink`] waits for that much.
    pub(super) fn wait_for_hits(
        &self,
        libraries: &[Library],
        id: LibraryId,
        sites: &[IndexedSite],
        switches: &Switches,
    ) {
        let Some(library) = libraries.get(id.0) else { return };
        match self.link(library, sites, Kind::Idle, switches) {
            Ok(link) => drop(link),
            // The link before this one, to the same sites, was made.
            Err(error) => warn_unless_ended("hits may have been missed: no way to wait for them", &error),
        }
    }
}
