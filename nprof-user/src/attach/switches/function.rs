//! What is done at the hits of one function: the least of what is wanted, what is allowed and what is attached.

use std::time::{Duration, Instant};

use nprof_common::{Lane, Mode, Switch};

use super::Seen;
use crate::model::{Traced, Tracing};

/// One function.
#[derive(Debug)]
pub(super) struct Function {
    pub record: u32,
    /// Which of the links that may hold its probe on the entry does.
    pub lane: Lane,
    /// By when its own probe on the entry was there.
    pub since: Option<Instant>,
    /// The hand-over to another lane, if one is under way, and its epoch.
    pub handing: Option<(Lane, u32)>,
    pub wanted: Tracing,
    /// The most that was ever wanted: what it has probes for. What is off from the start needs none.
    pub most: Tracing,
    /// The most that the governor lets be done: [`Tracing::Timed`], [`Tracing::Counted`] or [`Tracing::Detached`].
    pub allowed: Tracing,
    /// Whether it is to be traced at all.
    pub is_selected: bool,
    pub seen: Seen,
    pub has_entry: bool,
    /// Whether what stands for the probe on its entry is on its return, where calls are counted then. Decided with its first probe, for
    /// good: one would have to be taken away before the other counts, or both would.
    pub at_exit: Option<bool>,
    pub has_return: bool,
    /// Whether its probes could not be changed; they stay as they are.
    pub is_stuck: bool,
    /// Whether its calls were ever seen.
    pub was_watched: bool,
    /// Since when its calls are not seen.
    pub unwatched_since: Option<Instant>,
    pub unwatched: Duration,
}

impl Function {
    /// A function that has a record and no probe yet, of which this is wanted.
    pub(super) fn new(record: u32, wanted: Tracing) -> Self {
        Self {
            record,
            lane: Lane::A,
            since: None,
            handing: None,
            wanted,
            most: wanted,
            allowed: Tracing::Timed,
            is_selected: true,
            seen: Seen::ByProbes,
            has_entry: false,
            at_exit: None,
            has_return: false,
            is_stuck: false,
            was_watched: false,
            unwatched_since: None,
            unwatched: Duration::ZERO,
        }
    }

    /// What is to be done, whatever is attached.
    pub(super) fn target(&self) -> Tracing {
        if self.is_selected { self.wanted.min(self.allowed) } else { Tracing::Detached }
    }

    /// Whether it gets less than the user asked for. A function that is to be off misses nothing.
    pub(super) fn is_demoted(&self) -> bool {
        self.allowed < self.wanted && self.wanted.is_watched()
    }

    /// What it is to have probes for.
    pub(super) fn attachable(&self) -> Tracing {
        self.most.min(self.allowed)
    }

    /// What is done, by probes or by stubs.
    pub(super) fn tracing(&self) -> Tracing {
        if self.seen == Seen::ByProbes { self.probed() } else { self.target() }
    }

    /// What can be done with what is attached.
    pub(super) fn probed(&self) -> Tracing {
        match self.target() {
            _ if self.seen == Seen::ByStubs => Tracing::Detached,
            Tracing::Off => Tracing::Off,
            _ if !self.has_entry => Tracing::Detached,
            Tracing::Detached => Tracing::Detached,
            _ if self.is_at_exit() => Tracing::Returned,
            Tracing::Timed if !self.has_return => Tracing::Counted,
            target => target,
        }
    }

    pub(super) fn switch(&self, has_stubs: bool) -> Switch {
        let mode = match self.probed() {
            // A probe times all calls or none.
            Tracing::Timed | Tracing::Sampled => Mode::Time,
            Tracing::Counted | Tracing::Returned => Mode::Count,
            Tracing::Off | Tracing::Detached => Mode::Off,
        };
        let switch = match self.handing {
            Some((to, epoch)) => Switch::handing(mode, (self.lane, to), epoch),
            None => Switch::settled(mode, self.lane),
        };
        if has_stubs { switch.with_stubs() } else { switch }
    }

    /// Whether its calls are counted at their return.
    pub(super) fn is_at_exit(&self) -> bool {
        self.at_exit == Some(true)
    }

    /// Whether this can be done to its calls where its probe is, if it has or had one.
    pub(super) fn can_be(&self, wanted: Tracing) -> bool {
        !wanted.is_watched() || self.at_exit.is_none_or(|at_exit| at_exit == (wanted == Tracing::Returned))
    }

    /// Whether it has all probes of one that is traced as usual, and is to keep them.
    pub(super) fn may_share(&self, timed: bool) -> bool {
        let usual = if timed { Tracing::Timed } else { Tracing::Counted };
        let is_wanted = self.is_selected && self.seen != Seen::ByStubs && self.allowed >= usual;
        let is_wanted = is_wanted && self.most != Tracing::Returned && !self.is_at_exit();
        is_wanted && self.has_entry && self.has_return == timed && !self.is_stuck
    }

    pub(super) fn traced(&self, now: Instant) -> Traced {
        let pause = self.unwatched_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        Traced { tracing: self.tracing(), wanted: self.wanted, unwatched: self.unwatched + pause }
    }

    /// Keeps the time in which its calls are not seen.
    pub(super) fn account(&mut self, now: Instant) {
        match (self.tracing().is_watched(), self.unwatched_since) {
            (true, Some(since)) => {
                self.unwatched += now.saturating_duration_since(since);
                self.unwatched_since = None;
            }
            (false, None) if self.was_watched => self.unwatched_since = Some(now),
            _ => {}
        }
        self.was_watched |= self.tracing().is_watched();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(wanted: Tracing, at_exit: Option<bool>) -> Function {
        Function { has_entry: at_exit.is_some(), at_exit, ..Function::new(0, wanted) }
    }

    /// Check that what is done at calls may change as long as they are counted at the same end, and that a function without a probe may
    /// still get it at either.
    #[test]
    fn calls_are_counted_at_one_end() {
        use Tracing::{Counted, Detached, Off, Returned, Timed};
        let can_be = |at_exit| [Timed, Counted, Returned, Off, Detached].map(|of| function(Off, at_exit).can_be(of));
        assert_eq!(can_be(None), [true; 5]);
        assert_eq!(can_be(Some(false)), [true, true, false, true, true]);
        assert_eq!(can_be(Some(true)), [false, false, true, true, true]);
    }

    /// Check that a probe on the return counts calls, as far as it is allowed to, and is in no link for others.
    #[test]
    fn counts_at_the_return() {
        let counting = function(Tracing::Returned, Some(true));
        assert_eq!((counting.probed(), counting.attachable()), (Tracing::Returned, Tracing::Returned));
        assert!(!counting.may_share(false) && !counting.may_share(true));
        let off = Function { wanted: Tracing::Off, ..counting };
        assert_eq!((off.probed(), off.attachable()), (Tracing::Off, Tracing::Returned));
        let too_dear = Function { allowed: Tracing::Detached, ..off };
        assert_eq!((too_dear.attachable(), too_dear.probed()), (Tracing::Detached, Tracing::Detached));
    }
}
