//! How long calls took that were only counted, where one of several is timed.

use nprof_common::MethodStats;

/// Calls whose time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timed {
    /// How many have ended.
    pub calls: u64,
    /// Their time, in nanoseconds.
    pub total_ns: u64,
}

impl Timed {
    /// Those of a record.
    #[must_use]
    pub fn of(stats: &MethodStats) -> Self {
        Self { calls: stats.histogram.iter().sum(), total_ns: stats.total_ns }
    }

    /// The mean of these, so many times; `None` if there is none.
    fn times(self, calls: u64) -> Option<u64> {
        let all = u128::from(self.total_ns) * u128::from(calls);
        let estimate = all.checked_div(u128::from(self.calls))?;
        Some(u64::try_from(estimate).unwrap_or(u64::MAX))
    }
}

/// The time of the calls that were only counted, in nanoseconds, if each took as long as those that were timed while one
/// of several was: since `before`. `None` where no call was only counted, or none timed.
#[must_use]
pub fn estimate(stats: &MethodStats, before: Timed) -> Option<u64> {
    let all = Timed::of(stats);
    let since =
        Timed { calls: all.calls.saturating_sub(before.calls), total_ns: all.total_ns.saturating_sub(before.total_ns) };
    let counted = Some(stats.counted).filter(|&counted| counted > 0)?;
    since.times(counted).or_else(|| all.times(counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(counted: u64, timed: u64, total_ns: u64) -> MethodStats {
        let mut stats = MethodStats { counted, total_ns, ..MethodStats::ZERO };
        stats.histogram[20] = timed;
        stats
    }

    /// Check that calls are taken to be like those timed since sampling began, like all that were timed if there are none
    /// since, and that nothing is made of nothing.
    #[test]
    fn calls_are_like_those_timed_at_the_same_time() {
        let before = Timed { calls: 1000, total_ns: 900_000 };
        assert_eq!(estimate(&stats(1500, 1100, 910_000), before), Some(150_000));
        assert_eq!(estimate(&stats(10, 1000, 900_000), before), Some(9000));
        assert_eq!(estimate(&stats(0, 1000, 900_000), before), None);
        assert_eq!(estimate(&stats(5, 0, 0), Timed::default()), None);
        assert_eq!(estimate(&stats(u64::MAX, 1, u64::MAX), Timed::default()), Some(u64::MAX));
    }
}
