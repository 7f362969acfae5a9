//! How the functions of a target come to links that serve other targets too, and away from them: [`super::super::sharing`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use nprof_common::Lane;

use super::{Attached, Session, by_library};
use crate::attach::error::in_full;
use crate::attach::linker::{Kind, Linker};
use crate::attach::links::{IndexedSite, Replaced, close};
use crate::attach::sharing::{Due, Made, Neighbours, Sharing, Spots, Terms, View, Wish};
use crate::attach::switches::Placed;
use crate::model::{FileId, FileOffset, Library, LibraryId, Pid, Probe, Tracing};
use crate::sys::probe_link::{self, ProbeLink};

/// A function, and where its probes are.
#[derive(Debug, Clone, Copy)]
struct Located {
    placed: Placed,
    library: LibraryId,
    file: FileId,
    site: IndexedSite,
}

/// Where functions are to go.
#[derive(Debug, Default)]
struct Moves {
    /// To links of the target's own, from shared ones.
    to_own: Vec<Located>,
    /// To shared ones.
    to_shared: Vec<(Located, Lane)>,
}

/// What a target wants of its libraries, by offset.
type Wished = BTreeMap<FileId, BTreeMap<u64, (u32, Wish)>>;

impl Session {
    /// Lets links hold functions of this target that serve others too, as far as all have the same terms. Without terms it
    /// has its own, and so have others for what it has mapped.
    pub fn begin_sharing(&mut self, terms: Option<Terms>) {
        if let Some(sharing) = self.engine.sharing() {
            sharing.register(self.target.pid, terms);
            self.shares = Some(0);
        }
    }

    /// Changes the terms, for the next [`Self::share`].
    pub fn change_terms(&self, terms: Option<Terms>) {
        if let Some(sharing) = self.sharing() {
            sharing.change_terms(self.target.pid, terms);
        }
    }

    /// Whether [`Self::share`] has something to do.
    #[must_use]
    pub fn is_sharing_due(&self) -> bool {
        let is_due = |seen, sharing: &Arc<Sharing>| self.switches.is_shared_out_anew() || sharing.is_due(seen);
        self.shares.zip(self.engine.sharing()).is_some_and(|(seen, sharing)| is_due(seen, sharing))
    }

    /// Says what this target wants, makes the shared links that are due, and moves its functions to these and from those that
    /// have to go. Every call is counted as before.
    pub fn share(&mut self, libraries: &[Library], probes: &[Probe], neighbours: &dyn Neighbours) {
        let Some(sharing) = self.sharing() else { return };
        // What changes from now on is for the next time.
        self.shares = Some(sharing.changes());
        self.switches.has_been_shared_out();
        sharing.look_at_strangers();
        let pid = self.target.pid;
        let functions = self.located(libraries, probes);
        sharing.declare(pid, self.wishes(libraries, &functions));
        // A new one takes the place of others, which count what they are to count. What has to go goes in any case.
        let due = if probe_link::are_many_left() { Vec::new() } else { sharing.due(pid, neighbours) };
        for due in due {
            let file = due.file;
            let made = self.make(&sharing, libraries, due, neighbours);
            close(sharing.made(file, made));
        }
        let moves = self.moves(&sharing, &functions);
        let are_own_again = !moves.to_own.is_empty();
        self.move_all(libraries, moves);
        let used = self.used(&sharing, &self.located(libraries, probes));
        sharing.leave_others(pid, &used);
        if are_own_again {
            // Those that are to have fewer probes than a shared link holds.
            self.settle(libraries, probes);
        }
    }

    /// Has no function in a shared link any more: of what is switched off.
    pub(super) fn stop_sharing(&mut self) {
        if let Some(sharing) = self.sharing() {
            self.shares = None;
            self.closing.extend(sharing.unregister(self.target.pid, lives(self.target.pid)));
        }
    }

    /// Has shared links that are there already serve functions that have no probe yet. Returns which they are: these can be switched on.
    pub(super) fn join_shared(&self, libraries: &[Library], probes: &[Probe]) -> Vec<u32> {
        let Some(sharing) = self.sharing() else { return Vec::new() };
        let usual = if self.target.timed { Tracing::Timed } else { Tracing::Counted };
        let mut served = Vec::new();
        for (id, sites) in by_library(libraries, probes) {
            let file = libraries[id.0].file;
            let views = sharing.views(file);
            for view in views.iter().filter(|view| !view.is_leaving) {
                let may = |site: &&IndexedSite| self.switches.attachable(site.index) >= Some(usual) && view.holds(site);
                let sites: Vec<&IndexedSite> = sites.iter().filter(may).collect();
                let at = |site: &&IndexedSite| Some((site.offset, self.switches.record(site.index)?));
                let records: BTreeMap<u64, u32> = sites.iter().filter_map(at).collect();
                let entered = sharing.enter(self.target.pid, file, view, &records);
                // Of two functions with one site, one is served.
                let is_served = |site: &&&IndexedSite| {
                    entered.contains(&site.offset)
                        && self.switches.record(site.index) == records.get(&site.offset).copied()
                };
                let indices: Vec<u32> = sites.iter().filter(is_served).map(|site| site.index).collect();
                self.switches.settle(&indices.iter().map(|index| (*index, view.lane)).collect::<Vec<_>>());
                served.extend(indices);
            }
        }
        if self.target.timed {
            self.switches.attached(served.iter().copied(), true, true);
        }
        served
    }

