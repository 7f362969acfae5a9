//! The JVMs of one run as one: what holds for all of them together.

use std::time::Duration;

use jiff::Timestamp;

use super::groups::By;
use super::names;
use super::order::Order;
use crate::aggregate;
use crate::model::{Collectors, Losses, ProgramValues, SkipReason, Snapshot};

/// What a run was asked to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One JVM that the user chose: its rows need not say whose they are.
    One,
    /// Whatever JVMs there are, none and one included: each row names its JVM.
    All,
}

/// How the rows of a run are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Whose rows they are.
    pub scope: Scope,
    /// Their order.
    pub order: Order,
    /// What they are added up by; one for each function if nothing is said.
    pub by: Option<By>,
    /// How many there are in the final table; all if nothing is said.
    pub top: Option<usize>,
}

impl From<Scope> for View {
    fn from(scope: Scope) -> Self {
        Self { scope, order: Order::default(), by: None, top: None }
    }
}

/// The JVMs of a run, each with what was measured of it; there may be none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) jvms: &'a [Snapshot],
    pub(super) view: View,
}

impl<'a> Run<'a> {
    pub(super) fn new(jvms: &'a [Snapshot], view: impl Into<View>) -> Self {
        Self { jvms, view: view.into() }
    }

    /// Whether rows have to say which JVM they belong to.
    pub(super) fn names_jvms(self) -> bool {
        self.view.scope == Scope::All || self.jvms.len() > 1
    }

    /// The start of the JVM that was measured first; `None` where there was no JVM.
    pub(super) fn started(self) -> Option<Timestamp> {
        self.jvms.iter().map(|jvm| jvm.started).min()
    }

    /// Time from the first JVM's start to the last one's end, or to now.
    pub(super) fn elapsed(self) -> Duration {
        let Some(started) = self.started() else {
            return Duration::ZERO;
        };
        // Not the longest of the JVMs' own times: where one follows the other, the run is longer than each.
        let end = |jvm: &Snapshot| jvm.started.duration_since(started).unsigned_abs().saturating_add(jvm.elapsed);
        self.jvms.iter().map(end).max().unwrap_or_default()
    }

    /// Whether calls were timed.
    pub(super) fn timed(self) -> bool {
        self.jvms.iter().any(|jvm| jvm.timed)
    }

    /// What was collected besides counts and times: the same of all JVMs of a run.
    pub(super) fn collectors(self) -> Collectors {
        self.jvms.iter().map(|jvm| jvm.collectors).find(|collectors| !collectors.is_empty()).unwrap_or_default()
    }

    /// What programs of the user's have counted, of the one JVM where they run.
    pub(super) fn programs(self) -> &'a [ProgramValues] {
        self.jvms.iter().map(|jvm| &*jvm.programs).find(|programs| !programs.is_empty()).unwrap_or_default()
    }

    /// How many functions are traced, those without calls included.
    pub(super) fn traced(self) -> usize {
        self.jvms.iter().map(|jvm| jvm.traced).sum()
    }

    /// How many functions are measured less closely than was asked for.
    pub(super) fn demoted(self) -> usize {
        self.jvms.iter().map(|jvm| jvm.states.demoted).sum()
    }

    /// How many of the JVMs have ended.
    pub(super) fn ended(self) -> usize {
        self.jvms.iter().filter(|jvm| jvm.ended).count()
    }

    /// How many methods are not traced for this reason.
    pub(super) fn skipped(self, reason: SkipReason) -> usize {
        self.jvms.iter().map(|jvm| jvm.skipped_for(reason).count()).sum()
    }

    /// The first skipped methods of one reason, so many at most. What an earlier JVM already gave is not repeated.
    pub(super) fn examples(self, reason: SkipReason, most: usize) -> Vec<String> {
        let mut examples: Vec<String> = Vec::with_capacity(most);
        for jvm in self.jvms {
            let earlier = examples.len();
            let names = jvm.skipped_for(reason).map(|skipped| names::qualified(&skipped.method.method));
            let new: Vec<String> =
                names.filter(|name| !examples[..earlier].contains(name)).take(most - earlier).collect();
            examples.extend(new);
        }
        examples
    }

    /// What went wrong, added up.
    pub(super) fn losses(self) -> Losses {
        aggregate::merge_losses(self.jvms.iter().map(|jvm| &jvm.losses))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Run, Scope};
    use crate::render::samples;

    /// Check that a run lasts from the first start to the last end, also where the first JVM is not the last to end.
    #[test]
    fn spans_all_jvms() {
        let first = samples::snapshot();
        let mut second = samples::snapshot();
        second.started += Duration::from_secs(10);
        second.elapsed = Duration::from_secs(1);
        for jvms in [[first.clone(), second.clone()], [second, first.clone()]] {
            let run = Run::new(&jvms, Scope::All);
            assert_eq!((run.started(), run.elapsed()), (Some(first.started), Duration::from_secs(11)));
        }
        let alone = Run::new(std::slice::from_ref(&first), Scope::One);
        assert_eq!((alone.started(), alone.elapsed()), (Some(first.started), first.elapsed));
        assert_eq!(Run::new(&[], Scope::All).elapsed(), Duration::ZERO);
    }

    /// Check that rows name their JVM where there is more than one, or could be.
    #[test]
    fn names_jvms_where_needed() {
        let jvms = [samples::snapshot(), samples::snapshot()];
        assert!(!Run::new(&jvms[..1], Scope::One).names_jvms());
        assert!(Run::new(&jvms[..1], Scope::All).names_jvms());
        assert!(Run::new(&jvms, Scope::One).names_jvms());
    }
}
