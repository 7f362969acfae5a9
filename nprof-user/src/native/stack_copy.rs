//! A bounded copy of a thread's stack, read by the addresses that it had there.

use super::sample::ProbedReturn;
use crate::model::{CutReason, VirtAddr};

/// Some bytes of a stack, from `base` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct StackCopy<'a> {
    pub(super) base: VirtAddr,
    pub(super) bytes: &'a [u8],
    pub(super) probed: &'a [ProbedReturn],
}

impl StackCopy<'_> {
    /// The word at `addr`, as it is or, if a return probe stands there, as it was before. Below the copy lies nothing
    /// that a frame could mean; above it lies what was not copied.
    pub(super) fn word(&self, addr: VirtAddr) -> Result<u64, CutReason> {
        let distance = addr.0.checked_sub(self.base.0).ok_or(CutReason::BadFrame)?;
        let start = usize::try_from(distance).map_err(|_error| CutReason::StackTooShort)?;
        let word = self.bytes.get(start..).and_then(|rest| rest.first_chunk::<8>()).ok_or(CutReason::StackTooShort)?;
        let replaced = self.probed.iter().find(|probed| probed.slot == addr);
        Ok(replaced.map_or(u64::from_le_bytes(*word), |probed| probed.pc.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what lies after the copy is told apart from what can be in no frame.
    #[test]
    fn tells_cut_from_wrong() {
        let bytes: Vec<u8> = (1..=20).collect();
        let stack = StackCopy { base: VirtAddr(0x1000), bytes: &bytes, probed: &[] };
        assert_eq!(stack.word(VirtAddr(0x1008)), Ok(0x100f_0e0d_0c0b_0a09));
        assert_eq!(stack.word(VirtAddr(0x1010)), Err(CutReason::StackTooShort));
        assert_eq!(stack.word(VirtAddr(u64::MAX)), Err(CutReason::StackTooShort));
        assert_eq!(stack.word(VirtAddr(0xff8)), Err(CutReason::BadFrame));
    }

    /// Check that a return address that a probe has replaced is read as it was.
    #[test]
    fn probed_returns_are_put_back() {
        let probed = [ProbedReturn { slot: VirtAddr(0x1008), pc: VirtAddr(7) }];
        let stack = StackCopy { base: VirtAddr(0x1000), bytes: &[0xff; 16], probed: &probed };
        assert_eq!(stack.word(VirtAddr(0x1000)), Ok(u64::MAX));
        assert_eq!(stack.word(VirtAddr(0x1008)), Ok(7));
    }
}
