//! What is said at the end of methods that were measured less closely than was asked for.

use crate::cli::terminal::say;
use crate::model::{MethodSnapshot, Snapshot, Tier, Tracing};
use crate::trace::Spent;

/// What helps who has traced.
pub(super) const TRACED: &str = "--tier stub times them all at a fraction of the cost, --max-overhead off at any cost";
/// What helps where stubs counted every call anyway.
const STUBBED: &str = "--max-overhead off times each call at any cost";
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
    /// Of the others, those of which stubs time one of several calls at the end.
    sampled: usize,
    /// Of all of these, those that have no stub.
    by_probes: usize,
    /// Whether it was given up to count what threads allocate.
    allocations: bool,
}

impl Demoted {
    /// Takes in the methods of a JVM, when nothing about them changes any more. Where the governor has demoted none, what
    /// was not measured has other reasons, which are said where they arise.
    pub(super) fn add(&mut self, snapshot: &Snapshot, spent: &Spent) {
        self.allocations |= spent.allocations_end;
        let [demotions, _] = spent.changes;
        if demotions == 0 {
            return;
        }
        for measured in &snapshot.methods {
            let which = if measured.unseen.is_some() {
                &mut self.estimated
            } else if !measured.traced.unwatched.is_zero() {
                &mut self.unwatched
            } else if is_only_counted(measured) {
                &mut self.counted
            } else if measured.traced.tracing == Tracing::Sampled {
                &mut self.sampled
            } else {
                continue;
            };
            *which += 1;
            self.by_probes += usize::from(measured.tier != Tier::Stub);
        }
    }

    /// Says how many methods were demoted, and what helps. To be called when nothing is drawn over it any more.
    pub(super) fn tell(&self, what_helps: &str) {
        self.line(what_helps).into_iter().for_each(say);
        if self.allocations {
            say(
                "what threads allocate was too expensive to count within the budget (--max-overhead), and is not shown; \
                 --max-overhead off counts it at any cost",
            );
        }
    }

    fn line(&self, what_helps: &str) -> Option<String> {
        let Self { estimated, unwatched, counted, sampled, by_probes, allocations: _ } = *self;
        let all = estimated + unwatched + counted + sampled;
        let what_helps = if by_probes > 0 { what_helps } else { STUBBED };
        let parts = [
            (estimated, "estimated from short looks"),
            (unwatched, "not watched for a time"),
            (counted, "only counted"),
            (sampled, "counted, with one of several calls timed"),
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
        all.add(&demoted(), &Spent { allocations_end: true, ..Spent::default() });
        assert_eq!(all, Demoted { allocations: true, ..Demoted::default() });
    }

    /// Check that each method that is demoted, or was for a time, is counted once, and that it is said what helps.
    #[test]
    fn counts_what_was_demoted() {
        let mut snapshot = demoted();
        let mut all = Demoted::default();
        all.add(&snapshot, &some());
        assert_eq!(all, Demoted { unwatched: 2, counted: 1, by_probes: 3, ..Demoted::default() });
        snapshot.methods.iter_mut().for_each(|measured| measured.unseen = Some(Unseen::default()));
        all.add(&snapshot, &some());
        let line = all.line(TRACED).unwrap();
        let estimated = snapshot.methods.len();
        assert!(line.starts_with(&format!("{} methods were too expensive", estimated + 3)), "{line}");
        assert!(line.contains(&format!("{estimated} estimated")) && line.contains("--tier stub"), "{line}");
    }

    /// Check that of methods with stubs it is not said that stubs would help.
    #[test]
    fn stubs_help_no_further() {
        let mut snapshot = demoted();
        snapshot.methods.truncate(1);
        (snapshot.methods[0].tier, snapshot.methods[0].traced.tracing) = (Tier::Stub, Tracing::Sampled);
        let mut all = Demoted::default();
        all.add(&snapshot, &some());
        let line = all.line(TRACED).unwrap();
        assert!(line.contains("1 counted, with one of several calls timed; --max-overhead off"), "{line}");
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
