//! Whether what was read of methods is what was there when a stack was taken.
//!
//! A stack is read some milliseconds after it was taken. Classes that nobody uses any more are taken away together with
//! their code when the heap is collected, and other ones may come to lie in their place. What a stack shows stays until
//! a collection *begins* after it was taken: the VM counts those. So whatever was read before the next one began is
//! right; what was read later, and never before, may be something else. Classes whose loader lasts do not go, and none of
//! them comes to lie where another has just been.

use std::sync::OnceLock;

use super::layout::CodeLayout;
use crate::hotspot::{Reader, RemoteMemory, at};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// How many collections had begun when something was first read.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadAt(OnceLock<u64>);

impl ReadAt {
    /// Whether it was read after the collection that followed `taken_at` had begun. Something that was read just now gets
    /// the number `now`.
    pub(super) fn is_after(&self, taken_at: u64, now: u64) -> bool {
        *self.0.get_or_init(|| now) > taken_at
    }
}

/// Whether a collection has begun since so many had; not where they are not counted.
pub(super) fn has_begun(taken_at: Option<u64>, now: Option<u64>) -> bool {
    taken_at.zip(now).is_some_and(|(taken_at, now)| now > taken_at)
}

/// Finds the counter; `None` where there is none.
pub(super) fn counter<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
) -> Result<Option<VirtAddr>, MemoryError> {
    let Some(collections) = layout.collections else {
        return Ok(None);
    };
    let heap = reader.numbers([(collections.heap, 8)])?;
    Ok(heap.map(|[heap]| at(VirtAddr(heap), collections.total.offset)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what was read first counts, however often it is asked for.
    #[test]
    fn first_reading_counts() {
        let read_at = ReadAt::default();
        assert!(!read_at.is_after(5, 5));
        assert!(!read_at.is_after(5, 9));
        assert!(read_at.is_after(4, 5));
        assert!(ReadAt::default().is_after(5, 6));
    }
}
