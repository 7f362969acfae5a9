//! What an attached probe hands to the BPF program: whose call it is, which method, which of its probes, and where it sits.

use crate::switch::Lane;

/// The bit of the lower half that holds the lane.
const LANE: u32 = 1 << 31;
/// No process has this id.
const NOBODY: u32 = 0;
/// How many bits of the lower half hold the index; those between these and the lane hold the distance.
const INDEX_BITS: u32 = 24;

/// The attach cookie: the target's process id in the upper half; the lane, the distance from the function's entry and the
/// dense method index in the lower.
///
/// It fills the holes of the one program that serves all methods. The process id lets the program refuse hits of
/// other processes (the kernel's own filter was broken before 6.10) without a look-up. That of a link that serves many has
/// none, and its index is the number of the site ([`crate::shared`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The largest dense index.
    pub const MAX_INDEX: u32 = (1 << INDEX_BITS) - 1;
    /// The largest distance, in bytes.
    pub const MAX_DISTANCE: u32 = (1 << (31 - INDEX_BITS)) - 1;

    /// Packs a process id of the initial namespace, a dense index of at most [`Self::MAX_INDEX`], how far behind the
    /// function's entry the probe sits, at most [`Self::MAX_DISTANCE`], and a lane ([`crate::switch`]).
    #[must_use]
    #[inline(always)]
    pub const fn new(tgid: u32, index: u32, distance: u32, lane: Lane) -> Self {
        let lane = (lane as u32 & 1) << LANE.trailing_zeros();
        let distance = (distance & Self::MAX_DISTANCE) << INDEX_BITS;
        Self(((tgid as u64) << 32) | (lane | distance | (index & Self::MAX_INDEX)) as u64)
    }

    /// The same of a link that serves many processes, where `site` is a number below [`crate::shared::SITES`] and `lane` one
    /// of [`Lane::SHARED`].
    #[must_use]
    #[inline(always)]
    pub const fn shared(site: u32, distance: u32, lane: Lane) -> Self {
        Self::new(NOBODY, site, distance, lane)
    }

    /// Whether the link serves many processes.
    #[must_use]
    #[inline(always)]
    pub const fn is_shared(self) -> bool {
        self.tgid() == NOBODY
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

    /// How far behind the function's entry the probe sits, in bytes.
    #[must_use]
    #[inline(always)]
    pub const fn distance(self) -> u64 {
        (self.lower() >> INDEX_BITS & Self::MAX_DISTANCE) as u64
    }

    /// Which of the links the probe is in that may hold one of its function.
    #[must_use]
    #[inline(always)]
    pub const fn lane(self) -> Lane {
        let number = (self.lower() & LANE) >> LANE.trailing_zeros();
        Lane::numbered(number as u64 | (self.is_shared() as u64) << 1)
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
        let processes = [(9, 0), (1, Cookie::MAX_INDEX), (u32::MAX, 1), (4_194_304, 2_000)];
        for ((tgid, index), distance) in processes.into_iter().zip([0, Cookie::MAX_DISTANCE, 64, 4]) {
            for lane in Lane::OWN {
                let cookie = Cookie::new(tgid, index, distance, lane);
                assert_eq!((cookie.tgid(), cookie.index(), cookie.lane()), (tgid, index, lane));
                assert_eq!((cookie.distance(), cookie.is_shared()), (u64::from(distance), false));
            }
            for lane in Lane::SHARED {
                let cookie = Cookie::shared(index, distance, lane);
                assert_eq!((cookie.is_shared(), cookie.index(), cookie.lane()), (true, index, lane));
                assert_eq!(cookie.distance(), u64::from(distance));
            }
        }
    }
}
