//! How long calls took that were only counted, where one of several is timed.

use nprof_common::MethodStats;

/// What has been recorded up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Recorded {
    /// Calls that were only counted.
    counted: u64,
    /// Timed calls that have ended.
    timed: u64,
    /// Their time, in nanoseconds.
    total_ns: u64,
}

impl Recorded {
    fn of(stats: &MethodStats) -> Self {
        Self { counted: stats.counted, timed: stats.histogram.iter().sum(), total_ns: stats.total_ns }
    }

    fn since(self, before: Self) -> Self {
        Self {
            counted: self.counted.saturating_sub(before.counted),
            timed: self.timed.saturating_sub(before.timed),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
        }
    }

    /// The mean time of the timed calls, so many times; `None` if there is none.
    fn times(self, calls: u64) -> Option<u64> {
        let all = u128::from(self.total_ns) * u128::from(calls);
        let estimate = all.checked_div(u128::from(self.timed))?;
        Some(u64::try_from(estimate).unwrap_or(u64::MAX))
    }
}

/// The time of the calls of a method that were only counted. How many are timed may change: each stretch in between is estimated
/// by the calls that were timed in it, or by all that were timed if there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Untimed {
    /// The estimate for the stretches that are over.
    settled_ns: u64,
    /// What was recorded when the last one began.
    from: Recorded,
}

impl Untimed {
    /// From now on another part of the calls is timed.
    pub fn turn(&mut self, stats: &MethodStats) {
        self.settled_ns = self.until(stats).unwrap_or(self.settled_ns);
        self.from = Recorded::of(stats);
    }

    /// The time up to now, in nanoseconds; `None` where no call was only counted, or none timed.
    #[must_use]
    pub fn until(&self, stats: &MethodStats) -> Option<u64> {
        let all = Recorded::of(stats);
        let since = all.since(self.from);
        if stats.counted == 0 {
            return None;
        }
        let last_ns = since.times(since.counted).or_else(|| all.times(since.counted))?;
        Some(self.settled_ns.saturating_add(last_ns))
    }
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
        let mut untimed = Untimed::default();
        untimed.turn(&stats(0, 1000, 900_000));
        assert_eq!(untimed.until(&stats(1500, 1100, 910_000)), Some(150_000));
        assert_eq!(untimed.until(&stats(10, 1000, 900_000)), Some(9000));
        assert_eq!(untimed.until(&stats(0, 1000, 900_000)), None);
        assert_eq!(Untimed::default().until(&stats(5, 0, 0)), None);
        assert_eq!(Untimed::default().until(&stats(u64::MAX, 1, u64::MAX)), Some(u64::MAX));
    }

    /// Check that each stretch has the mean of its own calls: what is timed before and after it changes nothing.
    #[test]
    fn stretches_keep_their_means() {
        let mut untimed = Untimed::default();
        untimed.turn(&stats(0, 1_000, 900_000));
        untimed.turn(&stats(1_500, 1_100, 910_000));
        assert_eq!(untimed.until(&stats(1_500, 9_000, 90_000_000)), Some(150_000), "all are timed");
        untimed.turn(&stats(1_500, 9_000, 90_000_000));
        untimed.turn(&stats(1_600, 9_010, 90_000_500));
        assert_eq!(untimed.until(&stats(1_600, 9_010, 90_000_500)), Some(155_000));
    }
}
