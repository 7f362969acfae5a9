//! What the governor is told and what it answers.

use std::fmt;
use std::time::Duration;

use crate::model::{ProbeCost, Tracing};

/// The share of one core's time that a JVM is taken to use at least. Without it, a handful of calls would be a large
/// part of what an idle JVM does.
const LEAST_CORES: f64 = 0.1;
/// The CPU time in nanoseconds that it is taken to use at least in a period. A hundred calls in a short one are no burden for anybody.
const LEAST_NS: f64 = 25e6;

/// What is done at the calls of a function: a rung of the ladder between nothing and everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// There is no probe: calls cost nothing and are not seen.
    Detached,
    /// Calls are not seen, because the user wants that.
    Off,
    /// Each call is counted.
    Counted,
    /// Each call is counted, and one of 1,024 timed.
    Thousandth,
    /// Each call is counted, and one of 64 timed.
    SixtyFourth,
    /// Each call is counted, and one of 16 timed.
    Sixteenth,
    /// Each call is counted and timed.
    Timed,
}

impl Rung {
    /// Whether calls are seen.
    #[must_use]
    pub fn is_watched(self) -> bool {
        self >= Self::Counted
    }

    /// Whether some of the calls are timed, and others only counted.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.every() > 1
    }

    /// One of so many calls is timed; 0 where none is.
    #[must_use]
    pub fn every(self) -> u32 {
        match self {
            Self::Detached | Self::Off | Self::Counted => 0,
            Self::Thousandth => 1_024,
            Self::SixtyFourth => 64,
            Self::Sixteenth => 16,
            Self::Timed => 1,
        }
    }

    /// What users are told of it.
    #[must_use]
    pub fn tracing(self) -> Tracing {
        match self {
            Self::Detached => Tracing::Detached,
            Self::Off => Tracing::Off,
            Self::Counted => Tracing::Counted,
            Self::Thousandth | Self::SixtyFourth | Self::Sixteenth => Tracing::Sampled,
            Self::Timed => Tracing::Timed,
        }
    }
}

impl From<Tracing> for Rung {
    fn from(tracing: Tracing) -> Self {
        match tracing {
            Tracing::Detached => Self::Detached,
            Tracing::Off => Self::Off,
            // Where calls are counted is no business of the ladder: what it costs, `By` says.
            Tracing::Returned | Tracing::Counted => Self::Counted,
            Tracing::Sampled => Self::Sixteenth,
            Tracing::Timed => Self::Timed,
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.every() {
            every @ 2.. => write!(f, "one of {every} timed"),
            _ => self.tracing().fmt(f),
        }
    }
}

/// Who sees the calls of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A probe of the kernel, at a site of this kind.
    Probe(ProbeCost),
    /// The same, beside which programs of the user's run.
    ProbeAnd(ProbeCost, Programs),
    /// A stub in the target: there it costs so little to count a call that no method is left out.
    Stub,
}

/// What programs of the user's add to a call, in nanoseconds. They run where the probes are, and go with these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Programs {
    /// To one that is timed.
    pub timed_ns: u32,
    /// To one that is counted.
    pub counted_ns: u32,
}

impl Programs {
    pub(super) fn of(self, rung: Rung) -> u32 {
        match rung {
            Rung::Detached | Rung::Off => 0,
            Rung::Counted => self.counted_ns,
            _ => self.timed_ns,
        }
    }
}

impl By {
    /// The same where a call that is counted costs so much more.
    #[must_use]
    pub fn with_dearer_counts(self, more_ns: u32) -> Self {
        match self {
            Self::Probe(cost) => Self::ProbeAnd(cost, Programs { timed_ns: 0, counted_ns: more_ns }),
            Self::ProbeAnd(cost, programs) => {
                let counted_ns = programs.counted_ns.saturating_add(more_ns);
                Self::ProbeAnd(cost, Programs { counted_ns, ..programs })
            }
            Self::Stub => self,
        }
    }

    /// The site of the probe; `None` if stubs see the calls.
    #[must_use]
    pub fn site(self) -> Option<ProbeCost> {
        match self {
            Self::Probe(cost) | Self::ProbeAnd(cost, _) => Some(cost),
            Self::Stub => None,
        }
    }

