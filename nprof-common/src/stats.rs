//! The record that both tiers write and everything to the right of it reads.

use crate::histogram::BUCKETS;

/// What is known of one method, or of one shard of it: the sums over all shards are the method's.
///
/// The switch stands with the counters, in each shard: a hit then finds all that it needs in one place.
///
/// Of the calls that were to be timed, those that have ended are the sum of the histogram and `untimed`, and those
/// in flight are `entered` less that. Keeping no separate counters for the two saves an atomic operation each per
/// call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct MethodStats {
    /// A [`crate::Switch`], read first at each hit; user space changes it at any time. During a hand-over the one of the
    /// first shard counts.
    pub switch: u64,
    /// Calls that began in [`Mode::Count`]: their end is not looked at.
    pub counted: u64,
    /// Calls that began in [`Mode::Time`].
    pub entered: u64,
    /// Of `entered`, calls that ended without a time; each is also a [`crate::Loss`].
    pub untimed: u64,
    /// Wall-clock time of the timed calls, in nanoseconds.
    pub total_ns: u64,
    /// Of `total_ns`, the time spent in traced calls that these calls made.
    pub child_ns: u64,
    /// The longest timed call, in nanoseconds.
    pub max_ns: u64,
    /// Of `total_ns` less `child_ns`, the time that the threads were not running; measured only where it is wanted.
    pub off_ns: u64,
    /// How likely it is that the stack of a call is taken, of 2^32, whatever its time; user space changes it at any time.
    pub probability: u64,
    /// The lowest bit: whether a call may be left without its end, and is untimed then but no loss: the record is for short looks at
    /// a function, or the function was called all the time when its probes were taken away. The byte above it: what the function
    /// returns, one of [`crate::Returns`]. Of a JNI function the next ones: what is looked at, one of [`crate::JniKind`]; what it makes
    /// or lets go, one of [`crate::JniHolds`]; and which Java method it calls, one of [`crate::JniCallee`].
    pub brief: u64,
    /// The same for each nanosecond that a call takes; only stubs look at it. Probes have one such word for all.
    pub probability_per_ns: u64,
    /// Timed calls by duration ([`crate::histogram`]).
    pub histogram: [u64; BUCKETS],
}

impl MethodStats {
    /// A record of nothing.
    pub const ZERO: Self = Self {
        switch: 0,
        counted: 0,
        entered: 0,
        untimed: 0,
        total_ns: 0,
        child_ns: 0,
        max_ns: 0,
        off_ns: 0,
        probability: 0,
        brief: 0,
        probability_per_ns: 0,
        histogram: [0; BUCKETS],
    };
}

const _: () = assert!(size_of::<MethodStats>() == 8 * (11 + BUCKETS));
const _: () = assert!(size_of::<MethodStats>() == 1536);

/// The bit of [`MethodStats::brief`] that says whether a call may be left without its end.
pub const BRIEF: u64 = 1;
/// How far the byte that says what the function returns lies above it.
pub const RETURNS_SHIFT: u32 = 8;
/// The same of the byte that says what is looked at of a JNI function.
pub const KIND_SHIFT: u32 = 16;
/// The same of the byte that says what a JNI function makes or lets go ([`crate::JniHolds`]).
pub const HOLDS_SHIFT: u32 = 24;

/// The same of the byte that says which argument of a JNI function is the id of the Java method that it calls ([`crate::JniCallee`]).
pub const CALLEE_SHIFT: u32 = 32;

/// What is done at a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Mode {
    /// Nothing. The default of a map that nobody has written.
    Off = 0,
    /// The entry is counted.
    Count = 1,
    /// The call is counted and timed.
    Time = 2,
}
