//! Where in the memory that a JVM and nprof share the records of its stubs are, and what goes with them.
//!
//! | from | |
//! | --- | --- |
//! | the beginning | the [`MethodStats`] of each record, a shard for each CPU and a spare one |
//! | `consumed`, if that is recorded | as many [`Consumed`] |
//! | `bytes`, with the next page | of each record a [`CallBytes`] for each of the wanted counters |
//! | `counts`, with the next page | the [`StubCounts`] of each record, shard by shard |
//!
//! What a stub does at each call that it only counts touches `counts` alone, where the methods of a class are next to each other: of
//! records each has pages of its own.

use crate::call_bytes::CallBytes;
use crate::counters::Consumed;
use crate::stats::MethodStats;
use crate::wire::MOST_STUBS;

/// The size of a page.
pub const PAGE: u64 = 4_096;

/// The calls of a method that its stub has not timed, on one CPU. In the method's record stubs leave `counted` alone: that is for probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct StubCounts {
    /// Calls that were counted, and not timed.
    pub counted: u64,
    /// Calls that were chosen to be timed, more or less: it only moves the chance of the next one on.
    pub chosen: u64,
}

const _: () = assert!(size_of::<StubCounts>() == 16);

/// From the counts of one shard to those of the next, in bytes: the same whatever the number of records, as stubs know it.
pub const COUNTS_STRIDE: usize = MOST_STUBS as usize * size_of::<StubCounts>();

const _: () = assert!(COUNTS_STRIDE.is_power_of_two() && (COUNTS_STRIDE as u64).is_multiple_of(PAGE));
const _: () = assert!(size_of::<MethodStats>() < 1 << 16 && size_of::<Consumed>() < 1 << 16);

/// Where the parts begin, in bytes from the first record on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// What calls have consumed. As `bytes`, if that is not recorded.
    pub consumed: u64,
    /// How much each call has consumed. As `counts`, but for what is left of a page, if that is not recorded.
    pub bytes: u64,
    /// What stubs have counted.
    pub counts: u64,
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
        let counts = (bytes_at + of_bytes).next_multiple_of(PAGE);
        Some(Self { consumed, bytes: bytes_at, counts, end: counts + shards as u64 * COUNTS_STRIDE as u64 })
    }

    /// Where the counts of a record are, in one of its shards.
    #[must_use]
    pub const fn counts_of(&self, record: u32, shard: u32) -> u64 {
        self.counts + shard as u64 * COUNTS_STRIDE as u64 + record as u64 * size_of::<StubCounts>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counter;

    /// Check that parts follow each other without a common byte, with and without what may be missing.
    #[test]
    fn parts_follow_each_other() {
        let (stats, counts) = (size_of::<MethodStats>() as u64, size_of::<StubCounts>() as u64);
        let bare = Layout::of(3, 2, false, 0).unwrap();
        assert_eq!((bare.consumed, bare.counts), (6 * stats, (6 * stats).next_multiple_of(PAGE)));
        assert_eq!(bare.end, bare.counts + 2 * COUNTS_STRIDE as u64);
        assert_eq!(bare.counts_of(2, 1), bare.counts + COUNTS_STRIDE as u64 + 2 * counts);
        let full = Layout::of(3, 2, true, Counter::OF_BYTES).unwrap();
        assert_eq!((full.consumed, full.bytes % PAGE, full.counts % PAGE), (bare.consumed, 0, 0));
        assert!(full.bytes >= full.consumed + 6 * size_of::<Consumed>() as u64);
        let of_each = Counter::OF_BYTES.count_ones() as u64 * size_of::<CallBytes>() as u64;
        assert!(full.counts >= full.bytes + 3 * of_each && full.counts < full.bytes + 3 * of_each + PAGE);
    }

    /// Check that the counts of the last record of a shard are before the first of the next, and that there is nothing for more.
    #[test]
    fn has_bounds() {
        let all = Layout::of(MOST_STUBS, 2, false, 0).unwrap();
        assert!(all.counts_of(MOST_STUBS - 1, 0) < all.counts_of(0, 1));
        assert_eq!(Layout::of(MOST_STUBS + 1, 2, false, 0), None);
        let most = Layout::of(MOST_STUBS, u32::MAX, true, u32::MAX).unwrap();
        assert!(most.consumed < most.bytes && most.bytes < most.counts && most.counts < most.end);
    }
}
