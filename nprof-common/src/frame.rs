//! The open calls of one thread.

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::stack::OffCpu;

/// How many nested traced calls a thread can have open. The kernel itself follows at most 64 pending returns per
/// thread (`MAX_URETPROBE_DEPTH`), so more frames would never be closed.
pub const MAX_FRAMES: usize = 64;

/// One open call: entered, not yet returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Frame {
    /// When it was entered, in nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// The stack pointer at entry. A return is matched by it, so a lost return cannot shift later ones.
    pub sp: u64,
    /// Time spent in traced calls that this one made, in nanoseconds.
    pub child_ns: u64,
    /// How long the thread had not been running when it was entered, in nanoseconds; measured only where it is wanted.
    /// [`Self::UNKNOWN`] if that could not be noted.
    pub off_ns: u64,
    /// Of `child_ns`, the time that the thread was not running.
    pub child_off_ns: u64,
    /// The first argument of the call: where the VM keeps what it knows of the thread (`JNIEnv *`). Of a JNI function what it is
    /// about instead: a number for what is looked up, the id of the Java method that is called, or whether there is something to
    /// do.
    pub env: u64,
    /// The dense method index.
    pub index: u32,
    /// [`OffCpu::missed`] when it was entered.
    pub missed: u16,
    /// [`Self::CALLER`], [`Self::HOLDS`] and [`Self::LOCALS`]. The other bits: how many calls within it could not be told one by one
    /// ([`Self::LOST_SHIFT`]).
    pub caller_and_lost: u16,
}

const _: () = assert!(size_of::<Frame>() == 56);

impl Frame {
    /// In place of a time.
    pub const UNKNOWN: u64 = u64::MAX;
    /// It is a native method's, and JNI functions are traced: those that it calls are counted for it.
    pub const CALLER: u16 = 1;
    /// It has begun a critical section.
    pub const HOLDS: u16 = 2;
    /// It has made local references, which are followed ([`crate::JniLocals`]).
    pub const LOCALS: u16 = 4;
    /// How far the number of lost calls lies above these.
    pub const LOST_SHIFT: u16 = 3;
}

/// How many threads find their frames by their number alone ([`crate::maps::SLOTS`]); a power of two.
pub const SLOTS: u32 = 2048;

/// The open calls of one thread, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
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
    /// In a slot, how long the thread that has it has not been running.
    pub off_cpu: OffCpu,
    /// The frames.
    pub frames: [Frame; MAX_FRAMES],
}

const _: () = assert!(size_of::<Frames>() == 64 + 56 * MAX_FRAMES);

impl Frames {
    /// The open calls of thread `tid`, outermost first; none if the slot is another thread's.
    #[must_use]
    pub fn open_calls(&self, tid: u32) -> &[Frame] {
        let depth = if self.owner == tid { self.depth as usize } else { 0 };
        &self.frames[..depth.min(MAX_FRAMES)]
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    /// Check that those of another thread are not taken, nor more than there can be.
    #[test]
    fn open_calls_of_a_slot() {
        let frame = |sp| Frame { sp, ..Frame::new_zeroed() };
        let mut frames = Frames { depth: 2, owner: 77, ..Frames::new_zeroed() };
        (frames.frames[0], frames.frames[1], frames.frames[2]) = (frame(3), frame(2), frame(1));
        assert_eq!(frames.open_calls(77), [frame(3), frame(2)]);
        assert_eq!(frames.open_calls(78), []);
        assert_eq!(Frames { depth: u32::MAX, ..frames }.open_calls(77).len(), MAX_FRAMES);
    }
}
