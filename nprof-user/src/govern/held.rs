//! What is remembered of a function that was lowered, and how long it waits before it may be raised.

use std::time::Duration;

use super::terms::{By, Observed, Rung, Why};

/// How long the budget must have room before a counted function is timed again: at first and at most.
const STEADY: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(600));

/// How long a detached function is left alone before it is tried: at first and at most.
const TRIAL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// A function that is lowered sooner than this after it was raised has flapped.
const FLAP: Duration = Duration::from_secs(30);

/// What is left of an earlier look at each later one.
const FADING: f64 = 0.25;

/// A time to wait that doubles each time it was too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backoff {
    wait: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    fn new((first, longest): (Duration, Duration)) -> Self {
        Self { wait: first, first, longest }
    }

    fn lengthen(&mut self) {
        self.wait = (self.wait * 2).min(self.longest);
    }

    fn reset(&mut self) {
        self.wait = self.first;
    }
}

/// A function that was lowered, or was until not long ago.
#[derive(Debug)]
pub(super) struct Held {
    /// Who sees its calls.
    pub(super) by: By,
    /// What the user asked for.
    pub(super) wanted: Rung,
    /// The state that it is in.
    pub(super) tracing: Rung,
    /// Whether it was lowered and has not come back. It may be off meanwhile, as the user wants it.
    pub(super) is_lowered: bool,
    /// How often it was called when it was last lowered, per second.
    pub(super) rate: f64,
    /// Why it was last lowered.
    pub(super) why: Why,
    /// When it was raised, if it was not lowered since.
    raised: Option<Duration>,
    /// Since when the budget has had room for it without a break.
    room_since: Option<Duration>,
    /// How long that must last.
    steady: Backoff,
    /// When its next trial is due, if it is detached.
    due: Duration,
    /// How long after the last one.
    trial: Backoff,
    /// When it was last looked at since it was lowered.
    looked: Duration,
    /// How often it was called per second when it was called most, of the last looks.
    peak: f64,
}

impl Held {
    /// A function as it is before it is lowered.
    pub(super) fn new(seen: &Observed, why: Why) -> Self {
        Self {
            by: seen.by,
            wanted: seen.wanted,
            tracing: seen.tracing,
            is_lowered: false,
            rate: 0.0,
            why,
            raised: None,
            room_since: None,
            steady: Backoff::new(STEADY),
            due: Duration::ZERO,
            trial: Backoff::new(TRIAL),
            looked: Duration::ZERO,
            peak: 0.0,
        }
    }

    /// Takes over the state that the function was seen in: it counts, not what was asked for.
    pub(super) fn follow(&mut self, seen: &Observed) {
        self.by = seen.by;
        self.wanted = seen.wanted;
        self.tracing = seen.tracing;
        if self.wanted.is_watched() {
            self.is_lowered = self.tracing < self.wanted;
        }
    }

    /// Whether it gets less than the user asked for. A function that is to be off misses nothing.
    pub(super) fn is_demoted(&self) -> bool {
        self.tracing < self.wanted && self.wanted.is_watched()
    }

    /// Whether nothing is left to remember: it is what the user wants, and has been for long enough. One that the user has switched off
    /// since it was lowered is to come back when it is wanted again.
    pub(super) fn is_settled(&self, now: Duration) -> bool {
        !self.is_lowered && self.raised.is_none_or(|at| now.saturating_sub(at) >= FLAP)
    }

    /// Notes that it was lowered. What was raised not long ago waits longer from now on.
    pub(super) fn lowered(&mut self, now: Duration, to: Rung, rate: f64, why: Why) {
        match self.raised.take() {
            Some(at) if now.saturating_sub(at) < FLAP => {
                self.steady.lengthen();
                self.trial.lengthen();
            }
            Some(_) => self.start_over(),
            None => {}
        }
        (self.tracing, self.rate, self.why) = (to, rate, why);
        self.is_lowered = true;
        self.peak = rate;
        self.room_since = None;
        self.due = now.saturating_add(self.trial.wait);
        // First come those that nobody has looked at since they were lowered.
        self.looked = Duration::ZERO;
    }

    /// Notes that it was raised.
    pub(super) fn raised(&mut self, now: Duration, to: Rung) {
        self.tracing = to;
        self.is_lowered = to < self.wanted;
        self.raised = Some(now);
        self.room_since = None;
    }

    /// Notes a trial that did not bring it back.
    pub(super) fn failed(&mut self, now: Duration) {
        self.trial.lengthen();
        self.due = now.saturating_add(self.trial.wait);
    }

    /// Notes that the budget had room for it from `from` to `now`. Answers whether that has lasted long enough.
    pub(super) fn had_room(&mut self, from: Duration, now: Duration) -> bool {
        let since = *self.room_since.get_or_insert(from);
        now.saturating_sub(since) >= self.steady.wait
    }

