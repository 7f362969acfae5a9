//! The open calls of one thread.

/// How many nested traced calls a thread can have open. The kernel itself follows at most 64 pending returns per
/// thread (`MAX_URETPROBE_DEPTH`), so more frames would never be closed.
pub const MAX_FRAMES: usize = 64;

/// One open call: entered, not yet returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Frame {
    /// When it was entered, in nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// The stack pointer at entry. A return is matched by it, so a lost return cannot shift later ones.
    pub sp: u64,
    /// Time spent in traced calls that this one made, in nanoseconds.
    pub child_ns: u64,
    /// The dense method index.
    pub index: u32,
    /// Keeps the size a multiple of eight without hidden bytes.
    pub padding: u32,
}

const _: () = assert!(size_of::<Frame>() == 32);

/// How many threads find their frames by their number alone ([`crate::maps::SLOTS`]); a power of two.
pub const SLOTS: u32 = 2048;

/// The open calls of one thread, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Frames {
    /// How many of `frames` are in use.
    pub depth: u32,
    /// In a slot, the thread that has it; 0 if nobody has.
    pub owner: u32,
    /// The stack pointer of the last hit that was marked ([`crate::switch`]).
    pub mark_sp: u64,
    /// The dense index of that hit.
    pub mark_index: u32,
    /// The hand-over that it was marked in.
    pub mark_epoch: u32,
    /// The frames.
    pub frames: [Frame; MAX_FRAMES],
}

const _: () = assert!(size_of::<Frames>() == 24 + 32 * MAX_FRAMES);
