//! A thread at one moment, as it crosses the ring buffer: registers and a copy of its stack, page by page; then what of
//! a virtual thread's stack is frozen in the heap, chunk by chunk ([`Chunk`]).

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{HeapPlaces, JniPlaces};

/// Bytes of a page of the stack.
pub const PAGE: usize = 4096;
/// The most pages that are copied; how many there are is set when the programs are loaded
/// ([`crate::globals::STACK_PAGES`]).
pub const MAX_PAGES: usize = 32;

/// Why a stack was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum StackKind {
    /// A call has returned: the registers are those of its caller, just after the call.
    Return = 0,
    /// A timer has fired while the thread was running.
    Tick = 1,
    /// The thread stops running.
    Stop = 2,
    /// The thread runs again. No registers and no stack: `time_ns` is how long it did not run since its [`Self::Stop`].
    Resume = 3,
    /// A call that a stub has timed and chosen is about to return: the registers are those of its caller, just after the
    /// call, and the index is that of the stub's record.
    Stub = 4,
    /// A slow call has returned, or ended with its thread: as [`Self::Return`], with [`crate::SlowDetails`] at the end of the record
    /// and with or without a stack.
    Slow = 5,
    /// The same of a call that a stub has timed: as [`Self::Stub`].
    SlowStub = 6,
    /// A JNI function has returned something that native code is to let go: the registers are those of native code, `now_ns` is
    /// [`crate::JniHeld::since_ns`], and the end of the record is a [`crate::JniHandle`].
    Made = 7,
    /// As [`Self::SlowStub`], of a method of which the stub was not told whether it is wanted ([`StackHeader::UNASKED`]). It is counted
    /// nowhere, and told whatever else was.
    SlowUnasked = 8,
}

/// The record of a stack, without the pages that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct StackHeader {
    /// A [`StackKind`].
    pub kind: u32,
    /// The dense index of the innermost open call; [`Self::NO_CALL`] if there is none.
    pub index: u32,
    /// The process, in the initial namespace.
    pub tgid: u32,
    /// The thread, in the initial namespace.
    pub tid: u32,
    /// When it was taken, in nanoseconds of the monotonic clock. Of a call: when it returned.
    pub now_ns: u64,
    /// How long the call took, in nanoseconds.
    pub time_ns: u64,
    /// Of `time_ns`, the time in traced calls that it made.
    pub child_ns: u64,
    /// Of the rest, the time that the thread was not running.
    pub off_ns: u64,
    /// How likely it was that this one is taken, of 2^32; 2^32 if it was certain.
    pub probability: u64,
    /// Where the thread was in user space.
    pub pc: u64,
    /// The stack pointer there.
    pub sp: u64,
    /// The frame pointer register there.
    pub fp: u64,
    /// The register that holds the interpreter's place in the bytecode (r13 on x86-64).
    pub bcp: u64,
    /// Two more registers, in which stubs of the VM keep where they return to.
    pub rax: u64,
    /// See `rax`.
    pub rbx: u64,
    /// Of the innermost open call, the stack pointer at its entry: there the kernel has put its own return address; 0 if
    /// there is none.
    pub call_sp: u64,
    /// The last Java frame as the thread itself notes it when it leaves Java; zeros if it is in Java or not known.
    pub anchor: LastJavaFrame,
    /// How many bytes of the stack follow.
    pub stack_bytes: u64,
    /// Of a thread that runs a continuation, as virtual threads do: the stack pointer at which it was entered; 0 for others.
    pub entry_sp: u64,
    /// How many bytes with frozen frames follow those.
    pub frozen_bytes: u64,
    /// Whether there are more, for which there was no room: 1, or 0.
    pub frozen_more: u64,
    /// How many times the VM had begun to collect the heap, and one; 0 if that is not known.
    pub collections: u64,
}

/// The last Java frame of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct LastJavaFrame {
    /// Its stack pointer; 0 while the thread is in Java.
    pub sp: u64,
    /// Its program counter; may be 0.
    pub pc: u64,
    /// Its frame pointer; may be 0.
    pub fp: u64,
}

const _: () = assert!(size_of::<StackHeader>() == 176);

impl StackHeader {
    /// In place of an index: no call is open.
    pub const NO_CALL: u32 = u32::MAX;
    /// In the index of a call that a stub has chosen: nobody has asked for its method so far. It was bound a moment ago, and may turn
    /// out to be none that is wanted.
    pub const UNASKED: u32 = 1 << 31;

    /// The address that the first page begins at.
    #[must_use]
    #[inline(always)]
    pub const fn base(&self) -> u64 {
        self.sp & !(PAGE as u64 - 1)
    }

    /// Takes a record apart, as the kernel laid it out: the header, the bytes of the stack from [`Self::base`] on, and
    /// those with frozen frames, for [`Chunk::first_of`]. `None` if it is none.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn take_apart(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (header, rest) = Self::read_from_prefix(bytes).ok()?;
        let (stack, rest) = rest.split_at_checked(usize::try_from(header.stack_bytes).ok()?)?;
        Some((header, stack, rest.get(..usize::try_from(header.frozen_bytes).ok()?)?))
    }
}

