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
    /// How long the thread had not been running when it was entered, in nanoseconds; measured only where it is wanted.
    /// [`Self::UNKNOWN`] if that could not be noted.
    pub off_ns: u64,
    /// Of `child_ns`, the time that the thread was not running.
    pub child_off_ns: u64,
    /// The first argument of the call: where the VM keeps what it knows of the thread (`JNIEnv *`).
    pub env: u64,
    /// The dense method index.
    pub index: u32,
    /// Keeps the size a multiple of eight without hidden bytes.
    pub padding: u32,
}

const _: () = assert!(size_of::<Frame>() == 56);

impl Frame {
    /// In place of a time.
    pub const UNKNOWN: u64 = u64::MAX;
}

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

const _: () = assert!(size_of::<Frames>() == 24 + 56 * MAX_FRAMES);

impl Frames {
    /// How many words of 8 bytes it is.
    pub const WORDS: usize = size_of::<Self>() / 8;

    /// The open calls of thread `tid` in a slot as the kernel laid it out, outermost first; none if the slot is another
    /// thread's.
    pub fn open_calls(words: &[u64; Self::WORDS], tid: u32) -> impl Iterator<Item = Frame> {
        const HEAD: usize = 3;
        let (depth, owner) = ((words[0] & 0xffff_ffff) as usize, (words[0] >> 32) as u32);
        let depth = if owner == tid { depth.min(MAX_FRAMES) } else { 0 };
        words[HEAD..].chunks_exact(size_of::<Frame>() / 8).take(depth).map(|frame| Frame {
            start_ns: frame[0],
            sp: frame[1],
            child_ns: frame[2],
            off_ns: frame[3],
            child_off_ns: frame[4],
            env: frame[5],
            index: (frame[6] & 0xffff_ffff) as u32,
            padding: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the open calls are read from where the programs put them, and that those of another thread and beyond
    /// the depth are not.
    #[test]
    fn open_calls_of_a_slot() {
        let mut words = [0u64; Frames::WORDS];
        words[0] = 77 << 32 | 2;
        for (at, word) in words[3..].iter_mut().enumerate() {
            *word = at as u64;
        }
        let calls: std::vec::Vec<Frame> = Frames::open_calls(&words, 77).collect();
        assert_eq!(calls.len(), 2);
        assert_eq!((calls[0].start_ns, calls[0].sp, calls[0].index), (0, 1, 6));
        assert_eq!((calls[1].start_ns, calls[1].child_ns, calls[1].off_ns, calls[1].env), (7, 9, 10, 12));
        assert_eq!(Frames::open_calls(&words, 78).count(), 0);
        words[0] = 77 << 32 | 0xffff_ffff;
        assert_eq!(Frames::open_calls(&words, 77).count(), MAX_FRAMES);
    }
}
