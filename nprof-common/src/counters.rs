//! What calls consume besides time: counters of the thread, read when a call begins and when it ends; and how they ended, which
//! is counted at their return.

/// A counter, of a thread or of how calls ended; its number is its place in all that is collected, and its bit in what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Counter {
    /// Page faults that needed no storage.
    MinorFaults = 0,
    /// Page faults that waited for storage.
    MajorFaults = 1,
    /// Times that the thread gave up its CPU, to wait for something.
    VoluntarySwitches = 2,
    /// Times that the CPU was taken from it.
    InvoluntarySwitches = 3,
    /// Bytes that `read` and its kin returned, from files, pipes and sockets.
    ReadBytes = 4,
    /// Bytes that `write` and its kin took.
    WrittenBytes = 5,
    /// Bytes that were fetched from storage.
    DiskReadBytes = 6,
    /// Bytes that are to be brought to storage.
    DiskWrittenBytes = 7,
    /// Bytes that were received from sockets, by whichever call.
    ReceivedBytes = 8,
    /// Bytes that were sent to sockets, by whichever call.
    SentBytes = 9,
    /// System calls.
    Syscalls = 10,
    /// Waits for locks of user space (`futex`).
    LockWaits = 11,
    /// Bytes of address space that were asked for by `mmap` and `mremap`.
    MappedBytes = 12,
    /// Bytes that allocators were asked for by `malloc` and its kin.
    AllocBytes = 13,
    /// How often they were.
    Allocations = 14,
    /// Calls that returned zero, `false` or `null`.
    ZeroResults = 15,
    /// Calls that returned a number below zero.
    NegativeResults = 16,
    /// Calls that returned with an exception pending. What they returned besides is no result.
    Exceptions = 17,
}

/// How many there are.
pub const COUNTERS: usize = 18;

/// The first of them are of threads. The others are of single calls.
pub const THREAD_COUNTERS: usize = 15;

impl Counter {
    /// Every one, by its number.
    pub const ALL: [Self; COUNTERS] = [
        Self::MinorFaults,
        Self::MajorFaults,
        Self::VoluntarySwitches,
        Self::InvoluntarySwitches,
        Self::ReadBytes,
        Self::WrittenBytes,
        Self::DiskReadBytes,
        Self::DiskWrittenBytes,
        Self::ReceivedBytes,
        Self::SentBytes,
        Self::Syscalls,
        Self::LockWaits,
        Self::MappedBytes,
        Self::AllocBytes,
        Self::Allocations,
        Self::ZeroResults,
        Self::NegativeResults,
        Self::Exceptions,
    ];

    /// Those that probes on an allocator's functions count, as bits.
    pub const OF_ALLOCATORS: u32 = Self::AllocBytes.bit() | Self::Allocations.bit();

    /// Those of bytes, as bits.
    pub const OF_BYTES: u32 = Self::ReadBytes.bit()
        | Self::WrittenBytes.bit()
        | Self::DiskReadBytes.bit()
        | Self::DiskWrittenBytes.bit()
        | Self::ReceivedBytes.bit()
        | Self::SentBytes.bit()
        | Self::MappedBytes.bit()
        | Self::AllocBytes.bit();

    /// Its bit in what is wanted.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// One number for each [`Counter`], by its place.
pub type Counters = [u64; COUNTERS];

/// One number for each counter of threads.
pub type ThreadCounts = [u64; THREAD_COUNTERS];

/// What a function returns, as far as its results are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Returns {
    /// Nothing, a floating-point number, or not the same for all methods that are bound to it.
    Nothing = 0,
    /// `boolean`: the lowest byte says whether.
    Boolean = 1,
    /// `byte`.
    Byte = 2,
    /// `char`, which is never negative.
    Char = 3,
    /// `short`.
    Short = 4,
    /// `int`.
    Int = 5,
    /// `long`.
    Long = 6,
    /// An object or array; zero is `null`.
    Reference = 7,
}

