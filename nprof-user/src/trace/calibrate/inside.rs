//! What the probes of a call put into the time that they measure: what single calls of a function that does nothing read as.
//!
//! The same trap takes longest where it comes as a surprise: with what the kernel and the programs need for it out of the
//! caches, it takes up to twice as long as in a loop of nothing else. The calls of real programs lie in between.

use super::cool::OtherWork;
use crate::collect::Reader;
use crate::sys::probe_target::ProbeTarget;

/// Calls that follow each other at once.
const WARM_CALLS: usize = 300;
/// Calls after other work.
const COOL_CALLS: usize = 64;
/// How far the error is at least, as a share: while the other thread of its core is busy, a thread takes 1.2 to 1.35 times as
/// long for the same trap, and nobody knows whether it was so when this was measured.
const LEAST_ERROR: f64 = 0.3;

/// What probes put into the time of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Inside {
    pub ns: f64,
    /// How far that is from what it is at the quickest and at the slowest.
    pub error_ns: f64,
}

impl Inside {
    /// Where the same trap takes longer at times, by the share `varies`, the error is that at least.
    pub(super) fn varying(self, varies: f64) -> Self {
        Self { error_ns: self.error_ns.max(self.ns * varies), ..self }
    }

    /// Where it has been as much as `most_ns` at another time, the error reaches as far.
    pub(super) fn reaching(self, most_ns: f64) -> Self {
        Self { error_ns: self.error_ns.max(most_ns - self.ns), ..self }
    }
}

/// Measures it with a function that is being timed, with the number `record`, and that takes `bare_ns` by itself.
pub(super) fn measure(probe_target: ProbeTarget, reader: &Reader, record: u32, bare_ns: f64) -> Inside {
    let mut other_work = OtherWork::default();
    let warm = readings(probe_target, reader, record, WARM_CALLS, || {});
    let cool = readings(probe_target, reader, record, COOL_CALLS, || other_work.run());
    between(warm, cool, bare_ns)
}

/// What single calls read as, each after something else.
fn readings(
    probe_target: ProbeTarget,
    reader: &Reader,
    record: u32,
    calls: usize,
    mut before: impl FnMut(),
) -> Vec<u64> {
    let one = |_| {
        before();
        let so_far = reader.self_ns(record);
        probe_target.call(1);
        reader.self_ns(record).saturating_sub(so_far)
    };
    (0..calls).map(one).collect()
}

/// The middle between quick calls and slow ones. The quickest and the slowest quarter are left out: calls that were
/// interrupted are there.
fn between(mut warm: Vec<u64>, mut cool: Vec<u64>, bare_ns: f64) -> Inside {
    warm.sort_unstable();
    cool.sort_unstable();
    let at = |readings: &[u64], quarter: usize| readings.get(readings.len() * quarter / 4).copied().unwrap_or(0) as f64;
    let least = (at(&warm, 1) - bare_ns).max(0.0);
    let most = (at(&cool, 3) - bare_ns).max(at(&warm, 3) - bare_ns).max(least);
    Inside { ns: f64::midpoint(least, most), error_ns: (most - least) / 2.0 }.varying(LEAST_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the middle half of both kinds of calls is within the error, and nothing of those that were interrupted;
    /// also where warm calls were the slower ones, and where nothing was read.
    #[test]
    fn covers_warm_and_cool_calls() {
        let warm: Vec<u64> = (0..100).map(|call| if call < 95 { 400 + call % 10 } else { 50_000 }).collect();
        let cool: Vec<u64> = (0..100).map(|call| if call < 80 { 800 + call % 10 } else { 90_000 }).collect();
        let inside = between(warm.clone(), cool.clone(), 2.0);
        assert_eq!((inside.ns - inside.error_ns, inside.ns + inside.error_ns), (400.0, 807.0));
        let steady = between(warm.clone(), warm.clone(), 2.0);
        assert_eq!(steady.error_ns, steady.ns * LEAST_ERROR);
        let turned = between(cool, warm, 2.0);
        assert!(turned.ns >= 800.0 - 2.0 && turned.error_ns >= 0.0, "{turned:?}");
        assert_eq!(between(Vec::new(), Vec::new(), 2.0), Inside { ns: 0.0, error_ns: 0.0 });
        assert_eq!(inside.varying(0.5).error_ns, inside.ns / 2.0);
        assert_eq!(inside.varying(0.0), inside);
        assert_eq!(inside.reaching(1_000.0).error_ns, 1_000.0 - inside.ns);
        assert_eq!([inside.reaching(700.0), inside.reaching(-1.0)], [inside; 2]);
        assert_eq!(between(vec![1; 9], vec![1; 9], 2.0), Inside { ns: 0.0, error_ns: 0.0 });
    }
}
