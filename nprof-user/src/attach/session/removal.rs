//! How probes are taken away, while calls of all other functions are counted as before.

use std::thread;
use std::time::{Duration, Instant};

use super::{Session, by_library, chosen};
use crate::attach::linker::{Kind, Linker};
use crate::attach::links::IndexedSite;
use crate::model::{Library, Probe};

/// How long it is waited for calls to return whose probes are to go, and between two looks. Most natives take less.
const DRAIN: Duration = Duration::from_millis(2);
const DRAIN_STEP: Duration = Duration::from_micros(50);

impl Session {
    /// Takes away probes on returns. The others of their links have two for a moment, of which the second finds nothing
    /// to end.
    ///
    /// A call that is not over needs its return: such a function waits for the next time.
    pub(super) fn drop_returns(&mut self, libraries: &[Library], probes: &[Probe], indices: &[u32]) {
        if indices.is_empty() {
            return;
        }
        let linker = Linker::of(&self.engine, self.target);
        let switches = &self.switches;
        // A hit that began before its function was switched may be about to begin a call. The hand-over of entries has
        // waited for hits of others, and not every kernel waits for more than those of the sites.
        for (library, sites) in by_library(libraries, &chosen(probes, indices)) {
            linker.wait_for_hits(libraries, library, &sites, switches);
        }
        let is_idle = |index: &u32| switches.record(*index).is_some_and(|record| self.engine.in_flight(record) == 0);
        let indices: Vec<u32> = indices.iter().copied().filter(is_idle).collect();
        let mut link = |library: &Library, sites: &[IndexedSite]| linker.link(library, sites, Kind::Return, switches);
        let replaced = self.returns.replace(libraries, &indices, &mut link);
        self.switches.attached(replaced.dropped.iter().copied(), true, false);
        self.switches.stuck(&replaced.stuck);
        self.closing.replaced(replaced.links);
    }

    /// Takes away both probes of functions that have their own links, at once and without waiting for the kernel: they
    /// are what is called most. Those with calls that stay open are left, for these need their returns. Returns the others.
    pub fn drop_single(&mut self, indices: &[u32]) -> Vec<u32> {
        let mut dropped = Vec::new();
        let until = Instant::now() + DRAIN;
        for &index in indices {
            let Some(record) = self.switches.record(index) else { continue };
            if !self.entries.is_single(index) || !self.is_drained(record, until) {
                continue;
            }
            let Some(entry) = self.entries.take_single(index) else { continue };
            // A thread may have asked just now what is done at a hit, and wait for a CPU before it begins the call.
            self.engine.may_outlast(record);
            // Where the return shares its link with others, the entry alone is taken away now.
            let links = [Some(entry), self.returns.take_single(index)];
            self.switches.attached([index], false, false);
            if links[1].is_some() {
                self.switches.attached([index], true, false);
            }
            self.closing.last(links.into_iter().flatten().collect());
            dropped.push(index);
        }
        dropped
    }

    /// Whether no call of a function is open, or none is any more soon: it is switched off, so none begins. One that is called all the
    /// time would be found inside a call as often as not, whoever calls it having been put off the CPU there.
    fn is_drained(&self, record: u32, until: Instant) -> bool {
        while self.engine.in_flight(record) > 0 {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(DRAIN_STEP);
        }
        true
    }

    /// Takes away probes on entries. The others of their links are handed over to another: see
    /// [`nprof_common::switch`].
    pub(super) fn drop_entries(&mut self, libraries: &[Library], indices: &[u32]) {
        if indices.is_empty() {
            return;
        }
        self.closing.wait_for_replaced();
        let linker = Linker::of(&self.engine, self.target);
        let switches = &self.switches;
        let mut link =
            |library: &Library, sites: &[IndexedSite]| linker.link(library, sites, Kind::OtherLane, switches);
        let replaced = self.entries.replace(libraries, indices, &mut link);
        self.switches.attached(replaced.dropped.iter().copied(), false, false);
        self.switches.stuck(&replaced.stuck);
        self.hand_over(libraries, &replaced.kept, &switches.to_other_lane(&replaced.kept_indices()));
        self.closing.replaced(replaced.links);
    }
}