    fn sharing(&self) -> Option<Arc<Sharing>> {
        self.shares.and(self.engine.sharing()).map(Arc::clone)
    }

    /// Every function, with where its probes are.
    fn located(&self, libraries: &[Library], probes: &[Probe]) -> Vec<Located> {
        let placed = self.switches.placed();
        let locate = |probe: &Probe| {
            let library = probe.site.library;
            let (placed, file) = (*placed.get(&probe.index)?, libraries.get(library.0)?.file);
            Some(Located { placed, library, file, site: IndexedSite::from(probe) })
        };
        probes.iter().filter_map(locate).collect()
    }

    /// What this target wants of each of its libraries, also of those of which it traces nothing.
    fn wishes(&self, libraries: &[Library], functions: &[Located]) -> Wished {
        let mut wished: Wished = libraries.iter().map(|library| (library.file, BTreeMap::new())).collect();
        for Located { placed, site, file, .. } in functions {
            let wish = match placed.may_share {
                true if !placed.lane.is_shared() && self.entries.is_single(site.index) => Wish::Single,
                true => Wish::Shared,
                false => Wish::Less,
            };
            let sites = wished.entry(*file).or_default();
            // A place in the tables is that of one function.
            let wish = if sites.contains_key(&site.offset) { Wish::Less } else { wish };
            sites.insert(site.offset, (site.distance, wish));
        }
        wished
    }

    /// Makes links that are due. What cannot be linked is left as it is.
    fn make(&self, sharing: &Sharing, libraries: &[Library], due: Due, neighbours: &dyn Neighbours) -> Vec<Made> {
        let Some(library) = libraries.iter().find(|library| library.file == due.file) else { return Vec::new() };
        let mut made = Vec::new();
        for (lane, mut spots) in due.links {
            if sharing.asks_for_proof() {
                let entries: Vec<FileOffset> = spots.iter().map(|(at, spot)| entry(*at, spot.distance)).collect();
                let proven = neighbours.proven(library, &entries);
                let unproven = spots.extract_if(.., |at, spot| !proven.contains(&entry(*at, spot.distance)));
                sharing.unproven(due.file, unproven.map(|(at, _)| at));
            }
            if spots.is_empty() {
                continue;
            }
            let since = Instant::now();
            match self.link_shared(library, (lane, &spots)) {
                Ok(links) => made.push(Made { lane, spots, since, links }),
                Err(error) => tracing::debug!("{}: no link for all JVMs: {error}", library.name()),
            }
        }
        made
    }

    /// The return comes first, as in [`Self::attach`].
    fn link_shared(&self, library: &Library, spots: (Lane, &Spots)) -> io::Result<Vec<ProbeLink>> {
        let linker = Linker::of(&self.engine, self.target);
        let mut links = Vec::new();
        if self.target.timed {
            links.push(linker.link_shared(library, spots, true)?);
        }
        links.push(linker.link_shared(library, spots, false)?);
        Ok(links)
    }

    /// Where functions are to go now.
    fn moves(&self, sharing: &Sharing, functions: &[Located]) -> Moves {
        let mut by_file: BTreeMap<FileId, Vec<Located>> = BTreeMap::new();
        functions.iter().for_each(|function| by_file.entry(function.file).or_default().push(*function));
        let mut moves = Moves::default();
        for (file, functions) in by_file {
            let views = sharing.views(file);
            if views.is_empty() {
                continue;
            }
            let mut wanted: BTreeMap<u64, (&View, Vec<Located>)> = BTreeMap::new();
            for function in functions {
                match aim(function, &views) {
                    Aim::Stay => {}
                    Aim::Own => moves.to_own.push(function),
                    Aim::Renew(id) => sharing.renew(file, id),
                    Aim::Shared(view) => wanted.entry(view.id).or_insert((view, Vec::new())).1.push(function),
                }
            }
            for (view, functions) in wanted.into_values() {
                let records = functions.iter().map(|function| (function.site.offset, function.placed.record)).collect();
                let entered = sharing.enter(self.target.pid, file, view, &records);
                for function in functions {
                    if entered.contains(&function.site.offset) {
                        moves.to_shared.push((function, view.lane));
                    } else if function.placed.lane.is_shared() {
                        moves.to_own.push(function);
                    }
                }
            }
        }
        moves
    }

