//! What a look at a function has seen, and how often the function is called by that.
//!
//! A thread that does nothing but call makes fewer calls while it is looked at: what the probes took is not its own time. Which
//! threads made the calls is not known, but on which CPUs they did: there they are taken to have run all the time.

use std::time::Duration;

use super::costs::{COOL_NS, Costs};
use super::terms::{By, Rung, factor, nanoseconds};

/// How far the calibrated cost of a probe may be off, as a share of it: a thread is slower while the other one of its core is
/// busy, and that may have been so when it was measured or may be so now.
const COST_ERROR: f64 = 0.18;
/// The part of a thread's time that is taken to be its own at least, however much of it the probe took by calculation: a call
/// that takes less, with all that its caller does, is of no use to anybody.
const LEAST_OWN: f64 = 0.1;

/// Into so many parts a look is divided, to see whether calls come one by one or in bursts.
const PARTS: usize = 8;

/// What a look at a function has seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Glance {
    /// How long it was.
    pub length: Duration,
    /// The calls that began, by CPU.
    pub calls: Vec<u64>,
    /// Of the length, how long the threads that called it were in probes of other functions, which were watched at the same time.
    pub lost: Duration,
    /// How much their number differs from look to look by [`clustering`], as a variance; 0 where that is not known.
    pub clustering: f64,
    /// Whether the target wanted a CPU and had none, or next to none: it may call more when it has one.
    pub is_starved: bool,
    /// Whether calls were timed, and not only counted: what a call cost.
    pub is_timed: bool,
    /// Calls before and after it, which the probes saw on their way in and out: they had their cost too.
    pub others: u64,
    /// Calls that ended and have a time.
    pub timed: u64,
    /// The sum of those times, in nanoseconds.
    pub total_ns: u64,
    /// The sum of their squares, as far as a histogram tells.
    pub squares: f64,
    /// Of `total_ns`, the time in which their threads did not run; 0 where that is not measured.
    pub off_ns: u64,
    /// The sum of those times again, each of [`COOL_NS`] at most, as far as a histogram tells.
    pub cooling_ns: f64,
    /// The CPU time of the target meanwhile, at most, if that is known.
    pub ran: Option<Duration>,
    /// How far the time of each call may be off: what is not known of the probes' part of it.
    pub inside_error_ns: u64,
}

/// What a call costs under the probes of a look, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CallCost {
    /// If calls are spread over the look.
    pub(super) ns: f64,
    /// If they follow each other at once, with all the pauses in one.
    pub(super) least_ns: f64,
}

impl CallCost {
    /// Whatever calls do.
    pub(super) fn even(ns: f64) -> Self {
        Self { ns, least_ns: ns }
    }

    /// How far it may be off: by what is not known of the machine, or of how the calls are spread.
    fn error_ns(self) -> f64 {
        (COST_ERROR * self.ns).max(self.ns - self.least_ns)
    }
}

/// The mean time of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mean {
    pub(super) ns: f64,
    /// One standard deviation of chance.
    pub(super) random: f64,
    /// How far it may be off in one direction.
    pub(super) systematic: f64,
}

/// How often a function is called when nobody looks, per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Rate {
    pub(super) calls: f64,
    /// One standard deviation of chance.
    pub(super) random: f64,
    /// How far it may be off in one direction.
    pub(super) systematic: f64,
    /// The mean time of a call, if one was timed.
    pub(super) mean: Option<Mean>,
}

impl Glance {
    /// All calls that began.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// The calls per second that there are without a probe, where one costs `cost_ns`.
    #[must_use]
    pub fn calls_per_second(&self, cost_ns: f64) -> f64 {
        self.rate(CallCost::even(cost_ns)).calls
    }

