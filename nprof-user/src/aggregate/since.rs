//! What was measured since the last time that somebody asked: the difference of two snapshots.
//!
//! Each number is told once: the differences add up to the last snapshot. What is revised downwards, as an estimate may be, is
//! made up for by what comes later.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use jiff::SignedDuration;
use nprof_common::Consumed;

use super::quantile::upper_bound_ns;
use crate::model::{BytesPerCall, Histogram, Losses, MethodSnapshot, Snapshot, Traced, Unseen};

/// What has been told of one JVM.
#[derive(Debug, Default)]
pub struct Since {
    elapsed: Duration,
    /// By the index of the row.
    rows: HashMap<u32, MethodSnapshot>,
    losses: BTreeMap<&'static str, u64>,
}

impl Since {
    /// What is in `now` and has not been told: functions with calls that ended or are in flight. What all that costs is not told.
    pub fn next(&mut self, now: Snapshot) -> Snapshot {
        let (before, elapsed) = (self.elapsed, now.elapsed);
        self.elapsed = elapsed.max(before);
        let started = now.started.checked_add(SignedDuration::try_from(before).unwrap_or_default());
        let present: HashSet<u32> = now.methods.iter().map(|row| row.index).collect();
        let since_then = |mut row: MethodSnapshot| {
            row.traced_after = row.traced_after.saturating_sub(before);
            row
        };
        let methods = now.methods.into_iter().map(|row| since_then(self.row(row, &present)));
        let methods = methods.filter(has_news).collect();
        Snapshot {
            started: started.unwrap_or(now.started),
            elapsed: elapsed.saturating_sub(before),
            methods,
            losses: self.losses(now.losses),
            cost: None,
            cpu: None,
            cost_share: None,
            ..now
        }
    }

    /// What is new in a row.
    fn row(&mut self, mut row: MethodSnapshot, present: &HashSet<u32>) -> MethodSnapshot {
        let mut told = self.told(&row, present).unwrap_or_else(|| nothing(&row));
        subtract(&mut row, &mut told);
        self.rows.insert(row.index, told);
        row
    }

    /// What was told of the row: under its index or, where a method has gone from one tier to the other, under one that is not
    /// there any more.
    fn told(&mut self, row: &MethodSnapshot, present: &HashSet<u32>) -> Option<MethodSnapshot> {
        let same = |known: &MethodSnapshot| name(known) == name(row);
        if self.rows.get(&row.index).is_some_and(same) {
            return self.rows.remove(&row.index);
        }
        let moved = self.rows.values().find(|known| same(known) && !present.contains(&known.index))?.index;
        self.rows.remove(&moved)
    }

    fn losses(&mut self, mut losses: Losses) -> Losses {
        for (reason, count) in &mut losses.counts {
            take(count, self.losses.entry(reason).or_default());
        }
        losses
    }
}

/// What a row goes by, whatever its index.
fn name(row: &MethodSnapshot) -> Option<[&str; 3]> {
    row.methods.first().map(|known| [&*known.method.class, &*known.method.name, &*known.method.signature])
}

/// The same row of which nothing was told.
fn nothing(row: &MethodSnapshot) -> MethodSnapshot {
    MethodSnapshot {
        calls: 0,
        counted: 0,
        untimed: 0,
        open: None,
        total_ns: 0,
        estimated_ns: None,
        estimated_error_ns: None,
        unseen: None,
        self_ns: None,
        probe_ns: 0,
        probe_error_ns: 0,
        cost_ns: None,
        off_cpu_ns: None,
        estimated_off_ns: None,
        consumed: None,
        bytes_per_call: None,
        threads: None,
        traced: Traced { unwatched: Duration::ZERO, ..row.traced },
        max_ns: 0,
        histogram: Histogram::default(),
        ..row.clone()
    }
}

fn has_news(row: &MethodSnapshot) -> bool {
    row.calls > 0 || row.in_flight > 0 || row.unseen.is_some() || row.total_ns > 0
}

