//! What was measured, at one moment.

use std::time::Duration;

use jiff::Timestamp;

use super::{Jvm, PlannedMethod, ProbeCost, SkipReason, Skipped};

/// A base-2 exponential histogram of call times in nanoseconds with four buckets per octave: the Prometheus
/// native histogram (and OTLP exponential histogram) of schema 2. Bucket `i` holds the times in
/// `(2^((i-1)/4), 2^(i/4)]` nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    /// Bucket index and number of calls; only buckets with calls, in rising order.
    pub buckets: Vec<(i32, u64)>,
}

/// What was measured of one native function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodSnapshot {
    /// The dense index.
    pub index: u32,
    /// The methods bound to the function; never empty. More than one: what follows is their sum.
    pub methods: Vec<PlannedMethod>,
    /// The library's file name.
    pub library: String,
    /// What a hit costs at the site.
    pub cost: ProbeCost,
    /// When its probe was attached, from the start of the measurement on; zero for those attached at the start.
    pub traced_after: Duration,
    /// Calls that have ended, by a return or otherwise. With `--count-only` the calls that have begun.
    pub calls: u64,
    /// Calls that have begun and not ended. Always 0 with `--count-only`.
    pub in_flight: u64,
    /// Of `calls`, those whose end was not seen and whose time is therefore in none of the fields below
    /// (left by `longjmp`, nested too deep). Each is also a loss.
    pub untimed: u64,
    /// Wall-clock time of the timed calls, in nanoseconds.
    pub total_ns: u64,
    /// `total_ns` less the time spent in other traced calls that they made.
    pub self_ns: u64,
    /// The longest timed call, in nanoseconds.
    pub max_ns: u64,
    /// The timed calls by duration. Its counts add up to `calls - untimed`.
    pub histogram: Histogram,
}

/// Events that were not measured as they should have been, by reason. All are zero in a clean run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Losses {
    /// Reason (from `nprof_common::Loss`) and number; every reason is listed, zero ones too.
    pub counts: Vec<(&'static str, u64)>,
}

impl Losses {
    /// The sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(_, n)| n).sum()
    }
}

/// Everything measured of one JVM from the start to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Wall-clock time at the start of the measurement.
    pub started: Timestamp,
    /// Time since then.
    pub elapsed: Duration,
    /// The JVM.
    pub jvm: Jvm,
    /// Whether the JVM has ended. A trace of one JVM leaves it open: its end ends the trace.
    pub ended: bool,
    /// Whether calls were timed, or only counted (`--count-only`).
    pub timed: bool,
    /// Functions with calls that ended or are in flight.
    pub methods: Vec<MethodSnapshot>,
    /// How many functions are traced, those without calls included.
    pub traced: usize,
    /// Selected methods that are not traced.
    pub skipped: Vec<Skipped>,
    /// What went wrong in the measurement.
    pub losses: Losses,
}

impl Snapshot {
    /// The skipped methods of one reason.
    pub fn skipped_for(&self, reason: SkipReason) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().filter(move |s| s.reason == reason)
    }
}
