//! Threads that stop running inside a call: their stacks are taken when they stop, and how long they did not run is
//! known when they run again.

use std::collections::HashMap;
use std::time::Duration;

use nprof_common::{Pace, StackHeader};

use super::Sums;
use super::sums::{Of, Share};

/// How much of what was seen lately counts: the rest is what was seen before.
const NEW: f64 = 0.1;
/// The chance until it is known how often threads stop.
const FIRST: f64 = 1.0 / 16.0;

/// Stacks whose time is not known yet.
#[derive(Debug, Default)]
pub(super) struct OffCpuSamples {
    waiting: HashMap<u32, Waiting>,
}

/// How likely the stack of a thread that stops is taken.
#[derive(Debug)]
pub(super) struct StopRate {
    /// Stacks per second.
    wanted: f64,
    /// The stops that those which were seen since the last look stand for.
    seen: f64,
    /// Stops per second.
    rate: f64,
}

/// A thread that is not running.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    of: Of,
    /// How many stops this one stands for.
    factor: f64,
}

/// How many stops one stands for that was chosen.
fn factor(header: &StackHeader) -> f64 {
    Pace::CERTAIN as f64 / header.probability.max(1) as f64
}

impl OffCpuSamples {
    /// A thread stops.
    pub(super) fn stop(&mut self, header: &StackHeader, of: Of, sums: &mut Sums) {
        sums.add_inside(of, Share::default());
        self.waiting.insert(header.tid, Waiting { of, factor: factor(header) });
    }

    /// It runs again.
    pub(super) fn resume(&mut self, header: &StackHeader, sums: &mut Sums) {
        let Some(Waiting { of, factor }) = self.waiting.remove(&header.tid) else { return };
        let away_ns = factor * header.time_ns as f64;
        let share = Share { calls: 0.0, time_ns: away_ns, self_ns: away_ns, off_cpu_ns: away_ns };
        sums.add_to(of, share);
    }
}

impl StopRate {
    /// For so many stacks per second.
    pub(super) fn new(wanted: u32) -> Self {
        let wanted = f64::from(wanted);
        Self { wanted, seen: 0.0, rate: wanted / FIRST }
    }

    /// A thread stops, and its stack was taken.
    pub(super) fn note(&mut self, header: &StackHeader) {
        self.seen += factor(header);
    }

    /// The chance from now on, `passed` after the last time.
    pub(super) fn probability(&mut self, passed: Duration) -> f64 {
        let now = std::mem::take(&mut self.seen) / passed.as_secs_f64().max(1e-6);
        self.rate += (now - self.rate) * NEW;
        (self.wanted / self.rate.max(f64::MIN_POSITIVE)).min(1.0)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers of simulated calls")]
mod tests {
    use super::*;

    fn of(record: Option<u32>, stack: u32) -> Of {
        Of { record, stack, tid: None }
    }

    fn header(tid: u32, probability: u64, time_ns: u64) -> StackHeader {
        StackHeader { tid, probability, time_ns, ..StackHeader::default() }
    }

    /// Check that the time of a stop is added to its own stack, for as many as it stands for, and that a thread which was
    /// not seen to stop adds nothing.
    #[test]
    fn time_comes_later() {
        let (mut off_cpu_samples, mut sums) = (OffCpuSamples::default(), Sums::default());
        let stacks = [sums.stack(vec![0], None), sums.stack(vec![1], None)];
        off_cpu_samples.stop(&header(7, Pace::CERTAIN / 4, 0), of(Some(3), stacks[0]), &mut sums);
        off_cpu_samples.stop(&header(8, Pace::CERTAIN, 0), of(Some(3), stacks[1]), &mut sums);
        off_cpu_samples.resume(&header(7, 0, 500), &mut sums);
        off_cpu_samples.resume(&header(7, 0, 500), &mut sums);
        off_cpu_samples.resume(&header(9, 0, 500), &mut sums);
        let inside = sums.finish().inside;
        let of: Vec<_> = inside.iter().map(|sum| (sum.stack, sum.samples, sum.off_cpu_ns)).collect();
        assert_eq!(of, [(0, 1, 2000.0), (1, 1, 0.0)]);
    }

    /// Check that the chance settles where as many stacks are taken as are wanted, and that all are where there are few.
    #[test]
    fn probability_follows_rate() {
        for (rate, wanted) in [(10_000.0, 250.0), (50.0, 50.0)] {
            let (mut stop_rate, mut probability) = (StopRate::new(250), FIRST);
            let (mut due, mut taken): (f64, f64) = (0.0, 0.0);
            for step in 0..200 {
                due += rate * probability * 0.02;
                while due >= 1.0 {
                    due -= 1.0;
                    taken += if step < 100 { 0.0 } else { 1.0 };
                    stop_rate.note(&header(1, (probability * Pace::CERTAIN as f64) as u64, 0));
                }
                probability = stop_rate.probability(Duration::from_millis(20));
            }
            // In the last two seconds.
            assert!((taken / 2.0 - wanted).abs() < wanted * 0.2, "{taken} {wanted}");
        }
    }
}
