//! What an attached probe hands to the BPF program: whose call it is and which method.

/// The attach cookie: the target's process id in the upper half, the dense method index in the lower.
///
/// It fills the holes of the one program that serves all methods. The process id lets the program refuse hits of
/// other processes (the kernel's own filter was broken before 6.10) without a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Packs a process id of the initial namespace and a dense index.
    #[must_use]
    #[inline(always)]
    pub const fn new(tgid: u32, index: u32) -> Self {
        Self(((tgid as u64) << 32) | index as u64)
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
        (self.0 & 0xffff_ffff) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both halves come back, at their limits too.
    #[test]
    fn round_trip() {
        for (tgid, index) in [(0, 0), (1, u32::MAX), (u32::MAX, 1), (4_194_304, 2_000)] {
            let cookie = Cookie::new(tgid, index);
            assert_eq!((cookie.tgid(), cookie.index()), (tgid, index));
        }
    }
}
