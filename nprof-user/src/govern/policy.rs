//! Decides which functions are lowered and which are raised.
//!
//! Lowering is quick: one period over the budget is enough, and all that is needed is lowered at once. Raising is slow:
//! the budget must have had room for a while, and what was raised too early waits longer the next time. Between the two
//! lies a gap ([`ROOM`]), so that a function at the edge of the budget stays as it is.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::costs::{Costs, Dearer};
use super::estimate::{Estimate, Means};
use super::glance::{CallCost, Glance};
use super::held::Held;
use super::load::{Load, in_reach, is_by_stub, lower, sum_ns, total_ns};
use super::looks::Looks;
use super::terms::{Budget, By, Change, Limits, Observed, Period, Rung, Why, factor, nanoseconds};
use crate::model::{MeanTime, ProbeCost, Unseen};

/// The part of the budget up to which functions are raised.
const ROOM: f64 = 0.7;

/// The part of the budget that is too little to matter: what costs no more needs no gap, as it is not what will bring
/// tracing over the budget. Without this, a function that has cooled down could not come back while others use most of
/// the budget.
const LITTLE: f64 = 0.01;

/// How long a change takes to show in the smoothed share.
const SMOOTHING: Duration = Duration::from_secs(2);

/// Keeps the cost of tracing one JVM within its budget.
#[derive(Debug)]
pub struct Governor {
    costs: Costs,
    budget: Option<Budget>,
    /// Functions that were lowered. Those that never were are not here.
    held: BTreeMap<u32, Held>,
    /// What functions did while they were detached.
    estimates: BTreeMap<u32, Estimate>,
    /// How long calls of functions take that are only counted.
    means: BTreeMap<u32, Means>,
    /// Of the time of the calls that looks have timed, that in which threads did not run, and all.
    waited: BTreeMap<u32, [u64; 2]>,
    looks: Looks,
    outlook: Outlook,
    share: Option<f64>,
    spent_ns: f64,
    /// What the probes of each kind of site have cost, and stubs, and what they would have as calibrated in a loop.
    dearer: [[f64; 2]; 3],
}

/// What the last period leads to, in nanoseconds per second.
#[derive(Debug, Clone, Copy, Default)]
struct Outlook {
    /// The JVM's own time.
    own: f64,
    /// The cost of tracing in the states that were decided, at the rates that were seen.
    cost: f64,
}

impl Governor {
    /// The governor of one JVM. Without a budget it only estimates what tracing costs.
    #[must_use]
    pub fn new(costs: Costs, budget: Option<Budget>) -> Self {
        Self {
            costs,
            budget,
            held: BTreeMap::new(),
            estimates: BTreeMap::new(),
            means: BTreeMap::new(),
            waited: BTreeMap::new(),
            looks: Looks::default(),
            outlook: Outlook::default(),
            share: None,
            spent_ns: 0.0,
            dearer: [[0.0; 2]; 3],
        }
    }

    /// Decides, before functions are attached, which are too expensive to begin with as they are wanted. `observed` are their
    /// calls in a second of `period`, as found out by looks.
    pub fn begin(&mut self, period: Period, observed: &[Observed]) -> Vec<Change> {
        let Some(budget) = self.budget else { return Vec::new() };
        let mut loads: Vec<Load<'_>> = observed.iter().map(Load::new).collect();
        let costs = self.costs.cooled();
        // Nothing was paid for these calls yet. Functions that are bound later come on top of those that are traced.
        let own_ns = period.own_ns(0.0);
        let others_ns = self.outlook.cost * period.length.as_secs_f64();
        let would_cost = (others_ns + total_ns(&loads, &costs)) / own_ns;
        let limits = budget.limits(own_ns);
        lower(&mut loads, &costs, Limits { all_ns: (ROOM * limits.all_ns - others_ns).max(0.0), ..limits });
        let changes = self.changes(&loads, period, Why::OverBudget { share: would_cost }, |_| 0.0);
        if self.outlook.own <= 0.0 {
            self.outlook.own = own_ns / period.length.as_secs_f64();
        }
        self.outlook.cost += total_ns(&loads, &costs) / period.length.as_secs_f64();
        changes
    }

