//! Numbers that are not exact, as people read them: the number and how far it may be off or, where it is lost in that, the most
//! that it can be.

use super::units;

/// A number of calls or of nanoseconds, and how far it may be off, up or down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Uncertain {
    pub(super) value: u64,
    pub(super) error: u64,
}

impl Uncertain {
    /// Whether it is lost in its error: all that is known then is that it is at most as much as both together.
    pub(super) fn is_lost(self) -> bool {
        self.value < self.error
    }

    /// The most that it can be.
    pub(super) fn at_most(self) -> u64 {
        self.value.saturating_add(self.error)
    }

    /// As a number of calls: `31,399` or, where that is lost in its error, `<1,200`.
    pub(super) fn count(self) -> String {
        self.shown(units::count)
    }

    /// As a time: `465 ms` or `<24.0 us`.
    pub(super) fn duration(self) -> String {
        self.shown(units::duration)
    }

    /// As a rate of calls, of which there are `per_second` so many: `6,170` or `<240`.
    pub(super) fn rate(self, per_second: impl Fn(u64) -> f64) -> String {
        self.shown(|calls| units::rate(per_second(calls)))
    }

    /// How far it may be off, as a share of it: `± 49.0 %`. Nothing where it is lost in its error: that is in what is shown of it.
    pub(super) fn error(self) -> String {
        if self.is_lost() { String::new() } else { units::error(self.error as f64 / self.value.max(1) as f64) }
    }

    /// The same as a number to order by, in millionths: more than a million of what is lost in its error.
    pub(super) fn error_in_millionths(self) -> u64 {
        let share = u128::from(self.error) * 1_000_000 / u128::from(self.value.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Both with what is counted, in a sentence: `about 3,000 calls (± 2.00 %)`, `at most 1,200 calls`.
    pub(super) fn in_words(self, shown: impl Fn(u64) -> String) -> String {
        match self.is_lost() {
            true => format!("at most {}", shown(self.at_most())),
            false => format!("about {} ({})", shown(self.value), self.error()),
        }
    }

    fn shown(self, unit: impl Fn(u64) -> String) -> String {
        if self.is_lost() { format!("<{}", unit(self.at_most())) } else { unit(self.value) }
    }
}

impl std::iter::Sum for Uncertain {
    /// Errors are added up too: much of what is not known is the same for all.
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        numbers.fold(Self::default(), |sum, more| Self {
            value: sum.value.saturating_add(more.value),
            error: sum.error.saturating_add(more.error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Uncertain;

    /// Check that what is lost in its error is said to be below a bound, in each unit, and that nothing has an error of more than
    /// itself.
    #[test]
    fn lost_numbers_are_bounds() {
        let known = Uncertain { value: 31_399, error: 15_385 };
        assert_eq!([known.count(), known.error(), known.duration()], ["31,399", "± 49.0 %", "31.4 us"]);
        assert_eq!(known.in_words(|n| format!("{n} calls")), "about 31399 calls (± 49.0 %)");
        for (value, error) in [(0, 1_200), (1, 1_199), (599, 601)] {
            let lost = Uncertain { value, error };
            assert_eq!([lost.count(), lost.error(), lost.duration()], ["<1,200", "", "<1.20 us"]);
            assert_eq!(lost.rate(|calls| calls as f64 / 5.0), "<240");
            assert_eq!(lost.in_words(|n| format!("{n} calls")), "at most 1200 calls");
        }
        let edge = Uncertain { value: 600, error: 600 };
        assert_eq!([edge.count(), edge.error()], ["600", "± 100 %"]);
        let exact = Uncertain::default();
        assert_eq!([exact.count(), exact.error()], ["0", "± 0.01 %"]);
        let sum: Uncertain = [known, edge].into_iter().sum();
        assert_eq!(sum, Uncertain { value: 31_999, error: 15_985 });
    }
}
