//! Where the VM counts its collections.

use crate::hotspot::{Lookup, Number};
use crate::model::VirtAddr;

/// Where the VM counts its collections.
#[derive(Debug, Clone, Copy)]
pub(super) struct CollectionsLayout {
    /// The variable that leads to the heap.
    pub(super) heap: VirtAddr,
    /// Of the heap: how many collections have begun.
    pub(super) total: Number,
    /// Of the heap: the byte that says whether a collector stops the program now, if there is one.
    pub(super) stopped: Option<u64>,
}

impl CollectionsLayout {
    pub(super) fn of(look: &mut Lookup<'_>) -> Option<Self> {
        look.find("Universe", "_collectedHeap")?;
        look.find("CollectedHeap", "_total_collections")?;
        let heap = look.variable("Universe", "_collectedHeap");
        let stopped = look.find("CollectedHeap", "_is_stw_gc_active").map(|entry| entry.offset);
        Some(Self { heap, stopped, total: look.number("CollectedHeap", "_total_collections") })
    }
}