/// Frames that are frozen in the heap: this, and `bytes` of them. The first chunk holds the innermost frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Chunk {
    /// The address that the copy begins at.
    pub base: u64,
    /// The stack pointer of its innermost frame.
    pub sp: u64,
    /// Where its outermost frame ends.
    pub end: u64,
    /// How many bytes follow, in the record less if there was no room.
    pub bytes: u64,
}

const _: () = assert!(size_of::<Chunk>() == 32);

impl Chunk {
    /// Takes the first chunk off the frozen frames of a record: what is said of it, its bytes as far as they are there,
    /// and what follows.
    #[cfg(not(target_arch = "bpf"))]
    #[must_use]
    pub fn first_of(frozen: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (chunk, rest) = Self::read_from_prefix(frozen).ok()?;
        let (bytes, rest) = rest.split_at(usize::try_from(chunk.bytes).unwrap_or(usize::MAX).min(rest.len()));
        Some((chunk, bytes, rest))
    }
}

/// What the programs read of one VM. Addresses in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct VmPlaces {
    /// Where it counts (32 bits) how many times it has begun to collect the heap; 0 if that is not known.
    pub collections: u64,
    /// How frozen frames are found.
    pub frozen: FrozenPlaces,
    /// How references are followed.
    pub heap: HeapPlaces,
    /// What JNI functions are looked at with.
    pub jni: JniPlaces,
}

/// How the programs find frozen frames, in one VM. Offsets and sizes in bytes; addresses in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct FrozenPlaces {
    /// From a `JNIEnv` to its `JavaThread`; negative. 0: nothing of all this is known.
    pub thread_from_env: i64,
    /// Of a `JavaThread`: where its innermost continuation was entered.
    pub entry_sp: u64,
    /// Of a `JavaThread`: the address above its stack.
    pub stack_base: u64,
    /// Of a `JavaThread`: where a reference to its `java.lang.Thread` lies.
    pub thread_object: u64,
    /// Bytes that a reference takes in an object. If 4, it is shifted and added to the base.
    pub reference_bytes: u64,
    /// See `reference_bytes`.
    pub reference_base: u64,
    /// See `reference_bytes`.
    pub reference_shift: u64,
    /// The variable with the colours of references in objects that tell of old places, as the collector Z has them; 0 if
    /// they have no colours.
    pub bad_colours: u64,
    /// Whether an object that has been moved says where to while references to its old place are still in use: 1, or 0.
    pub moves: u64,
    /// Of where a continuation was entered: its object; 0 if that is not known. Otherwise it is found by the thread's.
    pub entered: u64,
    /// Of a thread's object: its continuation.
    pub continuation: u64,
    /// Of a continuation: its innermost chunk.
    pub tail: u64,
    /// Of a chunk: the continuation.
    pub owner: u64,
    /// Of a chunk: the next one.
    pub parent: u64,
    /// Of a chunk: its number of words.
    pub size: u64,
    /// Of a chunk: the word that its innermost frame begins at.
    pub sp: u64,
    /// Of a chunk: the word that its outermost frame ends at, or how many there are above.
    pub bottom: u64,
    /// Whether `bottom` counts from the end: 1, or 0.
    pub from_end: u64,
    /// Of a chunk: where its words begin.
    pub words: u64,
}

/// How long a thread has not been running since its first traced call, or since it got the slot with its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct OffCpu {
    /// Since when it is not running; 0 if it is.
    pub since_ns: u64,
    /// The time until then.
    pub total_ns: u64,
    /// When it was last seen to run again; 0 if it never was.
    pub back_ns: u64,
    /// How far the monotonic clock is before the scheduler's, by which the kernel notes when it lets a thread run; 0 if not known.
    pub ahead_ns: i64,
    /// The thread.
    pub tid: u32,
    /// Whether its stack was taken when it stopped.
    pub is_taken: u16,
    /// How often the kernel did not tell that it ran again, modulo 2^16: how long it was away then is not in `total_ns`, nor known at
    /// all.
    pub missed: u16,
}

/// One call, for a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct CallEvent {
    /// When it began, in nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// How long it took, in nanoseconds.
    pub time_ns: u64,
    /// The dense index.
    pub index: u32,
    /// The thread, in the initial namespace.
    pub tid: u32,
}

const _: () = assert!(size_of::<CallEvent>() == 24);

/// How many stacks are taken, and what became of those that were not. User space writes the first three, the programs the
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Pace {
    /// Of a call that lasted this long, and of every longer one, the stack is taken; of a shorter one with a chance in
    /// proportion to its time. Nested traced calls do not count. 0: time has no influence.
    pub period_ns: u64,
    /// The chance of a thread that stops running inside a call, of 2^32.
    pub stop_probability: u64,
    /// No stack is taken once `taken` has reached this.
    pub allowed: u64,
    /// Stacks that were taken since the programs were loaded.
    pub taken: u64,
    /// Stacks that were chosen and not taken because `allowed` had been reached.
    pub over_pace: u64,
    /// Stacks that were chosen and for which the ring had no room.
    pub no_room: u64,
    /// [`CallEvent`]s for which their ring had no room.
    pub calls_lost: u64,
    /// Keeps the size a cache line without hidden bytes.
    pub padding: u64,
}

