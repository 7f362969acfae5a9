//! What samples from inside calls stand for, so that running and waiting have their exact parts.
//!
//! Ticks of a timer tell of running, stops of waiting. A part of either may be lost, to the pace or for want of room, and not
//! the same part of both: where many threads stop at once, more stops than ticks are lost. How long a function's calls ran
//! and waited in all is known exactly, so the samples of each are scaled to that.

use crate::model::{FunctionTotals, StackTotals};

/// The time that each of a function's samples stands for. If there are only samples of one sort, they stand for all.
pub(super) fn times(function: &FunctionTotals, samples: &[&StackTotals]) -> Vec<f64> {
    let parts: Vec<[f64; 2]> = samples.iter().map(|sample| parts(sample)).collect();
    let sum = |part: usize| parts.iter().map(|parts| parts[part]).sum::<f64>();
    let (ran, waited) = (sum(0), sum(1));
    if ran <= 0.0 || waited <= 0.0 {
        return samples.iter().map(|sample| sample.self_ns).collect();
    }
    let exact_waited = function.off_cpu_ns.min(function.self_ns);
    let exact_ran = function.self_ns - exact_waited;
    let (per_run, per_wait) = (exact_ran as f64 / ran, exact_waited as f64 / waited);
    parts.iter().map(|[ran, waited]| ran * per_run + waited * per_wait).collect()
}

/// How long each of a function's samples says that its threads ran. If none says so, they stand for it by their times.
pub(super) fn running(samples: &[&StackTotals]) -> Vec<f64> {
    let ran: Vec<f64> = samples.iter().map(|sample| parts(sample)[0]).collect();
    if ran.iter().any(|ran| *ran > 0.0) { ran } else { samples.iter().map(|sample| sample.self_ns).collect() }
}

/// The time that a sample says its threads ran, and the time that they waited.
pub(super) fn parts(sample: &StackTotals) -> [f64; 2] {
    let waited = sample.off_cpu_ns.min(sample.self_ns).max(0.0);
    [sample.self_ns - waited, waited]
}

#[cfg(test)]
mod tests {
    use super::times;
    use crate::model::{FunctionTotals, StackTotals};

    /// A sample of so much time running and waiting.
    fn sample(ran: f64, waited: f64) -> StackTotals {
        let (self_ns, time_ns) = (ran + waited, ran + waited);
        let (function, thread, off_cpu_ns) = (Some(0), None, waited);
        StackTotals { stack: 0, function, thread, samples: 1, calls: 0.0, time_ns, self_ns, off_cpu_ns }
    }

    fn scaled(self_ns: u64, off_cpu_ns: u64, samples: &[StackTotals]) -> Vec<f64> {
        let function = FunctionTotals { self_ns, off_cpu_ns, ..FunctionTotals::default() };
        times(&function, &samples.iter().collect::<Vec<_>>())
    }

    /// Check that lost samples of waiting, or of running, do not change how a function's time divides between the two.
    #[test]
    fn losses_of_one_sort_are_made_up_for() {
        let whole = [sample(300.0, 0.0), sample(100.0, 100.0), sample(0.0, 500.0)];
        assert_eq!(scaled(1000, 600, &whole), [300.0, 200.0, 500.0]);
        let few_stops = [sample(300.0, 0.0), sample(100.0, 10.0), sample(0.0, 50.0)];
        assert_eq!(scaled(1000, 600, &few_stops), [300.0, 200.0, 500.0]);
        let few_ticks = [sample(30.0, 0.0), sample(10.0, 100.0), sample(0.0, 500.0)];
        assert_eq!(scaled(1000, 600, &few_ticks), [300.0, 200.0, 500.0]);
    }

    /// Check that waiting which only calls in flight did has no part in the time of those that ended.
    #[test]
    fn calls_in_flight_wait_for_themselves() {
        assert_eq!(scaled(1000, 0, &[sample(250.0, 0.0), sample(0.0, 9e9)]), [1000.0, 0.0]);
    }

    /// Check that samples of one sort stand for everything where there are no others, and that a function which waited for
    /// more than its own time is taken to have waited for all of it.
    #[test]
    fn one_sort_stands_for_all() {
        assert_eq!(scaled(1000, 600, &[sample(1.0, 0.0), sample(3.0, 0.0)]), [1.0, 3.0]);
        assert_eq!(scaled(1000, 0, &[sample(0.0, 7.0)]), [7.0]);
        assert_eq!(scaled(1000, 2000, &[sample(5.0, 0.0), sample(0.0, 5.0)]), [0.0, 1000.0]);
    }
}
