//! One target with its probes attached.

mod closing;
mod function;
mod removal;
mod shared;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nprof_common::Lane;

use self::closing::Closing;
use self::function::{kind, kinds, returns};
use super::cpus::beside;
use super::engine::Engine;
use super::error::{Error, in_full};
use super::linker::{Kind, Linker};
use super::links::{IndexedSite, Links, close, close_gently};
use super::runners::Runners;
use super::sites::Outcome;
use super::switches::{Due, Seen, Switches};
use super::target::Target;
use super::user_programs::{ProgramLinks, UserPrograms};
use crate::model::{CallEnd, Library, LibraryId, Probe, Tracing};
use crate::sys::probe_link::{self, ProbeLink};

/// Tells hand-overs apart.
static EPOCH: AtomicU32 = AtomicU32::new(1);

/// The links that hold the probes of one target, and the records that they write to.
#[derive(Debug)]
pub struct Session {
    target: Target,
    engine: Arc<Engine>,
    entries: Links,
    returns: Links,
    switches: Arc<Switches>,
    /// Programs of the user's that run beside the probes.
    programs: Option<ProgramLinks>,
    closing: Closing,
    /// Whether links may hold its functions that serve others too, and how many changes of these it has seen.
    shares: Option<u64>,
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

impl Attached {
    /// Takes in what another call did.
    pub fn append(&mut self, mut more: Self) {
        self.attached.append(&mut more.attached);
        self.refused.append(&mut more.refused);
        self.failed.append(&mut more.failed);
        self.no_room.append(&mut more.no_room);
    }
}

impl Session {
    /// A session without probes.
    #[must_use]
    pub fn new(engine: Arc<Engine>, target: Target) -> Self {
        let switches = Arc::new(Switches::new(Arc::clone(&engine), target.timed));
        let (entries, returns, closing) = (Links::default(), Links::default(), Closing::default());
        Self { target, engine, entries, returns, switches, programs: None, closing, shares: None }
    }

    /// What is done at the hits of each function, to be asked and changed at any time.
    #[must_use]
    pub fn switches(&self) -> &Arc<Switches> {
        &self.switches
    }

    /// Has programs of the user's run beside the probes from now on, where [`Self::run`] says so.
    pub fn begin_programs(&mut self, programs: Arc<UserPrograms>) {
        let pid = self.target.pid;
        self.programs = Some(ProgramLinks::new(programs, pid, self.engine.filter(pid)));
    }

    /// Has a program of the user's run at a function, for as long as that has its probes.
    pub fn run(&mut self, index: u32, program: usize) {
        if let Some(programs) = &mut self.programs {
            programs.choose(index, program);
        }
    }

    /// Attaches probes, by few links for each library and kind, but for those that a shared link holds already. Returns are attached before entries: an entry that runs
    /// before its return is watched would leave a call that is never ended. All are switched on at the end, together.
    ///
    /// What cannot be attached is reported and left out; the rest is attached, as far as the switches allow it.
    pub fn attach(&mut self, libraries: &[Library], probes: &[Probe]) -> Attached {
        let mut result = Attached { no_room: self.admit(probes), ..Attached::default() };
        let served = self.join_shared(libraries, probes);
        let allowed = |site: &IndexedSite, least| self.switches.attachable(site.index) >= Some(least);
        let grouped = by_library(libraries, probes).into_iter();
        let groups: Vec<(LibraryId, [Vec<IndexedSite>; 2])> = grouped
            .map(|(library, mut sites)| {
                sites.retain(|site| allowed(site, Tracing::Returned) && !served.contains(&site.index));
                let is_timed = |site: &IndexedSite| self.target.timed && allowed(site, Tracing::Timed);
                let (timed, counted) = sites.into_iter().partition(is_timed);
                (library, [timed, counted])
            })
            .collect();
        let mut accepted = Vec::new();
        for (library, [timed, mut sites]) in groups {
            let timed = self.link(libraries, library, &timed, Kind::Return, &mut result);
            self.switches.attached(timed.iter().map(|site| site.index), true, true);
            sites.extend(timed);
            accepted.push((library, sites));
        }
        for (library, sites) in accepted {
            let sites = self.link(libraries, library, &sites, Kind::Entry, &mut result);
            result.attached.extend(sites.iter().map(|site| site.index));
        }
        self.switches.abandon(&result.refused);
        result.failed.iter().for_each(|(_, indices)| self.switches.abandon(indices));
        result.attached.extend(served);
        self.switches.attached(result.attached.iter().copied(), false, true);
        self.follow(libraries, probes);
        result
    }