    /// How long a thread did other things between two traps, in the mean, where traps take `cost_ns` a call: what is in the caches
    /// then decides what a trap costs. What is waited for goes by without other work. Times of calls tell of the trap at the return:
    /// where one of a hundred takes all the time, the others follow each other at once.
    #[must_use]
    pub fn gap_ns(&self, cost_ns: f64) -> f64 {
        let calls = factor(self.all().max(1));
        let cpus = self.calls.iter().filter(|calls| **calls > 0).count().max(1);
        let most = nanoseconds(self.length) * factor(cpus as u64);
        let ran_ns = self.ran.map_or(most, |ran| nanoseconds(ran).min(most)) - calls * cost_ns;
        if self.timed == 0 {
            return (ran_ns / calls).max(0.0);
        }
        let timed = factor(self.timed);
        let inside_ns = factor(self.total_ns.saturating_sub(self.off_ns)) / timed * calls;
        let between_ns = ((ran_ns - inside_ns) / calls).clamp(0.0, COOL_NS);
        f64::midpoint(between_ns, self.cooling_ns / timed)
    }

    /// What a call has cost, in nanoseconds, by how long its callers did other things between two of them.
    #[must_use]
    pub fn call_ns(&self, costs: &Costs, rung: Rung, by: By) -> f64 {
        costs.after(self.gap_ns(costs.of(rung, by))).of(rung, by)
    }

    /// Adds what was counted in another look, of which nothing was timed.
    pub fn add(&mut self, other: &Self) {
        self.length += other.length;
        self.lost += other.lost;
        self.calls.resize(self.calls.len().max(other.calls.len()), 0);
        self.calls.iter_mut().zip(&other.calls).for_each(|(calls, more)| *calls = calls.saturating_add(*more));
    }

    pub(super) fn rate(&self, cost: CallCost) -> Rate {
        let length_ns = nanoseconds(self.length.saturating_sub(self.lost)).max(LEAST_OWN * nanoseconds(self.length));
        let mut rate = Rate { mean: self.mean(), ..Rate::default() };
        if length_ns <= 0.0 {
            return rate;
        }
        let per_second = 1e9 / length_ns;
        let lost_error_ns = COST_ERROR * nanoseconds(self.lost);
        let mut variance = 0.0;
        for calls in self.calls.iter().map(|&calls| factor(calls)) {
            let paid_ns = calls * cost.ns;
            let own_ns = (length_ns - paid_ns).max(LEAST_OWN * length_ns);
            // In the time that the probes took there would have been more calls.
            let more = (own_ns + paid_ns) / own_ns;
            rate.calls += calls * more * per_second;
            rate.systematic +=
                calls * more * per_second * ((calls * cost.error_ns() + lost_error_ns) / own_ns).min(1.0);
            // Of n calls that come by chance, the square root of n is one standard deviation. Of none nobody knows.
            variance += (more * per_second).powi(2) * calls.max(1.0);
        }
        // Where they come in bursts it is more.
        let made = factor(self.all()).max(1.0);
        rate.random = variance.max(self.clustering * (rate.calls / made).powi(2)).sqrt();
        rate
    }

    pub(super) fn mean(&self) -> Option<Mean> {
        let timed = factor(self.timed);
        let ns = factor(self.total_ns) / timed;
        // Calls are taken to differ by as much as they last, at least: where one of a hundred takes most of the time, by much more.
        let variance = (self.squares / timed - ns.powi(2)).max(ns.powi(2));
        let random = (variance / timed).sqrt();
        (self.timed > 0).then_some(Mean { ns, random, systematic: factor(self.inside_error_ns) })
    }
}

/// How much the number of calls differs between looks of the same length, as a variance, from how it differs within one. `course` is how many
/// calls had been made after what time.
#[must_use]
pub fn clustering(course: &[(Duration, u64)]) -> f64 {
    let Some((length, all)) = course.last().copied().filter(|(length, _)| !length.is_zero()) else { return 0.0 };
    let mut parts = [0.0; PARTS];
    let mut before = 0;
    for (at, calls) in course {
        let place = (0..PARTS).rfind(|part| *at > length.mul_f64(factor(*part as u64) / PARTS as f64)).unwrap_or(0);
        parts[place] += factor(calls.saturating_sub(before));
        before = *calls;
    }
    let mean = factor(all) / PARTS as f64;
    let squares: f64 = parts.iter().map(|calls| (calls - mean).powi(2)).sum();
    // The sum of so many parts, each of which differs so much.
    squares * PARTS as f64 / (PARTS - 1) as f64
}

