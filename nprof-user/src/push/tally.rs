//! What became of the pushes to one target.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::{PushOutcome, Pushes};

/// What metrics call the receiver of metrics.
pub const OTLP_METRICS: &str = "otlp-metrics";
/// That of profiles by OTLP.
pub const OTLP_PROFILES: &str = "otlp-profiles";
/// Pyroscope.
pub const PYROSCOPE: &str = "pyroscope";

/// Counts what became of pushes. They only rise.
#[derive(Debug)]
pub struct Tally {
    target: &'static str,
    outcomes: [AtomicU64; PushOutcome::ALL.len()],
    retries: AtomicU64,
    rejected: AtomicU64,
}

impl Tally {
    /// None yet to what metrics call `target`.
    #[must_use]
    pub fn new(target: &'static str) -> Self {
        Self { target, outcomes: Default::default(), retries: AtomicU64::new(0), rejected: AtomicU64::new(0) }
    }

    /// The numbers now.
    #[must_use]
    pub fn read(&self) -> Pushes {
        let value = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Pushes {
            target: self.target,
            outcomes: self.outcomes.each_ref().map(value),
            retries: value(&self.retries),
            rejected: value(&self.rejected),
        }
    }

    pub(super) fn ended(&self, outcome: PushOutcome) {
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tried_again(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rejected(&self, items: u64) {
        self.rejected.fetch_add(items, Ordering::Relaxed);
    }
}
