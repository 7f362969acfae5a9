//! One target with its probes attached.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use nprof_common::{Cookie, Mode};

use super::Error;
use super::engine::Engine;
use super::sites::{Outcome, link_all};
use crate::model::{Library, LibraryId, Pid, Probe};
use crate::sys::bpf::{UprobeMulti, c_path, link_uprobe_multi};

/// How many links are closed at the same time.
const CLOSED_TOGETHER: usize = 64;

/// What to attach to and how.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The process.
    pub pid: Pid,
    /// Time the calls. If not, entries alone are attached and calls are counted.
    pub timed: bool,
}

/// The links that hold the probes of one target, and the records that they write to.
#[derive(Debug)]
pub struct Session {
    target: Target,
    engine: Arc<Engine>,
    links: Vec<OwnedFd>,
    /// The record of each probe, by the probe's index.
    records: BTreeMap<u32, u32>,
}

/// What [`Session::attach`] did.
#[derive(Debug, Default)]
pub struct Attached {
    /// Indices whose probes are in place.
    pub attached: Vec<u32>,
    /// Indices whose site the kernel refused.
    pub refused: Vec<u32>,
    /// Libraries that could not be attached to at all, with the indices that this concerns.
    pub failed: Vec<(Error, Vec<u32>)>,
    /// Indices for which there was no record left.
    pub no_room: Vec<u32>,
}

/// A site, and the index of its probe.
#[derive(Debug, Clone, Copy)]
struct IndexedSite {
    index: u32,
    offset: u64,
}

impl Session {
    /// A session without probes.
    #[must_use]
    pub fn new(engine: Arc<Engine>, target: Target) -> Self {
        Self { target, engine, links: Vec::new(), records: BTreeMap::new() }
    }

    /// Attaches probes, one link per library and kind. Returns are attached before entries: an entry that runs
    /// before its return is watched would leave a call that is never ended. All are switched on at the end, together.
    ///
    /// What cannot be attached is reported and left out; the rest is attached.
    pub fn attach(&mut self, libraries: &[Library], probes: &[Probe]) -> Attached {
        let mut result = Attached { no_room: self.take_records(probes), ..Attached::default() };
        let mut accepted = Vec::new();
        for (library, mut sites) in by_library(libraries, probes) {
            sites.retain(|site| self.records.contains_key(&site.index));
            match self.link_returns(library, &sites) {
                Ok(outcome) => {
                    result.refused.extend(outcome.refused.iter().map(|site| site.index));
                    self.links.extend(outcome.links);
                    accepted.push((library, outcome.accepted));
                }
                Err(error) => result.failed.push((error, sites.iter().map(|site| site.index).collect())),
            }
        }
        for (library, sites) in accepted {
            match self.link(library, &sites, false) {
                Ok(outcome) => {
                    result.refused.extend(outcome.refused.iter().map(|site| site.index));
                    result.attached.extend(outcome.accepted.iter().map(|site| site.index));
                    self.links.extend(outcome.links);
                }
                Err(error) => result.failed.push((error, sites.iter().map(|site| site.index).collect())),
            }
        }
        let records = result.attached.iter().filter_map(|index| self.records.get(index).copied());
        self.engine.switch(records, if self.target.timed { Mode::Time } else { Mode::Count });
        result
    }

    /// The record of a probe: what [`crate::model::Sample`] is read from.
    #[must_use]
    pub fn record(&self, index: u32) -> Option<u32> {
        self.records.get(&index).copied()
    }

    /// Detaches all probes and keeps the records readable. No call begins to count after this is called, in no
    /// library; calls that have begun are ended if they return while it runs.
    pub fn detach(&mut self) {
        self.engine.switch(self.records.values().copied(), Mode::Off);
        // The kernel waits for running programs at the close of each link: together that takes no longer than for one.
        while !self.links.is_empty() {
            let rest = self.links.len().saturating_sub(CLOSED_TOGETHER);
            thread::scope(|scope| {
                for link in self.links.drain(rest..) {
                    scope.spawn(|| drop(link));
                }
            });
        }
    }

    /// Detaches everything and gives the records to others. To be called when the target has ended: a thread that
    /// lives on may have open calls, which its next hit would charge to whoever has the record then.
    pub fn give_back(mut self) {
        self.detach();
        self.engine.give_back(std::mem::take(&mut self.records).into_values());
    }

