//! Where in the memory that a JVM and nprof share the records of its stubs are, and what goes with them.
//!
//! | from | |
//! | --- | --- |
//! | the beginning | the [`MethodStats`] of each record, a shard for each CPU and a spare one |
//! | `consumed`, if that is recorded | as many [`Consumed`] |
//! | `bytes`, with the next page | of each record a [`CallBytes`] for each of the wanted counters |

use crate::call_bytes::CallBytes;
use crate::counters::Consumed;
use crate::stats::MethodStats;
use crate::wire::MOST_STUBS;

/// The size of a page.
pub const PAGE: u64 = 4_096;

const _: () = assert!(size_of::<MethodStats>() < 1 << 16 && size_of::<Consumed>() < 1 << 16);

/// Where the parts begin, in bytes from the first record on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What calls have consumed. As `bytes`, if that is not recorded.
    pub consumed: u64,
    /// How much each call has consumed. As `end` if that is not recorded.
    pub bytes: u64,
    /// Where all ends.
    pub end: u64,
}

impl Layout {
    /// That of so many records with so many shards, the spare one among them: with what calls have consumed, and how much each has, of these
    /// counters, as bits. `None` for more than there can be.
    #[must_use]
    pub const fn of(records: u32, shards: u32, has_consumed: bool, bytes: u32) -> Option<Self> {
        if records > MOST_STUBS {
            return None;
        }
        // 46 bits at most, and no size has more than 16: nothing overflows.
        let values = records as u64 * shards as u64;
        let consumed = values * size_of::<MethodStats>() as u64;
        let of_consumed = if has_consumed { values * size_of::<Consumed>() as u64 } else { 0 };
        let bytes_at = (consumed + of_consumed).next_multiple_of(PAGE);
        let of_bytes = records as u64 * bytes.count_ones() as u64 * size_of::<CallBytes>() as u64;
        Some(Self { consumed, bytes: bytes_at, end: bytes_at + of_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counter;

    /// Check that parts follow each other without a common byte, with and without what may be missing.
    #[test]
    fn parts_follow_each_other() {
        let stats = size_of::<MethodStats>() as u64;
        let bare = Layout::of(3, 2, false, 0).unwrap();
        assert_eq!((bare.consumed, bare.end), (6 * stats, (6 * stats).next_multiple_of(PAGE)));
        let full = Layout::of(3, 2, true, Counter::OF_BYTES).unwrap();
        assert_eq!((full.consumed, full.bytes % PAGE), (bare.consumed, 0));
        assert!(full.bytes >= full.consumed + 6 * size_of::<Consumed>() as u64);
        let of_each = Counter::OF_BYTES.count_ones() as u64 * size_of::<CallBytes>() as u64;
        assert_eq!(full.end, full.bytes + 3 * of_each);
    }

    /// Check that there is nothing for more than there can be, and no overflow.
    #[test]
    fn has_bounds() {
        assert_eq!(Layout::of(MOST_STUBS + 1, 2, false, 0), None);
        let most = Layout::of(MOST_STUBS, u32::MAX, true, u32::MAX).unwrap();
        assert!(most.consumed < most.bytes && most.bytes < most.end);
    }
}
