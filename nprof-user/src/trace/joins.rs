//! How the joining of JVMs goes, for everybody who asks: how many wait, for how long, and how many were given up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The state of joining. Written by the host, read by anybody at any time.
#[derive(Debug)]
pub struct Joins {
    start: Instant,
    under_way: AtomicUsize,
    given_up: AtomicU64,
    /// Since when a JVM waits for somebody to take it up, in milliseconds from the start and one more; 0 if none does.
    waiting_since: AtomicU64,
}

impl Joins {
    pub(super) fn new() -> Self {
        let (under_way, given_up, waiting_since) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { start: Instant::now(), under_way, given_up, waiting_since }
    }

    /// JVMs that are being read and attached to, or wait for that.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// JVMs that took too long.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// How long the JVM that waits longest has waited for somebody to take it up.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        match self.waiting_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.start.elapsed().saturating_sub(Duration::from_millis(since - 1)),
        }
    }

    pub(super) fn set(&self, under_way: usize, oldest: Option<Instant>) {
        let since = |at: Instant| at.saturating_duration_since(self.start).as_millis();
        let since = oldest.map_or(0, |at| u64::try_from(since(at)).unwrap_or(u64::MAX - 1) + 1);
        self.under_way.store(under_way, Ordering::Relaxed);
        self.waiting_since.store(since, Ordering::Relaxed);
    }

    pub(super) fn gave_up(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the wait is that of the oldest, from its own beginning, and none where nobody waits.
    #[test]
    fn waits_as_long_as_the_oldest() {
        let joins = Joins::new();
        assert_eq!(joins.longest_wait(), Duration::ZERO);
        joins.set(3, Some(joins.start));
        std::thread::sleep(Duration::from_millis(5));
        assert!(joins.longest_wait() >= Duration::from_millis(4));
        assert_eq!(joins.under_way(), 3);
        joins.set(1, None);
        assert_eq!(joins.longest_wait(), Duration::ZERO);
    }
}