    /// Notes that the budget had no room for it.
    pub(super) fn had_no_room(&mut self) {
        self.room_since = None;
    }

    /// When it was last looked at, if it is one to be looked at: a stub sees all calls, also those that it does not time.
    pub(super) fn last_look(&self) -> Option<Duration> {
        (self.is_demoted() && self.by != By::Stub).then_some(self.looked)
    }

    /// Whether it is one to be looked at, and nobody has since it was lowered.
    pub(super) fn is_unknown(&self) -> bool {
        self.last_look() == Some(Duration::ZERO)
    }

    /// Notes a look, in which it was called so often per second. Returns whether it may be tried: not so soon after the
    /// last time that it was.
    pub(super) fn looked(&mut self, now: Duration, rate: f64) -> bool {
        self.rate = rate;
        self.peak = rate.max(self.peak * FADING);
        self.passed_over(now);
        now >= self.due
    }

    /// How often it is called per second, when it is: a look may fall between two bursts.
    pub(super) fn peak(&self) -> f64 {
        self.peak
    }

    /// Notes that it cannot be looked at now.
    pub(super) fn passed_over(&mut self, now: Duration) {
        self.looked = now;
    }

    /// Forgets that it had to wait: it is tried at once, and waits are short again.
    pub(super) fn start_over(&mut self) {
        self.steady.reset();
        self.trial.reset();
        self.due = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProbeCost;

    const WHY: Why = Why::OverBudget { share: 1.0 };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn held() -> Held {
        let (by, wanted, tracing) = (By::Probe(ProbeCost::Emulated), Rung::Timed, Rung::Timed);
        Held::new(&Observed { id: 0, by, wanted, tracing, calls: 0 }, WHY)
    }

    /// Check that failed trials come 5, 10, 20 … seconds apart, and at last every five minutes.
    #[test]
    fn trials_back_off() {
        let mut held = held();
        held.lowered(at(0), Rung::Detached, 1.0, WHY);
        let mut now = Duration::ZERO;
        let waits: Vec<u64> = (0..9)
            .map(|_| {
                let wait =
                    (1..).map(at).find(|wait| held.looked(now + *wait, 1.0)).expect("a detached function comes back");
                now += wait;
                held.failed(now);
                wait.as_secs()
            })
            .collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    /// Check that only a function that flaps waits longer, at most ten minutes, and that a calm half minute ends it.
    #[test]
    fn flapping_waits_longer() {
        let mut held = held();
        let mut now = 0;
        let mut waits = Vec::new();
        for calm in [0, 29, 29, 29, 29, 29, 29, 29, 29, 29, 30] {
            now += calm;
            held.lowered(at(now), Rung::Counted, 1.0, WHY);
            assert!(!held.had_room(at(now), at(now)));
            waits.push((1..=600).find(|&wait| held.had_room(at(now), at(now + wait))).unwrap());
            held.raised(at(now), Rung::Timed);
        }
        assert_eq!(waits, [3, 6, 12, 24, 48, 96, 192, 384, 600, 600, 3]);
    }

    /// Check that room counts only without a break.
    #[test]
    fn room_must_last() {
        let mut held = held();
        held.lowered(at(0), Rung::Counted, 1.0, WHY);
        assert!(!held.had_room(at(0), at(2)));
        held.had_no_room();
        assert!(!held.had_room(at(2), at(4)));
        assert!(held.had_room(at(4), at(5)));
    }

    /// Check that a function is remembered for as long as it is demoted or may flap, and no longer.
    #[test]
    fn settles_after_a_calm_time() {
        let mut held = held();
        held.lowered(at(0), Rung::Counted, 1.0, WHY);
        assert!(held.is_demoted() && !held.is_settled(at(1_000)));
        held.raised(at(1_000), Rung::Timed);
        assert!(!held.is_demoted() && !held.is_settled(at(1_029)));
        assert!(held.is_settled(at(1_030)));
    }

    /// Check that a function that is called in bursts is not taken for a quiet one because looks fell between two.
    #[test]
    fn bursts_are_not_missed() {
        let mut held = held();
        held.lowered(at(0), Rung::Detached, 1_000_000.0, WHY);
        for second in 1..=3 {
            held.looked(at(second), 0.0);
        }
        assert!(held.peak() > 10_000.0 && held.rate == 0.0, "{held:?}");
        held.looked(at(5), 2_000_000.0);
        assert_eq!(held.peak(), 2_000_000.0);
        for second in 6..=26 {
            held.looked(at(second), 10.0);
        }
        assert!(held.peak() < 100.0, "{held:?}");
    }

    /// Check that a detached function that the user switched off is neither demoted nor tried.
    #[test]
    fn off_is_not_demoted() {
        let mut held = held();
        held.lowered(at(0), Rung::Detached, 1.0, WHY);
        held.wanted = Rung::Off;
        assert!(!held.is_demoted());
        assert_eq!(held.last_look(), None);
    }
}