/// Takes what was told off a row; it is told now.
fn subtract(row: &mut MethodSnapshot, told: &mut MethodSnapshot) {
    for (now, told) in [
        (&mut row.calls, &mut told.calls),
        (&mut row.counted, &mut told.counted),
        (&mut row.untimed, &mut told.untimed),
        (&mut row.total_ns, &mut told.total_ns),
        (&mut row.probe_ns, &mut told.probe_ns),
        (&mut row.probe_error_ns, &mut told.probe_error_ns),
    ] {
        take(now, told);
    }
    for (now, told) in [
        (&mut row.estimated_ns, &mut told.estimated_ns),
        (&mut row.estimated_error_ns, &mut told.estimated_error_ns),
        (&mut row.self_ns, &mut told.self_ns),
        (&mut row.cost_ns, &mut told.cost_ns),
        (&mut row.off_cpu_ns, &mut told.off_cpu_ns),
        (&mut row.estimated_off_ns, &mut told.estimated_off_ns),
    ] {
        take_known(now, told);
    }
    take_unseen(&mut row.unseen, &mut told.unseen);
    let unwatched = row.traced.unwatched;
    row.traced.unwatched = unwatched.saturating_sub(told.traced.unwatched);
    told.traced.unwatched = unwatched;
    take_consumed(&mut row.consumed, &mut told.consumed);
    take_bytes(&mut row.bytes_per_call, &mut told.bytes_per_call);
    let new = of_histogram(&row.histogram, &told.histogram);
    told.histogram = std::mem::replace(&mut row.histogram, new);
    row.max_ns = largest(&row.histogram, row.max_ns, told.max_ns);
    told.max_ns = told.max_ns.max(row.max_ns);
}

fn take(now: &mut u64, told: &mut u64) {
    let new = now.saturating_sub(*told);
    *told = (*told).max(*now);
    *now = new;
}

fn take_known(now: &mut Option<u64>, told: &mut Option<u64>) {
    if let Some(now) = now {
        take(now, told.get_or_insert(0));
    }
}

fn take_consumed(now: &mut Option<Box<Consumed>>, told: &mut Option<Box<Consumed>>) {
    let Some(now) = now else { return };
    let told = told.get_or_insert_default();
    now.total.iter_mut().zip(&mut told.total).for_each(|(now, told)| take(now, told));
    now.own.iter_mut().zip(&mut told.own).for_each(|(now, told)| take(now, told));
}

fn take_unseen(now: &mut Option<Unseen>, told: &mut Option<Unseen>) {
    let Some(unseen) = now else { return };
    let told = told.get_or_insert_default();
    take(&mut unseen.calls, &mut told.calls);
    take(&mut unseen.error_calls, &mut told.error_calls);
    take(&mut unseen.total_ns, &mut told.total_ns);
    take_known(&mut unseen.error_ns, &mut told.error_ns);
    if unseen.calls == 0 && unseen.total_ns == 0 {
        *now = None;
    }
}

fn of_histogram(now: &Histogram, told: &Histogram) -> Histogram {
    let before: HashMap<i32, u64> = told.buckets.iter().copied().collect();
    let new = |&(index, n): &(i32, u64)| (index, n.saturating_sub(before.get(&index).copied().unwrap_or(0)));
    Histogram { buckets: now.buckets.iter().map(new).filter(|(_, n)| *n > 0).collect() }
}

fn take_bytes(now: &mut Option<Vec<BytesPerCall>>, told: &mut Option<Vec<BytesPerCall>>) {
    let Some(now) = now else { return };
    let told = told.get_or_insert_default();
    for bytes in &mut *now {
        let counter = bytes.counter;
        let place = told.iter().position(|of| of.counter == counter).unwrap_or_else(|| {
            told.push(BytesPerCall { counter, max: 0, histogram: Histogram::default() });
            told.len() - 1
        });
        let before = &mut told[place];
        let new = of_histogram(&bytes.histogram, &before.histogram);
        before.histogram = std::mem::replace(&mut bytes.histogram, new);
        bytes.max = largest(&bytes.histogram, bytes.max, before.max);
        before.max = before.max.max(bytes.max);
    }
    now.retain(|bytes| !bytes.histogram.buckets.is_empty());
}

