//! The rows of a report: which functions, under which name, with which numbers.

use std::cmp::Ordering;
use std::time::Duration;

use super::uncertain::Uncertain;
use crate::aggregate::quantile::quantile;
use crate::model::{Method, MethodSnapshot, Pid, PlannedMethod, Snapshot, StartTime, Tier, Unseen};

/// One function of one JVM with calls, under the first of its methods' names.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// What it is a part of: everything measured of its JVM.
    pub(super) snapshot: &'a Snapshot,
    /// What was measured.
    pub(super) measured: &'a MethodSnapshot,
    /// The method that names the row: the first by class, name and descriptor of those that share the function.
    pub(super) first: &'a PlannedMethod,
}

impl<'a> Row<'a> {
    /// The row of a function, or `None` where there is nothing to report about it.
    pub(super) fn of(snapshot: &'a Snapshot, measured: &'a MethodSnapshot) -> Option<Self> {
        if measured.calls == 0 && measured.in_flight == 0 && measured.unseen.is_none() {
            return None;
        }
        let first = measured.methods.iter().min_by(|a, b| by_name(&a.method, &b.method))?;
        Some(Self { snapshot, measured, first })
    }

    /// The other methods that share the function, by name.
    pub(super) fn aliases(&self) -> Vec<&'a Method> {
        let others = self.measured.methods.iter().filter(|m| !std::ptr::eq(*m, self.first));
        let mut aliases: Vec<&Method> = others.map(|m| &m.method).collect();
        aliases.sort_by(|a, b| by_name(a, b));
        aliases
    }

    /// How many calls the times are made of.
    pub(super) fn timed_calls(&self) -> u64 {
        self.measured.timed_calls()
    }

    /// The calls that were counted, and those that are estimated of the time in which nobody watched.
    pub(super) fn calls(&self) -> u64 {
        self.measured.all_calls()
    }

    /// The same with how far it may be off.
    pub(super) fn all_calls(&self) -> Uncertain {
        Uncertain { value: self.calls(), error: self.measured.unseen.map_or(0, |unseen| unseen.error_calls) }
    }

    /// How far [`Row::calls`] may be off, as a share of it; `None` where every call was counted.
    pub(super) fn error(&self) -> Option<f64> {
        let unseen = self.measured.unseen?;
        Some(unseen.error_calls as f64 / self.calls().max(1) as f64)
    }

    /// How long it took to make [`Row::calls`]: late starts are left out, and pauses of which nothing is estimated.
    pub(super) fn called_for(&self) -> Duration {
        let MethodSnapshot { traced_after, traced, unseen, .. } = self.measured;
        let unknown = if unseen.is_some() { Duration::ZERO } else { traced.unwatched };
        self.snapshot.elapsed.saturating_sub(traced_after.saturating_add(unknown))
    }

    /// Whether it is measured less closely than the user wants, at the moment.
    pub(super) fn is_demoted(&self) -> bool {
        self.measured.traced.tracing < self.measured.traced.wanted
    }

    /// The time of all calls in nanoseconds, as far as it is measured or estimated.
    pub(super) fn total_ns(&self) -> u64 {
        let unseen = self.measured.unseen.map_or(0, |unseen| unseen.total_ns);
        self.measured.total_ns.saturating_add(self.measured.estimated_ns.unwrap_or(0)).saturating_add(unseen)
    }

    /// The same, where some of it is estimated.
    pub(super) fn estimated_total_ns(&self) -> Option<u64> {
        let MethodSnapshot { estimated_ns, unseen, .. } = self.measured;
        (estimated_ns.is_some() || unseen.as_ref().is_some_and(Unseen::has_time)).then(|| self.total_ns())
    }

    /// How far that may be off, in nanoseconds; `None` where nobody knows.
    pub(super) fn estimate_error_ns(&self) -> Option<u64> {
        let of_unseen_ns = self.measured.unseen.and_then(|unseen| unseen.error_ns);
        let parts = [of_unseen_ns, self.measured.estimated_error_ns];
        let known_ns = parts.into_iter().flatten().reduce(u64::saturating_add)?;
        Some(known_ns.saturating_add(self.measured.probe_error_ns))
    }

    /// The mean of the calls that [`Row::total_ns`] is the time of, in nanoseconds, rounded; `None` where there is none.
    pub(super) fn average_ns(&self) -> Option<u64> {
        let estimated = if self.measured.estimated_ns.is_some() { self.measured.counted } else { 0 };
        let calls = self.timed_calls() + estimated + self.estimated_calls();
        self.total_ns().saturating_add(calls / 2).checked_div(calls)
    }

    /// A quantile of the timed calls in nanoseconds, less what probes put into each; `None` where there is none.
    pub(super) fn quantile_ns(&self, q: f64) -> Option<u64> {
        Some(self.quantile(q)?.value)
    }

    /// The time of all calls.
    pub(super) fn total(&self) -> Uncertain {
        Uncertain { value: self.total_ns(), error: self.estimate_error_ns().unwrap_or(self.measured.probe_error_ns) }
    }

    /// The calls that nobody saw, if their time is estimated.
    fn estimated_calls(&self) -> u64 {
        self.measured.unseen.filter(Unseen::has_time).map_or(0, |unseen| unseen.calls)
    }

    /// The own time in which threads ran; `None` where it is not known.
    pub(super) fn worked(&self) -> Option<Uncertain> {
        let MethodSnapshot { self_ns, off_cpu_ns, estimated_off_ns, total_ns, probe_error_ns, price, .. } =
            self.measured;
        let ran_ns = self_ns.as_ref()?.saturating_sub((*off_cpu_ns)?);
        let Uncertain { value, error } = self.total();
        let estimated_ns = value.saturating_sub(*total_ns);
        let estimated_ran_ns = estimated_ns.saturating_sub(estimated_off_ns.unwrap_or(0));
        // Of what is estimated, the error is split as the time is. Of no time nobody knows which part, and the time in probes is never one
        // of waiting.
        let [part, whole] = if estimated_ns == 0 { [1, 1] } else { [estimated_ran_ns, estimated_ns] };
        let split = |ns: u64| u128::from(ns) * u128::from(part) / u128::from(whole);
        let of_estimates = error.saturating_sub(*probe_error_ns);
        let in_probes = price.inside_error_ns.saturating_mul(self.estimated_calls()).min(of_estimates);
        let of_work = u64::try_from(split(of_estimates)).unwrap_or(u64::MAX).max(in_probes);
        let error = (*probe_error_ns).min(error).saturating_add(of_work);
        Some(Uncertain { value: ran_ns.saturating_add(estimated_ran_ns), error })
    }

    /// What rows are compared by unless the user says otherwise: the own time in which threads ran; the time of the calls where that is
    /// not known.
    pub(super) fn weight_ns(&self) -> u64 {
        self.worked().map_or_else(|| self.total_ns(), |worked| worked.value)
    }

    /// The same with the work of calls that have not returned. Those of which that is not known are taken to have waited.
    pub(super) fn placed_ns(&self) -> u64 {
        self.weight_ns().saturating_add(self.open_on_cpu_ns().unwrap_or(0))
    }

    /// How long calls have lasted that have not returned, without traced calls that they made; `None` where that is not known.
    pub(super) fn open_ns(&self) -> Option<u64> {
        self.measured.open.map(|open| open.self_ns)
    }

    /// How long threads ran in these; `None` where work is not told from waiting.
    pub(super) fn open_on_cpu_ns(&self) -> Option<u64> {
        self.measured.off_cpu_ns?;
        self.measured.open?.on_cpu_ns()
    }

    /// Whether its threads as good as only waited in it.
    pub(super) fn only_waited(&self) -> bool {
        let (MethodSnapshot { off_cpu_ns, estimated_off_ns, open, .. }, worked) = (self.measured, self.worked());
        let open_off_ns = open.as_ref().and_then(|open| open.off_cpu_ns).unwrap_or(0);
        let parts_ns = |ended_ns: u64| [ended_ns, estimated_off_ns.unwrap_or(0), open_off_ns];
        let waited_ns = off_cpu_ns.map(|ended_ns| parts_ns(ended_ns).into_iter().fold(0, u64::saturating_add));
        worked.zip(waited_ns).is_some_and(|(_, waited_ns)| is_next_to_nothing(self.placed_ns(), waited_ns))
    }

    /// The same without that of traced calls which they made; `None` where it is not known.
    pub(super) fn own(&self) -> Option<Uncertain> {
        Some(Uncertain { value: self.measured.self_ns?, error: self.measured.probe_error_ns })
    }

    /// The mean of the calls; `None` where there is none.
    pub(super) fn average(&self) -> Option<Uncertain> {
        let error_ns = self.total().error.checked_div(self.timed_calls() + self.estimated_calls()).unwrap_or(0);
        Some(Uncertain { value: self.average_ns()?, error: error_ns })
    }

    /// The longest call.
    pub(super) fn longest(&self) -> Uncertain {
        Uncertain { value: self.measured.max_ns, error: self.measured.price.inside_error_ns }
    }

    /// A quantile of the timed calls; `None` where there is none. The histogram is of the times as they were measured, and
    /// tells them within 10 %; of which calls of it both tiers have counted is not known, so nothing is taken off there.
    pub(super) fn quantile(&self, q: f64) -> Option<Uncertain> {
        let MethodSnapshot { histogram, max_ns, price, tier, .. } = self.measured;
        let measured_ns = quantile(histogram, q, max_ns.saturating_add(price.inside_ns))?;
        Some(match tier {
            Tier::Kernel => Uncertain {
                value: measured_ns.saturating_sub(price.inside_ns).min(*max_ns),
                error: price.inside_error_ns.saturating_add(measured_ns / 10),
            },
            Tier::Stub => Uncertain {
                value: measured_ns.saturating_sub(price.inside_ns).min(*max_ns),
                error: price.inside_error_ns,
            },
            Tier::Both => Uncertain { value: measured_ns, error: 0 },
        })
    }
}

