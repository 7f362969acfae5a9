//! What each function costs in a period, and which functions are lowered when all of them together cost too much.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::costs::Costs;
use super::terms::{By, Limits, Observed, Rung, factor};

/// A function is only counted instead of timed by its probe if that saves at least this part of its cost. Else it is detached at
/// once, as it would be in the next period.
const WORTH_COUNTING: f64 = 0.2;
/// A stub goes down rung by rung, as less is known on each, unless one saves less than this part.
const WORTH_A_RUNG: f64 = 0.02;

/// The part of the budget that is left at least for all that can be lowered.
const LEFT: f64 = 0.1;

/// A function in one period, and the state that it will be in.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) seen: &'a Observed,
    pub(super) to: Rung,
}

impl<'a> Load<'a> {
    /// The function, left as it is.
    pub(super) fn new(seen: &'a Observed) -> Self {
        Self { seen, to: seen.tracing }
    }

    /// What its calls would have cost in the state, in nanoseconds.
    pub(super) fn cost_in(&self, rung: Rung, costs: &Costs) -> f64 {
        factor(self.seen.calls) * costs.of(rung, self.seen.by)
    }

    /// What they would have cost in the state that it will be in, in nanoseconds.
    pub(super) fn cost_ns(&self, costs: &Costs) -> f64 {
        self.cost_in(self.to, costs)
    }

    /// What they would have cost at least.
    fn least_ns(&self, costs: &Costs) -> f64 {
        let bottom = self.seen.by.ladder().last().filter(|_| self.to.is_watched());
        bottom.map_or(0.0, |bottom| self.cost_in(*bottom, costs))
    }

    /// What they would have cost at least where some of them are timed.
    fn least_timed_ns(&self, costs: &Costs) -> f64 {
        let fewest = self.seen.by.ladder().iter().copied().rfind(|rung| rung.is_sampled());
        fewest.map_or(f64::INFINITY, |rung| self.cost_in(rung, costs)).min(self.cost_ns(costs))
    }

    /// What it costs less than before, in nanoseconds.
    fn saved_ns(&self, costs: &Costs) -> f64 {
        self.cost_in(self.seen.tracing, costs) - self.cost_ns(costs)
    }

    /// The rungs above the one that it will be on, as far as the user wants them, the most first.
    pub(super) fn above(&self) -> impl Iterator<Item = Rung> + use<> {
        let (to, wanted) = (self.to, self.seen.wanted);
        self.seen.by.ladder().iter().copied().filter(move |rung| *rung > to && *rung <= wanted)
    }

    /// The next lower rung that is of use; `None` at the bottom.
    fn below(&self, costs: &Costs) -> Option<Rung> {
        let cost_ns = self.cost_ns(costs);
        let least = if self.seen.by == By::Stub { WORTH_A_RUNG } else { WORTH_COUNTING };
        let is_of_use =
            |rung: &Rung| *rung == Rung::Detached || cost_ns - self.cost_in(*rung, costs) >= least * cost_ns;
        self.seen.by.ladder().iter().copied().filter(|rung| *rung < self.to).find(is_of_use)
    }

    /// The rungs from which it was lowered on, the most first. What a probe saw it sees again, or not at all.
    fn given_up(&self) -> impl Iterator<Item = Rung> + use<> {
        let (to, before, by) = (self.to, self.seen.tracing, self.seen.by);
        let is_between = move |rung: &Rung| *rung == before || (by == By::Stub && *rung > to && *rung < before);
        by.ladder().iter().copied().filter(is_between)
    }
}

/// Whether its calls are seen by a stub.
pub(super) fn is_by_stub(load: &Load<'_>) -> bool {
    load.seen.by == By::Stub
}

/// What all functions cost in the states that they will be in, in nanoseconds.
pub(super) fn total_ns(loads: &[Load<'_>], costs: &Costs) -> f64 {
    sum_ns(loads, costs, |_| true)
}

/// The same of those that are meant.
pub(super) fn sum_ns(loads: &[Load<'_>], costs: &Costs, is_meant: fn(&Load<'_>) -> bool) -> f64 {
    loads.iter().filter(|load| is_meant(load)).map(|load| load.cost_ns(costs)).sum()
}

/// A load in the order of what it costs; of equals, the first in the list is the greatest.
#[derive(Debug, Clone, Copy)]
struct Costly {
    cost_ns: f64,
    place: usize,
}

impl Ord for Costly {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cost_ns.total_cmp(&other.cost_ns).then(other.place.cmp(&self.place))
    }
}

