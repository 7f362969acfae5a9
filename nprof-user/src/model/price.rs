//! What probes cost a target, and how much of that is inside the times that they measure.

use serde::Serialize;

use super::ProbeCost;

/// What the probes of one call cost, as measured on this machine. All zero where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Price {
    /// What a call that is timed costs its thread, in nanoseconds: in a loop of nothing else, or as often as the JVM's are.
    pub timed_ns: u64,
    /// What a call that is only counted costs it, in nanoseconds, likewise.
    pub counted_ns: u64,
    /// The part of `timed_ns` that lies between the two readings of the clock: what a function that does nothing reads as.
    pub inside_ns: u64,
    /// How far `inside_ns` may be off for the calls of a real program, in nanoseconds, up or down.
    pub inside_error_ns: u64,
}

impl Price {
    /// The same where calls have cost so many times as much.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "prices are far below 2^52; conversion to u64 saturates"
    )]
    pub fn dearer(self, times: f64) -> Self {
        let [timed_ns, counted_ns] = [self.timed_ns, self.counted_ns].map(|ns| (ns as f64 * times).round() as u64);
        Self { timed_ns, counted_ns, ..self }
    }

    /// What so many timed and so many counted calls cost, in nanoseconds.
    #[must_use]
    pub fn of_calls(&self, timed: u64, counted: u64) -> u64 {
        self.timed_ns.saturating_mul(timed).saturating_add(self.counted_ns.saturating_mul(counted))
    }
}

/// The price at each kind of site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Prices {
    /// At [`ProbeCost::Emulated`].
    pub emulated: Price,
    /// At [`ProbeCost::SingleStepped`].
    pub single_stepped: Price,
}

impl Prices {
    /// The same where calls have cost so many times as much, at each kind of site in this order.
    #[must_use]
    pub fn dearer(self, [emulated, single_stepped]: [f64; 2]) -> Self {
        Self { emulated: self.emulated.dearer(emulated), single_stepped: self.single_stepped.dearer(single_stepped) }
    }

    /// The price at a site.
    #[must_use]
    pub fn at(&self, cost: ProbeCost) -> Price {
        match cost {
            ProbeCost::Emulated => self.emulated,
            ProbeCost::SingleStepped => self.single_stepped,
        }
    }
}

/// What a stub adds to one call, in nanoseconds and parts of them, as measured on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StubPrice {
    /// To one that is passed on.
    pub off_ns: f64,
    /// To one that is counted.
    pub counted_ns: f64,
    /// To one that is counted where some others of its method are timed.
    pub passed_ns: f64,
    /// To one that is counted and timed.
    pub timed_ns: f64,
    /// What a function that does nothing reads as: the part of `timed_ns` that lies between the two readings of the counter and
    /// that the stub does not take off itself.
    pub inside_ns: f64,
    /// How far that may be off for the calls of a real program, up or down.
    pub inside_error_ns: f64,
    /// How many times as much a call that is timed costs after other work, which has the stub out of the caches.
    pub cool: f64,
    /// What it costs beyond that where no call was timed for long, which has out of the caches what only timing needs.
    pub cold_ns: f64,
}

impl StubPrice {
    /// The same where calls have cost so many times as much.
    #[must_use]
    pub fn dearer(self, times: f64) -> Self {
        let Self { off_ns, counted_ns, passed_ns, timed_ns, .. } = self;
        let [off_ns, counted_ns, passed_ns, timed_ns] = [off_ns, counted_ns, passed_ns, timed_ns].map(|ns| ns * times);
        Self { off_ns, counted_ns, passed_ns, timed_ns, ..self }
    }

    /// The same in whole nanoseconds.
    #[must_use]
    pub fn rounded(&self) -> Price {
        let [inside_ns, inside_error_ns] = self.inside(1);
        Price { timed_ns: whole(self.timed_ns), counted_ns: whole(self.passed_ns), inside_ns, inside_error_ns }
    }

    /// To one in the mean, where one of so many is timed.
    #[must_use]
    pub fn one_of(&self, every: u32) -> f64 {
        let every = f64::from(every.max(1));
        (self.timed_ns + (every - 1.0) * self.passed_ns) / every
    }

    /// What so many timed and so many counted calls cost, in nanoseconds.
    #[must_use]
    pub fn of_calls(&self, timed: u64, counted: u64) -> u64 {
        whole(self.timed_ns * timed as f64 + self.passed_ns * counted as f64)
    }

    /// What of the times of so many calls is not theirs, and how far that may be off, in nanoseconds.
    #[must_use]
    pub fn inside(&self, timed: u64) -> [u64; 2] {
        [self.inside_ns, self.inside_error_ns].map(|ns| whole(ns * timed as f64))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn whole(ns: f64) -> u64 {
    ns.max(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each kind of site has its own price, that calls are paid for by what is done at them, and that absurd
    /// numbers saturate.
    #[test]
    fn calls_have_their_price() {
        let emulated = Price { timed_ns: 900, counted_ns: 500, inside_ns: 400, inside_error_ns: 50 };
        let prices = Prices { emulated, ..Prices::default() };
        assert_eq!(prices.at(ProbeCost::Emulated).of_calls(10, 3), 10_500);
        assert_eq!(prices.at(ProbeCost::SingleStepped).of_calls(10, 3), 0);
        assert_eq!(emulated.of_calls(u64::MAX, u64::MAX), u64::MAX);
    }

    /// Check that parts of nanoseconds count, and that the mean lies between a call that is timed and one that is not.
    #[test]
    fn stubs_cost_parts_of_nanoseconds() {
        let price = StubPrice { timed_ns: 28.0, passed_ns: 2.25, ..StubPrice::default() };
        assert_eq!((price.of_calls(10, 3), price.of_calls(0, u64::MAX)), (287, u64::MAX));
        assert_eq!([1, 16, 64].map(|every| price.one_of(every)), [28.0, 3.859375, 2.65234375]);
        assert_eq!(price.one_of(0), 28.0);
        let inside = StubPrice { inside_ns: 8.4, inside_error_ns: 1.25, ..price };
        assert_eq!((inside.inside(10), inside.inside(u64::MAX)), ([84, 13], [u64::MAX; 2]));
    }
}
