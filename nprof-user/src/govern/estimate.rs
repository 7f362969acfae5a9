//! What a function did while it was not watched, estimated from short looks at it.
//!
//! A thread that does nothing but call makes fewer calls while it is looked at: what the probes took is not its own time. Which
//! threads made the calls is not known, but on which CPUs they did: there they are taken to have run all the time.
//!
//! Between two looks the rate is taken to go in a straight line from the one to the other, so looks need not be evenly
//! spaced. The error has a part that many looks average out (few calls in a look, rates that change) and one that they do not:
//! what a probe costs is known within [`COST_ERROR`]. Times are those of the calls that some looks time, in the mean: their error
//! is that of the calls, and that of the mean besides.

use std::time::Duration;

use super::terms::{factor, nanoseconds};
use crate::model::{MeanTime, Settled, Unseen};

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
    /// Of that, the time in which their threads did not run; 0 where that is not measured.
    pub off_ns: u64,
    /// How far the time of each call may be off: what is not known of the probes' part of it.
    pub inside_error_ns: u64,
}

/// The mean time of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mean {
    ns: f64,
    /// One standard deviation of chance.
    random: f64,
    /// How far it may be off in one direction.
    systematic: f64,
}

/// What looks have found of the time of calls that are only counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Means {
    timed: u64,
    total_ns: u64,
    /// The sums of each look's mean and of its square, and how many there were.
    sums: [f64; 2],
    looks: f64,
    systematic: f64,
}

impl Means {
    /// A look has timed calls, if there were any.
    pub(super) fn look(&mut self, glance: &Glance) {
        let Some(mean) = glance.mean() else { return };
        self.timed = self.timed.saturating_add(glance.timed);
        self.total_ns = self.total_ns.saturating_add(glance.total_ns);
        self.sums = [self.sums[0] + mean.ns, self.sums[1] + mean.ns.powi(2)];
        self.looks += 1.0;
        self.systematic = mean.systematic;
    }

    /// The mean of a call that looks have timed; `None` until one has.
    pub(super) fn mean(&self) -> Option<MeanTime> {
        let all = Glance { timed: self.timed, total_ns: self.total_ns, ..Glance::default() }.mean()?;
        let [sum, squares] = self.sums.map(|sum| sum / self.looks);
        // Calls of one look are more like each other than like those of another.
        let of_looks = (squares - sum.powi(2)).max(0.0).sqrt() / self.looks.sqrt();
        Some(MeanTime { ns: all.ns, error_ns: all.random.max(of_looks) + self.systematic })
    }
}

/// How often a function is called when nobody looks, per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Rate {
    calls: f64,
    /// One standard deviation of chance.
    random: f64,
    /// How far it may be off in one direction.
    systematic: f64,
    /// The mean time of a call, if one was timed.
    mean: Option<Mean>,
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
        self.rate(cost_ns).calls
    }

    /// Adds what was counted in another look, of which nothing was timed.
    pub fn add(&mut self, other: &Self) {
        self.length += other.length;
        self.calls.resize(self.calls.len().max(other.calls.len()), 0);
        self.calls.iter_mut().zip(&other.calls).for_each(|(calls, more)| *calls = calls.saturating_add(*more));
    }

    fn rate(&self, cost_ns: f64) -> Rate {
        let length_ns = nanoseconds(self.length);
        let mut rate = Rate { mean: self.mean(), ..Rate::default() };
        if length_ns <= 0.0 {
            return rate;
        }
        let per_second = 1e9 / length_ns;
        let mut variance = 0.0;
        for calls in self.calls.iter().map(|&calls| factor(calls)) {
            let paid_ns = calls * cost_ns;
            let own_ns = (length_ns - paid_ns).max(LEAST_OWN * length_ns);
            // In the time that the probes took there would have been more calls.
            let more = (own_ns + paid_ns) / own_ns;
            rate.calls += calls * more * per_second;
            rate.systematic += calls * more * per_second * (COST_ERROR * paid_ns / own_ns).min(1.0);
            // Of n calls that come by chance, the square root of n is one standard deviation. Of none nobody knows.
            variance += (more * per_second).powi(2) * calls.max(1.0);
        }
        // Where they come in bursts it is more.
        let made = factor(self.all()).max(1.0);
        rate.random = variance.max(self.clustering * (rate.calls / made).powi(2)).sqrt();
        rate
    }

    fn mean(&self) -> Option<Mean> {
        let timed = factor(self.timed);
        let ns = factor(self.total_ns) / timed;
        // Calls are taken to differ by as much as they last.
        (self.timed > 0).then(|| Mean { ns, random: ns / timed.sqrt(), systematic: factor(self.inside_error_ns) })
    }
}