/// The largest of the new ones, if it is `max` of all and was `told` before: exact if none was larger before, else at most the upper end
/// of the last bucket they are in.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bound is not negative; the cast saturates"
)]
fn largest(new: &Histogram, max: u64, told: u64) -> u64 {
    match new.buckets.last() {
        None => 0,
        Some(_) if max > told => max,
        Some((index, _)) => max.min(upper_bound_ns(*index) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::testing::{function, snapshot};

    fn at(seconds: u64, methods: Vec<MethodSnapshot>) -> Snapshot {
        Snapshot { elapsed: Duration::from_secs(seconds), methods, ..snapshot() }
    }

    /// Check that differences add up to the last snapshot, that functions without news are left out, and that each
    /// difference has its own time.
    #[test]
    fn tells_each_call_once() {
        let mut since = Since::default();
        let consuming = |calls, total_ns, own| {
            let consumed = Consumed { own: [own; nprof_common::COUNTERS], total: [2 * own; nprof_common::COUNTERS] };
            MethodSnapshot { consumed: Some(Box::new(consumed)), ..function(1, "a", calls, total_ns) }
        };
        let first = since.next(at(60, vec![consuming(100, 1_000, 7), function(2, "b", 5, 50)]));
        let second = since.next(at(120, vec![consuming(130, 1_900, 9), function(2, "b", 5, 50)]));
        assert_eq!(first.methods.len(), 2);
        let [row] = &second.methods[..] else { panic!("{:?}", second.methods) };
        assert_eq!((row.calls, row.total_ns, row.self_ns), (30, 900, Some(900)));
        assert_eq!(
            row.consumed.as_deref(),
            Some(&Consumed { own: [2; nprof_common::COUNTERS], total: [4; nprof_common::COUNTERS] })
        );
        assert_eq!(second.elapsed, Duration::from_secs(60));
        assert_eq!(second.started, first.started + SignedDuration::from_secs(60));
    }

    /// Check that the bytes of each call are told once, with the most that one of the new calls has.
    #[test]
    fn bytes_are_told_once() {
        let counter = nprof_common::Counter::ReadBytes;
        let bytes = |max, buckets: &[(i32, u64)]| {
            vec![BytesPerCall { counter, max, histogram: Histogram { buckets: buckets.to_vec() } }]
        };
        let mut since = Since::default();
        let mut next = |calls, bytes| {
            let row = MethodSnapshot { bytes_per_call: Some(bytes), ..function(1, "a", calls, 0) };
            since.next(at(1, vec![row])).methods.remove(0).bytes_per_call.unwrap()
        };
        assert_eq!(next(1, bytes(1_000, &[(40, 1)])), bytes(1_000, &[(40, 1)]));
        assert_eq!(next(4, bytes(1_000, &[(20, 3), (40, 1)])), bytes(32, &[(20, 3)]));
        assert_eq!(next(5, bytes(1_000, &[(20, 3), (40, 1)])), []);
        assert_eq!(next(6, bytes(1_500, &[(20, 3), (40, 1), (43, 1)])), bytes(1_500, &[(43, 1)]));
    }

    /// Check that a method is known again that has gone from a probe to a stub, and that a namesake of another loader is not
    /// taken for it.
    #[test]
    fn rows_may_move() {
        let mut since = Since::default();
        since.next(at(1, vec![function(1, "a", 100, 1_000), function(2, "a", 7, 70)]));
        let next = since.next(at(2, vec![function(9, "a", 101, 1_010), function(2, "a", 9, 90)]));
        let calls: Vec<(u32, u64)> = next.methods.iter().map(|row| (row.index, row.calls)).collect();
        assert_eq!(calls, [(9, 1), (2, 2)]);
    }

    /// Check that when a method was first traced, and for how long it was not watched, is of the time that is told of.
    #[test]
    fn times_are_of_their_part() {
        let seconds = Duration::from_secs;
        let mut since = Since::default();
        let mut told = |at_second, unwatched| {
            let mut row = function(1, "a", at_second, 1_000);
            (row.traced_after, row.traced.unwatched) = (seconds(70), seconds(unwatched));
            let row = since.next(at(at_second, vec![row])).methods.remove(0);
            (row.traced_after.as_secs(), row.traced.unwatched.as_secs())
        };
        assert_eq!([told(60, 0), told(120, 5), told(180, 5), told(240, 9)], [(70, 0), (10, 5), (0, 0), (0, 4)]);
    }

    /// Check that an estimate that was too high is made up for by later ones.
    #[test]
    fn revised_estimates_add_up() {
        let mut since = Since::default();
        let mut told = 0;
        for calls in [100, 90, 95, 130] {
            let unseen = Some(Unseen { calls, total_ns: calls, ..Unseen::default() });
            let row = MethodSnapshot { unseen, ..function(1, "a", 1, 1) };
            let next = since.next(at(1, vec![row]));
            told += next.methods.iter().filter_map(|row| row.unseen).map(|unseen| unseen.calls).sum::<u64>();
        }
        assert_eq!(told, 130);
    }

    /// Check that the longest call of a later time is not that of an earlier one.
    #[test]
    fn longest_of_the_new_calls() {
        let row = |max_ns, buckets: &[(i32, u64)]| MethodSnapshot {
            max_ns,
            histogram: Histogram { buckets: buckets.to_vec() },
            ..function(1, "a", buckets.iter().map(|(_, n)| n).sum(), 0)
        };
        let mut since = Since::default();
        let mut max = |row| since.next(at(1, vec![row])).methods.first().map(|row| row.max_ns);
        assert_eq!(max(row(1_000, &[(40, 1)])), Some(1_000));
        assert_eq!(max(row(1_000, &[(20, 3), (40, 1)])), Some(32));
        assert_eq!(max(row(1_500, &[(20, 3), (40, 1), (43, 1)])), Some(1_500));
    }
}