    /// Decides at the end of a period what is to change, the most often called function first. `observed` is every
    /// function of the JVM, detached ones too: what is missing is gone. The caller applies the changes at once; what it
    /// could not apply is decided again at the end of the next period.
    pub fn decide(&mut self, period: Period, observed: &[Observed]) -> Vec<Change> {
        let mut loads: Vec<Load<'_>> = observed.iter().map(Load::new).collect();
        let of_stubs = self.costs.with_stubs_after(gap_ns(period, &loads, &self.costs, is_by_stub));
        let costs = of_stubs.after(gap_ns(period, &loads, &of_stubs, |load| !is_by_stub(load)));
        let lasting = of_stubs.cooled();
        let cost_ns = total_ns(&loads, &costs);
        self.spent_ns += cost_ns;
        self.note_dearer(&loads, &costs);
        if period.length.is_zero() {
            return Vec::new();
        }
        let all_ns = cost_ns + self.looks.take_recent();
        let own_ns = period.own_ns(all_ns);
        self.smooth(all_ns / own_ns, period.length);
        self.follow(period.now, observed);
        let call_ns = |seen: &Observed| costs.of(seen.tracing, seen.by);
        let changes = match self.budget {
            None => {
                self.give_back(&mut loads);
                self.changes(&loads, period, Why::NoBudget, call_ns)
            }
            Some(budget) => {
                let limits = in_reach(budget.limits(own_ns), &loads, &lasting);
                let why = excess(&loads, &costs, limits, own_ns);
                if why.is_some() {
                    self.held.values_mut().for_each(Held::had_no_room);
                    lower(&mut loads, &lasting, limits);
                } else {
                    self.raise(&mut loads, period, &lasting, limits);
                }
                self.changes(&loads, period, why.unwrap_or(Why::RoomAgain), call_ns)
            }
        };
        self.look_ahead(&loads, period, &lasting, own_ns);
        changes
    }

    /// Takes in a look at a function. The answer is the state that it is to be in from now on: looks show of a detached one
    /// whether it may be raised, and of a counted one how long its calls take. A function that has gone meanwhile stays detached.
    pub fn looked(&mut self, now: Duration, id: u32, glance: &Glance) -> Rung {
        let Some(held) = self.held.get_mut(&id) else { return Rung::Detached };
        let did = if glance.is_timed { Rung::Timed } else { Rung::Counted };
        // A look runs no programs of the user's.
        let by = held.by.site().map_or(held.by, By::Probe);
        let least_ns = self.costs.of(did, by);
        let call_ns = glance.call_ns(&self.costs, did, by);
        let cost_ns = factor(glance.all().saturating_add(glance.others)) * call_ns;
        self.looks.charge(cost_ns);
        self.spent_ns += cost_ns;
        let waited = self.waited.entry(id).or_default();
        *waited = [waited[0].saturating_add(glance.off_ns), waited[1].saturating_add(glance.total_ns)];
        if held.tracing == Rung::Counted {
            self.means.entry(id).or_default().look(glance);
            held.passed_over(now);
            return Rung::Counted;
        }
        let estimate = self.estimates.entry(id).or_default();
        estimate.look(now, glance, CallCost { ns: call_ns, least_ns });
        if glance.is_starved {
            held.passed_over(now);
            return Rung::Detached;
        }
        if !held.looked(now, glance.calls_per_second(call_ns)) {
            return Rung::Detached;
        }
        let rate = held.peak();
        let limit = self.budget.map_or(f64::INFINITY, |budget| budget.share * self.outlook.own);
        let mut states = [Rung::Timed, Rung::Counted].into_iter().filter(|to| *to <= held.wanted);
        let costs = self.costs.cooled();
        let affordable = |to: &Rung| has_room(self.outlook.cost, rate * costs.of(*to, held.by), limit);
        let Some(to) = states.find(affordable) else {
            held.failed(now);
            return Rung::Detached;
        };
        self.outlook.cost += rate * costs.of(to, held.by);
        held.raised(now, to);
        estimate.resume(now);
        to
    }

    /// What functions did while they were detached, up to now: those that looks tell of.
    #[must_use]
    pub fn unseen(&self, now: Duration) -> BTreeMap<u32, Unseen> {
        self.estimates.iter().filter_map(|(id, estimate)| Some((*id, estimate.until(now)?))).collect()
    }

