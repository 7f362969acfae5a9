//! What allocators are asked for: which arguments of a function say how much, and what the probe on it is told.

/// Which arguments of an allocator's function say how many bytes it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Request {
    /// The first, as of `malloc`.
    First = 0,
    /// The second, as of `realloc`.
    Second = 1,
    /// The third, as of `posix_memalign`.
    Third = 2,
    /// The product of the first two, as of `calloc`.
    FirstBySecond = 3,
    /// The product of the last two, as of `reallocarray`.
    SecondByThird = 4,
}

impl Request {
    /// How many bytes a call with these arguments asks for; `request` is one of these as a number. A product that is too large
    /// for any machine is none: the allocator refuses it.
    #[must_use]
    #[inline(always)]
    pub const fn bytes(request: u64, [first, second, third]: [u64; 3]) -> u64 {
        match request {
            0 => first,
            1 => second,
            2 => third,
            3 => product(first, second),
            4 => product(second, third),
            _ => 0,
        }
    }
}

/// Zero if it is beyond any address space (2^47 bytes). Compared by halves: the programs' machine has no wider product to look at.
#[inline(always)]
const fn product(one: u64, other: u64) -> u64 {
    let (less, more) = if one < other { (one, other) } else { (other, one) };
    let fits = more >> 32 == 0 || (less >> 16 == 0 && more >> 48 == 0);
    if fits { less * more } else { 0 }
}

/// How many threads' last requests are known at a time; a power of two.
pub const ASKED: u32 = 1024;

const INDEX_BITS: u32 = 24;
const REQUEST_SHIFT: u32 = INDEX_BITS;
const RANK_SHIFT: u32 = 28;
const BEFORE_SHIFT: u32 = 32;
const AFTER_SHIFT: u32 = 48;
/// Distances are told in units of 2^4 bytes.
const UNIT_SHIFT: u32 = 4;

/// What the probe on a function of an allocator is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocCookie(pub u64);

impl AllocCookie {
    /// The highest rank.
    pub const MAX_RANK: u32 = 15;
    /// The farthest that the allocator's code may reach in either direction, in bytes.
    pub const MAX_REACH: u64 = 0xffff << UNIT_SHIFT;

    /// Packs the record in which hits are counted, the function's rank among those of its allocator, at most [`Self::MAX_RANK`], and
    /// how far the allocator's code reaches before the probe and behind it, at most [`Self::MAX_REACH`].
    #[must_use]
    pub const fn new(index: u32, request: Request, rank: u32, [before, after]: [u64; 2]) -> Self {
        let lower = (index & ((1 << INDEX_BITS) - 1)) as u64 | (request as u64) << REQUEST_SHIFT;
        let units = (before >> UNIT_SHIFT & 0xffff) << BEFORE_SHIFT | (after.div_ceil(16) & 0xffff) << AFTER_SHIFT;
        Self(lower | ((rank & Self::MAX_RANK) as u64) << RANK_SHIFT | units)
    }

    /// The record in which hits are counted.
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> u32 {
        (self.0 & ((1 << INDEX_BITS) - 1)) as u32
    }

    /// A [`Request`], as a number.
    #[must_use]
    #[inline(always)]
    pub const fn request(self) -> u64 {
        self.0 >> REQUEST_SHIFT & 0xf
    }

    /// The function's rank: one that does its work by jumping to another has the higher one.
    #[must_use]
    #[inline(always)]
    pub const fn rank(self) -> u32 {
        (self.0 >> RANK_SHIFT & 0xf) as u32
    }

    /// Whether an address is in the allocator's own code, seen from a probe at `ip`.
    #[must_use]
    #[inline(always)]
    pub const fn is_own_code(self, ip: u64, address: u64) -> bool {
        let before = (self.0 >> BEFORE_SHIFT & 0xffff) << UNIT_SHIFT;
        let after = (self.0 >> AFTER_SHIFT) << UNIT_SHIFT;
        address.wrapping_sub(ip.wrapping_sub(before)) < before + after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what each request asks for, and that a product that overflows asks for nothing.
    #[test]
    fn requests() {
        let arguments = [3, 5, 7];
        let all = [Request::First, Request::Second, Request::Third, Request::FirstBySecond, Request::SecondByThird];
        assert_eq!(all.map(|request| Request::bytes(request as u64, arguments)), [3, 5, 7, 15, 35]);
        assert_eq!(Request::bytes(Request::FirstBySecond as u64, [1 << 33, 1 << 33, 0]), 0);
        assert_eq!(Request::bytes(Request::FirstBySecond as u64, [1, 5 << 32, 0]), 5 << 32);
        assert_eq!(Request::bytes(Request::FirstBySecond as u64, [7, 0, 0]), 0);
    }

    /// Check that all parts come back at their limits, and which addresses are the allocator's own.
    #[test]
    fn round_trip() {
        let cookie = AllocCookie::new((1 << 24) - 1, Request::SecondByThird, AllocCookie::MAX_RANK, [0x120, 0x455]);
        assert_eq!((cookie.index(), cookie.request(), cookie.rank()), ((1 << 24) - 1, 4, 15));
        let is_own = |address| cookie.is_own_code(0x10_000, address);
        assert_eq!([0xfedf, 0xfee0, 0x10_000, 0x1_0454, 0x1_0460].map(is_own), [false, true, true, true, false]);
        let none = AllocCookie::new(0, Request::First, 0, [0, 0]);
        assert!(!none.is_own_code(0x10_000, 0x10_000));
        let far = AllocCookie::new(0, Request::First, 0, [AllocCookie::MAX_REACH; 2]);
        assert!(far.is_own_code(1 << 32, (1 << 32) - AllocCookie::MAX_REACH));
    }
}