impl Returns {
    /// What methods with this descriptor return.
    #[must_use]
    pub fn of(descriptor: &str) -> Self {
        match descriptor.rsplit(')').next().unwrap_or_default() {
            "Z" => Self::Boolean,
            "B" => Self::Byte,
            "C" => Self::Char,
            "S" => Self::Short,
            "I" => Self::Int,
            "J" => Self::Long,
            class if class.starts_with(['L', '[']) => Self::Reference,
            _ => Self::Nothing,
        }
    }

    /// Whether a register that holds such a result says zero, and whether it says less. `returns` is one of these as a number; of
    /// one that is none, nothing is known. What lies beyond a result's size in the register is not looked at: it may be anything.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "what lies beyond the result is no part of it")]
    pub const fn zero_or_less(returns: u64, register: u64) -> (bool, bool) {
        let value = match returns {
            1 => (register & 0xff) as i64,
            2 => register as i8 as i64,
            3 => (register & 0xffff) as i64,
            4 => register as i16 as i64,
            5 => register as i32 as i64,
            6 => register as i64,
            // An address may have any bit.
            7 => return (register == 0, false),
            _ => return (false, false),
        };
        (value == 0, value < 0)
    }
}

/// How many nested calls of a thread have counters. The rest of a thread's calls are counted and timed without: what each
/// thread needs is to fit into a page.
pub const MAX_COUNTED_FRAMES: usize = 15;

/// What a method's calls have consumed, or those of one shard of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(128))]
pub struct Consumed {
    /// With the traced calls that they made.
    pub total: Counters,
    /// Without them.
    pub own: Counters,
}

#[cfg(not(target_arch = "bpf"))]
impl Consumed {
    /// The sum of two.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let sum = |one: &Counters, other: &Counters| core::array::from_fn(|at| one[at].saturating_add(other[at]));
        Self { total: sum(&self.total, &other.total), own: sum(&self.own, &other.own) }
    }
}

const _: () = assert!(size_of::<Consumed>() == 384);

/// The counters of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadCounters {
    /// What programs have counted; 0 where the kernel itself counts.
    pub fed: ThreadCounts,
    /// The open calls, by their depth.
    pub open: [OpenCounters; MAX_COUNTED_FRAMES],
}

/// The counters of an open call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct OpenCounters {
    /// The stack pointer at its entry: whose counters these are.
    pub sp: u64,
    /// The thread's counters at its entry.
    pub at_entry: ThreadCounts,
    /// What traced calls have consumed that it made.
    pub of_children: ThreadCounts,
}

const _: () = assert!(size_of::<ThreadCounters>() == 120 + 248 * MAX_COUNTED_FRAMES);
const _: () = assert!(size_of::<ThreadCounters>() < 4000);

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what each descriptor returns, and what its register says, whatever lies beyond the result.
    #[test]
    fn results_by_descriptor() {
        for (descriptor, register, expected) in [
            ("()V", 0, (false, false)),
            ("()D", 0, (false, false)),
            ("()Z", 0xff00, (true, false)),
            ("(Z)Z", 0x1, (false, false)),
            ("()B", 0x1ff, (false, true)),
            ("()C", 0xffff, (false, false)),
            ("()S", 0x1_8000, (false, true)),
            ("(J)I", 0xffff_ffff, (false, true)),
            ("(J)I", 1 << 32, (true, false)),
            ("(I)J", 0xffff_ffff, (false, false)),
            ("(I)J", u64::MAX, (false, true)),
            ("()Ljava/lang/Object;", 0, (true, false)),
            ("()[I", u64::MAX, (false, false)),
        ] {
            let returns = Returns::of(descriptor) as u64;
            assert_eq!(Returns::zero_or_less(returns, register), expected, "{descriptor} {register:#x}");
        }
    }

    /// Check that a counter's number is its place in the list: the programs go by the number, user space by the list.
    #[test]
    fn numbered_by_place() {
        for (place, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!((counter as usize, counter.bit()), (place, 1 << place));
        }
    }
}
