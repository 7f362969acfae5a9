//! What is said at the end of methods that were measured less closely than was asked for.

use crate::cli::terminal::say;
use crate::model::{MethodSnapshot, Snapshot, Tracing};
use crate::trace::Spent;

/// What helps who has traced.
pub(super) const TRACED: &str = "--tier stub times them all at a fraction of the cost, --max-overhead off at any cost";
/// What helps who has recorded.
pub(super) const RECORDED: &str = "they have few stacks here, or none; --max-overhead off records them at any cost";

/// How many methods of a run were demoted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Demoted {
    /// Those of which some calls are estimated.
    estimated: usize,
    /// Of the others, those that nobody watched for some time and that were not looked at.
    unwatched: usize,
    /// Of the others, those of which some calls were counted and not timed.
    counted: usize,
}

impl Demoted {
    /// Takes in the methods of a JVM, when nothing about them changes any more. Where the governor has demoted none, what
    /// was not measured has other reasons, which are said where they arise.
    pub(super) fn add(&mut self, snapshot: &Snapshot, spent: &Spent) {
        let [demotions, _] = spent.changes;
        if demotions == 0 {
            return;
        }
        for measured in &snapshot.methods {
            if measured.unseen.is_some() {
                self.estimated += 1;
            } else if !measured.traced.unwatched.is_zero() {
                self.unwatched += 1;
            } else if is_only_counted(measured) {
                self.counted += 1;
            }
        }
    }

    /// Says how many methods were demoted, and what helps. To be called when nothing is drawn over it any more.
    pub(super) fn tell(&self, what_helps: &str) {
        self.line(what_helps).into_iter().for_each(say);
    }

    fn line(&self, what_helps: &str) -> Option<String> {
        let Self { estimated, unwatched, counted } = *self;
        let all = estimated + unwatched + counted;
        let parts = [
            (estimated, "estimated from short looks"),
            (unwatched, "not watched for a time"),
            (counted, "only counted"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")).collect();
        let methods = if all == 1 { "method was" } else { "methods were" };
        (all > 0).then(|| {
            format!(
                "{all} {methods} too expensive to time every call within the budget (--max-overhead): {}; {what_helps}",
                parts.join(", ")
            )
        })
    }
}

/// Whether calls were only counted though they were to be timed, and not because stubs time some of them: only of what looks
/// tell the error is known.
fn is_only_counted(measured: &MethodSnapshot) -> bool {
    let is_sampled = measured.estimated_ns.is_some() && measured.estimated_error_ns.is_none();
    measured.counted > 0 && measured.traced.wanted == Tracing::Timed && !is_sampled
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::Unseen;
    use crate::render::samples::demoted;

    /// What is known of a JVM in which the governor was at work.
    fn some() -> Spent {
        Spent { changes: [3, 1], ..Spent::default() }
    }

    /// Check that nothing is said of a JVM in which nothing was ever demoted, such as one without a budget, although methods
    /// were only counted or not watched for a time: while they moved from a stub to a probe, say.
    #[test]
    fn is_silent_where_nobody_demotes() {
        let mut all = Demoted::default();
        all.add(&demoted(), &Spent::default());
        assert_eq!(all, Demoted::default());
    }

    /// Check that each method that is demoted, or was for a time, is counted once, and that it is said what helps.
    #[test]
    fn counts_what_was_demoted() {
        let mut snapshot = demoted();
        let mut all = Demoted::default();
        all.add(&snapshot, &some());
        assert_eq!(all, Demoted { estimated: 0, unwatched: 2, counted: 1 });
        snapshot.methods.iter_mut().for_each(|measured| measured.unseen = Some(Unseen::default()));
        all.add(&snapshot, &some());
        let line = all.line(TRACED).unwrap();
        let estimated = snapshot.methods.len();
        assert!(line.starts_with(&format!("{} methods were too expensive", estimated + 3)), "{line}");
        assert!(line.contains(&format!("{estimated} estimated")) && line.contains("--tier stub"), "{line}");
    }

    /// Check that methods which are measured as was asked for are not counted: those that are only counted because that was
    /// asked for, those of which some calls are timed because that was, and those that are bound late.
    #[test]
    fn is_silent_where_nothing_was_demoted() {
        let mut snapshot = demoted();
        snapshot.methods.truncate(1);
        let line = |snapshot: &Snapshot| {
            let mut all = Demoted::default();
            all.add(snapshot, &some());
            all.line(TRACED)
        };
        let cool = &mut snapshot.methods[0];
        cool.traced_after = Duration::from_secs(1);
        cool.counted = cool.calls;
        (cool.traced.wanted, cool.traced.tracing) = (Tracing::Counted, Tracing::Counted);
        assert_eq!(line(&snapshot), None);
        let sampled = &mut snapshot.methods[0];
        (sampled.traced.wanted, sampled.traced.tracing) = (Tracing::Timed, Tracing::Timed);
        sampled.estimated_ns = Some(1);
        assert_eq!(line(&snapshot), None);
    }
}
