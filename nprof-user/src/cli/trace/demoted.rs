//! What `nprof trace` says at the end of methods that were measured less closely than was asked for.

use std::collections::BTreeMap;

use crate::cli::terminal::say;
use crate::model::{MethodSnapshot, Snapshot, Tracing};
use crate::trace::Spent;

/// How many methods are named; of more the number is.
const TOLD: usize = 50;

/// Functions that are demoted at the end, by index: calls per second when that was decided, and why.
type Reasons = BTreeMap<u32, (f64, String)>;

/// The demoted methods of all JVMs of a run.
#[derive(Debug, Default)]
pub(super) struct Demoted {
    lines: Vec<String>,
    /// How many more there are.
    more: usize,
}

impl Demoted {
    /// Takes in the methods of a JVM, when nothing about them changes any more. Where the governor has demoted none, what
    /// was not measured has other reasons, which are said where they arise.
    pub(super) fn add(&mut self, snapshot: &Snapshot, spent: &Spent) {
        let [demotions, _] = spent.changes;
        if demotions == 0 {
            return;
        }
        for line in lines(snapshot, &spent.demoted) {
            if self.lines.len() < TOLD {
                self.lines.push(line);
            } else {
                self.more += 1;
            }
        }
    }

    /// Says which methods were demoted, and why. To be called when nothing is drawn over it any more.
    pub(super) fn tell(&self) {
        self.lines.iter().for_each(say);
        if self.more > 0 {
            say(format_args!("and {} more methods were demoted; the results mark them", self.more));
        }
    }
}

/// One line for each method that is demoted, or was for a time.
fn lines(snapshot: &Snapshot, reasons: &Reasons) -> Vec<String> {
    let line = |measured: &MethodSnapshot| {
        let method = &measured.methods.first()?.method;
        let name = format!("process {}: {}::{}", snapshot.jvm.pid, method.class, method.name);
        let state = measured.traced.tracing;
        match reasons.get(&measured.index) {
            Some((_, why)) => Some(format!("{name} was demoted to {state}: {why}")),
            None if is_partial(measured) => Some(format!("{name} was demoted for a time, and is {state} again")),
            None => None,
        }
    };
    snapshot.methods.iter().filter_map(line).collect()
}

/// Whether less was measured than was asked for.
fn is_partial(measured: &MethodSnapshot) -> bool {
    let is_wanted = measured.traced.wanted != Tracing::Timed || measured.estimated_ns.is_some();
    let only_counted = measured.counted > 0 && !is_wanted;
    only_counted || !measured.traced.unwatched.is_zero()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::render::samples::demoted;

    /// Check that each method that is demoted is named with the reason, one that was is named too, and no other.
    #[test]
    fn names_what_was_demoted() {
        let why = |rate: f64| (rate, format!("it was called {rate:.0} times a second"));
        let reasons: Reasons = [(0, why(1e6)), (1, why(80_000.0))].into();
        let mut all = Demoted::default();
        all.add(&demoted(), &Spent { demoted: reasons, changes: [3, 1], ..Spent::default() });
        assert_eq!(
            all.lines,
            [
                "process 1234: a.Back::call was demoted for a time, and is timed again",
                "process 1234: a.Warm::call was demoted to counted: it was called 80000 times a second",
                "process 1234: a.Hot::call was demoted to detached: it was called 1000000 times a second",
            ]
        );
        assert_eq!(all.more, 0);
    }

    /// Check that methods which are measured as was asked for are not named: those that are only counted because that was
    /// asked for, those of which some calls are timed because that was, and those that are bound late.
    #[test]
    fn is_silent_where_nothing_was_demoted() {
        let mut snapshot = demoted();
        snapshot.methods.truncate(1);
        let cool = &mut snapshot.methods[0];
        cool.traced_after = Duration::from_secs(1);
        cool.counted = cool.calls;
        (cool.traced.wanted, cool.traced.tracing) = (Tracing::Counted, Tracing::Counted);
        assert_eq!(lines(&snapshot, &Reasons::new()), [""; 0]);
        let sampled = &mut snapshot.methods[0];
        (sampled.traced.wanted, sampled.traced.tracing) = (Tracing::Timed, Tracing::Timed);
        sampled.estimated_ns = Some(1);
        assert_eq!(lines(&snapshot, &Reasons::new()), [""; 0]);
    }

    /// Check that nothing is said of a JVM in which nothing was ever demoted, such as one without a budget, although methods
    /// were only counted or not watched for a time: while they moved from a stub to a probe, say.
    #[test]
    fn is_silent_where_nobody_demotes() {
        let mut all = Demoted::default();
        all.add(&demoted(), &Spent::default());
        assert_eq!((all.lines.len(), all.more), (0, 0));
    }

    /// Check that no more is said than a reader takes in, and how much is left out.
    #[test]
    fn says_how_many_more() {
        let mut all = Demoted::default();
        for _ in 0..20 {
            all.add(&demoted(), &Spent { changes: [3, 3], ..Spent::default() });
        }
        assert_eq!((all.lines.len(), all.more), (50, 10));
    }
}