/// Whether who worked and waited for so long has as good as only waited.
pub(super) fn is_next_to_nothing(worked_ns: u64, waited_ns: u64) -> bool {
    const WAITING_TO_WORK: u64 = 19;
    worked_ns.saturating_mul(WAITING_TO_WORK) < waited_ns
}

/// What tells a JVM from the others of a run, and from one that had its pid before.
pub(super) fn process(snapshot: &Snapshot) -> (Pid, StartTime) {
    (snapshot.jvm.pid, snapshot.jvm.start_time)
}

/// Methods from A to Z.
pub(super) fn by_name(a: &Method, b: &Method) -> Ordering {
    fn key(m: &Method) -> (&str, &str, &str) {
        (&m.class, &m.name, &m.signature)
    }
    key(a).cmp(&key(b))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::model::{MethodSnapshot, Pid, Unseen};
    use crate::render::order::{Order, all, top};
    use crate::render::samples;

    /// Check the order: total time, calls, name; functions without calls are left out.
    #[test]
    fn orders_by_time_calls_and_name() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = vec![
            samples::function(0, "b.B", 5, 100),
            samples::function(1, "a.A", 5, 100),
            samples::function(2, "c.C", 6, 100),
            samples::function(3, "d.D", 0, 0),
            samples::function(4, "e.E", 1, 101),
        ];
        let order: Vec<u32> = all(&[snapshot], Order::default()).iter().map(|r| r.measured.index).collect();
        assert_eq!(order, [4, 2, 1, 0]);
    }

    /// Check that who worked comes before who waited, however long; that what is estimated counts without the part that waited; and
    /// that a time of which that is not known counts as a whole.
    #[test]
    fn work_comes_before_waiting() {
        let mut snapshot = samples::snapshot();
        let waiting = |index, class, off_ns| MethodSnapshot {
            off_cpu_ns: Some(off_ns),
            ..samples::function(index, class, 5, 1_000)
        };
        let unseen = Unseen { calls: 9, total_ns: 700, error_ns: Some(700), ..Unseen::default() };
        let estimated =
            MethodSnapshot { unseen: Some(unseen), estimated_off_ns: Some(600), ..waiting(3, "d.D", 1_000) };
        let unknown = samples::function(4, "e.E", 5, 300);
        snapshot.methods =
            vec![waiting(0, "a.A", 995), waiting(1, "b.B", 100), waiting(2, "c.C", 500), estimated, unknown];
        let jvms = [snapshot];
        let order: Vec<(u32, Option<u64>)> = all(&jvms, Order::default())
            .iter()
            .map(|row| (row.measured.index, row.worked().map(|worked| worked.value)))
            .collect();
        assert_eq!(order, [(1, Some(900)), (2, Some(500)), (4, None), (3, Some(100)), (0, Some(5))]);
        let error = |index| {
            all(&jvms, Order::default()).iter().find(|row| row.measured.index == index).unwrap().worked().unwrap().error
        };
        assert_eq!((error(3), error(1)), (100, 0), "the error is split as the time is");
        let lost = MethodSnapshot {
            unseen: Some(Unseen { total_ns: 0, ..unseen }),
            estimated_off_ns: Some(0),
            ..waiting(0, "a.A", 1_000)
        };
        snapshot = samples::snapshot();
        snapshot.methods = vec![lost];
        let worked = all(&[snapshot], Order::default())[0].worked().unwrap();
        assert_eq!((worked.value, worked.error), (0, 700), "of no time nobody knows which part is work");
    }

    /// Check that who worked for less than a twentieth of the time has only waited, and that nobody is said to whose work is not known.
    #[test]
    fn who_only_waited() {
        let row = |off_ns| MethodSnapshot { off_cpu_ns: off_ns, ..samples::function(0, "a.A", 5, 1_000) };
        let mut snapshot = samples::snapshot();
        let mut only_waited = |row| {
            snapshot.methods = vec![row];
            all(std::slice::from_ref(&snapshot), Order::default())[0].only_waited()
        };
        assert_eq!(
            [Some(951), Some(950), Some(0), None].map(|off_ns| only_waited(row(off_ns))),
            [true, false, false, false]
        );
        let unseen = Unseen { calls: 9, total_ns: 1_000, error_ns: Some(1), ..Unseen::default() };
        let estimated =
            |off_ns| MethodSnapshot { unseen: Some(unseen), estimated_off_ns: Some(off_ns), ..row(Some(1_000)) };
        assert_eq!([950, 800].map(|off_ns| only_waited(estimated(off_ns))), [true, false]);
    }

    /// Check that the first rows are those of the full order, for every number of them.
    #[test]
    fn top_is_the_start_of_all() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = (0..50)
            .map(|i| samples::function(i, &format!("p.C{}", i % 9), u64::from(i % 3) + 1, u64::from(i * 7 % 5)))
            .collect();
        let jvms = [snapshot];
        let order: Vec<u32> = all(&jvms, Order::default()).iter().map(|r| r.measured.index).collect();
        for limit in 0..52 {
            let (rows, count) = top(&jvms, Order::default(), limit);
            let found: Vec<u32> = rows.iter().map(|r| r.measured.index).collect();
            assert_eq!((found.as_slice(), count), (&order[..limit.min(50)], 50));
        }
    }

    /// Check that equal functions of two JVMs stay two rows, by pid.
    #[test]
    fn never_merges_jvms() {
        let mut first = samples::snapshot();
        first.methods = vec![samples::function(0, "a.A", 5, 100)];
        let mut second = first.clone();
        second.jvm.pid = Pid(first.jvm.pid.0 - 1);
        let jvms = [first, second];
        let pids: Vec<Pid> = all(&jvms, Order::default()).iter().map(|r| r.snapshot.jvm.pid).collect();
        assert_eq!(pids, [jvms[1].jvm.pid, jvms[0].jvm.pid]);
    }

    /// Check that averages leave out calls that were not timed or only counted, and that no timed call gives none.
    #[test]
    fn averages_timed_calls() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = vec![samples::function(0, "a.A", 1005, 100), samples::function(1, "b.B", 8, 0)];
        (snapshot.methods[0].counted, snapshot.methods[0].untimed) = (1000, 2);
        (snapshot.methods[1].counted, snapshot.methods[1].untimed) = (7, 1);
        let averages: Vec<_> = all(&[snapshot], Order::default()).iter().map(super::Row::average_ns).collect();
        assert_eq!(averages, [Some(33), None]);
    }

    /// Check that what nobody watched is no part of the time that a rate is taken of, however long it was.
    #[test]
    fn watched_time_leaves_out_pauses() {
        let mut snapshot = samples::snapshot();
        snapshot.methods = vec![samples::function(0, "a.A", 5, 100)];
        snapshot.methods[0].traced_after = Duration::from_millis(500);
        let mut watched = |unwatched| {
            snapshot.methods[0].traced.unwatched = Duration::from_millis(unwatched);
            all(std::slice::from_ref(&snapshot), Order::default())[0].called_for().as_millis()
        };
        assert_eq!([watched(0), watched(1500), watched(9000)], [2000, 500, 0]);
    }
}