/// The estimate for one function.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Estimate {
    calls: f64,
    variance: f64,
    systematic: f64,
    /// `None` until a look has timed a call.
    time: Option<Time>,
    /// Up to when it is summed up; `None` while the function is watched.
    since: Option<Duration>,
    last: Option<Rate>,
    /// What was seen when it was still watched, until the first look after that.
    before: Option<Rate>,
    differences: Differences,
}

/// How much the rates of looks differ from those of the looks before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Differences {
    squares: f64,
    looks: f64,
}

impl Differences {
    fn add(&mut self, difference: f64) {
        self.squares += difference.powi(2);
        self.looks += 1.0;
    }

    /// One standard deviation of a look's rate: two looks differ by the root of two of their deviations.
    fn of_a_look(&self) -> f64 {
        if self.looks > 0.0 { (self.squares / self.looks / 2.0).sqrt() } else { 0.0 }
    }
}

/// The time of the calls of an estimate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Time {
    ns: f64,
    variance: f64,
    systematic: f64,
    /// The calls since the last look that timed some: what is not known of their mean is the same for all of them.
    of_one_mean: f64,
}

impl Time {
    fn add(&mut self, calls: f64, variance: f64, systematic: f64, mean: Mean) {
        self.ns += calls * mean.ns;
        let before = self.of_one_mean;
        self.of_one_mean += calls;
        let of_mean = (self.of_one_mean.powi(2) - before.powi(2)) * mean.random.powi(2);
        self.variance += variance * mean.ns.powi(2) + of_mean;
        self.systematic += systematic * mean.ns + calls * mean.systematic;
    }
}

impl Estimate {
    /// Nobody sees the calls from now on. Before, when a call cost `cost_ns`, there were so many.
    pub(super) fn pause(&mut self, now: Duration, seen: &Glance, cost_ns: f64) {
        if self.since.is_some() {
            return;
        }
        self.since = Some(now);
        let rate = Rate { mean: self.last.and_then(|last| last.mean), ..seen.rate(cost_ns) };
        self.before = (!seen.length.is_zero()).then_some(rate);
    }

    /// A look shows how often it is called now, where a call costs `cost_ns` under the look's probes.
    pub(super) fn look(&mut self, now: Duration, glance: &Glance, cost_ns: f64) {
        let mut rate = glance.rate(cost_ns);
        let before = self.last.and_then(|last| last.mean);
        if let Some((new, old)) = rate.mean.as_mut().zip(before) {
            // Two means differ by the root of two of their deviations.
            new.random = new.random.max((new.ns - old.ns).abs() / 2f64.sqrt());
            self.time.iter_mut().for_each(|time| time.of_one_mean = 0.0);
        }
        rate.mean = rate.mean.or(before);
        if let Some(last) = self.last {
            self.differences.add(rate.calls - last.calls);
        }
        // What was seen before was slowed by its probes: nothing is better than a look.
        self.before = None;
        self.sum_up(now, Some(rate));
        self.last = Some(rate);
    }

    /// All calls are seen from now on.
    pub(super) fn resume(&mut self, now: Duration) {
        self.sum_up(now, None);
        self.since = None;
    }

