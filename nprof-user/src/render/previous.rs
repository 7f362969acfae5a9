//! What the last frame of the live view showed: the difference to it is what happened since.

use std::collections::HashMap;
use std::time::Duration;

use super::rows::process;
use crate::model::{MethodSnapshot, Pid, Snapshot, StartTime};

/// The last frame's JVMs; those that have left the run since are forgotten with the next.
#[derive(Debug, Default)]
pub(super) struct Previous {
    jvms: HashMap<(Pid, StartTime), Seen>,
}

/// What was seen of one JVM.
#[derive(Debug, Default)]
pub(super) struct Seen {
    elapsed: Duration,
    /// Index and calls of each function, by rising index.
    calls: Vec<(u32, u64)>,
}

/// A JVM that was not in the last frame.
static NOTHING: Seen = Seen { elapsed: Duration::ZERO, calls: Vec::new() };

impl Previous {
    /// What the next frame is to be compared with.
    pub(super) fn of(jvms: &[Snapshot]) -> Self {
        Self { jvms: jvms.iter().map(|jvm| (process(jvm), Seen::of(jvm))).collect() }
    }

    /// What was seen of the JVM: nothing, if it is new.
    pub(super) fn seen(&self, jvm: &Snapshot) -> &Seen {
        self.jvms.get(&process(jvm)).unwrap_or(&NOTHING)
    }

    /// How long ago the last frame was. Where no JVM lived all the time, the longest part of it that one did.
    pub(super) fn time_since(&self, jvms: &[Snapshot]) -> Duration {
        jvms.iter().map(|jvm| self.seen(jvm).time_since(jvm)).max().unwrap_or_default()
    }

    /// The calls of all functions since the last frame.
    pub(super) fn calls_since(&self, jvms: &[Snapshot]) -> u64 {
        let of_jvm = |jvm: &Snapshot| {
            let seen = self.seen(jvm);
            jvm.methods.iter().map(|measured| seen.calls_since(measured)).sum::<u64>()
        };
        jvms.iter().map(of_jvm).sum()
    }
}

impl Seen {
    fn of(jvm: &Snapshot) -> Self {
        let mut calls: Vec<(u32, u64)> = jvm.methods.iter().map(|m| (m.index, m.all_calls())).collect();
        calls.sort_unstable_by_key(|(index, _)| *index);
        Self { elapsed: jvm.elapsed, calls }
    }

    /// How long the JVM has been measured since; zero for one that had ended.
    pub(super) fn time_since(&self, jvm: &Snapshot) -> Duration {
        jvm.elapsed.saturating_sub(self.elapsed)
    }

    /// The calls of one of its functions since.
    pub(super) fn calls_since(&self, measured: &MethodSnapshot) -> u64 {
        let found = self.calls.binary_search_by_key(&measured.index, |(index, _)| *index);
        let before = found.map_or(0, |at| self.calls[at].1);
        measured.all_calls().saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Previous;
    use crate::model::StartTime;
    use crate::render::samples;

    /// Check that functions with one index in two JVMs are kept apart, also where one got the other's pid.
    #[test]
    fn keeps_jvms_apart() {
        let mut old = samples::snapshot();
        old.methods = vec![samples::function(7, "a.A", 100, 0), samples::function(3, "a.B", 10, 0)];
        let previous = Previous::of(&[old.clone()]);
        let mut new = old.clone();
        new.jvm.start_time = StartTime(old.jvm.start_time.0 + 1);
        old.methods[0].calls = 105;
        old.elapsed += Duration::from_secs(2);
        let calls = |jvm| previous.seen(jvm).calls_since(&jvm.methods[0]);
        assert_eq!((calls(&old), calls(&new)), (5, 100));
        assert_eq!(previous.calls_since(&[old.clone(), new]), 5 + 110);
        assert_eq!(previous.time_since(&[old]), Duration::from_secs(2));
    }

    /// Check that no time passes for JVMs that have ended, and none where there is no JVM.
    #[test]
    fn stands_still_after_the_end() {
        let ended = [samples::snapshot()];
        let previous = Previous::of(&ended);
        assert_eq!((previous.time_since(&ended), previous.calls_since(&ended)), (Duration::ZERO, 0));
        assert_eq!(previous.time_since(&[]), Duration::ZERO);
    }
}
