//! So much in a second, and so much at once: for what is told one by one and must not become a flood.

use std::time::Instant;

/// What may still be told.
#[derive(Debug)]
pub(super) struct Tokens {
    per_second: f64,
    burst: f64,
    left: f64,
    filled: Instant,
}

impl Tokens {
    /// All that can be had at once.
    pub(super) fn new(per_second: f64, burst: f64, now: Instant) -> Self {
        Self { per_second, burst, left: burst, filled: now }
    }

    /// Whether there is one.
    pub(super) fn has_one(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.burst);
        self.filled = now;
        self.left >= 1.0
    }

    /// Takes one, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let has_one = self.has_one(now);
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Check that a burst is let through, then the pace, and that rest is not saved beyond the burst.
    #[test]
    fn bursts_and_pace() {
        let start = Instant::now();
        let mut tokens = Tokens::new(10.0, 3.0, start);
        let mut taken = |ms| (0..100).filter(|_| tokens.take(start + Duration::from_millis(ms))).count();
        assert_eq!([taken(0), taken(50), taken(100), taken(350), taken(60_000)], [3, 0, 1, 2, 3]);
    }
}