    /// Uses a record of the engine for a function that has none yet. The caller keeps it when the session is gone.
    pub fn adopt(&mut self, index: u32, record: u32) {
        self.switches.add(index, record);
    }

    /// Takes in functions without attaching anything to them: stubs in the target see their calls. Returns the indices
    /// for which there was no record left.
    pub fn leave_to_stubs(&mut self, probes: &[Probe]) -> Vec<u32> {
        let without = self.admit(probes);
        self.switches.see(probes.iter().map(|probe| probe.index), Seen::ByStubs);
        without
    }

    /// Attaches and detaches what the switches ask for. Of everything else each call is counted as before.
    ///
    /// Returns whether anything was changed.
    pub fn settle(&mut self, libraries: &[Library], probes: &[Probe]) -> bool {
        let due = self.switches.due();
        let indices = |wanted: fn(&Due) -> bool| -> Vec<u32> {
            due.iter().filter(|due| wanted(due)).map(|due| due.index).collect()
        };
        self.attach_again(libraries, probes, &indices(|due| due.on_return == Some(true)), Kind::Return);
        self.attach_again(libraries, probes, &indices(|due| due.entry == Some(true)), Kind::Entry);
        let dropped = self.drop_single(&indices(|due| due.entry == Some(false)));
        let indices = |wanted: fn(&Due) -> bool| -> Vec<u32> {
            indices(wanted).into_iter().filter(|index| !dropped.contains(index)).collect()
        };
        self.drop_entries(libraries, &indices(|due| due.entry == Some(false)));
        self.drop_returns(libraries, probes, &indices(|due| due.on_return == Some(false)));
        if !due.is_empty() {
            self.follow(libraries, probes);
        }
        !due.is_empty()
    }

    /// Has the user's programs where the probes are, and nowhere else. They come last: a program on the entry that is newer than the
    /// probe runs before it, so that its time is no part of the call's.
    fn follow(&mut self, libraries: &[Library], probes: &[Probe]) {
        let Some(programs) = &mut self.programs else { return };
        let (switches, runs_at) = (&self.switches, |site: &IndexedSite, end| self.switches.runs_at(site.index, end));
        let old = programs.keep(libraries, |index, end| switches.runs_at(index, end));
        for (id, sites) in by_library(libraries, probes) {
            for end in CallEnd::ALL {
                let sites: Vec<IndexedSite> = sites.iter().filter(|site| runs_at(site, end)).copied().collect();
                programs.add((id, &libraries[id.0]), &sites, end);
            }
        }
        self.closing.replaced(old);
    }

    /// Whether this kernel runs the probes of a hit in the order that a hand-over relies on: the newer first.
    ///
    /// Gives a function two probes in the middle of a hand-over, and calls it by `call`, which has to do so `calls` times
    /// on this thread. Each must be counted once.
    pub fn hands_over(&mut self, libraries: &[Library], probe: &Probe, calls: u64, call: impl FnOnce()) -> bool {
        let linker = Linker::of(&self.engine, self.target);
        let (switches, index) = (&self.switches, probe.index);
        let site = IndexedSite::from(probe);
        let Some((library, record)) = libraries.get(probe.site.library.0).zip(switches.record(index)) else {
            return false;
        };
        switches.want([index], Tracing::Counted);
        let Ok(second) = linker.link(library, &[site], Kind::OtherLane, switches) else { return false };
        let lane = switches.lane(index);
        switches.hand_over(&[(index, lane.other())], next_epoch());
        let before = self.engine.counted(record);
        call();
        let counted = self.engine.counted(record) - before;
        switches.settle(&[(index, lane)]);
        drop(second);
        counted == calls
    }

    /// The record of a probe: what [`crate::model::Sample`] is read from.
    #[must_use]
    pub fn record(&self, index: u32) -> Option<u32> {
        self.switches.record(index)
    }

