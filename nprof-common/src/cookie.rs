//! What an attached probe hands to the BPF program: whose call it is, which method, and which of its probes.

/// The bit of the lower half that holds the lane.
const LANE: u32 = 1 << 31;

/// The attach cookie: the target's process id in the upper half, the lane and the dense method index in the lower.
///
/// It fills the holes of the one program that serves all methods. The process id lets the program refuse hits of
/// other processes (the kernel's own filter was broken before 6.10) without a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The largest dense index.
    pub const MAX_INDEX: u32 = LANE - 1;

    /// Packs a process id of the initial namespace, a dense index of at most [`Self::MAX_INDEX`], and a lane
    /// ([`crate::switch`]).
    #[must_use]
    #[inline(always)]
    pub const fn new(tgid: u32, index: u32, lane: bool) -> Self {
        let lane = if lane { LANE } else { 0 };
        Self(((tgid as u64) << 32) | (lane | (index & Self::MAX_INDEX)) as u64)
    }

    /// The process that the probe was attached for.
    #[must_use]
    #[inline(always)]
    pub const fn tgid(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The dense method index.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.lower() & Self::MAX_INDEX
    }

    /// Which of two links the probe is in.
    #[must_use]
    #[inline(always)]
    pub const fn lane(self) -> bool {
        self.lower() & LANE != 0
    }

    #[inline(always)]
    const fn lower(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all parts come back, at their limits too.
    #[test]
    fn round_trip() {
        for (tgid, index) in [(0, 0), (1, Cookie::MAX_INDEX), (u32::MAX, 1), (4_194_304, 2_000)] {
            for lane in [false, true] {
                let cookie = Cookie::new(tgid, index, lane);
                assert_eq!((cookie.tgid(), cookie.index(), cookie.lane()), (tgid, index, lane));
            }
        }
    }
}
