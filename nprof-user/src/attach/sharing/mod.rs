//! Links that serve all traced processes which have a library mapped: which there are, whom they serve, and when they go.
//!
//! Every session that takes part is a *member*. It says what it wants of its libraries ([`Sharing::declare`]); one of them makes
//! the links that are due ([`Sharing::due`]); and each moves its functions to them, or away from those that have to go, when it
//! comes to it. The kernel is asked by the sessions; here is only what they have in common.

mod file;
mod state;
mod strangers;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use nprof_common::Lane;

use self::file::Group;
pub use self::file::Terms;
pub(super) use self::file::{Spot, Spots, Wish, Wishes};
use self::state::{Registered, State};
pub(super) use self::tables::Tables;
use super::links::close;
use crate::model::{FileId, FileOffset, Library, Pid};
use crate::sys::probe_link::ProbeLink;

/// What is asked before a link may reach everyone who has a library mapped.
pub trait Neighbours {
    /// Those of the files that a process has mapped which is not one of `members`.
    fn mapped_by_others(&self, files: &BTreeSet<FileId>, members: &BTreeSet<Pid>) -> BTreeSet<FileId>;

    /// Those of the entries in a library that are proven to be starts of functions.
    fn proven(&self, library: &Library, entries: &[FileOffset]) -> BTreeSet<FileOffset>;
}

/// What all sessions of an engine have in common that share links.
#[derive(Debug)]
pub(super) struct Sharing {
    tables: Tables,
    /// Whether links reach everyone in any case.
    reaches_everyone: bool,
    state: Mutex<State>,
}

/// Links that a session is to make.
#[derive(Debug)]
pub(super) struct Due {
    pub file: FileId,
    /// Each in its lane.
    pub links: Vec<(Lane, Spots)>,
}

/// Links that a session has made.
#[derive(Debug)]
pub(super) struct Made {
    pub lane: Lane,
    pub spots: Spots,
    /// A moment before the kernel was asked.
    pub since: Instant,
    pub links: Vec<ProbeLink>,
}

/// A group as a member sees it.
#[derive(Debug, Clone)]
pub(super) struct View {
    pub id: u64,
    pub lane: Lane,
    pub spots: Arc<Spots>,
    pub made: Instant,
    pub is_leaving: bool,
}

impl Sharing {
    /// No links yet. `reaches_everyone`: whether the kernel keeps no link to its process.
    pub(super) fn new(tables: Tables, reaches_everyone: bool) -> Self {
        Self { tables, reaches_everyone, state: Mutex::new(State::new()) }
    }

    /// A process is traced from now on. Without terms it shares nothing, and what it has mapped is not shared by others.
    pub(super) fn register(&self, pid: Pid, terms: Option<Terms>) {
        let mut state = self.lock();
        let terms = self.on_this_kernel(terms);
        let row = terms.and_then(|_| state.rows.pop_front());
        let entered = row.filter(|row| self.tables.enter(pid, *row));
        if let (Some(row), None) = (row, entered) {
            // Another process has its slot.
            state.rows.push_front(row);
        }
        state.members.insert(pid, Registered { row: entered, terms: entered.and(terms) });
    }

    /// The process shares links on other terms from now on.
    pub(super) fn change_terms(&self, pid: Pid, terms: Option<Terms>) {
        let mut state = self.lock();
        let terms = self.on_this_kernel(terms);
        if let Some(member) = state.members.get_mut(&pid) {
            member.terms = member.row.and(terms);
            state.changes += 1;
        }
    }

    /// Where links reach everyone in any case, it does not matter what others have selected.
    fn on_this_kernel(&self, terms: Option<Terms>) -> Option<Terms> {
        if self.reaches_everyone { Some(Terms(0)) } else { terms }
    }

