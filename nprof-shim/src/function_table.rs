//! A place in the VM's table of JNI functions where one of ours is put before what was there, whoever had put that there.
//!
//! In the end a place is put back only if it still holds ours; otherwise another agent has come since, and ours stays behind its
//! function and only passes calls on. The VM changes the table while no Java code runs. Between reading and writing it another agent
//! could do the same; nobody can prevent that, and the time is short.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::jvmti::FunctionTable;

/// What is known of a place.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// What was there when we came.
    before: AtomicUsize,
    /// Ours is behind another agent's function.
    is_behind: AtomicBool,
}

impl Place {
    /// What ours passes calls on to.
    #[inline]
    pub(crate) fn before(&self) -> usize {
        self.before.load(Ordering::Relaxed)
    }

    /// What ours would be put before, or is, where this is `there`.
    pub(crate) fn behind_ours(&self, there: usize, ours: usize) -> usize {
        let before = self.before();
        let is_behind = self.is_behind.load(Ordering::Relaxed) && there != before;
        if there == ours || is_behind { before } else { there }
    }

    /// Puts ours before what is there. Where ours is behind another agent's from an earlier time, it stays there.
    pub(crate) fn put(&self, table: &mut FunctionTable, place: usize, ours: usize) {
        let there = table.at(place);
        if there != ours && self.behind_ours(there, ours) == there {
            self.before.store(there, Ordering::Release);
            table.set(place, ours);
        }
    }

    /// Puts back what was there, unless somebody else has come since. Tells whether that is so.
    pub(crate) fn put_back(&self, table: &mut FunctionTable, place: usize, ours: usize) -> bool {
        let (there, before) = (table.at(place), self.before());
        let is_behind = there != ours && there != before;
        if there == ours {
            table.set(place, before);
        }
        self.is_behind.store(is_behind, Ordering::Relaxed);
        is_behind
    }
}
