//! How long to wait before the next attempt.

use std::time::Duration;

use ring::rand::{self, SystemRandom};

/// No pause is longer before its random part.
const LONGEST: Duration = Duration::from_secs(30);

/// Pauses that double, each with a random part, so that not all hosts come back at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// The usual pause after the first failure.
    pub(super) const FIRST: Duration = Duration::from_secs(1);

    pub(super) fn new(first: Duration) -> Self {
        Self { next: first }
    }

    /// The next pause: half of it to one and a half times.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (2 * pause).min(LONGEST);
        pause / 2 + part_of(pause)
    }
}

/// A random part of a time.
pub(super) fn part_of(whole: Duration) -> Duration {
    // Where the kernel gives no random numbers it is the middle.
    let random =
        rand::generate::<[u8; 4]>(&SystemRandom::new()).map_or(1 << 31, |four| u32::from_ne_bytes(four.expose()));
    whole.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that pauses double up to a limit, and that they are spread.
    #[test]
    fn doubles_and_spreads() {
        let mut backoff = Backoff::new(Backoff::FIRST);
        let pauses: Vec<Duration> = (0..8).map(|_| backoff.next()).collect();
        for (pause, middle) in pauses.iter().zip([1, 2, 4, 8, 16, 30, 30, 30]) {
            let middle = Duration::from_secs(middle);
            assert!(*pause >= middle / 2 && *pause <= middle * 3 / 2, "{pause:?} around {middle:?}");
        }
        assert_ne!(pauses[5], pauses[6]);
    }
}