    /// Takes a record for each probe that has none. Returns the probes for which there was none.
    fn take_records(&mut self, probes: &[Probe]) -> Vec<u32> {
        let mut without = Vec::new();
        for probe in probes {
            match self.records.get(&probe.index).copied().or_else(|| self.engine.take()) {
                Some(record) => drop(self.records.insert(probe.index, record)),
                None => without.push(probe.index),
            }
        }
        without
    }

    fn link_returns(&self, library: &Library, sites: &[IndexedSite]) -> Result<Outcome<OwnedFd, IndexedSite>, Error> {
        if self.target.timed {
            self.link(library, sites, true)
        } else {
            Ok(Outcome { links: Vec::new(), accepted: sites.to_vec(), refused: Vec::new() })
        }
    }

    fn link(
        &self,
        library: &Library,
        sites: &[IndexedSite],
        on_return: bool,
    ) -> Result<Outcome<OwnedFd, IndexedSite>, Error> {
        let failed = |source| Error::Library { path: library.open_path.clone(), source };
        let path = c_path(&library.open_path).map_err(failed)?;
        let pid = self.target.pid.0;
        link_all(sites, &mut |batch: &[IndexedSite]| -> io::Result<OwnedFd> {
            let offsets: Vec<u64> = batch.iter().map(|site| site.offset).collect();
            let records = batch.iter().filter_map(|site| self.records.get(&site.index));
            let cookies: Vec<u64> = records.map(|&record| Cookie::new(pid, record).0).collect();
            let pid = self.engine.is_filtered().then_some(pid);
            let to = UprobeMulti { path: &path, offsets: &offsets, cookies: &cookies, on_return, pid };
            link_uprobe_multi(self.engine.program(on_return), to)
        })
        .map_err(failed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.detach();
    }
}

/// The probes of each library, libraries without probes left out.
fn by_library<'a>(libraries: &'a [Library], probes: &[Probe]) -> Vec<(&'a Library, Vec<IndexedSite>)> {
    let sites_in = |id: LibraryId| -> Vec<IndexedSite> {
        let there = probes.iter().filter(|probe| probe.site.library == id);
        there.map(|probe| IndexedSite { index: probe.index, offset: probe.site.offset.0 }).collect()
    };
    let each = libraries.iter().enumerate().map(|(place, library)| (library, sites_in(LibraryId(place))));
    each.filter(|(_, sites)| !sites.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Bound, FileId, FileOffset, Method, NativeCode, PlannedMethod, ProbeCost, Site, VirtAddr};

    fn library(inode: u64) -> Library {
        let path: std::path::PathBuf = format!("/lib{inode}.so").into();
        let file = FileId { major: 8, minor: 1, inode };
        Library { file, path: path.clone(), deleted: false, open_path: path, mappings: Vec::new() }
    }

    fn probe(index: u32, library: usize, offset: u64) -> Probe {
        let code = NativeCode::Bound(VirtAddr(1));
        let (id, signature) = (VirtAddr(u64::from(index)), "()V".to_owned());
        let method = Method { id, class: "A".to_owned(), name: "b".to_owned(), signature, code };
        let (offset, entry) = (FileOffset(offset), FileOffset(offset - 3));
        let site = Site { library: LibraryId(library), offset, entry, cost: ProbeCost::Emulated };
        Probe { index, site, methods: vec![PlannedMethod { method, bound: Bound::Export }] }
    }

    /// Check that each library gets exactly its own sites, with the index that is their cookie and where the probe
    /// sits, not where the function begins; and that one without probes is not opened.
    #[test]
    fn sites_of_each_library() {
        let libraries = [library(10), library(11), library(12)];
        let probes = [probe(4, 2, 0x100), probe(5, 0, 0x100), probe(6, 2, 0x90)];
        let grouped = by_library(&libraries, &probes);
        let inodes_and_sites: Vec<_> = grouped
            .iter()
            .map(|(library, sites)| {
                (library.file.inode, sites.iter().map(|site| (site.index, site.offset)).collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(inodes_and_sites, [(10, vec![(5, 0x100)]), (12, vec![(4, 0x100), (6, 0x90)])]);
    }

    /// Check that a probe of a library that is not in the list is left out.
    #[test]
    fn unknown_library() {
        assert!(by_library(&[library(10)], &[probe(0, 1, 0x100)]).is_empty());
        assert!(by_library(&[], &[]).is_empty());
    }
}
