//! Calls of JNI functions: what native code asks of the VM, kept for each native method and function.

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What is looked at when a JNI function is called, besides count and time. The number is in the function's record
/// ([`crate::stats::KIND_SHIFT`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum JniKind {
    /// It is no JNI function: a native method.
    Method = 0,
    /// Nothing.
    Plain = 1,
    /// Which member it looks up: of a class, by name and signature.
    Member = 2,
    /// Which class it looks up by name.
    Class = 3,
    /// Whether it gave something that is to be let go.
    Makes = 4,
    /// Whether its argument is something to be let go.
    LetsGo = 5,
    /// Whether it lets go of the elements of an array, and does not only copy them back (`JNI_COMMIT`).
    LetsElementsGo = 6,
    /// Whether there is an exception to be cleared.
    Clears = 7,
    /// It begins a critical section, if it gave something.
    Enters = 8,
    /// It ends a critical section.
    Leaves = 9,
}

/// The calls of one JNI function by one native method, or one shard of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct JniCalls {
    /// Calls that have ended, and those that were only counted when they began.
    pub calls: u64,
    /// Of `calls`, those that were timed.
    pub timed: u64,
    /// The time of these, in nanoseconds.
    pub total_ns: u64,
    /// Of `total_ns`, the time of traced native methods that were called meanwhile.
    pub child_ns: u64,
    /// Of `total_ns` less `child_ns`, the time that the threads were not running.
    pub off_ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
    /// Of `calls`, those that came to nothing: by [`JniKind`], null was returned, or there was nothing to let go or to clear.
    pub vain: u64,
    /// Of `timed`, look-ups of what had been found before.
    pub redundant: u64,
    /// The time that the threads were running in these, in nanoseconds.
    pub redundant_ns: u64,
}

impl JniCalls {
    /// No calls.
    pub const NONE: Self = Self {
        calls: 0,
        timed: 0,
        total_ns: 0,
        child_ns: 0,
        off_ns: 0,
        max_ns: 0,
        vain: 0,
        redundant: 0,
        redundant_ns: 0,
    };

    /// The sum of two.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(more.calls),
            timed: self.timed.saturating_add(more.timed),
            total_ns: self.total_ns.saturating_add(more.total_ns),
            child_ns: self.child_ns.saturating_add(more.child_ns),
            off_ns: self.off_ns.saturating_add(more.off_ns),
            max_ns: self.max_ns.max(more.max_ns),
            vain: self.vain.saturating_add(more.vain),
            redundant: self.redundant.saturating_add(more.redundant),
            redundant_ns: self.redundant_ns.saturating_add(more.redundant_ns),
        }
    }
}

/// How many shards there are: a call goes to that of its CPU's number, modulo this.
pub const JNI_SHARDS: usize = 4;

/// The shards of one native method and one JNI function.
pub type JniShards = [JniCalls; JNI_SHARDS];

const _: () = assert!(size_of::<JniShards>() == 72 * JNI_SHARDS);

/// In place of a native method's record: calls that no traced native method made.
pub const NO_CALLER: u32 = 0;

/// In place of a JNI function's record: what is counted are not calls but critical sections, from the first
/// function that begins one to the last that ends it.
pub const CRITICAL_SECTIONS: u32 = 0;

/// What calls are kept by: the records of native method and function.
#[must_use]
#[inline(always)]
pub const fn pair(caller: u32, function: u32) -> u64 {
    (caller as u64) << 32 | function as u64
}

/// The two records of a pair.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "each half is taken by itself")]
pub const fn of_pair(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// The critical sections that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct JniHold {
    /// How many it has begun and not ended.
    pub depth: u64,
    /// When it began the first of them, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
    /// The record of the native method that did.
    pub caller: u64,
}

/// What look-ups are told apart by, as far as the VM says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorPlaces {
    /// From a class's Java object to the VM's own structure of the class, in bytes; 0 if that is not known: then it is not told
    /// which look-ups of members are the same.
    pub klass: u64,
    /// From there to where the address of the Java object is kept.
    pub mirror: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both records come back.
    #[test]
    fn pairs() {
        for (caller, function) in [(NO_CALLER, 7), (1 << 23, CRITICAL_SECTIONS), (3, 1 << 23)] {
            assert_eq!(of_pair(pair(caller, function)), (caller, function));
        }
    }
}
