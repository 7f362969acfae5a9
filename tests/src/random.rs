//! Numbers by chance that come again with the same seed.

use std::time::Duration;

/// A row of numbers.
#[derive(Debug, Clone, Copy)]
pub struct Random(u64);

impl Random {
    /// The row of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }

    /// The next, as a time of up to so many milliseconds.
    pub fn within(&mut self, milliseconds: u64) -> Duration {
        Duration::from_micros(self.below(milliseconds * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a seed gives the same numbers again, another seed others, and none is too high.
    #[test]
    fn the_same_again() {
        let row = |seed| {
            let mut random = Random::new(seed);
            (0..20).map(|_| random.below(100)).collect::<Vec<_>>()
        };
        assert_eq!(row(1), row(1));
        assert_ne!(row(1), row(2));
        assert!(row(1).iter().all(|&number| number < 100));
        assert!(Random::new(3).within(5) < Duration::from_millis(5));
    }
}