impl PartialOrd for Costly {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Costly {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Costly {}

/// The limits, with one for stubs that they can keep by timing fewer calls. What the hot ones cost even so leaves a part of the budget for
/// the quiet ones: to time fewer calls of these would save next to nothing.
pub(super) fn in_reach(limits: Limits, loads: &[Load<'_>], costs: &Costs) -> Limits {
    let stubs = loads.iter().filter(|load| is_by_stub(load));
    let least_ns: f64 = stubs.map(|load| load.least_timed_ns(costs)).sum();
    Limits { stubs_ns: limits.stubs_ns.max(least_ns + LEFT * limits.all_ns), ..limits }
}

/// Lowers what costs most, step by step, until all together cost no more than the limit. First stubs time fewer calls: that
/// leaves every count exact, and the times good estimates. For their own limit they do no more than that. A function that is off
/// stays: it is so because the user wants it.
///
/// What stubs cost at least does not leave the rest with nothing: to detach probes of quiet functions for it would save little.
pub(super) fn lower(loads: &mut [Load<'_>], costs: &Costs, limits: Limits) {
    let least_ns: f64 = loads.iter().map(|load| load.least_ns(costs)).sum();
    let limits = Limits { all_ns: limits.all_ns.max(least_ns + LEFT * limits.all_ns), ..limits };
    descend(loads, costs, limits.stubs_ns, is_by_stub, Rung::is_sampled);
    descend(loads, costs, limits.all_ns, |_| true, Rung::is_sampled);
    descend(loads, costs, limits.all_ns, |_| true, |_| true);
    spare(loads, costs, limits);
}

/// Lowers what costs most of those that are meant, until these cost no more than the limit, as far as the rung below is one that
/// `may_take` allows.
fn descend(
    loads: &mut [Load<'_>],
    costs: &Costs,
    limit_ns: f64,
    is_meant: fn(&Load<'_>) -> bool,
    may_take: fn(Rung) -> bool,
) {
    let mut total = sum_ns(loads, costs, is_meant);
    let mut costliest: BinaryHeap<Costly> = loads
        .iter()
        .enumerate()
        .filter(|(_, load)| load.to.is_watched() && is_meant(load))
        .map(|(place, load)| Costly { cost_ns: load.cost_ns(costs), place })
        .collect();
    while total > limit_ns
        && let Some(Costly { cost_ns, place }) = costliest.pop()
    {
        let load = &mut loads[place];
        let Some(below) = load.below(costs).filter(|below| may_take(*below)) else { continue };
        load.to = below;
        let lowered_ns = load.cost_ns(costs);
        total += lowered_ns - cost_ns;
        costliest.push(Costly { cost_ns: lowered_ns, place });
    }
}

/// Takes back what proved needless when more expensive functions were lowered further, the cheapest first.
fn spare(loads: &mut [Load<'_>], costs: &Costs, limits: Limits) {
    let mut total = total_ns(loads, costs);
    let mut of_stubs = sum_ns(loads, costs, is_by_stub);
    let mut lowered: Vec<&mut Load<'_>> = loads.iter_mut().filter(|load| load.to < load.seen.tracing).collect();
    lowered.sort_by(|a, b| a.saved_ns(costs).total_cmp(&b.saved_ns(costs)));
    for load in lowered {
        let before_ns = load.cost_ns(costs);
        let fits = |rung: &Rung| {
            let more_ns = load.cost_in(*rung, costs) - before_ns;
            total + more_ns <= limits.all_ns && (!is_by_stub(load) || of_stubs + more_ns <= limits.stubs_ns)
        };
        let Some(back) = load.given_up().find(fits) else { continue };
        load.to = back;
        let more_ns = load.cost_ns(costs) - before_ns;
        total += more_ns;
        of_stubs += if is_by_stub(load) { more_ns } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::govern::Rung::{Counted, Detached, Off, Sixteenth, SixtyFourth, Thousandth, Timed};
    use crate::model::ProbeCost;

    use crate::govern::simulated_jvm::COSTS;

    /// The states that functions with these calls are lowered to.
    fn lowered(functions: &[(ProbeCost, Rung, u64)], limit_ns: f64) -> Vec<Rung> {
        lowered_all(functions.iter().map(|&(cost, rung, calls)| (By::Probe(cost), rung, calls)), limit_ns)
    }

    fn lowered_all(functions: impl Iterator<Item = (By, Rung, u64)>, limit_ns: f64) -> Vec<Rung> {
        lowered_within(functions, Limits { all_ns: limit_ns, stubs_ns: limit_ns })
    }

    fn lowered_within(functions: impl Iterator<Item = (By, Rung, u64)>, limits: Limits) -> Vec<Rung> {
        let observed: Vec<Observed> = (0..)
            .zip(functions)
            .map(|(id, (by, tracing, calls))| Observed { id, by, wanted: tracing, tracing, calls })
            .collect();
        let mut loads: Vec<Load<'_>> = observed.iter().map(Load::new).collect();
        lower(&mut loads, &COSTS, limits);
        loads.iter().map(|load| load.to).collect()
    }

    fn emulated(calls: &[u64]) -> Vec<(ProbeCost, Rung, u64)> {
        calls.iter().map(|&calls| (ProbeCost::Emulated, Timed, calls)).collect()
    }

    /// Check that no more is lowered than the limit asks for, the most expensive first and of equals the first.
    #[test]
    fn lowers_the_dearest() {
        assert_eq!(lowered(&emulated(&[20, 10]), 30e3), [Timed, Timed]);
        assert_eq!(lowered(&emulated(&[10, 20]), 20e3), [Timed, Counted]);
        assert_eq!(lowered(&emulated(&[20, 20]), 30e3), [Counted, Timed]);
        assert_eq!(lowered(&emulated(&[20, 20]), 20e3), [Counted, Counted]);
        assert_eq!(lowered(&emulated(&[20, 20]), 19e3), [Detached, Counted]);
        assert_eq!(lowered(&emulated(&[20, 20]), 0.0), [Detached, Detached]);
    }

    /// Check that a function is not lowered for another one that has to be detached anyway.
    #[test]
    fn spares_what_need_not_be_lowered() {
        assert_eq!(lowered(&emulated(&[1_000, 600]), 700e3), [Detached, Timed]);
    }

    /// Check that a single-stepped function goes before an emulated one that is called more often, and at once, as
    /// counting costs nearly as much as timing.
    #[test]
    fn single_stepped_goes_first() {
        let functions = [(ProbeCost::Emulated, Timed, 50), (ProbeCost::SingleStepped, Timed, 10)];
        assert_eq!(lowered(&functions, 60e3), [Timed, Detached]);
        let functions = [(ProbeCost::Emulated, Timed, 60), (ProbeCost::SingleStepped, Timed, 10)];
        assert_eq!(lowered(&functions, 90e3), [Counted, Timed]);
    }

    /// Check that stubs go down rung by rung, to counting and no further; that they time fewer calls before a probe sees less,
    /// and no fewer than needed; and that a rung which the user rules out is passed over.
    #[test]
    fn stubs_are_cheaper_before_less_is_seen() {
        let stubs =
            |calls: &[u64], limit_ns| lowered_all(calls.iter().map(|&calls| (By::Stub, Timed, calls)), limit_ns);
        assert_eq!(stubs(&[1_000, 100], 33e3), [Timed, Timed]);
        assert_eq!(stubs(&[1_000, 100], 8e3), [Sixteenth, Timed]);
        assert_eq!(stubs(&[1_000, 100], 3e3), [SixtyFourth, Sixteenth]);
        assert_eq!(stubs(&[1_000, 100], 2.3e3), [Thousandth, SixtyFourth]);
        assert_eq!(stubs(&[1_000, 100], 0.0), [Counted, Counted]);
        let probe_and_stub = [(By::Probe(ProbeCost::Emulated), Timed, 20), (By::Stub, Timed, 500)];
        assert_eq!(lowered_all(probe_and_stub.into_iter(), 23e3), [Timed, Sixteenth]);
        assert_eq!(lowered_all(probe_and_stub.into_iter(), 21.5e3), [Timed, SixtyFourth]);
        assert_eq!(lowered_all(probe_and_stub.into_iter(), 12e3), [Counted, Sixteenth]);
    }

    /// Check that stubs keep to a limit of their own by timing fewer calls, some they always time for it, and that probes are not
    /// lowered for it.
    #[test]
    fn stubs_have_a_limit_of_their_own() {
        let functions = [(By::Probe(ProbeCost::Emulated), Timed, 20), (By::Stub, Timed, 1_000), (By::Stub, Timed, 100)];
        let within = |stubs_ns| lowered_within(functions.into_iter(), Limits { all_ns: 100e3, stubs_ns });
        assert_eq!(within(40e3), [Timed; 3]);
        assert_eq!(within(8e3), [Timed, Sixteenth, Timed]);
        assert_eq!(within(3e3), [Timed, SixtyFourth, Sixteenth]);
        assert_eq!(within(0.0), [Timed, Thousandth, Thousandth]);
        let all = Limits { all_ns: 0.0, stubs_ns: 0.0 };
        assert_eq!(lowered_within(functions.into_iter(), all), [Detached, Counted, Counted]);
    }

    /// Check that the limit of stubs is one that they can keep, with a tenth of the budget for those that are quiet.
    #[test]
    fn stubs_can_keep_their_limit() {
        let stub = |rung, calls| Observed { id: 0, by: By::Stub, wanted: rung, tracing: rung, calls };
        let probe = Observed { by: By::Probe(ProbeCost::Emulated), ..stub(Timed, 1_000) };
        let observed = [stub(Timed, 10_000), stub(Counted, 100), probe];
        let loads: Vec<Load<'_>> = observed.iter().map(Load::new).collect();
        let of = |stubs_ns| in_reach(Limits { all_ns: 30e3, stubs_ns }, &loads, &COSTS);
        // 10,000 calls of which one of 1,024 is timed, 100 that are counted, and a tenth of 30 us.
        let timed_ns = 10_000.0 * (28.0 + 1_023.0 * 2.0) / 1_024.0;
        assert_eq!(of(7.5e3), Limits { all_ns: 30e3, stubs_ns: timed_ns + 175.0 + 3e3 });
        assert_eq!(of(29e3), Limits { all_ns: 30e3, stubs_ns: 29e3 });
    }

    /// Check that what the user switched off stays as it is, even if its cost is known.
    #[test]
    fn off_is_not_lowered() {
        assert_eq!(
            lowered(&[(ProbeCost::Emulated, Off, 100), (ProbeCost::Emulated, Counted, 10)], 1.0),
            [Off, Detached]
        );
    }
}
