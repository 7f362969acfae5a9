//! What is known of all members and their files.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use nprof_common::shared::{ROWS, SITES};

use super::file::{File, Planned, Spot, Spots, Terms};
use super::strangers::Strangers;
use crate::model::{FileId, Pid};

/// What is due and could not be done is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// The members, their files, and the numbers that none has.
#[derive(Debug)]
pub(super) struct State {
    pub members: BTreeMap<Pid, Registered>,
    pub files: BTreeMap<FileId, File>,
    /// Rows that nobody has. The one that was given back last is taken last: a hit may still be under way that has read it.
    pub rows: VecDeque<u32>,
    /// Numbers of sites that none has.
    pub numbers: Vec<u32>,
    pub strangers: Strangers,
    /// When links are due.
    pub due: Option<Instant>,
    /// How often groups have come or have had to go.
    pub changes: u64,
    pub next_group: u64,
}

/// A member.
#[derive(Debug)]
pub(super) struct Registered {
    /// `None` of one that shares nothing.
    pub row: Option<u32>,
    pub terms: Option<Terms>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            members: BTreeMap::new(),
            files: BTreeMap::new(),
            rows: (0..ROWS).collect(),
            numbers: (0..SITES).rev().collect(),
            strangers: Strangers::default(),
            due: None,
            changes: 1,
            next_group: 0,
        }
    }

    /// What is due of the files that a member has; nobody else gets it.
    pub(super) fn take_due(&mut self, pid: Pid, now: Instant) -> Vec<(FileId, Vec<Planned>)> {
        let mut due = Vec::new();
        for (id, file) in self.files.iter_mut().filter(|(_, file)| file.wishes.contains_key(&pid)) {
            let planned = file.plan(now);
            if !planned.is_empty() {
                file.is_forming = true;
                due.push((*id, planned));
            }
        }
        self.set_due();
        // What could not be planned now waits for others.
        self.due = self.due.map(|due| due.max(now + AGAIN));
        due
    }

    pub(super) fn not_made(&mut self, id: FileId, now: Instant) {
        if let Some(file) = self.files.get_mut(&id) {
            file.is_forming = false;
            file.refuse(now);
        }
        self.set_due();
    }

    /// Gives sites their numbers; those for which there is none are left out.
    pub(super) fn number(&mut self, id: FileId, sites: BTreeMap<u64, u32>) -> Spots {
        let numbers = &mut self.files.entry(id).or_default().numbers;
        let mut spots = Spots::new();
        for (at, distance) in sites {
            if let Some(number) = numbers.get(&at).copied().or_else(|| self.numbers.pop()) {
                numbers.insert(at, number);
                spots.insert(at, Spot { number, distance });
            }
        }
        spots
    }

    /// Forgets files that nobody has. No row has anything for their sites.
    pub(super) fn forget_files(&mut self) {
        let is_over = |file: &File| file.wishes.is_empty() && file.groups.is_empty() && !file.is_forming;
        for (_, file) in self.files.extract_if(.., |_, file| is_over(file)) {
            self.numbers.extend(file.numbers.into_values());
        }
    }

    pub(super) fn set_due(&mut self) {
        self.due = self.files.values().filter_map(File::due).min();
    }
}