/// What the probes of functions that were looked at together took from those that called each other one, where a call costs so many
/// nanoseconds: on the CPUs where it was called, in the mean of its calls.
pub fn note_lost(glances: &mut [(f64, &mut Glance)]) {
    let mut paid: Vec<f64> = Vec::new();
    for (price, glance) in glances.iter() {
        paid.resize(paid.len().max(glance.calls.len()), 0.0);
        paid.iter_mut().zip(&glance.calls).for_each(|(paid, calls)| *paid += factor(*calls) * price);
    }
    for (price, glance) in glances {
        let by_others = |(calls, paid): (&u64, &f64)| factor(*calls) * (paid - factor(*calls) * *price);
        let sum: f64 = glance.calls.iter().zip(&paid).map(by_others).sum();
        let lost_ns = sum / factor(glance.all().max(1));
        glance.lost = Duration::try_from_secs_f64(lost_ns / 1e9).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated_jvm::COSTS;
    use super::*;
    use crate::model::ProbeCost;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn look(calls: u64) -> Glance {
        Glance { length: at(2), calls: vec![calls], ..Glance::default() }
    }

    /// Check that what the probes took is no time of the target's: of a thread that has a CPU for itself, of two, and of one
    /// beside another that makes no calls.
    #[test]
    fn probes_take_time() {
        // Two million calls a second of 500 ns each, and a probe of 1 us: in 2 ms there is room for 1333 calls.
        let rate = |calls: &[u64]| Glance { calls: calls.to_vec(), ..look(0) }.calls_per_second(1_000.0);
        for (calls, truth) in [(&[1_333][..], 2e6), (&[1_333, 1_333], 4e6), (&[1_333, 0], 2e6)] {
            let found = rate(calls);
            assert!((found / truth - 1.0).abs() < 0.01, "{found} of {truth}");
        }
        assert!((rate(&[2]) - 1_001.0).abs() < 1.0);
        assert_eq!(rate(&[]), 0.0);
        assert!(rate(&[100_000]).is_finite(), "more than there can be");
        assert!(Glance::default().calls_per_second(1.0).is_finite());
    }

    /// Check that what the probes of other functions took is no time of the target's either: of a thread that calls all of them, and not of
    /// one on another CPU.
    #[test]
    fn probes_of_others_take_time() {
        // In 2 ms there is 1 ms of probes.
        let mut glances = [vec![10], vec![40], vec![0, 50], vec![0, 0]].map(|calls| Glance { calls, ..look(0) });
        let [one, other, elsewhere, still] = &mut glances;
        note_lost(&mut [(20_000.0, one), (20_000.0, other), (10_000.0, elsewhere), (20_000.0, still)]);
        assert_eq!(glances.clone().map(|glance| glance.lost.as_micros()), [800, 200, 0, 0]);
        let rates = [20_000.0, 20_000.0, 10_000.0].map(|cost_ns| glances[0].calls_per_second(cost_ns));
        assert!((rates[0] - 10_000.0).abs() < 1.0, "{rates:?}");
        let rate = glances[0].rate(CallCost::even(20_000.0));
        assert!((rate.systematic / rate.calls - 0.18).abs() < 0.001, "{rate:?}");
        let most = Glance { lost: at(100), ..look(10) };
        assert!(most.calls_per_second(20_000.0) <= 1e6, "more than there can be");
    }

    /// Check that other work between traps is that of threads which run, that the time in calls that last counts for the trap at their
    /// return only, and that what the traps took is none.
    #[test]
    fn gaps_are_filled_with_work() {
        let gap = |glance: &Glance| glance.gap_ns(1_000.0);
        let even = look(200);
        assert_eq!(gap(&even), 9_000.0);
        let idle = Glance { ran: Some(Duration::from_micros(500)), ..even.clone() };
        assert_eq!(gap(&idle), 1_500.0);
        let by_two = Glance { calls: vec![200, 200], ran: Some(at(40)), ..even.clone() };
        assert_eq!(gap(&by_two), 9_000.0);
        // Two of them take 700 us each, the others nothing, and nothing else is done.
        let one_takes_all = Glance { timed: 200, total_ns: 1_800_000, cooling_ns: 20_000.0, ..even.clone() };
        assert_eq!(gap(&one_takes_all), 50.0);
        let quick = Glance { timed: 200, total_ns: 0, ..even };
        assert_eq!(gap(&quick), 4_500.0);
        assert_eq!(gap(&Glance::default()), 0.0);
    }

    /// Check that a call costs the more the more its callers do between two of them.
    #[test]
    fn rare_calls_cost_more() {
        let costs = Costs { counted_ns: [1_000.0; 2], cool: [2.0; 2], ..COSTS };
        let cost = |calls: u64| look(calls).call_ns(&costs, Rung::Counted, By::Probe(ProbeCost::Emulated));
        assert_eq!((cost(2_000), cost(2)), (1_000.0, 2_000.0));
        assert!((1_000.0..2_000.0).contains(&cost(300)), "{}", cost(300));
    }

    /// Check that what depends on how calls are spread is in the error where it matters: where probes took much of the time.
    #[test]
    fn how_calls_are_spread_is_in_the_error() {
        let error_of = |calls: u64, least_ns: f64| {
            let rate = look(calls).rate(CallCost { ns: 1_000.0, least_ns });
            rate.systematic / rate.calls
        };
        assert!((error_of(1_000, 1_000.0) - 0.18).abs() < 0.001, "{}", error_of(1_000, 1_000.0));
        assert!((error_of(1_000, 500.0) - 0.5).abs() < 0.001, "{}", error_of(1_000, 500.0));
        assert!(error_of(10, 500.0) < 0.01);
    }

    /// Check that a mean of few long calls among many short ones is known as badly as there are few of them, and one of equal calls as
    /// if these differed.
    #[test]
    fn few_long_calls_make_a_mean_that_is_little_known() {
        let error_of = |times: &[(u64, u64)]| {
            let sum =
                |power: i32| times.iter().map(|(calls, ns)| factor(*calls) * factor(*ns).powi(power)).sum::<f64>();
            let (timed, total_ns) =
                times.iter().fold((0, 0), |(timed, all), (calls, ns)| (timed + calls, all + calls * ns));
            let mean = Glance { timed, total_ns, squares: sum(2), ..Glance::default() }.mean().unwrap();
            mean.random / mean.ns
        };
        let few = error_of(&[(990, 100), (10, 100_000)]);
        assert!((few * 10f64.sqrt() - 1.0).abs() < 0.15, "{few}");
        assert!((error_of(&[(1_000, 100)]) * 1_000f64.sqrt() - 1.0).abs() < 0.001);
    }

    /// Check that looks at one function are added up, CPU by CPU.
    #[test]
    fn looks_are_added_up() {
        let mut glance = Glance { length: at(2), calls: vec![3], ..Glance::default() };
        glance.add(&Glance { length: at(10), calls: vec![1, 2], ..Glance::default() });
        assert_eq!(glance, Glance { length: at(12), calls: vec![4, 2], ..Glance::default() });
    }

    /// Check that a look at a burst is not taken to know what happens between bursts, and that one at single calls is.
    #[test]
    fn bursts_are_told_from_single_calls() {
        let even: Vec<_> = (1..=50).map(|n| (at(n), 4 * n)).collect();
        assert!(clustering(&even) < 50.0, "{}", clustering(&even));
        let burst: Vec<_> = (1..=50).map(|n| (at(n), if n < 20 { 0 } else { 200 })).collect();
        assert!((clustering(&burst).sqrt() / 200.0 - 1.0).abs() < 0.01, "{}", clustering(&burst));
        assert_eq!(clustering(&[]) + clustering(&[(at(0), 3)]) + clustering(&[(at(2), 0)]), 0.0);
        let error_of = |clustering: f64| {
            let rate = Glance { clustering, ..look(200) }.rate(CallCost::even(0.0));
            rate.random / rate.calls
        };
        assert!((error_of(clustering(&even)) - 0.07).abs() < 0.01 && (error_of(clustering(&burst)) - 1.0).abs() < 0.01);
    }
}
