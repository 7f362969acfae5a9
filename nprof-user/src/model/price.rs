//! What probes cost a target, and how much of that is inside the times that they measure.

use serde::Serialize;

use super::ProbeCost;

/// What the probes of one call cost, as measured on this machine. All zero where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Price {
    /// What a call that is timed costs its thread, in nanoseconds.
    pub timed_ns: u64,
    /// What a call that is only counted costs it, in nanoseconds.
    pub counted_ns: u64,
    /// The part of `timed_ns` that lies between the two readings of the clock: what a function that does nothing reads as.
    pub inside_ns: u64,
    /// How far `inside_ns` may be off for the calls of a real program, in nanoseconds, up or down.
    pub inside_error_ns: u64,
}

impl Price {
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
    /// The price at a site.
    #[must_use]
    pub fn at(&self, cost: ProbeCost) -> Price {
        match cost {
            ProbeCost::Emulated => self.emulated,
            ProbeCost::SingleStepped => self.single_stepped,
        }
    }
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
}
