//! The arrays by which hits of shared links find their records: [`nprof_common::shared`].
//!
//! Those that are only written now and then are not mapped: the kernel maps an array as a whole, which would count as memory of
//! nprof.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::maps::{Array, MapData, MapError};
use nprof_common::shared::{Member, SITES, place, slot, strangers};

use crate::model::Pid;
use crate::sys::mapped_array::MappedArray;

/// The arrays.
#[derive(Debug)]
pub(in crate::attach) struct Tables {
    written: Mutex<Written>,
    strangers: MappedArray,
}

struct Written {
    /// [`Member`]s.
    members: Array<MapData, u64>,
    /// Numbers of records.
    places: Array<MapData, u32>,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Written").finish_non_exhaustive()
    }
}

impl Tables {
    pub(in crate::attach) fn new(
        members: Array<MapData, u64>,
        places: Array<MapData, u32>,
        strangers: MappedArray,
    ) -> Self {
        Self { written: Mutex::new(Written { members, places }), strangers }
    }

    /// Lets a process be served by a row. Returns whether its slot was free for that.
    pub(super) fn enter(&self, pid: Pid, row: u32) -> bool {
        let (mut tables, at) = (self.lock(), slot(pid.0));
        tables.members.get(&at, 0).is_ok_and(|member| member == 0)
            && done(tables.members.set(at, Member::new(pid.0, row).0, 0))
    }

    /// Ends that, and empties the row.
    pub(super) fn leave(&self, pid: Pid, row: u32) {
        let mut tables = self.lock();
        done(tables.members.set(slot(pid.0), 0, 0));
        for site in 0..SITES {
            done(tables.places.set(place(row, site), 0, 0));
        }
    }

    /// Says which record a row has for a site, if it has none yet. Returns whether it has this one now.
    pub(super) fn set_record(&self, row: u32, site: u32, record: u32) -> bool {
        let (mut tables, at) = (self.lock(), place(row, site));
        match tables.places.get(&at, 0) {
            Ok(0) => done(tables.places.set(at, record, 0)),
            Ok(known) => known == record,
            Err(_) => false,
        }
    }

    /// How often strangers have hit shared links, and who did last, at which site.
    pub(super) fn strangers(&self) -> (u64, Pid, u32) {
        let word = |at: u32| self.strangers.load(at as usize).unwrap_or(0);
        let (hits, last) = (word(strangers::HITS), word(strangers::LAST));
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
        let (pid, site) = ((last >> 32) as u32, last as u32);
        (hits, Pid(pid), site)
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        // No entry depends on another.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the kernel did it. It has no reason to refuse an entry of an array.
fn done(result: Result<(), MapError>) -> bool {
    result.inspect_err(|error| tracing::error!("an entry of a BPF array cannot be written: {error}")).is_ok()
}
