//! What the kernel's programs know of each thread that makes calls with stubs: one row for each, in memory that the target maps
//! and only reads. Each JVM has memory of its own, as much as its threads need: none ever sees the rows of another.
//!
//! A thread finds its row by the address of its control block (`fs:0`), which no other thread of the process has: it looks at
//! the rows of one bucket. If none is its own, it passes a dedicated place in the shim, and the program on that gives it one.
//! Whatever is in a row is written while its thread is in the kernel, so the thread itself always reads what is exact.

use crate::cookie::Cookie;
use crate::counters::{THREAD_COUNTERS, ThreadCounts};
use crate::switch::Lane;

/// The most rows of a JVM; a power of two, as is the number of each.
pub const ROWS: u32 = 8192;
/// The fewest that a map can have.
pub const LEAST_ROWS: u32 = 32;
/// The rows among which a thread looks for its own.
pub const BUCKET_ROWS: u32 = 8;
/// How many buckets of these there are at most.
pub const BUCKETS: u32 = ROWS / BUCKET_ROWS;
/// How many JVMs can have rows.
pub const JVMS: u32 = 1024;

/// What a key is multiplied with, as an assembler takes it: 2^32 times the golden ratio, modulo 2^32, with its sign.
pub const MULTIPLIER: i32 = -1_640_531_535;
/// The place of the bucket's number in the product.
pub const SHIFT: u32 = 40;

/// The bucket in which the row of a thread is, of so many: a power of two, at most [`BUCKETS`].
#[must_use]
#[inline(always)]
pub const fn bucket_of(key: u64, buckets: u32) -> u32 {
    (key.wrapping_mul(MULTIPLIER as i64 as u64) >> SHIFT) as u32 & buckets.wrapping_sub(1)
}

/// The rows of one JVM, for the program that gives its threads theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JvmRows {
    /// The number of their map, below [`JVMS`].
    pub jvm: u32,
    /// How many buckets there are; a power of two.
    pub buckets: u32,
}

impl JvmRows {
    /// As the probe in a process hands it to the program: the number in place of an index, the logarithm in place of a distance.
    #[must_use]
    pub const fn cookie(self, tgid: u32) -> Cookie {
        Cookie::new(tgid, self.jvm, self.buckets.trailing_zeros(), Lane::A)
    }

    /// What [`Self::cookie`] has packed.
    #[must_use]
    #[inline(always)]
    pub const fn of(cookie: Cookie) -> Self {
        Self { jvm: cookie.index(), buckets: 1 << (cookie.distance() & 15) }
    }
}

/// Where the row of a thread is: the number of its JVM's map, and that of the row there. Zero stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct RowPlace(pub u32);

impl RowPlace {
    /// No place.
    pub const NONE: Self = Self(0);

    /// A row below [`ROWS`] of a map below [`JVMS`].
    #[must_use]
    #[inline(always)]
    pub const fn new(jvm: u32, row: u32) -> Self {
        Self((jvm * ROWS + row).wrapping_add(1))
    }

    /// The number of the map; of no place one that no map has.
    #[must_use]
    #[inline(always)]
    pub const fn jvm(self) -> u32 {
        self.0.wrapping_sub(1) / ROWS
    }

    /// The number of the row.
    #[must_use]
    #[inline(always)]
    pub const fn row(self) -> u32 {
        self.0.wrapping_sub(1) % ROWS
    }
}

/// What is known of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(128))]
pub struct ThreadRow {
    /// What the thread finds it by; 0 if nobody has it.
    pub key: u64,
    /// Since when the thread is not running, in nanoseconds of the monotonic clock; 0 while it runs.
    pub since_ns: u64,
    /// How much of everything there was until now.
    pub used: Used,
    /// When the thread was last seen to run again; 0 if it was not.
    pub back_ns: u64,
    /// How far the monotonic clock is ahead of the scheduler's, in nanoseconds; 0 if that is not known.
    pub ahead_ns: i64,
}

/// What can be used up by a thread: each number only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(16))]
pub struct Used {
    /// How long it was not running, in nanoseconds.
    pub off_ns: u64,
    /// The counters that are collected; 0 of the others.
    pub counters: ThreadCounts,
}

const _: () = assert!(size_of::<Used>() == 8 * (THREAD_COUNTERS + 1));
const _: () = assert!(size_of::<ThreadRow>() == 256);

/// How many threads find their row by their number in one place ([`RowOwners`]).
pub const OWNERS: usize = 8;
/// How many such places there are; a power of two. They are for the threads of all JVMs together.
pub const OWNER_PLACES: u32 = 4096;

/// The rows of the threads whose numbers agree in their lower bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct RowOwners {
    /// The numbers of the threads; 0 where there is none.
    pub tids: [u32; OWNERS],
    /// Where each one's row is.
    pub rows: [RowPlace; OWNERS],
}

const _: () = assert!(size_of::<RowOwners>() == 64);

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    /// Check that a row's place and a JVM's rows come back, at their limits too, and that no place is in no map.
    #[test]
    fn places_come_back() {
        for (jvm, row) in [(0, 0), (0, ROWS - 1), (JVMS - 1, 0), (JVMS - 1, ROWS - 1)] {
            let place = RowPlace::new(jvm, row);
            assert!(place != RowPlace::NONE && (place.jvm(), place.row()) == (jvm, row), "{place:?}");
        }
        assert!(RowPlace::NONE.jvm() >= JVMS);
        for rows in [JvmRows { jvm: 0, buckets: LEAST_ROWS / BUCKET_ROWS }, JvmRows { jvm: JVMS - 1, buckets: BUCKETS }]
        {
            assert_eq!((JvmRows::of(rows.cookie(7)), rows.cookie(7).tgid()), (rows, 7));
        }
    }

    /// Check that threads whose control blocks are apart by the sizes that stacks have, as those of a thousand threads are, find
    /// room in their buckets, however many rows there are for so many.
    #[test]
    fn keys_spread() {
        for stride in [128 << 10, 256 << 10, (1 << 20) + 4096, 1 << 20, 2 << 20, 8 << 20] {
            for rows in [LEAST_ROWS, 256, 2048, ROWS] {
                let mut filled = vec![0; (rows / BUCKET_ROWS) as usize];
                for thread in 0..u64::from(rows / 8) {
                    filled[bucket_of(0x7f12_3456_f6c0 - thread * stride, rows / BUCKET_ROWS) as usize] += 1;
                }
                let most = filled.iter().max();
                assert!(filled.iter().all(|threads| *threads <= BUCKET_ROWS), "{stride}, {rows}: {most:?}");
            }
        }
    }
}
