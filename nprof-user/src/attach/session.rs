//! One target with its probes attached.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread;

use nprof_common::{Cookie, MethodStats, Mode, maps};

use super::object::{Object, Sizes};
use super::sites::{Outcome, link_all};
use super::{Error, pid_filter_works, probe_uprobe_multi};
use crate::model::{Library, LibraryId, Pid, Probe};
use crate::sys::bpf::{UprobeMulti, c_path, link_uprobe_multi};
use crate::sys::mapped_array::MappedArray;

/// Memory that the records of all methods may take, in bytes, before CPUs have to share shards.
const STATS_BUDGET: usize = 24 << 20;

/// What to attach to and how.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The process.
    pub pid: Pid,
    /// Time the calls. If not, entries alone are attached and calls are counted.
    pub timed: bool,
    /// How many dense indices there will ever be, methods that are bound later included.
    pub capacity: u32,
}

/// The maps and programs in the kernel, and the links that hold the probes.
#[derive(Debug)]
pub struct Session {
    target: Target,
    shards: u32,
    filter_by_pid: bool,
    records: MappedArray,
    links: Vec<OwnedFd>,
    object: Object,
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
}

/// A site and the cookie of its probe.
#[derive(Debug, Clone, Copy)]
struct SiteCookie {
    index: u32,
    offset: u64,
}

impl Session {
    /// Loads maps and programs for a target. Nothing is attached yet.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn load(target: Target) -> Result<Self, Error> {
        if let Err(source) = probe_uprobe_multi() {
            return Err(match source.raw_os_error() {
                // The kernel knows the program type but not this kind of link.
                Some(libc::EINVAL) => Error::NoUprobeMulti,
                _ => Error::Load { name: "nprof_probe", source },
            });
        }
        let shards = shards_for(target.capacity, aya::util::nr_cpus().unwrap_or(1));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let filter_by_pid = pid_filter_works(&release);
        let object = Object::load(Sizes { methods: target.capacity, shards, filtered: filter_by_pid })?;
        let records = map_records(&object, target.capacity, shards)?;
        Ok(Self { target, shards, filter_by_pid, records, links: Vec::new(), object })
    }

    /// Attaches probes, one link per library and kind. Returns are attached before entries: an entry that runs
    /// before its return is watched would leave a call that is never ended. All are switched on at the end, together.
    ///
    /// What cannot be attached is reported and left out; the rest is attached.
    pub fn attach(&mut self, libraries: &[Library], probes: &[Probe]) -> Attached {
        let mut result = Attached::default();
        let mut accepted = Vec::new();
        for (library, sites) in by_library(libraries, probes) {
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
        self.switch(result.attached.iter().copied(), if self.target.timed { Mode::Time } else { Mode::Count });
        result
    }

    /// Switches methods to a mode: a write to memory for each shard, which the next hit sees.
    pub fn switch(&self, indices: impl IntoIterator<Item = u32>, mode: Mode) {
        for index in indices {
            for shard in 0..self.shards {
                let record = (index * self.shards + shard) as usize * size_of::<MethodStats>();
                self.records.store((record + offset_of!(MethodStats, mode)) / size_of::<u64>(), mode as u64);
            }
        }
    }

    /// Detaches all probes and keeps the records readable. No call begins to count after this is called, in no
    /// library; calls that have begun are ended if they return while it runs.
    pub fn detach(&mut self) {
        self.switch(0..self.target.capacity, Mode::Off);
        // The kernel waits for running programs at the close of each link: together that takes no longer than for one.
        thread::scope(|scope| {
            for link in self.links.drain(..) {
                scope.spawn(|| drop(link));
            }
        });
    }

    /// The records, mapped: value `index * shards + shard` is a [`MethodStats`].
    ///
    /// # Errors
    /// If the kernel does not map them.
    pub fn stats(&self) -> Result<MappedArray, Error> {
        map_records(&self.object, self.target.capacity, self.shards)
    }

    /// The losses, mapped: one word per [`nprof_common::Loss`].
    ///
    /// # Errors
    /// If the kernel does not map them.
    pub fn losses(&self) -> Result<MappedArray, Error> {
        map_array(&self.object, maps::LOSSES, nprof_common::Loss::ALL.len(), size_of::<u64>())
    }

    /// Shards of each record.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.shards
    }

    fn link_returns(&self, library: &Library, sites: &[SiteCookie]) -> Result<Outcome<OwnedFd, SiteCookie>, Error> {
        if self.target.timed {
            self.link(library, sites, true)
        } else {
            Ok(Outcome { links: Vec::new(), accepted: sites.to_vec(), refused: Vec::new() })
        }
    }

    fn link(
        &self,
        library: &Library,
        sites: &[SiteCookie],
        on_return: bool,
    ) -> Result<Outcome<OwnedFd, SiteCookie>, Error> {
        let failed = |source| Error::Library { path: library.open_path.clone(), source };
        let path = c_path(&library.open_path).map_err(failed)?;
        let program: BorrowedFd<'_> = if on_return { self.object.leave.as_fd() } else { self.object.enter.as_fd() };
        let pid = self.target.pid.0;
        link_all(sites, &mut |batch: &[SiteCookie]| -> io::Result<OwnedFd> {
            let offsets: Vec<u64> = batch.iter().map(|site| site.offset).collect();
            let cookies: Vec<u64> = batch.iter().map(|site| Cookie::new(pid, site.index).0).collect();
            let pid = self.filter_by_pid.then_some(pid);
            link_uprobe_multi(
                program,
                UprobeMulti { path: &path, offsets: &offsets, cookies: &cookies, on_return, pid },
            )
        })
        .map_err(failed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.detach();
    }
}

fn map_records(object: &Object, methods: u32, shards: u32) -> Result<MappedArray, Error> {
    map_array(object, maps::STATS, methods as usize * shards as usize, size_of::<MethodStats>())
}

fn map_array(object: &Object, name: &'static str, values: usize, value_size: usize) -> Result<MappedArray, Error> {
    MappedArray::map(object.map(name)?, values, value_size).map_err(|source| Error::Map { name, source })
}

/// The probes of each library, libraries without probes left out.
fn by_library<'a>(libraries: &'a [Library], probes: &[Probe]) -> Vec<(&'a Library, Vec<SiteCookie>)> {
    let sites_in = |id: LibraryId| -> Vec<SiteCookie> {
        let there = probes.iter().filter(|probe| probe.site.library == id);
        there.map(|probe| SiteCookie { index: probe.index, offset: probe.site.offset.0 }).collect()
    };
    let each = libraries.iter().enumerate().map(|(place, library)| (library, sites_in(LibraryId(place))));
    each.filter(|(_, sites)| !sites.is_empty()).collect()
}

/// Shards per record: the number of CPUs rounded up to a power of two, halved until the records fit the budget.
fn shards_for(methods: u32, cpus: usize) -> u32 {
    let record = size_of::<MethodStats>() * methods.max(1) as usize;
    let mut shards = u32::try_from(cpus.next_power_of_two()).unwrap_or(1);
    while shards > 1 && record * shards as usize > STATS_BUDGET {
        shards /= 2;
    }
    shards
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

    /// Check that shards are a power of two that covers the CPUs, within the budget.
    #[test]
    fn shards_follow_cpus_and_budget() {
        assert_eq!(shards_for(100, 1), 1);
        assert_eq!(shards_for(100, 6), 8);
        assert_eq!(shards_for(2_500, 2), 2);
        assert_eq!(shards_for(2_500, 64), 4);
        assert_eq!(shards_for(1_000_000, 64), 1);
    }
}