    /// The process is not traced any more: none of its hits counts. Returns what closes links that serve nobody now.
    pub(super) fn unregister(self: &Arc<Self>, pid: Pid, lives: bool) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        if let Some(Registered { row: Some(row), .. }) = state.members.remove(&pid) {
            self.tables.leave(pid, row);
            state.rows.push_back(row);
        }
        let (now, mut changes) = (Instant::now(), 0);
        for file in state.files.values_mut().filter(|file| file.wishes.contains_key(&pid)) {
            file.wishes.remove(&pid);
            for group in &mut file.groups {
                group.users.remove(&pid);
            }
            // It would pay for what nobody counts.
            if lives || file.wishes.is_empty() {
                changes += u64::from(file.refuse(now));
            }
        }
        state.changes += changes;
        let closing = self.close_left(&mut state);
        state.forget_files();
        state.set_due();
        closing
    }

    /// Whether a member has something to do that has last looked when there were so many changes.
    pub(super) fn is_due(&self, seen: u64) -> bool {
        let state = self.lock();
        state.changes != seen
            || state.due.is_some_and(|due| due <= Instant::now())
            || state.strangers.are_news(self.tables.strangers().0)
    }

    /// How many changes there were.
    pub(super) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Takes in what a member wants of its libraries.
    pub(super) fn declare(&self, pid: Pid, wishes: BTreeMap<FileId, BTreeMap<u64, (u32, Wish)>>) {
        let (mut state, now) = (self.lock(), Instant::now());
        let Some(terms) = state.members.get(&pid).map(|member| member.terms) else { return };
        let mut are_new = false;
        for (id, sites) in wishes {
            let file = state.files.entry(id).or_default();
            let wishes = Wishes { terms, sites };
            if file.wishes.get(&pid) != Some(&wishes) {
                are_new = true;
                let has_to_go = file.declare(pid, wishes, now);
                state.changes += u64::from(has_to_go);
            }
        }
        if are_new {
            state.set_due();
        }
    }

    /// The links that are due and that this member can make. They are nobody else's until [`Self::made`].
    pub(super) fn due(&self, pid: Pid, neighbours: &dyn Neighbours) -> Vec<Due> {
        let now = Instant::now();
        let planned = self.lock().take_due(pid, now);
        if planned.is_empty() {
            return Vec::new();
        }
        let files: BTreeSet<FileId> = planned.iter().map(|(id, _)| *id).collect();
        let others =
            if self.reaches_everyone { BTreeSet::new() } else { neighbours.mapped_by_others(&files, &self.members()) };
        let mut state = self.lock();
        let mut due = Vec::new();
        for (id, planned) in planned {
            if others.contains(&id) {
                state.not_made(id, now);
            } else {
                let links = planned.into_iter().map(|one| (one.lane, state.number(id, one.sites))).collect();
                due.push(Due { file: id, links });
            }
        }
        due
    }

    /// Whether functions have to be proven before a link may hold them that reaches everyone: otherwise they have been.
    pub(super) fn asks_for_proof(&self) -> bool {
        !self.reaches_everyone
    }

    /// Sites of a file that nothing proves.
    pub(super) fn unproven(&self, file: FileId, sites: impl Iterator<Item = u64>) {
        if let Some(file) = self.lock().files.get_mut(&file) {
            file.unproven.extend(sites);
        }
    }

    /// Links that were due are there, or could not be made. Returns those that nobody can use any more.
    pub(super) fn made(&self, id: FileId, made: Vec<Made>) -> Vec<ProbeLink> {
        let (mut state, now) = (self.lock(), Instant::now());
        let mut unused = Vec::new();
        let State { files, next_group, changes, .. } = &mut *state;
        let Some(file) = files.get_mut(&id) else { return made.into_iter().flat_map(|made| made.links).collect() };
        file.is_forming = false;
        file.pause(now);
        for Made { lane, spots, since, mut links } in made {
            if file.wishes.is_empty() {
                unused.append(&mut links);
                continue;
            }
            (*next_group, *changes) = (*next_group + 1, *changes + 1);
            let (id, spots) = (*next_group, Arc::new(spots));
            let (is_leaving, users, is_closing) = (false, BTreeSet::new(), false);
            file.groups.push(Group { id, lane, spots, made: since, is_leaving, users, links, is_closing });
        }
        // Somebody may want less by now.
        file.dismiss_unwanted(now);
        state.forget_files();
        state.set_due();
        unused
    }

    /// The groups of a file.
    pub(super) fn views(&self, file: FileId) -> Vec<View> {
        let state = self.lock();
        let groups = state.files.get(&file).into_iter().flat_map(|file| &file.groups);
        groups
            .map(|Group { id, lane, spots, made, is_leaving, .. }| View {
                id: *id,
                lane: *lane,
                spots: Arc::clone(spots),
                made: *made,
                is_leaving: *is_leaving,
            })
            .collect()
    }

    /// Makes a member one of a group's users, and says which records its hits are for. Returns the offsets of those that can be
    /// had: none if the group has to go, or if the member does not suit it.
    pub(super) fn enter(&self, pid: Pid, file: FileId, view: &View, records: &BTreeMap<u64, u32>) -> BTreeSet<u64> {
        let mut state = self.lock();
        let State { members, files, .. } = &mut *state;
        let Some(&Registered { row: Some(row), terms }) = members.get(&pid) else { return BTreeSet::new() };
        let Some(file) = files.get_mut(&file).filter(|file| file.suits(terms)) else { return BTreeSet::new() };
        let group = file.groups.iter_mut().find(|group| group.id == view.id && !group.is_leaving);
        let Some(group) = group else { return BTreeSet::new() };
        let mut entered = BTreeSet::new();
        for (at, record) in records {
            let Some(spot) = group.spots.get(at) else { continue };
            if self.tables.set_record(row, spot.number, *record) {
                entered.insert(*at);
            }
        }
        if !entered.is_empty() {
            group.users.insert(pid);
        }
        entered
    }

    /// A group holds what a member has attached later by itself: it has to go, so that the next one is newer.
    pub(super) fn renew(&self, file: FileId, id: u64) {
        let mut state = self.lock();
        let group = state.files.get_mut(&file).and_then(|file| file.groups.iter_mut().find(|group| group.id == id));
        if let Some(group) = group {
            group.is_leaving = true;
            state.changes += 1;
        }
    }

    /// A member uses no other groups than those with functions of its own in `used`. Those that have to go and have no user
    /// any more are closed meanwhile.
    pub(super) fn leave_others(self: &Arc<Self>, pid: Pid, used: &BTreeSet<(FileId, u64)>) {
        let mut state = self.lock();
        for (id, file) in &mut state.files {
            for group in file.groups.iter_mut().filter(|group| !used.contains(&(*id, group.id))) {
                group.users.remove(&pid);
            }
        }
        drop(self.close_left(&mut state));
    }

    /// Closes what has to go and has no user any more, each by a thread: the kernel waits for running programs.
    fn close_left(self: &Arc<Self>, state: &mut State) -> Vec<JoinHandle<()>> {
        let mut closing = Vec::new();
        for (file, group) in
            state.files.iter_mut().flat_map(|(id, file)| file.groups.iter_mut().map(|group| (*id, group)))
        {
            if group.is_left() && !group.is_closing {
                group.is_closing = true;
                let (links, sharing, group) = (std::mem::take(&mut group.links), Arc::clone(self), group.id);
                closing.push(thread::spawn(move || {
                    close(links);
                    sharing.closed(file, group);
                }));
            }
        }
        closing
    }

    /// Looks at who has hit shared links without being served: after a while its files have none any more.
    pub(super) fn look_at_strangers(&self) {
        let (hits, last, number) = self.tables.strangers();
        let (mut state, now) = (self.lock(), Instant::now());
        if !state.strangers.are_news(hits) {
            return;
        }
        if self.reaches_everyone || state.members.contains_key(&last) {
            return state.strangers.pass_over(hits);
        }
        if state.strangers.has_paid_enough(hits, last, now) {
            let mut files = state.files.values_mut();
            let hit = files.find(|file| file.numbers.values().any(|known| *known == number));
            let had_to_go = hit.is_some_and(|file| file.refuse(now));
            if had_to_go {
                state.changes += 1;
                tracing::debug!("process {last} is not traced and hits a shared link: there is one for each JVM again");
            }
            state.set_due();
        }
    }

    /// How many groups there are, and how many of them have to go.
    pub(super) fn groups(&self) -> (usize, usize) {
        let state = self.lock();
        let groups = || state.files.values().flat_map(|file| &file.groups);
        (groups().count(), groups().filter(|group| group.is_leaving).count())
    }

    fn members(&self) -> BTreeSet<Pid> {
        self.lock().members.keys().copied().collect()
    }

    /// A group is gone.
    fn closed(&self, file: FileId, id: u64) {
        let mut state = self.lock();
        if let Some(file) = state.files.get_mut(&file) {
            file.groups.retain(|group| group.id != id);
        }
        state.forget_files();
        state.set_due();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked here has changed a group as a whole or not at all.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
