//! When the pace is adapted: now and then, and sooner where more calls are chosen than may be taken. What has become frequent all at once
//! pays for each of them, and their stacks are lost.

use std::time::Duration;

use crate::attach::Taken;

/// So many that could not be taken are a hurry.
const HURRY: u64 = 50;

/// How often the pace is adapted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) usual: Duration,
    pub(super) in_a_hurry: Duration,
}

impl Patience {
    /// How long after the last time that is to be, by what has become of stacks meanwhile.
    pub(super) fn after(self, before: &Taken, now: &Taken) -> Duration {
        if now.over_pace - before.over_pace >= HURRY { self.in_a_hurry } else { self.usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a flood is a hurry, and that one stack too many is not.
    #[test]
    fn a_flood_is_a_hurry() {
        let patience = Patience { usual: Duration::from_secs(2), in_a_hurry: Duration::from_millis(5) };
        let taken = |over_pace| Taken { over_pace, ..Taken::default() };
        assert_eq!(patience.after(&taken(5), &taken(6)), patience.usual);
        assert_eq!(patience.after(&taken(5), &taken(1_000)), patience.in_a_hurry);
    }
}
