//! What need not be done for a JVM at rest: nothing is bound there, and nothing is called.

use std::time::{Duration, Instant};

/// A JVM is looked at so often whatever it does: what tells that it rests is the names of its threads, which are its own to
/// choose.
const LOOK_EVERY_AT_REST: Duration = Duration::from_secs(120);
/// The same of a walk over all classes: what a collection unloads while nothing runs can be forgotten later, as nothing takes its
/// place in memory.
const FULL_WALK_EVERY_AT_REST: Duration = Duration::from_secs(600);
/// A full walk forgets what was unloaded; between two of them only additions are looked for.
const FULL_WALK_EVERY: Duration = Duration::from_secs(60);
/// How many periods are governed after the last activity before the next ones are passed over: what was lately the case is over
/// by then.
const QUIET_PERIODS: u32 = 6;

/// What has been done since the JVM has last run.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// When methods were last looked for; `None` if the JVM has run since.
    looked: Option<Instant>,
    /// How many periods have been governed since it has run.
    governed: u32,
}

/// What may be put off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MayRest {
    pub(super) look: bool,
    pub(super) govern: bool,
}

impl Rest {
    /// What may be put off at `now`, where the JVM has run since this was last asked, or not.
    pub(super) fn may_rest(&mut self, has_run: bool, now: Instant) -> MayRest {
        if has_run {
            *self = Self::default();
        }
        let is_recent = |looked: Instant| now.saturating_duration_since(looked) < LOOK_EVERY_AT_REST;
        MayRest { look: self.looked.is_some_and(is_recent), govern: self.governed >= QUIET_PERIODS }
    }

    /// Methods that have been bound have been looked for. What the JVM does from here on is activity when it is asked next.
    pub(super) fn has_looked(&mut self, now: Instant) {
        self.looked = Some(now);
    }

    /// How long after a walk over all classes the next one comes.
    pub(super) fn walks_every(&self) -> Duration {
        if self.looked.is_some() { FULL_WALK_EVERY_AT_REST } else { FULL_WALK_EVERY }
    }

    /// A period has been governed.
    pub(super) fn has_governed(&mut self) {
        self.governed = self.governed.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that after activity there is one look, however long that takes to come, and then none until there is more.
    #[test]
    fn one_look_after_activity() {
        let (mut rest, now) = (Rest::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(!rest.may_rest(true, now).look);
        assert!(!rest.may_rest(false, now + second).look, "it has not been looked at");
        rest.has_looked(now + 2 * second);
        assert!(rest.may_rest(false, now + 3 * second).look);
        assert!(rest.may_rest(false, now + 4 * second).look);
        assert!(!rest.may_rest(true, now + 5 * second).look);
    }

    /// Check that one that is said to rest is looked at all the same, now and then.
    #[test]
    fn rest_is_not_believed_for_ever() {
        let (mut rest, now) = (Rest::default(), Instant::now());
        rest.has_looked(now);
        assert!(rest.may_rest(false, now + LOOK_EVERY_AT_REST / 2).look);
        assert!(!rest.may_rest(false, now + LOOK_EVERY_AT_REST).look);
    }

    /// Check that all classes are walked rarely where nothing has run since the last look, and as usual after activity.
    #[test]
    fn full_walks_are_rare_at_rest() {
        let (mut rest, now) = (Rest::default(), Instant::now());
        assert_eq!(rest.walks_every(), FULL_WALK_EVERY);
        rest.has_looked(now);
        rest.may_rest(false, now + LOOK_EVERY_AT_REST);
        assert_eq!(rest.walks_every(), FULL_WALK_EVERY_AT_REST, "the look that nobody trusts is a short one");
        rest.may_rest(true, now + LOOK_EVERY_AT_REST);
        assert_eq!(rest.walks_every(), FULL_WALK_EVERY);
    }

    /// Check that some quiet periods are governed before the others are passed over, and again after activity.
    #[test]
    fn quiet_is_governed_first() {
        let (mut rest, now) = (Rest::default(), Instant::now());
        for _ in 0..2 {
            assert!(!rest.may_rest(true, now).govern);
            for _ in 0..QUIET_PERIODS {
                assert!(!rest.may_rest(false, now).govern);
                rest.has_governed();
            }
            assert!(rest.may_rest(false, now).govern);
        }
    }
}
