//! What one call costs the target, by who sees it and what is done, as calibrated: in a loop, and after other work.

use super::terms::{By, Rung};
use crate::model::{ProbeCost, StubPrice};

/// What a call costs by a stub.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StubCosts {
    /// As measured on this machine.
    pub price: StubPrice,
    /// How many calls are timed.
    pub timed: HowMany,
    /// How long a thread did other things since its last call of a stub, in nanoseconds.
    pub gap_ns: f64,
}

/// How many calls a stub times. What a user does not want to be done costs as much as what is done instead: it is of no use then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HowMany {
    /// As many as its rung says.
    #[default]
    ByRung,
    /// One of so many where any are.
    OneOf(u32),
    /// All of them.
    All,
}

impl StubCosts {
    fn of(&self, rung: Rung) -> f64 {
        let StubPrice { off_ns, counted_ns, cool, .. } = self.price;
        let times = dearer(cool, self.gap_ns / STUBS_COOL_NS);
        match (rung, self.timed) {
            (Rung::Detached, _) => 0.0,
            (Rung::Off, _) => off_ns * times,
            (_, HowMany::All) => self.one_of(1, times),
            (Rung::Counted, _) => counted_ns * times,
            (_, HowMany::OneOf(every)) => self.one_of(every, times),
            (_, HowMany::ByRung) => self.one_of(rung.every(), times),
        }
    }

    /// Where one of so many is timed, in the mean: `times` as much as in a loop, and more the longer ago the last one was that was timed.
    fn one_of(&self, every: u32, times: f64) -> f64 {
        let calls = f64::from(every.max(1));
        let cold = (calls * self.gap_ns / STUBS_COLD_NS).clamp(0.0, 1.0);
        self.price.one_of(every) * times + self.price.cold_ns / calls * cold
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
        Self { stub: StubCosts { gap_ns, ..self.stub }, ..*self }
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
            _ => self.timed_ns,
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
        let price = StubPrice { timed_ns: 30.0, counted_ns: 2.0, off_ns: 0.5, ..StubPrice::default() };
        let stub = StubCosts { price, ..StubCosts::default() };
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
        let price = StubPrice { passed_ns: f64::NAN, ..price };
        assert_eq!(Costs { stub: StubCosts { price, ..stub }, ..bad }.of(Rung::SixtyFourth, By::Stub), 0.0);
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
        let pair = [1_000.0, 10_000.0];
        let stub = StubCosts::default();
        let costs = Costs { timed_ns: pair, counted_ns: pair, off_ns: pair, cool: [2.0, 1.1], stub };
        let timed = |gap| costs.after(gap).timed_ns;
        assert_eq!([timed(0.0), timed(5_000.0)], [[1_000.0, 10_000.0], [1_500.0, 10_500.0]]);
        assert_eq!([timed(1e9), timed(f64::INFINITY), costs.cooled().timed_ns], [[2_000.0, 11_000.0]; 3]);
        assert_eq!((costs.cooled().stub, costs.cooled().cooled()), (stub, costs.cooled()));
        // Stubs have a gap of their own.
        let stub = |price| StubCosts { price, ..StubCosts::default() };
        let of_stubs = |price, gap, rungs: [Rung; 3]| {
            let costs = Costs { stub: stub(price), ..costs }.with_stubs_after(gap);
            assert_eq!(costs.timed_ns, pair);
            rungs.map(|rung| costs.of(rung, By::Stub))
        };
        let cool = StubPrice { timed_ns: 30.0, counted_ns: 2.0, off_ns: 0.5, cool: 3.0, ..StubPrice::default() };
        let after = |gap| of_stubs(cool, gap, [Rung::Timed, Rung::Counted, Rung::Off]);
        assert_eq!([0.0, 2_500.0, 1e9].map(after), [[30.0, 2.0, 0.5], [60.0, 4.0, 1.0], [90.0, 6.0, 1.5]]);
        // Where few are timed, what these need is out of the caches even if calls follow each other closely.
        let cold = StubPrice { timed_ns: 32.0, passed_ns: 2.0, cool: 1.0, cold_ns: 320.0, ..cool };
        let after = |gap| of_stubs(cold, gap, [Rung::Timed, Rung::Sixteenth, Rung::Counted]);
        let sixteenth = (32.0 + 15.0 * 2.0) / 16.0;
        assert_eq!(after(0.0), [32.0, sixteenth, 2.0]);
        assert_eq!(after(6_250.0), [52.0, sixteenth + 20.0, 2.0]);
        assert_eq!(after(1e9), [352.0, sixteenth + 20.0, 2.0]);
        // A calibration on a busy machine may say that they cost less.
        assert_eq!(Costs { cool: [0.7, f64::NAN], ..costs }.cooled().timed_ns, pair);
    }
}
