//! What programs of the user's cost: measured by the kernel while they run, from time to time.
//!
//! The kernel counts how often each program runs and how long that takes, if somebody asks it to. That costs every program of the
//! machine some tens of nanoseconds, so it is asked for a second at a time.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use aya::sys::{Stats, enable_stats};

use crate::attach::{Runs, UserPrograms};
use crate::govern::Programs;
use crate::model::Tracing;

/// How long programs are measured, and how long they are not until the next time.
const MEASURED: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(15);
/// A mean of fewer runs says little.
const ENOUGH: u64 = 20;
/// What the kernel needs to call one program more at a hit, in nanoseconds: an estimate. The kernel's statistics tell only what programs themselves take.
const CALL_NS: f64 = 60.0;
/// What a program is taken to need that has not been measured, in nanoseconds: it looks up a value and adds to it.
const ASSUMED_NS: f64 = 100.0;

/// Measures programs.
#[derive(Debug)]
pub(super) struct Meter {
    /// Held while the kernel counts.
    counting: Option<OwnedFd>,
    since: Instant,
    before: Vec<Runs>,
    /// What a run of each program takes, in nanoseconds.
    run_ns: Vec<f64>,
}

impl Meter {
    /// Begins to measure.
    pub(super) fn start(programs: &UserPrograms) -> Self {
        let before = programs.runs();
        let run_ns = vec![ASSUMED_NS; before.len()];
        Self { counting: count(), since: Instant::now(), before, run_ns }
    }

    /// Takes in what was measured, and begins or ends to measure, if it is time to.
    pub(super) fn measure(&mut self, programs: &UserPrograms) {
        if self.counting.is_none() {
            if self.since.elapsed() >= PAUSE {
                *self = Self { run_ns: std::mem::take(&mut self.run_ns), ..Self::start(programs) };
            }
            return;
        }
        let now = programs.runs();
        for ((run_ns, before), now) in self.run_ns.iter_mut().zip(&self.before).zip(&now) {
            *run_ns = mean_ns(*before, *now).unwrap_or(*run_ns);
        }
        if self.since.elapsed() >= MEASURED {
            (self.counting, self.since) = (None, Instant::now());
        }
    }

    /// Nothing runs: the kernel need not count, which costs every BPF program of the machine.
    pub(super) fn rest(&mut self) {
        if self.counting.take().is_some() {
            self.since = Instant::now();
        }
    }

    /// What programs on entry and return add to a call, where a probe on the return by itself costs so many nanoseconds, and the user
    /// wants so much.
    pub(super) fn added(&self, [entry, on_return]: [Option<usize>; 2], return_ns: f64, wanted: Tracing) -> Programs {
        let of = |program: Option<usize>| {
            let run_ns = program.and_then(|program| self.run_ns.get(program));
            run_ns.map_or(0.0, |run_ns| run_ns + CALL_NS)
        };
        let both_ns = of(entry) + of(on_return);
        // Where calls are only counted because the user wants that, the program brings the probe on the return with it.
        let is_alone = wanted <= Tracing::Counted && on_return.is_some();
        let counted_ns = if is_alone { both_ns + return_ns } else { of(entry) };
        Programs { timed_ns: whole(both_ns), counted_ns: whole(counted_ns) }
    }
}

/// Has the kernel count; `None` if it does not.
fn count() -> Option<OwnedFd> {
    let counting = enable_stats(Stats::RunTime);
    counting.inspect_err(|error| tracing::debug!("not measured what programs cost: {error}")).ok()
}

/// What a run takes in the mean, of those between two moments; `None` if there were too few.
fn mean_ns(before: Runs, now: Runs) -> Option<f64> {
    let (runs, time) = (now.count.saturating_sub(before.count), now.time.saturating_sub(before.time));
    (runs >= ENOUGH).then(|| time.as_secs_f64() * 1e9 / runs as f64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn whole(ns: f64) -> u32 {
    ns.max(0.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the mean is of what ran in between, and that a few runs are no measure.
    #[test]
    fn means_are_of_runs_in_between() {
        let runs = |count, nanoseconds| Runs { count, time: Duration::from_nanos(nanoseconds) };
        assert_eq!(mean_ns(runs(10, 5_000), runs(110, 25_000)), Some(200.0));
        assert_eq!(mean_ns(runs(10, 5_000), runs(10 + ENOUGH - 1, 9_000)), None);
    }

    /// Check that a program on the return costs nothing where it has gone with the probe there, and the probe as well where it is
    /// there for the program alone.
    #[test]
    fn programs_cost_where_they_run() {
        let meter = Meter { counting: None, since: Instant::now(), before: Vec::new(), run_ns: vec![40.0, 90.0] };
        let added = |ends, wanted| {
            let Programs { timed_ns, counted_ns } = meter.added(ends, 500.0, wanted);
            [timed_ns, counted_ns]
        };
        assert_eq!(added([Some(0), Some(1)], Tracing::Timed), [250, 100]);
        assert_eq!(added([Some(0), None], Tracing::Counted), [100, 100]);
        assert_eq!(added([None, Some(1)], Tracing::Counted), [150, 650]);
        assert_eq!(added([None, None], Tracing::Timed), [0, 0]);
    }
}
