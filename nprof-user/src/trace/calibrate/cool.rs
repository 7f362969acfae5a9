//! What a trap costs after other work: what the kernel and the programs need for it is out of the caches then.
//!
//! In a real program that keeps within a budget this is the rule. A loop of nothing but traps, where they cost least, would
//! make the budget twice as large as it is said to be.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::Instant;

use super::caches;
use crate::sys::probe_target::ProbeTarget;

/// The other work reads through so many times what the caches hold that a core has for itself.
const CACHES: usize = 2;
/// The least and the most of that, in bytes: what is read through takes time.
const BYTES: RangeInclusive<usize> = 1 << 20..=8 << 20;
/// The same where the kernel does not tell of caches: more than most cores have.
const UNKNOWN: usize = 4 << 20;
/// The size of a line of the caches.
const LINE: usize = 64;
/// Calls of a measurement, of which the middle one counts: a machine with other work interrupts some.
const CALLS: usize = 64;
/// A trap does not cost more than so many times what it costs in a loop.
const MOST: f64 = 4.0;

/// Work that leaves nothing of what was before it in the caches.
#[derive(Debug)]
pub(super) struct OtherWork(Vec<u8>);

impl Default for OtherWork {
    fn default() -> Self {
        let bytes = caches::second_level().map_or(UNKNOWN, |size| size.saturating_mul(CACHES));
        Self(vec![1; bytes.clamp(*BYTES.start(), *BYTES.end())])
    }
}

impl OtherWork {
    /// Does it.
    pub(super) fn run(&mut self) {
        for line in self.0.chunks_mut(LINE) {
            line[0] = black_box(line[0].wrapping_add(1));
        }
    }
}

/// What a call after other work takes, reading the clock included, in nanoseconds.
pub(super) fn call_ns(function: ProbeTarget) -> f64 {
    let mut other_work = OtherWork::default();
    let mut taken: Vec<u128> = (0..CALLS)
        .map(|_| {
            other_work.run();
            let began = Instant::now();
            function.call(1);
            began.elapsed().as_nanos()
        })
        .collect();
    taken.sort_unstable();
    taken[CALLS / 2] as f64
}

/// How many times as much as in a loop, `warm_ns`, the probes of a function cost after other work, where a call without them
/// takes `untraced` there.
pub(super) fn times(function: ProbeTarget, warm_ns: f64, untraced: f64) -> f64 {
    ratio(call_ns(function) - untraced, warm_ns)
}

/// At least 1: after other work nothing is cheaper.
pub(super) fn ratio(cool_ns: f64, warm_ns: f64) -> f64 {
    if warm_ns > 0.0 { (cool_ns / warm_ns).clamp(1.0, MOST) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a measurement that was disturbed gives a ratio that can be true.
    #[test]
    fn ratios_have_bounds() {
        assert_eq!(ratio(2_000.0, 1_000.0), 2.0);
        assert_eq!([ratio(500.0, 1_000.0), ratio(1e6, 1_000.0), ratio(5.0, 0.0)], [1.0, MOST, 1.0]);
    }
}