    /// The estimate for all the time up to now; `None` if there was none, or nothing is known of it. Until the first look it may be as
    /// much again, or nothing.
    pub(super) fn until(&self, now: Duration) -> Option<Unseen> {
        self.known()?;
        let mut all = self.clone();
        all.sum_up(now, None);
        let time = all.time.unwrap_or_default();
        Some(Unseen {
            calls: whole(all.calls),
            error_calls: whole(all.variance.sqrt() + all.systematic),
            total_ns: whole(time.ns),
            error_ns: all.time.map(|time| whole(time.variance.sqrt() + time.systematic)),
            settled: Settled { calls: whole(self.calls), total_ns: whole(self.time.unwrap_or_default().ns) },
        })
    }

    /// The rate that a look has seen last or, before there was one, what was seen when it was still watched.
    fn known(&self) -> Option<Rate> {
        self.last.or(self.before)
    }

    fn sum_up(&mut self, now: Duration, next: Option<Rate>) {
        let Some((from, since)) = self.known().or(next).zip(self.since) else { return };
        let to = next.unwrap_or(from);
        let seconds = now.saturating_sub(since).as_secs_f64();
        let calls = seconds * (from.calls + to.calls) / 2.0;
        // Where looks differ by chance alone, so much as half of the square of their difference.
        let change = (to.calls - from.calls).powi(2) / 2.0;
        let unknown = if self.last.is_none() && next.is_none() { from.calls } else { 0.0 };
        let random = from.random.max(to.random).max(self.differences.of_a_look()).max(unknown);
        let variance = seconds.powi(2) * change.max(random.powi(2));
        let systematic = seconds * from.systematic.max(to.systematic);
        self.calls += calls;
        self.variance += variance;
        self.systematic += systematic;
        if let Some(mean) = to.mean.or(from.mean) {
            match &mut self.time {
                Some(time) => time.add(calls, variance, systematic, mean),
                // The first mean is also that of the calls before.
                None => {
                    self.time.insert(Time::default()).add(self.calls, self.variance, self.systematic, mean);
                }
            }
        }
        self.since = Some(now);
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
        parts[place] += factor(calls - before);
        before = *calls;
    }
    let mean = factor(all) / PARTS as f64;
    let squares: f64 = parts.iter().map(|calls| (calls - mean).powi(2)).sum();
    // The sum of so many parts, each of which differs so much.
    squares * PARTS as f64 / (PARTS - 1) as f64
}

