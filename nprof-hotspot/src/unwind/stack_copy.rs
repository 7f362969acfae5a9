//! A bounded copy of a thread's stack or of frames in the heap, read by the addresses that they had there.

use crate::hotspot::number;
use crate::model::{CutReason, VirtAddr};

/// Every word on the stack lies at such an address.
const WORD: u64 = 8;

/// Some bytes of a stack, from `base` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct StackCopy<'a> {
    pub(super) base: VirtAddr,
    pub(super) bytes: &'a [u8],
    /// Whether these are frames in the heap, which hold words counted from the frame where others hold addresses.
    pub(super) is_chunk: bool,
}

/// What was copied of a thread that runs a continuation.
#[derive(Debug, Clone, Copy)]
pub struct FrozenCopy<'a> {
    /// The stack pointer at which the continuation was entered.
    pub entry_sp: VirtAddr,
    /// The chunks, innermost first: for each a [`nprof_common::Chunk`] and its bytes, the last one as far as there was room.
    pub bytes: &'a [u8],
    /// Whether there were more chunks, for which there was no room.
    pub has_more: bool,
}

impl StackCopy<'_> {
    /// The word at `addr`. Below the copy lies nothing that a frame could mean; above it lies what was not copied.
    pub(super) fn word(&self, addr: VirtAddr) -> Result<u64, CutReason> {
        if addr < self.base || !addr.0.is_multiple_of(WORD) {
            return Err(CutReason::BadFrame);
        }
        let start = usize::try_from(addr.0 - self.base.0).map_err(|_error| CutReason::StackTooShort)?;
        let word = self.bytes.get(start..).and_then(|rest| rest.first_chunk::<8>());
        word.map(|word| number(word)).ok_or(CutReason::StackTooShort)
    }

    /// The word `words` words away from `base`: forward or, if negative, back.
    pub(super) fn slot(&self, base: VirtAddr, words: i64) -> Result<u64, CutReason> {
        self.word(slot_address(base, words))
    }

    /// The caller's frame pointer that is saved at `slot`.
    pub(super) fn saved_fp(&self, slot: VirtAddr) -> Result<VirtAddr, CutReason> {
        self.link(slot, slot)
    }

    /// The address that is kept at `slot` in a frame with the frame pointer `fp`.
    pub(super) fn link(&self, fp: VirtAddr, slot: VirtAddr) -> Result<VirtAddr, CutReason> {
        let value = self.word(slot)?;
        Ok(if self.is_chunk { slot_address(fp, value.cast_signed()) } else { VirtAddr(value) })
    }

    /// The addresses from `from` on at which `value` lies.
    pub(super) fn find(&self, value: u64, from: VirtAddr) -> impl Iterator<Item = VirtAddr> {
        let slots = (self.base.0..).step_by(8).map(VirtAddr).zip(self.bytes.chunks_exact(8));
        slots.filter(move |(slot, word)| *slot >= from && number(word) == value).map(|(slot, _)| slot)
    }
}

/// The address `words` words away from `base`. One that would wrap around is in no stack.
pub(super) fn slot_address(base: VirtAddr, words: i64) -> VirtAddr {
    VirtAddr(base.0.saturating_add_signed(words.saturating_mul(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what lies after the copy is told apart from what can be in no stack.
    #[test]
    fn tells_cut_from_wrong() {
        let bytes: Vec<u8> = (1..=20).collect();
        let stack = StackCopy { base: VirtAddr(0x1000), bytes: &bytes, is_chunk: false };
        assert_eq!(stack.word(VirtAddr(0x1008)), Ok(0x100f_0e0d_0c0b_0a09));
        assert_eq!(stack.slot(VirtAddr(0x1008), -1), Ok(0x0807_0605_0403_0201));
        assert_eq!(stack.word(VirtAddr(0x1010)), Err(CutReason::StackTooShort));
        assert_eq!(stack.word(VirtAddr(u64::MAX - 7)), Err(CutReason::StackTooShort));
        assert_eq!(stack.word(VirtAddr(0xff8)), Err(CutReason::BadFrame));
        assert_eq!(stack.word(VirtAddr(0x1001)), Err(CutReason::BadFrame));
        assert_eq!(stack.slot(VirtAddr(8), -6), Err(CutReason::BadFrame));
    }

    /// Check that frames in the heap are linked by words from where they are, and others by addresses.
    #[test]
    fn follows_links() {
        let words = [0_u64, 2, 2_u64.wrapping_neg(), 0x1010];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut stack = StackCopy { base: VirtAddr(0x1000), bytes: &bytes, is_chunk: true };
        assert_eq!(stack.saved_fp(VirtAddr(0x1008)), Ok(VirtAddr(0x1018)));
        assert_eq!(stack.link(VirtAddr(0x1018), VirtAddr(0x1010)), Ok(VirtAddr(0x1008)));
        stack.is_chunk = false;
        assert_eq!(stack.saved_fp(VirtAddr(0x1018)), Ok(VirtAddr(0x1010)));
        assert!(stack.find(2, VirtAddr(0x1000)).eq([VirtAddr(0x1008)]));
        assert_eq!(stack.find(2, VirtAddr(0x1010)).count(), 0);
    }
}
