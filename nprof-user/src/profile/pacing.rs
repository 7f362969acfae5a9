//! When the pace is adapted: now and then, and sooner where more calls are chosen than may be taken. What has become frequent all at once
//! pays for each of them, and their stacks are lost.

use std::time::{Duration, Instant};

use crate::attach::Taken;

/// So many that could not be taken are a hurry.
const HURRY: u64 = 50;

/// How often the pace is adapted, and when that was last.
#[derive(Debug)]
pub(super) struct Pacing {
    usual: Duration,
    in_a_hurry: Duration,
    stepped: Instant,
    /// What had become of stacks then.
    taken: Taken,
}

impl Pacing {
    /// The first step counts as one of the usual length: of what was called before it no pace can be told.
    pub(super) fn new(usual: Duration, in_a_hurry: Duration) -> Self {
        let now = Instant::now();
        Self { usual, in_a_hurry, stepped: now.checked_sub(usual).unwrap_or(now), taken: Taken::default() }
    }

    /// Whether it is time for a step, by what has become of stacks meanwhile.
    pub(super) fn is_due(&self, taken: &Taken) -> bool {
        self.stepped.elapsed() >= self.patience(taken)
    }

    fn patience(&self, taken: &Taken) -> Duration {
        if taken.over_pace - self.taken.over_pace >= HURRY { self.in_a_hurry } else { self.usual }
    }

    /// How much time has passed since the last step, and how many stacks were taken in it. To be asked when calls have been read: what a step
    /// itself takes, while it waits for a CPU perhaps, is time in which calls are made, too.
    pub(super) fn step(&mut self, taken: Taken) -> (Duration, u64) {
        let now = Instant::now();
        let before = std::mem::replace(&mut self.taken, taken);
        (now - std::mem::replace(&mut self.stepped, now), taken.taken - before.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a flood is a hurry, that one stack too many is not, and that each step begins anew.
    #[test]
    fn a_flood_is_a_hurry() {
        let [usual, in_a_hurry] = [Duration::from_secs(2), Duration::from_millis(5)];
        let mut pacing = Pacing::new(usual, in_a_hurry);
        let taken = |over_pace| Taken { over_pace, taken: 3 * over_pace, ..Taken::default() };
        assert!(pacing.is_due(&taken(0)));
        let (passed, stacks) = pacing.step(taken(5));
        assert!(passed >= usual && stacks == 15, "{passed:?} {stacks}");
        assert_eq!([6, 1_000].map(|over_pace| pacing.patience(&taken(over_pace))), [usual, in_a_hurry]);
        assert_eq!(pacing.step(taken(1_000)).1, 2_985);
        assert_eq!(pacing.patience(&taken(1_001)), usual);
    }
}