    /// Detaches all probes and keeps the records readable. No call begins to count after this is called, in no
    /// library; calls that have begun are ended if they return while it runs.
    pub fn detach(&mut self) {
        self.switches.stop();
        self.end_programs();
        self.stop_sharing();
        let pid = self.target.pid;
        let is_attached = !(self.entries.is_empty() && self.returns.is_empty());
        if is_attached && Path::new(&format!("/proc/{pid}")).exists() {
            beside(&Runners::of(pid), |_| close_gently(pid, &mut self.entries, &mut self.returns));
        } else if probe_link::are_many_left() {
            self.entries.take().chain(self.returns.take()).for_each(ProbeLink::bury);
        } else {
            close(self.entries.take().chain(self.returns.take()).collect());
        }
        self.closing.wait();
    }

    /// Has no program of the user's run any more.
    fn end_programs(&mut self) {
        if let Some(programs) = &mut self.programs {
            programs.shut();
            self.closing.last(programs.take());
        }
    }

    /// How many times links are being closed without anybody who waits for that.
    pub fn closing(&mut self) -> usize {
        self.closing.under_way()
    }

    /// Whether no links are being closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closing.is_over()
    }

    /// Detaches all probes, which go on counting until they are gone: so it is known what they have cost.
    pub fn let_go(mut self) {
        close(self.entries.take().chain(self.returns.take()).collect());
    }

    /// Detaches everything and gives the records to others. To be called when the target has ended: a thread that
    /// lives on may have open calls, which its next hit would charge to whoever has the record then.
    pub fn give_back(mut self) {
        self.detach();
        self.engine.give_back(self.switches.take_records().into_iter());
    }

    /// Takes in functions without attaching anything to them, so that it can be said what may be done at their calls.
    /// Returns the indices for which there was no record left.
    pub fn admit(&mut self, probes: &[Probe]) -> Vec<u32> {
        let mut without = Vec::new();
        for probe in probes {
            let index = probe.index;
            if self.record(index).is_some() {
                continue;
            }
            match self.engine.take() {
                Some(record) => {
                    self.engine.describe(record, returns(probe), kind(probe));
                    self.engine.set_kinds(record, kinds(probe));
                    self.switches.add(index, record);
                }
                None => without.push(index),
            }
        }
        without
    }

    /// Links sites of a library, and reports those that cannot be. Returns the others.
    fn link(
        &mut self,
        libraries: &[Library],
        id: LibraryId,
        sites: &[IndexedSite],
        kind: Kind,
        result: &mut Attached,
    ) -> Vec<IndexedSite> {
        let (linker, switches) = (Linker::of(&self.engine, self.target), &self.switches);
        let Some(library) = libraries.get(id.0) else { return Vec::new() };
        if sites.is_empty() {
            return Vec::new();
        }
        if let Some(programs) = self.programs.as_mut().filter(|_| kind == Kind::Return) {
            // Of two probes on a return the newer runs first: the time of the user's program is no part of the call's.
            programs.add((id, library), sites, CallEnd::Return);
        }
        if kind == Kind::Return {
            let link = &mut |library: &Library, sites: &[IndexedSite]| linker.link(library, sites, kind, switches);
            return take_in(self.returns.add((id, library), sites, link), sites, result);
        }
        switches.place(sites.iter().map(|site| site.index));
        let (exits, entries): (Vec<IndexedSite>, _) =
            sites.iter().copied().partition(|site: &IndexedSite| switches.is_at_exit(site.index));
        let mut accepted = Vec::new();
        for sites in [exits, entries].iter().filter(|sites| !sites.is_empty()) {
            let link = &mut |library: &Library, sites: &[IndexedSite]| linker.link(library, sites, kind, switches);
            accepted.extend(take_in(self.entries.add((id, library), sites, link), sites, result));
        }
        accepted
    }

    /// Attaches probes of functions that had them before. Those that are not attached for the first time yet are none of `probes`.
    fn attach_again(&mut self, libraries: &[Library], probes: &[Probe], indices: &[u32], kind: Kind) {
        let probes = chosen(probes, indices);
        if probes.is_empty() {
            return;
        }
        self.closing.wait();
        for (library, sites) in by_library(libraries, &probes) {
            let mut result = Attached::default();
            let linked = self.link(libraries, library, &sites, kind, &mut result);
            if kind == Kind::Return {
                self.wait_for_unreturned(libraries, library, &linked);
            }
            self.switches.attached(linked.iter().map(|site| site.index), kind == Kind::Return, true);
            let pid = self.target.pid;
            result.failed.iter().for_each(|(error, _)| tracing::warn!("process {pid}: {}", in_full(error)));
            let failed = result.failed.iter().flat_map(|(_, indices)| indices);
            let stuck: Vec<u32> = result.refused.iter().chain(failed).copied().collect();
            self.switches.stuck(&stuck);
        }
    }

