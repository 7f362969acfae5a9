//! What one call costs the target, by who sees it and what is done, as calibrated: in a loop, and after other work.

use super::terms::{By, Rung};
use crate::model::ProbeCost;

/// What a call costs by a stub, in nanoseconds. What a user does not want to be done costs as much as what is done instead:
/// it is of no use then.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StubCosts {
    /// That is counted and timed.
    pub timed_ns: f64,
    /// Of which one in 16 is timed, in the mean.
    pub sixteenth_ns: f64,
    /// Of which one in 64 is timed, in the mean.
    pub sixty_fourth_ns: f64,
    /// That is counted.
    pub counted_ns: f64,
    /// That is passed on.
    pub off_ns: f64,
    /// How many times as much any of these costs after other work.
    pub cool: f64,
    /// What a timed call costs beyond that if the one before was long ago.
    pub cold_ns: f64,
    /// One of how many calls is timed where each is to be, one in 16, and one in 64.
    pub every: [u32; 3],
}

impl StubCosts {
    /// The same where a thread did other things for so many nanoseconds since its last call of a stub.
    fn after(&self, gap_ns: f64) -> Self {
        let times = dearer(self.cool, gap_ns / STUBS_COOL_NS);
        let [timed, sixteenth, sixty_fourth] = self.every.map(|every| {
            let every = f64::from(every.max(1));
            self.cold_ns / every * (every * gap_ns / STUBS_COLD_NS).clamp(0.0, 1.0)
        });
        Self {
            timed_ns: self.timed_ns * times + timed,
            sixteenth_ns: self.sixteenth_ns * times + sixteenth,
            sixty_fourth_ns: self.sixty_fourth_ns * times + sixty_fourth,
            counted_ns: self.counted_ns * times,
            off_ns: self.off_ns * times,
            cool: 1.0,
            cold_ns: 0.0,
            ..*self
        }
    }

    fn of(&self, rung: Rung) -> f64 {
        match rung {
            Rung::Detached => 0.0,
            Rung::Off => self.off_ns,
            Rung::Counted => self.counted_ns,
            Rung::SixtyFourth => self.sixty_fourth_ns,
            Rung::Sixteenth => self.sixteenth_ns,
            Rung::Timed => self.timed_ns,
        }
    }
}

/// From this time between two traps of a thread on, in nanoseconds, nothing of what they need is left in the caches.
pub const COOL_NS: f64 = 10_000.0;
/// The same of stubs, which need what lies in the nearest ones.
const STUBS_COOL_NS: f64 = 5_000.0;
/// From this time between two timed calls on, what timing needs is taken not to be in any cache that a core has for itself. No program has
/// shown where that begins: a megabyte of other work made a timed call 0.15 us dearer, four made it 0.4.
const STUBS_COLD_NS: f64 = 100_000.0;

/// How many times as much a call costs after `part` of the work after which it costs `cool` times as much.
fn dearer(cool: f64, part: f64) -> f64 {
    1.0 + (cool - 1.0).max(0.0) * part.clamp(0.0, 1.0)
}

/// What one call of a traced function costs the target, in nanoseconds, as calibrated on this machine in a loop of nothing
/// else. Each pair is for [`ProbeCost::Emulated`] and [`ProbeCost::SingleStepped`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// With probes on entry and return that count and time.
    pub timed_ns: [f64; 2],
    /// With a probe on entry that counts.
    pub counted_ns: [f64; 2],
    /// With a probe on entry that does nothing.
    pub off_ns: [f64; 2],
    /// How many times as much any of these costs after other work, which has the kernel's part of it out of the caches.
    pub cool: [f64; 2],
    /// By a stub.
    pub stub: StubCosts,
}

impl Costs {
    /// The same where a thread did other things for so many nanoseconds since its last trap.
    ///
    /// Within a budget of some percent traps are that rare. Only beyond it they follow each other as quickly as they did when
    /// this was calibrated.
    #[must_use]
    pub fn after(&self, gap_ns: f64) -> Self {
        let times = self.cool.map(|cool| dearer(cool, gap_ns / COOL_NS));
        let after = |ns: [f64; 2]| [ns[0] * times[0], ns[1] * times[1]];
        let [timed_ns, counted_ns, off_ns] = [self.timed_ns, self.counted_ns, self.off_ns].map(after);
        Self { timed_ns, counted_ns, off_ns, cool: [1.0; 2], stub: self.stub }
    }

    /// The same where a thread did other things for so many nanoseconds since its last call of a stub. That is the program's way: it
    /// does not call less often where less is done at its calls.
    #[must_use]
    pub fn with_stubs_after(&self, gap_ns: f64) -> Self {
        Self { stub: self.stub.after(gap_ns), ..*self }
    }

    /// The same where traps are rare.
    #[must_use]
    pub fn cooled(&self) -> Self {
        self.after(COOL_NS)
    }

    /// Nanoseconds per call. Always finite and never negative, whatever the calibration gave.
    #[must_use]
    pub fn of(&self, rung: Rung, by: By) -> f64 {
        let [emulated, single_stepped] = match rung {
            Rung::Detached => [0.0; 2],
            Rung::Off => self.off_ns,
            Rung::Counted => self.counted_ns,
            // A probe has no rung between.
            Rung::SixtyFourth | Rung::Sixteenth | Rung::Timed => self.timed_ns,
        };
        let ns = match by {
            By::Probe(ProbeCost::Emulated) => emulated,
            By::Probe(ProbeCost::SingleStepped) => single_stepped,
            By::ProbeAnd(cost, programs) => self.of(rung, By::Probe(cost)) + f64::from(programs.of(rung)),
            By::Stub => self.stub.of(rung),
        };
        if ns.is_finite() { ns.max(0.0) } else { 0.0 }
    }
}

