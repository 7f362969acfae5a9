//! A bounded copy of a thread's stack, read by the addresses that it had there.

use super::CutReason;
use crate::hotspot::number;
use crate::model::VirtAddr;

/// Every word on the stack lies at such an address.
const WORD: u64 = 8;

/// Some bytes of a stack, from `base` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct StackCopy<'a> {
    pub(super) base: VirtAddr,
    pub(super) bytes: &'a [u8],
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
        let stack = StackCopy { base: VirtAddr(0x1000), bytes: &bytes };
        assert_eq!(stack.word(VirtAddr(0x1008)), Ok(0x100f_0e0d_0c0b_0a09));
        assert_eq!(stack.slot(VirtAddr(0x1008), -1), Ok(0x0807_0605_0403_0201));
        assert_eq!(stack.word(VirtAddr(0x1010)), Err(CutReason::StackTooShort));
        assert_eq!(stack.word(VirtAddr(u64::MAX - 7)), Err(CutReason::StackTooShort));
        assert_eq!(stack.word(VirtAddr(0xff8)), Err(CutReason::BadFrame));
        assert_eq!(stack.word(VirtAddr(0x1001)), Err(CutReason::BadFrame));
        assert_eq!(stack.slot(VirtAddr(8), -6), Err(CutReason::BadFrame));
    }
}
