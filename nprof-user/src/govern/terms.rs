//! What the governor is told and what it answers.

use std::fmt;
use std::time::Duration;

use crate::model::{ProbeCost, Tracing};

/// The share of one core's time that a JVM is taken to use at least. Without it, a handful of calls would be a large
/// part of what an idle JVM does.
const LEAST_CORES: f64 = 0.1;

/// What one call of a traced function costs the target, in nanoseconds, as calibrated on this machine. Each pair is for
/// [`ProbeCost::Emulated`] and [`ProbeCost::SingleStepped`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// With probes on entry and return that count and time.
    pub timed_ns: [f64; 2],
    /// With a probe on entry that counts.
    pub counted_ns: [f64; 2],
    /// With a probe on entry that does nothing.
    pub off_ns: [f64; 2],
}

impl Costs {
    /// Nanoseconds per call. Always finite and never negative, whatever the calibration gave.
    #[must_use]
    pub fn of(&self, tracing: Tracing, cost: ProbeCost) -> f64 {
        let [emulated, single_stepped] = match tracing {
            Tracing::Detached => [0.0; 2],
            Tracing::Off => self.off_ns,
            Tracing::Counted => self.counted_ns,
            Tracing::Timed => self.timed_ns,
        };
        let ns = match cost {
            ProbeCost::Emulated => emulated,
            ProbeCost::SingleStepped => single_stepped,
        };
        if ns.is_finite() { ns.max(0.0) } else { 0.0 }
    }
}

/// What tracing may cost a JVM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The share of the JVM's own time, above 0: 0.02 is 2 %.
    pub share: f64,
}

/// One function in one period. A function that is being tried counts as [`Tracing::Detached`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// The function's dense index.
    pub id: u32,
    /// What a hit costs at its site.
    pub cost: ProbeCost,
    /// What the user asked for. The governor never goes above it.
    pub wanted: Tracing,
    /// What was done at its calls.
    pub tracing: Tracing,
    /// The calls that were seen in the period: 0 for [`Tracing::Off`] and [`Tracing::Detached`].
    pub calls: u64,
}

/// The time between two decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// When it ended, from any fixed moment on.
    pub now: Duration,
    /// How long it was.
    pub length: Duration,
    /// The CPU time that the JVM used in it, the cost of tracing included.
    pub target_cpu: Duration,
}

impl Period {
    /// The time that the JVM had for itself, in nanoseconds, if `cost_ns` of its CPU time was the cost of tracing.
    ///
    /// The cost is left out so that a share of this time is the slowdown. It also makes the share of a thread that does
    /// nothing but call one function the same at any speed, so what the share will be in another state is known though
    /// the thread will then call more or less often.
    pub(super) fn own_ns(&self, cost_ns: f64) -> f64 {
        let least = LEAST_CORES * nanoseconds(self.length);
        (nanoseconds(self.target_cpu) - cost_ns).max(least)
    }
}

/// Why a function is put into another state. Shown in the log after what was changed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Why {
    /// Tracing cost more than the budget in the last period.
    OverBudget {
        /// What tracing cost, as a share of the JVM's own time.
        share: f64,
    },
    /// The budget has had room for it for long enough.
    RoomAgain,
    /// A look ([`Governor::looked`](super::Governor::looked)) showed that the budget has room for it.
    Retry,
    /// There is no budget any more.
    NoBudget,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OverBudget { share } => write!(f, "over the budget ({:.1} %)", share * 100.0),
            Self::RoomAgain => f.write_str("the budget has room again"),
            Self::Retry => f.write_str("called less often now"),
            Self::NoBudget => f.write_str("the budget was lifted"),
        }
    }
}

/// A function that is to be put into another state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The function.
    pub id: u32,
    /// The state.
    pub to: Tracing,
    /// How often it was called in the period, per second; 0 if its calls were not seen.
    pub rate: f64,
    /// Why.
    pub why: Why,
}

/// `time` in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// `calls` as a factor: exact up to 2^53.
pub(super) fn factor(calls: u64) -> f64 {
    calls as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a calibration that went wrong gives no cost that is not a number, and that each state has its own.
    #[test]
    fn costs_are_numbers() {
        let bad = Costs { timed_ns: [f64::NAN, f64::INFINITY], counted_ns: [-1.0, 7.0], off_ns: [3.0, 4.0] };
        let of = |tracing| [ProbeCost::Emulated, ProbeCost::SingleStepped].map(|cost| bad.of(tracing, cost));
        assert_eq!(Tracing::ALL.map(of), [[0.0; 2], [3.0, 4.0], [0.0, 7.0], [0.0; 2]]);
    }

    /// Check that the cost of tracing is no part of the JVM's own time, and that an idle JVM has a tenth of a core.
    #[test]
    fn own_time_has_a_floor() {
        let period = |cpu_ms| Period {
            now: Duration::ZERO,
            length: Duration::from_secs(1),
            target_cpu: Duration::from_millis(cpu_ms),
        };
        assert_eq!(period(900).own_ns(400e6), 500e6);
        assert_eq!(period(0).own_ns(1e6), 100e6);
        assert_eq!(period(500).own_ns(900e6), 100e6);
    }

    /// Check that the reason for a demotion says by how much the JVM was slowed down.
    #[test]
    fn reasons_have_numbers() {
        assert_eq!(Why::OverBudget { share: 0.4837 }.to_string(), "over the budget (48.4 %)");
    }
}
