//! What a function did while it was not watched, estimated from short looks at it.
//!
//! Between two looks the rate is taken to go in a straight line from the one to the other, so looks need not be evenly
//! spaced. The error has a part that many looks average out (few calls in a look, rates that change) and one that they do not:
//! how far the cost of a probe is known ([`super::glance`]). Times are those of the calls that some looks time, in the mean: their error
//! is that of the calls, and that of the mean besides.

use std::time::Duration;

use super::glance::{CallCost, Glance, Mean, Rate};
use crate::model::{MeanTime, Settled, Unseen};

/// What looks have found of the time of calls that are only counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Means {
    timed: u64,
    total_ns: u64,
    squares: f64,
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
        self.squares += glance.squares;
        self.sums = [self.sums[0] + mean.ns, self.sums[1] + mean.ns.powi(2)];
        self.looks += 1.0;
        self.systematic = mean.systematic;
    }

    /// The mean of a call that looks have timed; `None` until one has.
    pub(super) fn mean(&self) -> Option<MeanTime> {
        let Self { timed, total_ns, squares, .. } = *self;
        let all = Glance { timed, total_ns, squares, ..Glance::default() }.mean()?;
        let [sum, squares] = self.sums.map(|sum| sum / self.looks);
        // Calls of one look are more like each other than like those of another.
        let of_looks = (squares - sum.powi(2)).max(0.0).sqrt() / self.looks.sqrt();
        Some(MeanTime { ns: all.ns, error_ns: all.random.max(of_looks) + self.systematic })
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
    /// What was seen when it was still watched, until the first look.
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
    /// Nobody sees the calls from now on. Before, when a call cost this, there were so many, if that is known.
    pub(super) fn pause(&mut self, now: Duration, seen: &Glance, cost: CallCost) {
        if self.since.is_some() {
            return;
        }
        self.since = Some(now);
        if self.last.is_none() && !seen.length.is_zero() {
            self.before = Some(seen.rate(cost));
        }
    }

    /// A look shows how often it is called now, where a call costs this under the look's probes.
    pub(super) fn look(&mut self, now: Duration, glance: &Glance, cost: CallCost) {
        let mut rate = glance.rate(cost);
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
        self.last.or(self.before)?;
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

    fn sum_up(&mut self, now: Duration, next: Option<Rate>) {
        // What was seen before was slowed by its probes: nothing is better than a look.
        let Some((from, since)) = self.last.or(next).or(self.before).zip(self.since) else { return };
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

/// A count that is never negative, as an integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn whole(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::govern::terms::factor;

    const FREE: CallCost = CallCost { ns: 0.0, least_ns: 0.0 };

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn glance(calls: u64) -> Glance {
        Glance { length: at(2), calls: vec![calls], timed: calls, total_ns: 100 * calls, ..Glance::default() }
    }

    /// Check that what was seen before counts until the first look, as far as that goes.
    #[test]
    fn begins_at_what_was_seen_before() {
        let mut estimate = Estimate::default();
        estimate.pause(at(0), &Glance { length: at(100), ..glance(1_000) }, FREE);
        estimate.pause(at(50), &Glance { length: at(100), ..glance(0) }, FREE);
        let unseen = estimate.until(at(1_000)).unwrap();
        assert_eq!((unseen.calls, unseen.error_calls), (10_000, 10_000));
        estimate.look(at(1_000), &glance(4), FREE);
        assert_eq!(estimate.until(at(1_000)).unwrap().calls, 2_000);
    }

    /// Check that looks that differ show how far the time without looks may be off.
    #[test]
    fn what_looks_differ_by_is_in_the_error() {
        let error_of = |looks: &[u64]| {
            let mut estimate = Estimate::default();
            estimate.pause(at(0), &Glance::default(), FREE);
            (1..).zip(looks).for_each(|(n, calls)| estimate.look(at(n * 100), &glance(*calls), FREE));
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
        estimate.pause(at(1_000), &Glance::default(), FREE);
        assert_eq!(estimate.until(at(2_000)), None, "there was no look");
        for ms in [1_500, 2_500, 3_000] {
            estimate.look(at(ms), &glance(20), FREE);
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
        estimate.pause(at(0), &Glance::default(), FREE);
        let (mut before, mut fell) = (Unseen::default(), false);
        for n in 1..200 {
            if n % 10 == 0 {
                let calls = if n % 20 == 0 { 200 } else { 1 };
                let glance = glance(calls);
                estimate.look(at(n * 100), &Glance { timed: if n < 50 { 0 } else { calls }, ..glance }, FREE);
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
        estimate.pause(at(0), &Glance::default(), FREE);
        // Crowded in the first tenth of a second, where it is called often; then once a second.
        for ms in [0, 20, 40, 60, 80, 100] {
            estimate.look(at(ms), &glance(200), FREE);
        }
        for ms in [110, 1_100, 2_100, 3_100] {
            estimate.look(at(ms), &glance(2), FREE);
        }
        let calls = estimate.until(at(3_100)).unwrap().calls;
        assert!((13_000..14_000).contains(&calls), "{calls}");
    }

    /// Check that the error shrinks with the number of looks, but not below what is not known of the probe's cost.
    #[test]
    fn error_has_two_parts() {
        let error_of = |looks: u64, cost_ns: f64| {
            let mut estimate = Estimate::default();
            estimate.pause(at(0), &Glance::default(), FREE);
            (1..=looks).for_each(|n| estimate.look(at(n * 10_000 / looks), &glance(1_000), CallCost::even(cost_ns)));
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
            estimate.pause(at(0), &Glance::default(), FREE);
            (1..).zip(glances).for_each(|(n, glance)| estimate.look(at(n * 100), glance, FREE));
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