    /// What can be done at calls besides what the user switches off, the most first.
    #[must_use]
    pub fn ladder(self) -> &'static [Rung] {
        match self {
            Self::Probe(_) | Self::ProbeAnd(..) => &[Rung::Timed, Rung::Counted, Rung::Detached],
            Self::Stub => &[Rung::Timed, Rung::Sixteenth, Rung::SixtyFourth, Rung::Thousandth, Rung::Counted],
        }
    }
}

/// What tracing may cost a JVM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The share of the JVM's own time, above 0: 0.02 is 2 %.
    pub share: f64,
    /// The part of it that stubs may take to time each call: beyond that they time some, and count all.
    of_stubs: f64,
}

impl Budget {
    /// What stubs may take of it where tracing is always on. With 2 % that is 0.2 %, which is to be lost in what differs from one
    /// minute to the next anyway, and it leaves the rest to probes.
    const ALWAYS: f64 = 0.1;

    /// Where somebody looks at a JVM for a while: stubs time each call as long as the whole of it has room.
    #[must_use]
    pub fn once(share: f64) -> Self {
        Self { share, of_stubs: 1.0 }
    }

    /// Where tracing is always on.
    #[must_use]
    pub fn always(share: f64) -> Self {
        Self { share, of_stubs: Self::ALWAYS }
    }

    /// What it allows in a time in which a JVM had so many nanoseconds for itself.
    pub(super) fn limits(self, own_ns: f64) -> Limits {
        let all_ns = self.share * own_ns;
        Limits { all_ns, stubs_ns: all_ns * self.of_stubs }
    }
}

/// What tracing may cost, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    /// All of it.
    pub(super) all_ns: f64,
    /// Stubs, as long as they can time fewer calls.
    pub(super) stubs_ns: f64,
}

/// One function in one period, or one method with a stub. A function that is being tried counts as [`Rung::Detached`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// The function's dense index, or a number of the method's that no function has.
    pub id: u32,
    /// Who sees its calls.
    pub by: By,
    /// What the user asked for. The governor never goes above it.
    pub wanted: Rung,
    /// What was done at its calls.
    pub tracing: Rung,
    /// The calls that were seen in the period: 0 for [`Rung::Off`] and [`Rung::Detached`].
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
        let least = LEAST_NS.max(LEAST_CORES * nanoseconds(self.length));
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
    /// Stubs cost more than their part of the budget.
    OverPartOfStubs {
        /// What they cost, as a share of the JVM's own time.
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
            Self::OverBudget { share } => write!(f, "over the budget ({})", in_words(*share)),
            Self::OverPartOfStubs { share } => {
                write!(f, "over the part of the budget that stubs have ({})", in_words(*share))
            }
            Self::RoomAgain => f.write_str("the budget has room again"),
            Self::Retry => f.write_str("called less often now"),
            Self::NoBudget => f.write_str("the budget was lifted"),
        }
    }
}

/// A share of the JVM's own time. A burst may cost many times that, which is no error.
fn in_words(share: f64) -> String {
    if share < 1.0 { format!("{:.1} %", share * 100.0) } else { format!("{share:.1} times the JVM's own time") }
}

/// A function that is to be put into another state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The function.
    pub id: u32,
    /// The state.
    pub to: Rung,
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

    /// Check that a ladder goes down rung by rung, and is told in words that users know.
    #[test]
    fn ladders_go_down() {
        for by in [By::Probe(ProbeCost::Emulated), By::Stub] {
            let ladder = by.ladder();
            assert!(ladder.is_sorted_by(|higher, lower| higher > lower), "{ladder:?}");
            assert!(ladder.iter().all(|rung| Rung::from(rung.tracing()).tracing() == rung.tracing()));
        }
        assert_eq!([Rung::SixtyFourth, Rung::Timed].map(|rung| rung.to_string()), ["one of 64 timed", "timed"]);
        assert_eq!([Rung::Counted, Rung::Timed].map(Rung::is_sampled), [false; 2]);
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
        let burst = Why::OverBudget { share: 24.071 };
        assert_eq!(burst.to_string(), "over the budget (24.1 times the JVM's own time)");
        let of_stubs = Why::OverPartOfStubs { share: 0.0061 };
        assert_eq!(of_stubs.to_string(), "over the part of the budget that stubs have (0.6 %)");
    }
}