    /// Waits until the hits are over that began before there were probes on the returns of these sites. One that is put off the
    /// CPU before it reads what to do would begin a timed call, and nobody would see its return.
    fn wait_for_unreturned(&self, libraries: &[Library], library: LibraryId, sites: &[IndexedSite]) {
        let was_hit = |site: &&IndexedSite| self.switches.has_probe(site.index);
        let hit: Vec<IndexedSite> = sites.iter().filter(was_hit).copied().collect();
        if !hit.is_empty() {
            Linker::of(&self.engine, self.target).wait_for_hits(libraries, library, &hit, &self.switches);
        }
    }

    /// Hands functions over to the lanes where they have newer probes. `sites` are theirs.
    fn hand_over(&self, libraries: &[Library], sites: &[(LibraryId, Vec<IndexedSite>)], moves: &[(u32, Lane)]) {
        let linker = Linker::of(&self.engine, self.target);
        self.switches.hand_over(moves, next_epoch());
        for (library, sites) in once_each(sites) {
            linker.wait_for_hits(libraries, library, &sites, &self.switches);
        }
        self.switches.settle(moves);
    }
}

/// The sites of each library together, of whichever links: the kernel takes some tens of milliseconds for each wait, and longer on a busy
/// machine.
fn once_each(sites: &[(LibraryId, Vec<IndexedSite>)]) -> BTreeMap<LibraryId, Vec<IndexedSite>> {
    let mut each: BTreeMap<LibraryId, Vec<IndexedSite>> = BTreeMap::new();
    for (library, sites) in sites {
        each.entry(*library).or_default().extend(sites);
    }
    each
}

/// Takes in what became of sites that were to be linked. Returns those that are.
fn take_in(
    linked: Result<Outcome<IndexedSite>, Error>,
    sites: &[IndexedSite],
    result: &mut Attached,
) -> Vec<IndexedSite> {
    match linked {
        Ok(outcome) => {
            result.refused.extend(outcome.refused.iter().map(|site| site.index));
            outcome.accepted
        }
        Err(error) => {
            result.failed.push((error, sites.iter().map(|site| site.index).collect()));
            Vec::new()
        }
    }
}

/// A number that no other hand-over has.
fn next_epoch() -> u32 {
    EPOCH.fetch_add(1, Ordering::Relaxed)
}

impl Drop for Session {
    fn drop(&mut self) {
        self.detach();
    }
}

fn chosen(probes: &[Probe], indices: &[u32]) -> Vec<Probe> {
    probes.iter().filter(|probe| indices.contains(&probe.index)).cloned().collect()
}

/// The probes of each library, libraries without probes left out.
fn by_library(libraries: &[Library], probes: &[Probe]) -> Vec<(LibraryId, Vec<IndexedSite>)> {
    let sites_in = |id: LibraryId| -> Vec<IndexedSite> {
        probes.iter().filter(|probe| probe.site.library == id).map(IndexedSite::from).collect()
    };
    let each = (0..libraries.len()).map(|place| (LibraryId(place), sites_in(LibraryId(place))));
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
        let (id, signature) = (VirtAddr(u64::from(index)), "()V".into());
        let method = Method { id, class: "A".into(), name: "b".into(), signature, code };
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
                (
                    libraries[library.0].file.inode,
                    sites.iter().map(|site| (site.index, site.offset)).collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(inodes_and_sites, [(10, vec![(5, 0x100)]), (12, vec![(4, 0x100), (6, 0x90)])]);
    }

    /// Check that there is one wait for a library, however many links its sites have.
    #[test]
    fn one_wait_for_a_library() {
        let site = |index| IndexedSite { index, offset: 0, distance: 0 };
        let links =
            [(LibraryId(1), vec![site(1), site(2)]), (LibraryId(0), vec![site(3)]), (LibraryId(1), vec![site(4)])];
        let each = once_each(&links);
        assert_eq!(each.keys().map(|library| library.0).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(each[&LibraryId(1)], [1, 2, 4].map(site));
    }

    /// Check that a probe of a library that is not in the list is left out.
    #[test]
    fn unknown_library() {
        assert!(by_library(&[library(10)], &[probe(0, 1, 0x100)]).is_empty());
        assert!(by_library(&[], &[]).is_empty());
    }
}
