//! The marks behind the name of a method, without which its numbers cannot be read: the one table of them, for what is measured
//! now and for recordings.

use super::rows::Row;
use crate::model::{FunctionTotals, ProbeCost, Tracing, Unseen};

/// A property that a mark stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Late,
    SingleStepped,
    Estimated,
    Unwatched,
    OnlyCounted,
    PartlyCounted,
    Sampled,
    SelfEstimated,
    Untimed,
    Shared,
}

impl Mark {
    const ALL: [Self; 10] = [
        Self::Late,
        Self::SingleStepped,
        Self::Estimated,
        Self::Unwatched,
        Self::OnlyCounted,
        Self::PartlyCounted,
        Self::Sampled,
        Self::SelfEstimated,
        Self::Untimed,
        Self::Shared,
    ];

    /// The character for it.
    pub(super) fn symbol(self) -> char {
        match self {
            Self::Late => '+',
            Self::SingleStepped => '!',
            Self::Estimated => '≈',
            Self::Unwatched => '<',
            Self::OnlyCounted => '#',
            Self::PartlyCounted => '%',
            Self::Sampled => '*',
            Self::SelfEstimated => '~',
            Self::Untimed => '?',
            Self::Shared => '&',
        }
    }

    /// What it says of the numbers.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Late => {
                "traced from a later moment on, when it was bound: earlier calls are not counted, rates are since then"
            }
            Self::SingleStepped => {
                "the kernel single-steps an instruction of it: a call costs about ten times as much as others do, most of it inside its time, from where it is taken off"
            }
            Self::Estimated => {
                "too expensive to watch all the time (--max-overhead): CALLS and TOTAL are estimates from short looks: in two of three cases off by no more than the ERROR behind them or, where that would be more than they are, no more than what stands behind <; --tier stub counts and times every call"
            }
            Self::Unwatched => {
                "for some of the time its calls were not watched, to keep the cost of tracing low (--max-overhead): there were more calls than CALLS says, and CALLS/s is the rate while it was watched"
            }
            Self::OnlyCounted => {
                "by now its calls are only counted, no longer timed, to keep the cost of tracing low (--max-overhead)"
            }
            Self::PartlyCounted => {
                "some of its calls were only counted: TOTAL and the other times are those of the rest alone"
            }
            Self::Sampled => {
                "only some of its calls were timed, one of several (by stubs) or in short looks (by probes), to keep the cost of tracing low (--max-overhead, --time-every): TOTAL and AVG are estimates for all of them, ~P50, ~P99 and MAX are of those timed outside of looks"
            }
            Self::SelfEstimated => {
                "calls of other natives within it were not told apart as they were made: SELF is estimated, as what their sampled stacks leave"
            }
            Self::Untimed => "some of its calls are counted but not timed, because their end was not seen",
            Self::Shared => "one native function behind several methods; the row is the sum of their calls",
        }
    }

    /// Whether a row of what is measured has it.
    pub(super) fn applies_to(self, row: &Row<'_>) -> bool {
        let measured = row.measured;
        match self {
            Self::Late => !measured.traced_after.is_zero(),
            Self::SingleStepped => measured.cost == Some(ProbeCost::SingleStepped),
            Self::Estimated => measured.unseen.is_some(),
            Self::Unwatched => {
                let is_paused = !measured.traced.unwatched.is_zero() || !measured.traced.tracing.is_watched();
                is_paused && measured.unseen.is_none()
            }
            Self::OnlyCounted => row.is_demoted() && measured.traced.tracing == Tracing::Counted,
            // Where no call is timed, because the user wants that, there are no times to misread.
            Self::PartlyCounted => {
                let is_counting = matches!(measured.traced.wanted, Tracing::Counted | Tracing::Returned);
                let is_by_wish = measured.counted == measured.calls && is_counting;
                row.snapshot.timed && measured.counted > 0 && measured.estimated_ns.is_none() && !is_by_wish
            }
            Self::Sampled => measured.estimated_ns.is_some(),
            // Nobody claims one.
            Self::SelfEstimated => false,
            Self::Untimed => measured.untimed > 0,
            Self::Shared => measured.methods.len() > 1,
        }
    }

    /// Whether a function of a recording has it.
    pub(super) fn applies_to_recorded(self, function: &FunctionTotals) -> bool {
        let has_time = function.unseen.as_ref().is_some_and(Unseen::has_time);
        // What is estimated of calls that were counted stands there, too.
        let is_unseen = function.unseen.is_some_and(|unseen| unseen.calls > 0 || unseen.error_calls > 0);
        let is_estimated = is_unseen || (function.unseen.is_some() && function.counted == 0);
        match self {
            Self::Late => function.traced_after_ns > 0,
            Self::SingleStepped => function.single_stepped,
            Self::Estimated => is_estimated,
            Self::Unwatched => function.unwatched_ns > 0 && !is_estimated,
            Self::OnlyCounted => function.only_counted,
            Self::PartlyCounted => function.counted > 0 && !has_time,
            Self::Sampled => function.sampled || (function.counted > 0 && has_time),
            Self::SelfEstimated => function.self_estimated,
            Self::Untimed => function.untimed > 0,
            Self::Shared => function.others > 0,
        }
    }

    /// The marks that apply, to stand behind a name: empty, or a blank and one or more symbols.
    pub(super) fn symbols(applies: impl Fn(Self) -> bool) -> String {
        let symbols: String = Self::ALL.into_iter().filter(|mark| applies(*mark)).map(Self::symbol).collect();
        if symbols.is_empty() { symbols } else { format!(" {symbols}") }
    }

    /// What the marks mean that apply, a line for each.
    pub(super) fn legend(applies: impl Fn(Self) -> bool) -> impl Iterator<Item = String> {
        Self::ALL
            .into_iter()
            .filter(move |mark| applies(*mark))
            .map(|mark| format!("{} {}", mark.symbol(), mark.meaning()))
    }
}

#[cfg(test)]
mod tests {
    use super::Mark;
    use crate::model::{FunctionTotals, Unseen};

    fn symbols(function: &FunctionTotals) -> String {
        Mark::symbols(|mark| mark.applies_to_recorded(function)).trim().to_owned()
    }

    /// Check that no two marks look alike.
    #[test]
    fn symbols_differ() {
        let symbols: std::collections::BTreeSet<char> = Mark::ALL.into_iter().map(Mark::symbol).collect();
        assert_eq!(symbols.len(), Mark::ALL.len());
    }

    /// Check the marks of recordings: what was only counted and then estimated is told from what nobody saw.
    #[test]
    fn of_recordings() {
        let none = FunctionTotals::default;
        assert_eq!(symbols(&none()), "");
        let unseen = |calls, total_ns| Some(Unseen { calls, total_ns, ..Unseen::default() });
        for (function, expected) in [
            (FunctionTotals { traced_after_ns: 5, single_stepped: true, others: 1, untimed: 2, ..none() }, "+!?&"),
            (FunctionTotals { unseen: unseen(9, 9), unwatched_ns: 5, ..none() }, "≈"),
            (FunctionTotals { unwatched_ns: 5, only_counted: true, ..none() }, "<#"),
            (FunctionTotals { counted: 7, unseen: unseen(0, 0), ..none() }, "%"),
            (FunctionTotals { counted: 7, unseen: unseen(0, 70), ..none() }, "*"),
            (FunctionTotals { counted: 7, unseen: unseen(9, 70), ..none() }, "≈*"),
            (FunctionTotals { sampled: true, self_estimated: true, ..none() }, "*~"),
        ] {
            assert_eq!(symbols(&function), expected, "{function:?}");
        }
    }
}