    /// Moves functions from the links that hold their probes to newer ones.
    fn move_all(&mut self, libraries: &[Library], moves: Moves) {
        if moves.to_own.is_empty() && moves.to_shared.is_empty() {
            return;
        }
        self.closing.wait();
        let mut moved = self.link_own(libraries, &moves.to_own);
        let (from_shared, from_own): (Vec<_>, Vec<_>) =
            moves.to_shared.into_iter().partition(|(function, _)| function.placed.lane.is_shared());
        let unwanted: Vec<u32> = from_own.iter().map(|(function, _)| function.site.index).collect();
        let replaced = self.take_out(libraries, &unwanted, Kind::OtherLane);
        moved.extend(from_shared);
        moved.extend(from_own.into_iter().filter(|(function, _)| !replaced.stuck.contains(&function.site.index)));
        let mut lanes: Vec<(u32, Lane)> = moved.iter().map(|(function, lane)| (function.site.index, *lane)).collect();
        lanes.extend(self.switches.to_other_lane(&replaced.kept_indices()));
        let mut sites = replaced.kept;
        let mut by_library: BTreeMap<LibraryId, Vec<IndexedSite>> = BTreeMap::new();
        moved.iter().for_each(|(function, _)| by_library.entry(function.library).or_default().push(function.site));
        sites.extend(by_library);
        self.hand_over(libraries, &sites, &lanes);
        self.closing.replaced(replaced.links);
        // The shared links hold the returns too: the second probe of a return finds nothing to end.
        let returns = self.take_out(libraries, &replaced.dropped, Kind::Return);
        self.closing.replaced(returns.links);
    }

    /// Gives functions that a shared link holds their own, besides. Returns those that have them, with the lane.
    fn link_own(&mut self, libraries: &[Library], functions: &[Located]) -> Vec<(Located, Lane)> {
        let mut by_library: BTreeMap<LibraryId, Vec<IndexedSite>> = BTreeMap::new();
        functions.iter().for_each(|function| by_library.entry(function.library).or_default().push(function.site));
        let (mut result, mut linked) = (Attached::default(), BTreeSet::new());
        for (id, mut sites) in by_library {
            if self.target.timed {
                sites = self.link(libraries, id, &sites, Kind::Return, &mut result);
            }
            linked.extend(self.link(libraries, id, &sites, Kind::FirstLane, &mut result).iter().map(|site| site.index));
        }
        // They stay where they are, and are tried again.
        let pid = self.target.pid;
        result.failed.iter().for_each(|(error, _)| tracing::debug!("process {pid}: {}", in_full(error)));
        let is_linked = |function: &&Located| linked.contains(&function.site.index);
        functions.iter().filter(is_linked).map(|function| (*function, Lane::A)).collect()
    }

    /// Takes functions out of the target's own links; the others of these get new ones.
    fn take_out(&mut self, libraries: &[Library], indices: &[u32], kind: Kind) -> Replaced {
        let (linker, switches) = (Linker::of(&self.engine, self.target), &self.switches);
        let mut link = |library: &Library, sites: &[IndexedSite]| linker.link(library, sites, kind, switches);
        let links = if kind == Kind::Return { &mut self.returns } else { &mut self.entries };
        links.replace(libraries, indices, &mut link)
    }

    /// The groups that hold functions of this target.
    fn used(&self, sharing: &Sharing, functions: &[Located]) -> BTreeSet<(FileId, u64)> {
        let mut used = BTreeSet::new();
        let mut views: BTreeMap<FileId, Vec<View>> = BTreeMap::new();
        for function in functions.iter().filter(|function| function.placed.lane.is_shared()) {
            let views = views.entry(function.file).or_insert_with(|| sharing.views(function.file));
            used.extend(views.iter().filter(|view| view.answers(function)).map(|view| (function.file, view.id)));
        }
        used
    }
}

/// Where a function is to go.
enum Aim<'a> {
    Stay,
    Own,
    Shared(&'a View),
    /// To a shared link that is newer than its own, when there is one.
    Renew(u64),
}

fn aim(function: Located, views: &[View]) -> Aim<'_> {
    let Placed { lane, since, may_share, .. } = function.placed;
    let open = views.iter().find(|view| !view.is_leaving && view.holds(&function.site)).filter(|_| may_share);
    if lane.is_shared() {
        let stays = views.iter().any(|view| !view.is_leaving && view.answers(&function));
        return match open {
            _ if stays => Aim::Stay,
            Some(view) => Aim::Shared(view),
            None => Aim::Own,
        };
    }
    match open {
        // Probes run in the order of their links, and a function can only be handed over to a newer one.
        Some(view) if since.is_some_and(|since| since < view.made) => Aim::Shared(view),
        Some(view) => Aim::Renew(view.id),
        None => Aim::Stay,
    }
}

impl View {
    /// Whether it holds this site.
    fn holds(&self, site: &IndexedSite) -> bool {
        self.spots.get(&site.offset).is_some_and(|spot| spot.distance == site.distance)
    }

    /// Whether its probe is the one that answers for a function.
    fn answers(&self, function: &Located) -> bool {
        self.lane == function.placed.lane && self.holds(&function.site)
    }
}

fn entry(at: u64, distance: u32) -> FileOffset {
    FileOffset(at.saturating_sub(u64::from(distance)))
}

/// Whether a process has not ended: one that has runs no program.
fn lives(pid: Pid) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}