/// A count that is never negative, as an integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn whole(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn glance(calls: u64) -> Glance {
        Glance { length: at(2), calls: vec![calls], timed: calls, total_ns: 100 * calls, ..Glance::default() }
    }

    /// Check that what the probes took is no time of the target's: of a thread that has a CPU for itself, of two, and of one
    /// beside another that makes no calls.
    #[test]
    fn probes_take_time() {
        // Two million calls a second of 500 ns each, and a probe of 1 us: in 2 ms there is room for 1333 calls.
        let rate = |calls: &[u64]| Glance { calls: calls.to_vec(), ..glance(0) }.calls_per_second(1_000.0);
        for (calls, truth) in [(&[1_333][..], 2e6), (&[1_333, 1_333], 4e6), (&[1_333, 0], 2e6)] {
            let found = rate(calls);
            assert!((found / truth - 1.0).abs() < 0.01, "{found} of {truth}");
        }
        assert!((rate(&[2]) - 1_001.0).abs() < 1.0);
        assert_eq!(rate(&[]), 0.0);
        assert!(rate(&[100_000]).is_finite(), "more than there can be");
        assert!(Glance::default().calls_per_second(1.0).is_finite());
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
            let mut estimate = Estimate::default();
            estimate.pause(at(0), &Glance::default(), 0.0);
            estimate.look(at(100), &Glance { clustering, ..glance(200) }, 0.0);
            let unseen = estimate.until(at(100)).unwrap();
            factor(unseen.error_calls) / factor(unseen.calls)
        };
        assert!((error_of(clustering(&even)) - 0.07).abs() < 0.01 && (error_of(clustering(&burst)) - 1.0).abs() < 0.01);
    }

    /// Check that what was seen before counts until the first look, as far as that goes.
    #[test]
    fn begins_at_what_was_seen_before() {
        let mut estimate = Estimate::default();
        estimate.pause(at(0), &Glance { length: at(100), ..glance(1_000) }, 0.0);
        estimate.pause(at(50), &Glance { length: at(100), ..glance(0) }, 0.0);
        let unseen = estimate.until(at(1_000)).unwrap();
        assert_eq!((unseen.calls, unseen.error_calls), (10_000, 10_000));
        estimate.look(at(1_000), &glance(4), 0.0);
        assert_eq!(estimate.until(at(1_000)).unwrap().calls, 2_000);
    }

    /// Check that looks that differ show how far the time without looks may be off.
    #[test]
    fn what_looks_differ_by_is_in_the_error() {
        let error_of = |looks: &[u64]| {
            let mut estimate = Estimate::default();
            estimate.pause(at(0), &Glance::default(), 0.0);
            (1..).zip(looks).for_each(|(n, calls)| estimate.look(at(n * 100), &glance(*calls), 0.0));
            let unseen = estimate.until(at(5_000)).unwrap();
            factor(unseen.error_calls) / factor(unseen.calls)
        };
        assert!(error_of(&[1_000; 4]) < 0.04);
        assert!(error_of(&[0, 1_000, 0, 1_000]) > 0.5, "{}", error_of(&[0, 1_000, 0, 1_000]));
    }

    /// Check that calls and times are those of a steady function, that nothing is added while it is watched, and that the
    /// truth is within the error.
    #[test]
    fn sums_up_what_nobody_saw() {
        let mut estimate = Estimate::default();
        assert_eq!(estimate.until(at(1_000)), None);
        estimate.pause(at(1_000), &Glance::default(), 0.0);
        assert_eq!(estimate.until(at(2_000)), None, "there was no look");
        for ms in [1_500, 2_500, 3_000] {
            estimate.look(at(ms), &glance(20), 0.0);
        }
        let paused = estimate.until(at(5_000)).unwrap();
        assert_eq!((paused.calls, paused.total_ns), (40_000, 4_000_000));
        estimate.resume(at(5_000));
        let settled = Settled { calls: paused.calls, total_ns: paused.total_ns };
        assert_eq!(estimate.until(at(9_000)), Some(Unseen { settled, ..paused }));
        assert!(paused.error_calls > 0 && paused.error_calls < 20_000, "{paused:?}");
    }

    /// Check that what is settled never falls, though the estimate does when a look finds less than the one before, and that looks
    /// bring it there.
    #[test]
    fn what_is_settled_only_grows() {
        let mut estimate = Estimate::default();
        estimate.pause(at(0), &Glance::default(), 0.0);
        let (mut before, mut fell) = (Unseen::default(), false);
        for n in 1..200 {
            if n % 10 == 0 {
                let calls = if n % 20 == 0 { 200 } else { 1 };
                let glance = glance(calls);
                estimate.look(at(n * 100), &Glance { timed: if n < 50 { 0 } else { calls }, ..glance }, 0.0);
                let now = estimate.until(at(n * 100)).unwrap();
                assert_eq!((now.settled.calls, now.settled.total_ns), (now.calls, now.total_ns));
            }
            let Some(now) = estimate.until(at(n * 100 + 99)) else { continue };
            assert!(now.settled.calls >= before.settled.calls && now.settled.total_ns >= before.settled.total_ns);
            assert!(now.settled.calls <= now.calls);
            fell |= now.calls < before.calls;
            before = now;
        }
        assert!(fell && before.settled.total_ns > 0, "{before:?}");
    }

    /// Check that looks that are far apart count for more time than those that are close to each other.
    #[test]
    fn looks_need_not_be_even() {
        let mut estimate = Estimate::default();
        estimate.pause(at(0), &Glance::default(), 0.0);
        // Crowded in the first tenth of a second, where it is called often; then once a second.
        for ms in [0, 20, 40, 60, 80, 100] {
            estimate.look(at(ms), &glance(200), 0.0);
        }
        for ms in [110, 1_100, 2_100, 3_100] {
            estimate.look(at(ms), &glance(2), 0.0);
        }
        let calls = estimate.until(at(3_100)).unwrap().calls;
        assert!((13_000..14_000).contains(&calls), "{calls}");
    }

    /// Check that the error shrinks with the number of looks, but not below what is not known of the probe's cost.
    #[test]
    fn error_has_two_parts() {
        let error_of = |looks: u64, cost_ns: f64| {
            let mut estimate = Estimate::default();
            estimate.pause(at(0), &Glance::default(), 0.0);
            (1..=looks).for_each(|n| estimate.look(at(n * 10_000 / looks), &glance(1_000), cost_ns));
            let unseen = estimate.until(at(10_000)).unwrap();
            factor(unseen.error_calls) / factor(unseen.calls)
        };
        assert!(error_of(100, 0.0) < 0.2 * error_of(2, 0.0));
        assert!(error_of(10_000, 1_000.0) > 0.09, "half of each look was the probe's");
    }

    /// Check that the error of the time has what is not known of the probe's part of each call and how much means differ, and that
    /// the time of calls before the first one that was timed is that of those.
    #[test]
    fn times_have_an_error() {
        let timed = |calls: u64, mean_ns: u64| Glance { total_ns: calls * mean_ns, ..glance(calls) };
        let counted = Glance { timed: 0, ..timed(1_000, 0) };
        let estimated = |glances: &[Glance]| {
            let mut estimate = Estimate::default();
            estimate.pause(at(0), &Glance::default(), 0.0);
            (1..).zip(glances).for_each(|(n, glance)| estimate.look(at(n * 100), glance, 0.0));
            estimate.until(at(100 * glances.len() as u64)).unwrap()
        };
        let none = estimated(&[counted.clone(), counted.clone()]);
        assert!(none.calls > 0 && none.error_ns.is_none() && !none.has_time(), "{none:?}");
        let late = estimated(&[counted.clone(), counted.clone(), timed(1_000, 100)]);
        assert_eq!(late.total_ns, 100 * late.calls);
        let share = |unseen: Unseen| factor(unseen.error_ns.unwrap()) / factor(unseen.total_ns);
        let of_calls = |unseen: Unseen| factor(unseen.error_calls) / factor(unseen.calls);
        let steady = vec![timed(1_000, 100); 20];
        let unsteady: Vec<Glance> = (0..20).map(|n| timed(1_000, 20 + 160 * (n % 2))).collect();
        assert!(share(estimated(&steady)) > of_calls(estimated(&steady)), "{:?}", estimated(&steady));
        assert!(share(estimated(&unsteady)) > 2.0 * share(estimated(&steady)), "{:?}", estimated(&unsteady));
        let few = vec![timed(4, 100); 20];
        assert!(share(estimated(&few)) > 5.0 * share(estimated(&steady)), "{:?}", estimated(&few));
        let unknown: Vec<Glance> =
            steady.iter().map(|glance| Glance { inside_error_ns: 30, ..glance.clone() }).collect();
        let more = share(estimated(&unknown)) - share(estimated(&steady));
        assert!((more - 0.3).abs() < 0.001, "{more}");
        // One mean for all: what is not known of it does not average out.
        let mut once = vec![counted; 20];
        once[0] = timed(100, 100);
        assert!(share(estimated(&once)) > 0.1, "{:?}", estimated(&once));
    }
}
