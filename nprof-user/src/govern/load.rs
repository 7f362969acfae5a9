//! What each function costs in a period, and which functions are lowered when all of them together cost too much.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::terms::{Costs, Observed, factor};
use crate::model::Tracing;

/// A function is only counted instead of timed if that saves at least this part of its cost. Else it is detached at
/// once, as it would be in the next period.
const WORTH_COUNTING: f64 = 0.2;

/// A function in one period, and the state that it will be in.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) seen: &'a Observed,
    pub(super) to: Tracing,
}

impl<'a> Load<'a> {
    /// The function, left as it is.
    pub(super) fn new(seen: &'a Observed) -> Self {
        Self { seen, to: seen.tracing }
    }

    /// What its calls would have cost in the state, in nanoseconds.
    pub(super) fn cost_in(&self, tracing: Tracing, costs: &Costs) -> f64 {
        factor(self.seen.calls) * costs.of(tracing, self.seen.cost)
    }

    /// What they would have cost in the state that it will be in, in nanoseconds.
    pub(super) fn cost_ns(&self, costs: &Costs) -> f64 {
        self.cost_in(self.to, costs)
    }

    /// What it costs less than before, in nanoseconds.
    fn saved_ns(&self, costs: &Costs) -> f64 {
        self.cost_in(self.seen.tracing, costs) - self.cost_ns(costs)
    }

    /// The next lower state that is of use.
    fn below(&self, costs: &Costs) -> Tracing {
        let [timed, counted] = [Tracing::Timed, Tracing::Counted].map(|to| self.cost_in(to, costs));
        if self.to == Tracing::Timed && timed - counted >= WORTH_COUNTING * timed {
            Tracing::Counted
        } else {
            Tracing::Detached
        }
    }
}

/// What all functions cost in the states that they will be in, in nanoseconds.
pub(super) fn total_ns(loads: &[Load<'_>], costs: &Costs) -> f64 {
    loads.iter().map(|load| load.cost_ns(costs)).sum()
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

/// Lowers what costs most, step by step, until all together cost no more than the limit. A function that is off stays:
/// it is so because the user wants it.
pub(super) fn lower(loads: &mut [Load<'_>], costs: &Costs, limit_ns: f64) {
    let mut total = total_ns(loads, costs);
    let mut costliest: BinaryHeap<Costly> = loads
        .iter()
        .enumerate()
        .filter(|(_, load)| load.to.is_watched())
        .map(|(place, load)| Costly { cost_ns: load.cost_ns(costs), place })
        .collect();
    while total > limit_ns
        && let Some(Costly { cost_ns, place }) = costliest.pop()
    {
        let load = &mut loads[place];
        load.to = load.below(costs);
        let lowered_ns = load.cost_ns(costs);
        total += lowered_ns - cost_ns;
        if load.to.is_watched() {
            costliest.push(Costly { cost_ns: lowered_ns, place });
        }
    }
    spare(loads, costs, limit_ns);
}

/// Takes back what proved needless when more expensive functions were lowered further, the cheapest first.
fn spare(loads: &mut [Load<'_>], costs: &Costs, limit_ns: f64) {
    let mut total = total_ns(loads, costs);
    let mut lowered: Vec<&mut Load<'_>> = loads.iter_mut().filter(|load| load.to < load.seen.tracing).collect();
    lowered.sort_by(|a, b| a.saved_ns(costs).total_cmp(&b.saved_ns(costs)));
    for load in lowered {
        total += load.saved_ns(costs);
        if total > limit_ns {
            break;
        }
        load.to = load.seen.tracing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProbeCost;
    use crate::model::Tracing::{Counted, Detached, Off, Timed};

    const COSTS: Costs = Costs { timed_ns: [1_000.0, 5_500.0], counted_ns: [500.0, 5_000.0], off_ns: [400.0, 4_900.0] };

    /// The states that functions with these calls are lowered to.
    fn lowered(functions: &[(ProbeCost, Tracing, u64)], limit_ns: f64) -> Vec<Tracing> {
        let observed: Vec<Observed> = (0..)
            .zip(functions)
            .map(|(id, &(cost, tracing, calls))| Observed { id, cost, wanted: tracing, tracing, calls })
            .collect();
        let mut loads: Vec<Load<'_>> = observed.iter().map(Load::new).collect();
        lower(&mut loads, &COSTS, limit_ns);
        loads.iter().map(|load| load.to).collect()
    }

    fn emulated(calls: &[u64]) -> Vec<(ProbeCost, Tracing, u64)> {
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

    /// Check that what the user switched off stays as it is, even if its cost is known.
    #[test]
    fn off_is_not_lowered() {
        assert_eq!(
            lowered(&[(ProbeCost::Emulated, Off, 100), (ProbeCost::Emulated, Counted, 10)], 1.0),
            [Off, Detached]
        );
    }
}
