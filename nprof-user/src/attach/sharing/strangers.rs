//! Processes that hit shared links and are not served by them: how long that is borne.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::model::Pid;

/// How long a process is given to become a member: a JVM that starts is found and read in this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many hits, which cost some ten milliseconds, are too many from the first moment on.
const MOST_HITS: u64 = 20_000;
/// More are not kept in mind at the same time.
const MOST: usize = 64;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    seen: u64,
    suspects: BTreeMap<Pid, (Instant, u64)>,
}

impl Strangers {
    /// Whether there is something new.
    pub(super) fn are_news(&self, hits: u64) -> bool {
        hits != self.seen
    }

    /// Takes in that there were so many hits by now, the last of them by this process. Returns whether it has paid enough.
    pub(super) fn has_paid_enough(&mut self, hits: u64, last: Pid, now: Instant) -> bool {
        let more = hits.saturating_sub(std::mem::replace(&mut self.seen, hits));
        if self.suspects.len() >= MOST {
            self.suspects.clear();
        }
        let (since, of_it) = self.suspects.entry(last).or_insert((now, 0));
        *of_it += more;
        let is_enough = now.saturating_duration_since(*since) >= PATIENCE || *of_it > MOST_HITS;
        if is_enough {
            self.suspects.remove(&last);
        }
        is_enough
    }

    /// Takes in hits that are nobody's fault.
    pub(super) fn pass_over(&mut self, hits: u64) {
        self.seen = hits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a few hits are borne for a while, many at no time, and that each process has its own account.
    #[test]
    fn few_for_a_while() {
        let (mut strangers, now) = (Strangers::default(), Instant::now());
        assert!(!strangers.has_paid_enough(10, Pid(7), now));
        assert!(strangers.are_news(11) && !strangers.are_news(10));
        assert!(!strangers.has_paid_enough(10 + MOST_HITS, Pid(8), now));
        assert!(!strangers.has_paid_enough(11 + MOST_HITS, Pid(7), now + PATIENCE / 2));
        assert!(strangers.has_paid_enough(12 + MOST_HITS, Pid(7), now + PATIENCE));
        assert!(strangers.has_paid_enough(13 + MOST_HITS, Pid(8), now));
        // Both begin anew.
        assert!(!strangers.has_paid_enough(14 + MOST_HITS, Pid(7), now + PATIENCE));
    }
}
