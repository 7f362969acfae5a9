//! From ticks of the CPU's time stamp counter to the kernel's monotonic clock.

use crate::sys::ticks::Moment;

/// How long, in nanoseconds, one reckoning holds, and over how long a difference is made up for.
const PERIOD: u64 = 200_000_000;
/// The most by which time is made to run faster or slower for that.
const MOST: f64 = 1e-3;

/// Maps ticks to nanoseconds. What has been told once is told again, and later ticks never come earlier.
#[derive(Debug)]
pub(super) struct TickClock {
    first: Moment,
    now: Line,
    /// What held before.
    before: Line,
}

/// Nanoseconds by ticks, from a moment on.
#[derive(Debug, Clone, Copy)]
struct Line {
    from: Moment,
    ns_per_tick: f64,
}

impl Line {
    #[expect(clippy::cast_possible_truncation, reason = "a cast of what is too large, or no number, gives the nearest")]
    fn ns(&self, ticks: u64) -> u64 {
        let scaled = |ticks: u64| (ticks as f64 * self.ns_per_tick).round() as u64;
        match ticks.checked_sub(self.from.ticks) {
            Some(later) => self.from.ns.saturating_add(scaled(later)),
            None => self.from.ns.saturating_sub(scaled(self.from.ticks - ticks)),
        }
    }
}

impl TickClock {
    /// From two moments, the further apart the better.
    pub(super) fn new(first: Moment, second: Moment) -> Self {
        let line = Line { from: second, ns_per_tick: ns_per_tick(first, second) };
        Self { first, now: line, before: line }
    }

    /// Reckons again, if it is time to.
    pub(super) fn refine(&mut self, now: Moment) {
        if now.ns.saturating_sub(self.now.from.ns) < PERIOD || now.ticks <= self.now.from.ticks {
            return;
        }
        let from = Moment { ticks: now.ticks, ns: self.now.ns(now.ticks) };
        let rate = ns_per_tick(self.first, now);
        let behind = (now.ns as f64 - from.ns as f64) / PERIOD as f64;
        self.before = self.now;
        self.now = Line { from, ns_per_tick: rate * (1.0 + behind.clamp(-MOST, MOST)) };
    }

    /// The time of a tick.
    pub(super) fn ns(&self, ticks: u64) -> u64 {
        if ticks < self.now.from.ticks { self.before.ns(ticks).min(self.now.from.ns) } else { self.now.ns(ticks) }
    }
}

fn ns_per_tick(first: Moment, second: Moment) -> f64 {
    let ticks = second.ticks.saturating_sub(first.ticks).max(1);
    second.ns.saturating_sub(first.ns) as f64 / ticks as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a counter of 2.5 GHz is told right, that an estimate that was wrong is made up for, and that time never runs backwards
    /// meanwhile.
    #[test]
    fn follows_the_kernels_clock() {
        let at = |ns: u64| Moment { ticks: 7 + ns * 5 / 2, ns: 1_000 + ns };
        // The first look was wrong by a thousandth.
        let mut clock = TickClock::new(Moment { ns: 2_000, ..at(0) }, at(1_000_000));
        let mut last = 0;
        for step in 0..40_000_u64 {
            let moment = at(1_000_000 + step * 100_000);
            let told = clock.ns(moment.ticks);
            assert!(told >= last, "{told} after {last}");
            last = told;
            clock.refine(moment);
        }
        let end = at(4_100_000_000);
        assert!(clock.ns(end.ticks).abs_diff(end.ns) < 2_000, "{} and {}", clock.ns(end.ticks), end.ns);
    }
}