    /// The mean time of the calls that were only counted, of those functions whose calls looks have timed.
    #[must_use]
    pub fn means(&self) -> BTreeMap<u32, MeanTime> {
        self.means.iter().filter_map(|(id, means)| Some((*id, means.mean()?))).collect()
    }

    /// In which share of the time of calls threads did not run, of those functions whose calls looks have timed.
    #[must_use]
    pub fn waited(&self) -> BTreeMap<u32, f64> {
        let share = |&[off, all]: &[u64; 2]| (all > 0).then(|| (factor(off) / factor(all)).min(1.0));
        self.waited.iter().filter_map(|(id, waited)| Some((*id, share(waited)?))).collect()
    }

    /// Whether [`due_looks`](Self::due_looks) may have something to look at.
    #[must_use]
    pub fn may_look(&self) -> bool {
        let is_wanted = |held: &Held| held.last_look().is_some();
        self.budget.is_some() && self.looks.may_start() && self.held.values().any(is_wanted)
    }

    /// The demoted functions that are to be looked at now, if the last look is paid for: first those that were not looked at for the longest
    /// time, of those that nobody has looked at the one that is called least. A look at it costs least, and its calls may each take the longest:
    /// where one costs as much as many at others, these need not wait until it is paid for. [`looked`](Self::looked) is to tell of each look, or
    /// [`missed`](Self::missed).
    #[must_use]
    pub fn due_looks(&self) -> Vec<u32> {
        if self.budget.is_none() || !self.looks.may_start() {
            return Vec::new();
        }
        let mut due: Vec<(Duration, f64, u32)> =
            self.held.iter().filter_map(|(id, held)| Some((held.last_look()?, held.rate, *id))).collect();
        due.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        due.into_iter().map(|(.., id)| id).collect()
    }

    /// What a look may cost, so that all demoted functions are looked at once in a second.
    #[must_use]
    pub fn look(&self) -> Duration {
        let functions = self.held.values().filter(|held| held.last_look().is_some()).count().max(1);
        let limit_ns = self.budget.map_or(0.0, |budget| budget.share * self.outlook.own);
        Duration::try_from_secs_f64(Looks::share_of(limit_ns) / functions as f64 / 1e9).unwrap_or(Duration::MAX)
    }

    /// How often a demoted function was called per second when that was last known; 0 of any other.
    #[must_use]
    pub fn rate(&self, id: u32) -> f64 {
        self.held.get(&id).map_or(0.0, |held| held.rate)
    }

    /// Takes note that a demoted function cannot be looked at now: the others are next.
    pub fn missed(&mut self, now: Duration, id: u32) {
        if let Some(held) = self.held.get_mut(&id) {
            held.passed_over(now);
        }
    }

