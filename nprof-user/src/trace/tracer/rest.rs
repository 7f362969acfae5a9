//! What need not be done for a JVM at rest: nothing is bound there, and nothing is called.

use std::time::{Duration, Instant};

/// A JVM is looked at so often whatever it does: what tells that it rests is the names of its threads, which are its own to
/// choose.
const LOOK_EVERY_AT_REST: Duration = Duration::from_secs(120);
/// All classes are walked so often whatever it does.
const FULL_WALK_EVERY_AT_REST: Duration = Duration::from_secs(600);
/// A full walk forgets what was unloaded; between two of them only additions are looked for. It comes after so much time in which the JVM
/// ran: one in which a thread of the JDK wakes up once a minute has unloaded next to nothing, and nothing takes its place in memory.
const FULL_WALK_EVERY: Duration = Duration::from_secs(60);
/// How many periods are governed after the last activity before the next ones are passed over, unless one is quiet: what was lately the
/// case is over by then.
const QUIET_PERIODS: u32 = 6;

/// What has been done since the JVM has last run.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// When methods were last looked for; `None` if the JVM has run since.
    looked: Option<Instant>,
    /// How many periods have been governed since it has run.
    governed: u32,
    /// For how long it has been looked at again and again since all classes were walked.
    active: Duration,
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
            *self = Self { active: self.active, ..Self::default() };
        }
        let is_recent = |looked: Instant| now.saturating_duration_since(looked) < LOOK_EVERY_AT_REST;
        MayRest { look: self.looked.is_some_and(is_recent), govern: self.governed >= QUIET_PERIODS }
    }

    /// Methods that have been bound have been looked for. What the JVM does from here on is activity when it is asked next.
    pub(super) fn has_looked(&mut self, now: Instant) {
        self.looked = Some(now);
    }

    /// It is looked at, so long after the time before, or after it was last known to be at rest. Gives whether all classes are to be walked,
    /// which they were so long ago; not before `least`.
    pub(super) fn must_walk(&mut self, since_look: Duration, since_walk: Duration, least: Duration) -> bool {
        self.active += since_look;
        let is_due = self.active >= FULL_WALK_EVERY.max(least) || since_walk >= FULL_WALK_EVERY_AT_REST.max(least);
        if is_due {
            self.active = Duration::ZERO;
        }
        is_due
    }

    /// A period has been governed. If next to nothing was called in it, it is the last one until the JVM runs again.
    pub(super) fn has_governed(&mut self, was_quiet: bool) {
        self.governed = if was_quiet { QUIET_PERIODS } else { self.governed.saturating_add(1) };
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

    /// Check that all classes are walked rarely where the JVM runs now and then, once a minute where it runs all the time, and not too often
    /// where a walk takes long.
    #[test]
    fn full_walks_are_rare_at_rest() {
        let second = Duration::from_secs(1);
        let walks_in_an_hour = |look_every: u32, least| {
            let mut rest = Rest::default();
            let mut walked = Duration::ZERO;
            let looks = (0..3_600 / look_every).map(|look| look * look_every * second);
            let walks = looks.filter(|now| {
                // That it has run is known within a second.
                rest.may_rest(true, Instant::now());
                let must_walk = rest.must_walk(second, *now - walked, least);
                walked = if must_walk { *now } else { walked };
                must_walk
            });
            walks.count()
        };
        assert_eq!([1, 60].map(|every| walks_in_an_hour(every, Duration::ZERO)), [60, 5]);
        assert_eq!([1, 60].map(|every| walks_in_an_hour(every, 1_200 * second)), [3, 2]);
    }

    /// Check that some quiet periods are governed before the others are passed over, and again after activity.
    #[test]
    fn quiet_is_governed_first() {
        let (mut rest, now) = (Rest::default(), Instant::now());
        for _ in 0..2 {
            assert!(!rest.may_rest(true, now).govern);
            for _ in 0..QUIET_PERIODS {
                assert!(!rest.may_rest(false, now).govern);
                rest.has_governed(false);
            }
            assert!(rest.may_rest(false, now).govern);
        }
        rest.may_rest(true, now);
        rest.has_governed(true);
        assert!(rest.may_rest(false, now).govern, "one in which next to nothing was called is enough");
        assert!(!rest.may_rest(true, now).govern);
    }
}