/// How many times as much as calibrated in a loop calls have cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dearer {
    /// By probes, at [`ProbeCost::Emulated`] and [`ProbeCost::SingleStepped`].
    pub sites: [f64; 2],
    /// By stubs.
    pub stubs: f64,
}

impl Default for Dearer {
    /// As much.
    fn default() -> Self {
        Self { sites: [1.0; 2], stubs: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::govern::Programs;

    /// Check that a calibration that went wrong gives no cost that is not a number, and that each state has its own.
    #[test]
    fn costs_are_numbers() {
        let stub = StubCosts {
            timed_ns: 30.0,
            sixteenth_ns: 4.0,
            sixty_fourth_ns: f64::NAN,
            counted_ns: 2.0,
            off_ns: 0.5,
            cool: 1.0,
            ..StubCosts::default()
        };
        let bad = Costs {
            timed_ns: [f64::NAN, f64::INFINITY],
            counted_ns: [-1.0, 7.0],
            off_ns: [3.0, 4.0],
            cool: [1.0; 2],
            stub,
        };
        let of = |rung| {
            [By::Probe(ProbeCost::Emulated), By::Probe(ProbeCost::SingleStepped), By::Stub].map(|by| bad.of(rung, by))
        };
        let probed = [Rung::Detached, Rung::Off, Rung::Counted, Rung::Timed];
        assert_eq!(probed.map(of), [[0.0; 3], [3.0, 4.0, 0.5], [0.0, 7.0, 2.0], [0.0, 0.0, 30.0]]);
        assert_eq!([Rung::Sixteenth, Rung::SixtyFourth].map(|rung| bad.of(rung, By::Stub)), [4.0, 0.0]);
    }

    /// Check that what programs of the user's cost comes on top of what is done beside them, and nothing where there is no probe.
    #[test]
    fn programs_of_users_cost_too() {
        let pair = [1_000.0, 10_000.0];
        let stub = StubCosts::default();
        let costs = Costs { timed_ns: pair, counted_ns: [600.0; 2], off_ns: [500.0; 2], cool: [1.0; 2], stub };
        let by = By::ProbeAnd(ProbeCost::SingleStepped, Programs { timed_ns: 300, counted_ns: 100 });
        let of = [Rung::Timed, Rung::Counted, Rung::Off, Rung::Detached].map(|rung| costs.of(rung, by));
        assert_eq!(of, [10_300.0, 700.0, 500.0, 0.0]);
        assert_eq!((by.site(), By::Stub.site()), (Some(ProbeCost::SingleStepped), None));
        assert_eq!(by.ladder(), By::Probe(ProbeCost::Emulated).ladder());
    }

    /// Check that traps cost more the longer ago the last one was, up to what they cost after other work, and that
    /// stubs do not cost more where traps are rare, but after other work.
    #[test]
    fn rare_traps_cost_more() {
        let stub = StubCosts { timed_ns: 30.0, ..StubCosts::default() };
        let pair = [1_000.0, 10_000.0];
        let costs = Costs { timed_ns: pair, counted_ns: pair, off_ns: pair, cool: [2.0, 1.1], stub };
        let timed = |gap| costs.after(gap).timed_ns;
        assert_eq!([timed(0.0), timed(5_000.0)], [[1_000.0, 10_000.0], [1_500.0, 10_500.0]]);
        assert_eq!([timed(1e9), timed(f64::INFINITY), costs.cooled().timed_ns], [[2_000.0, 11_000.0]; 3]);
        assert_eq!((costs.cooled().stub, costs.cooled().cooled()), (stub, costs.cooled()));
        // Stubs have a gap of their own.
        let stub = StubCosts { counted_ns: 2.0, cool: 3.0, ..stub };
        let of_stubs = |gap| {
            let costs = Costs { stub, ..costs }.with_stubs_after(gap);
            (costs.stub.timed_ns, costs.stub.counted_ns, costs.timed_ns == pair)
        };
        assert_eq!([0.0, 2_500.0, 1e9].map(of_stubs), [(30.0, 2.0, true), (60.0, 4.0, true), (90.0, 6.0, true)]);
        // Where few are timed, what these need is out of the caches even if calls follow each other closely.
        let stub = StubCosts { sixteenth_ns: 6.0, cool: 1.0, cold_ns: 320.0, every: [1, 16, 64], ..stub };
        let of_sampled = |gap| {
            let StubCosts { timed_ns, sixteenth_ns, counted_ns, .. } = stub.after(gap);
            [timed_ns, sixteenth_ns, counted_ns]
        };
        assert_eq!(of_sampled(0.0), [30.0, 6.0, 2.0]);
        assert_eq!(of_sampled(6_250.0), [50.0, 26.0, 2.0]);
        assert_eq!(of_sampled(1e9), [350.0, 26.0, 2.0]);
        // A calibration on a busy machine may say that they cost less.
        assert_eq!(Costs { cool: [0.7, f64::NAN], ..costs }.cooled().timed_ns, pair);
    }
}
