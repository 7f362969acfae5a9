//! When a detached function may be looked at, and what looks may cost.

use std::time::Duration;

/// The part of the budget that looks may use in the long run.
const SHARE_OF_BUDGET: f64 = 0.2;

/// A trial whose result has not come by then has failed.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// The trials of one JVM. There is one at a time, and the next one waits until the last one is paid for: nobody knows
/// before a trial what it will cost, as it is there to find that out.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// The function that is being tried, and since when.
    running: Option<(u32, Duration)>,
    /// What trials have cost and is not paid for, in nanoseconds.
    debt_ns: f64,
    /// What trials have cost since the last period, in nanoseconds.
    recent_ns: f64,
}

impl Trials {
    /// Ends the trial that has had no result for too long, and gives its function.
    pub(super) fn give_up(&mut self, now: Duration) -> Option<u32> {
        self.running.take_if(|(_, since)| now.saturating_sub(*since) >= GIVEN_UP).map(|(id, _)| id)
    }

    /// Whether a trial may start.
    pub(super) fn may_start(&self) -> bool {
        self.running.is_none() && self.debt_ns <= 0.0
    }

    /// Notes that the function is being tried.
    pub(super) fn start(&mut self, now: Duration, id: u32) {
        self.running = Some((id, now));
    }

    /// Notes that the trial of the function is over.
    pub(super) fn end(&mut self, id: u32) {
        self.running.take_if(|(running, _)| *running == id);
    }

    /// Notes what a trial has cost.
    pub(super) fn charge(&mut self, cost_ns: f64) {
        self.debt_ns += cost_ns;
        self.recent_ns += cost_ns;
    }

    /// What trials have cost since this was last asked, in nanoseconds.
    pub(super) fn take_recent(&mut self) -> f64 {
        std::mem::take(&mut self.recent_ns)
    }

    /// Pays for trials out of a period in which tracing could cost `limit_ns`.
    pub(super) fn pay(&mut self, limit_ns: f64) {
        self.debt_ns = (self.debt_ns - SHARE_OF_BUDGET * limit_ns).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that there is one trial at a time, and that the next one waits until a fifth of the budget has paid for it.
    #[test]
    fn next_trial_waits_for_its_pay() {
        let mut trials = Trials::default();
        trials.start(Duration::ZERO, 7);
        assert!(!trials.may_start());
        trials.charge(3.5e6);
        trials.end(8);
        assert!(!trials.may_start(), "another one's end is not its end");
        trials.end(7);
        assert_eq!(trials.take_recent(), 3.5e6);
        assert_eq!(trials.take_recent(), 0.0);
        let periods = (0..).take_while(|_| {
            trials.pay(10e6);
            !trials.may_start()
        });
        assert_eq!(periods.count(), 1);
    }

    /// Check that a trial that never ends does not stop all others.
    #[test]
    fn lost_trial_is_given_up() {
        let mut trials = Trials::default();
        trials.start(Duration::from_secs(1), 7);
        assert_eq!(trials.give_up(Duration::from_secs(10)), None);
        assert_eq!(trials.give_up(Duration::from_secs(11)), Some(7));
        assert!(trials.may_start());
    }
}
