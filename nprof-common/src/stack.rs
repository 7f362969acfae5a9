//! A thread at one moment, as it crosses the ring buffer: registers and a copy of its stack, page by page.

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
}

/// The record of a stack, without the pages that follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    pub chance: u64,
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
    pub anchor: Anchor,
    /// How many pages follow.
    pub pages: u64,
}

/// The last Java frame of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Anchor {
    /// Its stack pointer; 0 while the thread is in Java.
    pub sp: u64,
    /// Its program counter; may be 0.
    pub pc: u64,
    /// Its frame pointer; may be 0.
    pub fp: u64,
}

const _: () = assert!(size_of::<StackHeader>() == 144);

impl StackHeader {
    /// In place of an index: no call is open.
    pub const NO_CALL: u32 = u32::MAX;

    /// The address that the first page begins at.
    #[must_use]
    #[inline(always)]
    pub const fn base(&self) -> u64 {
        self.sp & !(PAGE as u64 - 1)
    }

    /// Takes a record apart, as the kernel laid it out: the header, and the bytes of the stack from [`Self::base`] on.
    /// `None` if it is none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        const WORDS: usize = size_of::<StackHeader>() / 8;
        let (head, pages) = bytes.split_at_checked(size_of::<Self>())?;
        let mut words = [0u64; WORDS];
        for (word, bytes) in words.iter_mut().zip(head.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().ok()?);
        }
        let [
            kind,
            tgid,
            now_ns,
            time_ns,
            child_ns,
            off_ns,
            chance,
            pc,
            sp,
            fp,
            bcp,
            rax,
            rbx,
            call_sp,
            a_sp,
            a_pc,
            a_fp,
            there,
        ] = words;
        let header = Self {
            kind: low(kind),
            index: high(kind),
            tgid: low(tgid),
            tid: high(tgid),
            now_ns,
            time_ns,
            child_ns,
            off_ns,
            chance,
            pc,
            sp,
            fp,
            bcp,
            rax,
            rbx,
            call_sp,
            anchor: Anchor { sp: a_sp, pc: a_pc, fp: a_fp },
            pages: there,
        };
        let there = usize::try_from(there).ok()?.checked_mul(PAGE)?;
        Some((header, pages.get(..there)?))
    }
}

const fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// One call, for a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl CallEvent {
    /// Reads a record as the kernel laid it out; `None` if it has another length.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; size_of::<Self>()] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_ne_bytes(*word));
        let last = word(16)?;
        Some(Self { start_ns: word(0)?, time_ns: word(8)?, index: low(last), tid: high(last) })
    }
}

/// How many stacks are taken, and what became of those that were not. User space writes the first three, the programs the
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Pace {
    /// Of a call that lasted this long, and of every longer one, the stack is taken; of a shorter one with a chance in
    /// proportion to its time. Nested traced calls do not count. 0: time has no influence.
    pub period_ns: u64,
    /// The chance of a thread that stops running inside of a call, of 2^32.
    pub stop_chance: u64,
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
#[repr(C)]
pub struct AnchorPlace {
    /// Of [`Anchor::sp`].
    pub sp: u64,
    /// Of [`Anchor::pc`].
    pub pc: u64,
    /// Of [`Anchor::fp`].
    pub fp: u64,
}

/// What the programs collect besides counts and times ([`crate::globals::COLLECT`]).
pub mod collect {
    /// Stacks of calls that return.
    pub const RETURNS: u32 = 1;
    /// The time that threads do not run.
    pub const OFF_CPU: u32 = 2;
    /// Stacks inside of calls: when a timer fires, and when the thread stops running.
    pub const INSIDE: u32 = 4;
    /// Stacks when a timer fires, wherever the thread is.
    pub const EVERYWHERE: u32 = 8;
    /// Every call, one by one.
    pub const CALLS: u32 = 16;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every field comes from where the kernel's compiler puts it, and that no more pages are believed in than
    /// there are.
    #[test]
    fn header_read_from_bytes() {
        let mut bytes: std::vec::Vec<u8> =
            (0..18u64).flat_map(|word| (word << 32 | (word + 100)).to_ne_bytes()).collect();
        bytes[136..144].copy_from_slice(&1u64.to_ne_bytes());
        bytes.extend([7; PAGE]);
        let (header, stack) = StackHeader::from_bytes(&bytes).unwrap();
        assert_eq!((header.kind, header.index, header.tgid, header.tid), (100, 0, 101, 1));
        assert_eq!((header.now_ns, header.chance, header.pc), (2 << 32 | 102, 6 << 32 | 106, 7 << 32 | 107));
        assert_eq!((header.bcp, header.anchor.sp, header.anchor.fp), (10 << 32 | 110, 14 << 32 | 114, 16 << 32 | 116));
        assert_eq!(stack, [7; PAGE]);
        bytes[136] = 2;
        assert_eq!(StackHeader::from_bytes(&bytes), None);
        bytes[136..144].fill(0xff);
        assert_eq!(StackHeader::from_bytes(&bytes), None);
        assert_eq!(StackHeader::from_bytes(&bytes[..143]), None);
    }

    /// Check that the copy begins at the page of the stack pointer.
    #[test]
    fn base_is_a_page() {
        let header = StackHeader { sp: 0x7fff_1234_5678, ..StackHeader::default() };
        assert_eq!(header.base(), 0x7fff_1234_5000);
    }

    /// Check that an event is read from where the kernel puts the fields.
    #[test]
    fn call_read_from_bytes() {
        let bytes = [1u64, 2, 4 << 32 | 3].map(u64::to_ne_bytes).concat();
        let event = CallEvent { start_ns: 1, time_ns: 2, index: 3, tid: 4 };
        assert_eq!(CallEvent::from_bytes(&bytes), Some(event));
        assert_eq!(CallEvent::from_bytes(&bytes[1..]), None);
    }
}