    /// What tracing costs, as a share of the JVM's own time: 0.02 slows it down by 2 %. An exponential mean over the
    /// periods with a time constant of two seconds. Decisions use the last period alone.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(0.0)
    }

    /// What tracing has cost since the start, looks included.
    #[must_use]
    pub fn spent(&self) -> Duration {
        Duration::try_from_secs_f64(self.spent_ns / 1e9).unwrap_or(Duration::MAX)
    }

    /// How many times as much as in a loop calls have cost so far.
    #[must_use]
    pub fn dearer(&self) -> Dearer {
        let times = |[cost, least]: [f64; 2]| if least > 0.0 { cost / least } else { 1.0 };
        let [emulated, single_stepped, stubs] = self.dearer.map(times);
        Dearer { sites: [emulated, single_stepped], stubs }
    }

    /// Changes the budget. When it grows, functions are raised as if they had just been lowered; without a budget the
    /// next decision gives back all that was lowered.
    pub fn set_budget(&mut self, budget: Option<Budget>) {
        let share = |budget: Option<Budget>| budget.map_or(f64::INFINITY, |budget| budget.share);
        if share(budget) > share(self.budget) {
            self.held.values_mut().for_each(Held::start_over);
        }
        self.budget = budget;
    }

    /// Whether any function is lowered, or was until not long ago.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether the function gets less than the user asked for.
    #[must_use]
    pub fn is_demoted(&self, id: u32) -> bool {
        self.held.get(&id).is_some_and(Held::is_demoted)
    }

    /// The functions that get less than the user asked for: how often each was called per second when it was lowered,
    /// and why it was.
    pub fn demoted(&self) -> impl Iterator<Item = (u32, f64, Why)> {
        self.lowered().filter(|(id, ..)| self.is_demoted(*id))
    }

    /// The same of all that have not come back since they were lowered, also if the user has switched them off.
    pub fn lowered(&self) -> impl Iterator<Item = (u32, f64, Why)> {
        self.held.iter().filter(|(_, held)| held.is_lowered).map(|(id, held)| (*id, held.rate, held.why))
    }

    fn note_dearer(&mut self, loads: &[Load<'_>], costs: &Costs) {
        for load in loads {
            // What programs of the user's cost is measured where they run.
            let (place, by) = match load.seen.by.site() {
                Some(kind) => (usize::from(kind == ProbeCost::SingleStepped), By::Probe(kind)),
                None => (2, By::Stub),
            };
            let [cost, least] = &mut self.dearer[place];
            let ns = |costs: &Costs| factor(load.seen.calls) * costs.of(load.to, by);
            *cost += ns(costs);
            *least += ns(&self.costs);
        }
    }

    fn smooth(&mut self, share: f64, length: Duration) {
        let seconds = length.as_secs_f64();
        let weight = seconds / (seconds + SMOOTHING.as_secs_f64());
        self.share = Some(self.share.map_or(share, |mean| mean + (share - mean) * weight));
    }

    /// Takes over the states that were seen and forgets what is gone or settled.
    fn follow(&mut self, now: Duration, observed: &[Observed]) {
        let seen: HashMap<u32, &Observed> =
            observed.iter().filter(|seen| self.held.contains_key(&seen.id)).map(|seen| (seen.id, seen)).collect();
        let estimates = &mut self.estimates;
        self.held.retain(|id, held| {
            let Some(seen) = seen.get(id) else { return false };
            held.follow(seen);
            if let Some(estimate) = estimates.get_mut(id) {
                match (seen.wanted.is_watched(), seen.tracing) {
                    (true, Rung::Detached) => estimate.pause(now, &Glance::default(), CallCost::even(0.0)),
                    // What nobody wants to know is not estimated either.
                    (false, _) => estimate.resume(now),
                    (true, _) => {}
                }
            }
            !held.is_settled(now)
        });
    }

    /// Times functions again, or more of their calls, for which there has been room for long enough, the cheapest first.
    fn raise(&mut self, loads: &mut [Load<'_>], period: Period, costs: &Costs, limits: Limits) {
        let mut cost_ns = total_ns(loads, costs);
        let mut stubs_ns = sum_ns(loads, costs, is_by_stub);
        let extra_ns = |load: &Load<'_>, to| load.cost_in(to, costs) - load.cost_ns(costs);
        let mut lowered: Vec<&mut Load<'_>> =
            loads.iter_mut().filter(|load| load.to.is_watched() && load.to < load.seen.wanted).collect();
        lowered.sort_by(|a, b| extra_ns(a, a.seen.wanted).total_cmp(&extra_ns(b, b.seen.wanted)));
        for load in lowered {
            let Some(held) = self.held.get_mut(&load.seen.id) else { continue };
            let affordable = |to: &Rung| {
                let extra_ns = extra_ns(load, *to);
                let is_within = !is_by_stub(load) || has_room(stubs_ns, extra_ns, limits.stubs_ns);
                is_within && has_room(cost_ns, extra_ns, limits.all_ns)
            };
            let Some(to) = load.above().find(affordable) else {
                held.had_no_room();
                continue;
            };
            if held.had_room(period.now.saturating_sub(period.length), period.now) {
                cost_ns += extra_ns(load, to);
                stubs_ns += if is_by_stub(load) { extra_ns(load, to) } else { 0.0 };
                load.to = to;
            }
        }
    }

    /// Puts every function that was lowered back into the state that the user asked for.
    fn give_back(&self, loads: &mut [Load<'_>]) {
        for load in loads.iter_mut().filter(|load| self.is_demoted(load.seen.id)) {
            load.to = load.seen.wanted;
        }
    }

    /// Notes what the period leads to, and pays for looks out of it.
    fn look_ahead(&mut self, loads: &[Load<'_>], period: Period, costs: &Costs, own_ns: f64) {
        let seconds = period.length.as_secs_f64();
        let cost_ns = total_ns(loads, costs);
        self.outlook = Outlook { own: own_ns / seconds, cost: cost_ns / seconds };
        let limit_ns = self.budget.map_or(f64::INFINITY, |budget| budget.share * own_ns);
        // As long as there is a function of which nothing is known, that is what the budget is for.
        let is_any_unknown = self.held.values().any(Held::is_unknown);
        self.looks.pay(limit_ns, if is_any_unknown { ROOM * limit_ns - cost_ns } else { 0.0 });
    }

    /// Notes what was decided, as the list for the caller. `call_ns` is what a call that was seen has cost.
    fn changes(
        &mut self,
        loads: &[Load<'_>],
        period: Period,
        why: Why,
        call_ns: impl Fn(&Observed) -> f64,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        let paid_ns: f64 = loads.iter().map(|load| factor(load.seen.calls) * call_ns(load.seen)).sum();
        for Load { seen, to } in loads.iter().filter(|load| load.to != load.seen.tracing) {
            let rate = factor(seen.calls) / period.length.as_secs_f64();
            match (seen.tracing, *to) {
                (_, Rung::Detached) => {
                    let cost_ns = call_ns(seen);
                    let glance = what_was_seen(period, seen.calls, paid_ns - factor(seen.calls) * cost_ns);
                    self.estimates.entry(seen.id).or_default().pause(period.now, &glance, CallCost::even(cost_ns));
                }
                (Rung::Detached, _) => {
                    self.estimates.get_mut(&seen.id).into_iter().for_each(|estimate| estimate.resume(period.now));
                }
                _ => {}
            }
            let held = self.held.entry(seen.id).or_insert_with(|| Held::new(seen, why));
            if *to < seen.tracing {
                held.lowered(period.now, *to, rate, why);
            } else {
                held.raised(period.now, *to);
            }
            changes.push(Change { id: seen.id, to: *to, rate, why });
        }
        changes.sort_by(|a, b| b.rate.total_cmp(&a.rate));
        changes
    }
}

/// What was seen in a period of a function that was watched in it, beside others whose probes took `others_ns`. Whoever calls it is taken to
/// have paid for these as all the JVM has, which was busy for one thread's time at least.
fn what_was_seen(period: Period, calls: u64, others_ns: f64) -> Glance {
    let busy_ns = nanoseconds(period.target_cpu.max(period.length));
    let lost = period.length.mul_f64((others_ns / busy_ns).clamp(0.0, 1.0));
    Glance { length: period.length, calls: vec![calls], lost, ..Glance::default() }
}

/// Why something is to be lowered: all together costs too much, or stubs do.
fn excess(loads: &[Load<'_>], costs: &Costs, limits: Limits, own_ns: f64) -> Option<Why> {
    let (all_ns, stubs_ns) = (total_ns(loads, costs), sum_ns(loads, costs, is_by_stub));
    if all_ns > limits.all_ns {
        return Some(Why::OverBudget { share: all_ns / own_ns });
    }
    (stubs_ns > limits.stubs_ns).then_some(Why::OverPartOfStubs { share: stubs_ns / own_ns })
}

/// How long a thread did other things between two calls that one tier sees, in the mean.
fn gap_ns(period: Period, loads: &[Load<'_>], costs: &Costs, is_of_tier: fn(&Load<'_>) -> bool) -> f64 {
    let (calls, cost_ns) = loads
        .iter()
        .filter(|load| is_of_tier(load))
        .fold((0.0, 0.0), |(calls, cost_ns), load| (calls + factor(load.seen.calls), cost_ns + load.cost_ns(costs)));
    // Without a floor for the JVM's own time: a loop of nothing else has none.
    if calls > 0.0 { (nanoseconds(period.target_cpu) - cost_ns).max(0.0) / calls } else { 0.0 }
}

/// Whether a function may be raised that will cost `extra` more, if tracing costs `cost` now.
fn has_room(cost: f64, extra: f64, limit: f64) -> bool {
    let after = cost + extra;
    after <= ROOM * limit || (after <= limit && extra <= LITTLE * limit)
}