impl Pace {
    /// A chance of one.
    pub const CERTAIN: u64 = 1 << 32;
}

const _: () = assert!(size_of::<Pace>() == 64);

/// Where a thread notes its last Java frame: addresses in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct LastJavaFramePlace {
    /// Of [`LastJavaFrame::sp`].
    pub sp: u64,
    /// Of [`LastJavaFrame::pc`].
    pub pc: u64,
    /// Of [`LastJavaFrame::fp`].
    pub fp: u64,
    /// The thread's `JavaThread`.
    pub thread: u64,
}

/// What the programs collect besides counts and times ([`crate::globals::COLLECT`]).
pub mod collect {
    /// Stacks of calls that return.
    pub const RETURNS: u32 = 1;
    /// The time that threads do not run.
    pub const OFF_CPU: u32 = 2;
    /// Stacks inside calls: when a timer fires, and when the thread stops running.
    pub const INSIDE: u32 = 4;
    /// Stacks when a timer fires, wherever the thread is.
    pub const EVERYWHERE: u32 = 8;
    /// Every call, one by one.
    pub const CALLS: u32 = 16;
    /// Calls that took long, with stack, what they consumed, and where they waited.
    pub const SLOW: u32 = 32;
    /// What calls are made with, so that slow ones can be told with it.
    pub const ARGS: u32 = 64;
    /// Contents of strings and arrays, too.
    pub const CONTENTS: u32 = 128;
    /// Calls of JNI functions, by the native method that makes them.
    pub const JNI: u32 = 256;
    /// What native code has made and not let go.
    pub const HELD: u32 = 512;
    /// The calls of each function by thread.
    pub const THREADS: u32 = 1024;
    /// How long collections wait for the end of critical sections.
    pub const COLLECTIONS: u32 = 2048;
    /// What threads with stubs use, in rows.
    pub const ROWS: u32 = 4096;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every field comes from where the kernel's compiler puts it, and that no more pages are believed in than
    /// there are.
    #[test]
    fn records_are_taken_apart() {
        let mut bytes: std::vec::Vec<u8> =
            (0..22u64).flat_map(|word| (word << 32 | (word + 100)).to_ne_bytes()).collect();
        bytes[136..144].copy_from_slice(&(PAGE as u64).to_ne_bytes());
        bytes[152..160].copy_from_slice(&3u64.to_ne_bytes());
        bytes.extend([7; PAGE]);
        bytes.extend([8; 4]);
        let (header, stack, frozen) = StackHeader::take_apart(&bytes).unwrap();
        assert_eq!((header.kind, header.index, header.tgid, header.tid), (100, 0, 101, 1));
        assert_eq!((header.now_ns, header.probability, header.pc), (2 << 32 | 102, 6 << 32 | 106, 7 << 32 | 107));
        assert_eq!((header.bcp, header.anchor.sp, header.anchor.fp), (10 << 32 | 110, 14 << 32 | 114, 16 << 32 | 116));
        assert_eq!((header.entry_sp, header.frozen_more), (18 << 32 | 118, 20 << 32 | 120));
        assert_eq!(header.collections, 21 << 32 | 121);
        assert_eq!((stack, frozen), (&[7; PAGE][..], &[8; 3][..]));
        bytes[152] = 5;
        assert_eq!(StackHeader::take_apart(&bytes), None);
        bytes[152..160].fill(0);
        bytes[136..144].copy_from_slice(&(2 * PAGE as u64).to_ne_bytes());
        assert_eq!(StackHeader::take_apart(&bytes), None);
        bytes[136..144].fill(0xff);
        assert_eq!(StackHeader::take_apart(&bytes), None);
        assert_eq!(StackHeader::take_apart(&bytes[..175]), None);
    }

    /// Check that chunks are taken one by one, and that one for which there was no room is as long as it is there.
    #[test]
    fn chunks_one_by_one() {
        let head = |bytes: u64| [0x1000, 0x1010, 0x1018, bytes].map(u64::to_ne_bytes).concat();
        let mut frozen = head(24);
        frozen.extend([1; 24]);
        frozen.extend(head(16));
        frozen.extend([2; 8]);
        let (chunk, bytes, rest) = Chunk::first_of(&frozen).unwrap();
        assert_eq!(chunk, Chunk { base: 0x1000, sp: 0x1010, end: 0x1018, bytes: 24 });
        assert_eq!(bytes, [1; 24]);
        let (chunk, bytes, rest) = Chunk::first_of(rest).unwrap();
        assert_eq!((chunk.bytes, bytes, rest), (16, &[2; 8][..], &[][..]));
        assert_eq!(Chunk::first_of(rest), None);
    }

    /// Check that the copy begins at the page of the stack pointer.
    #[test]
    fn base_is_a_page() {
        let header = StackHeader { sp: 0x7fff_1234_5678, ..StackHeader::default() };
        assert_eq!(header.base(), 0x7fff_1234_5000);
    }
}
