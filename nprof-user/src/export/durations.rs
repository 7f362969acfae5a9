//! Call times by duration, added up over functions and JVMs, and their classic buckets.

use crate::model::Histogram;

/// The classic buckets: the index of the last of our buckets that each holds, and its bound as `le`.
///
/// The bounds are powers of 4 of nanoseconds, from 256 ns, below what a probe costs, to 17 s. They are bounds of our
/// own buckets as well (4^k ns is the upper bound of bucket 8k), so that the counts are exact. Finer ones would be paid
/// for in each of thousands of series; who wants them has native histograms.
///
/// The texts are those that Go writes, exponent and all, because that is what Prometheus makes of the bounds in
/// Protobuf: a series keeps its name when the format changes.
pub(super) const CLASSIC: [(i32, &str); 14] = [
    (32, "2.56e-07"),
    (40, "1.024e-06"),
    (48, "4.096e-06"),
    (56, "1.6384e-05"),
    (64, "6.5536e-05"),
    (72, "0.000262144"),
    (80, "0.001048576"),
    (88, "0.004194304"),
    (96, "0.016777216"),
    (104, "0.067108864"),
    (112, "0.268435456"),
    (120, "1.073741824"),
    (128, "4.294967296"),
    (136, "17.179869184"),
];

/// Numbers of calls by duration, and the sum of their times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Durations {
    /// The time of all, in nanoseconds.
    pub(super) sum_ns: u64,
    /// Bucket index, as in [`Histogram`], and number of calls; in rising order.
    buckets: Vec<(i32, u64)>,
}

impl Durations {
    /// The number of calls.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// The buckets with calls, in rising order.
    pub(super) fn buckets(&self) -> &[(i32, u64)] {
        &self.buckets
    }

    /// Adds the calls of a function.
    pub(super) fn add(&mut self, sum_ns: u64, histogram: &Histogram) {
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        self.merge(&histogram.buckets, u64::saturating_add);
    }

    /// Raises every number that is lower than it was to what it was.
    pub(super) fn raise_to(&mut self, before: &Self) {
        self.sum_ns = self.sum_ns.max(before.sum_ns);
        self.merge(&before.buckets, u64::max);
    }

    fn merge(&mut self, other: &[(i32, u64)], combine: impl Fn(u64, u64) -> u64) {
        if self.buckets.is_empty() {
            self.buckets.extend_from_slice(other);
            return;
        }
        for &(index, n) in other {
            match self.buckets.binary_search_by_key(&index, |(index, _)| *index) {
                Ok(at) => self.buckets[at].1 = combine(self.buckets[at].1, n),
                Err(at) => self.buckets.insert(at, (index, n)),
            }
        }
    }

    /// How many calls took at most as long as each bound of [`CLASSIC`] says.
    pub(super) fn cumulative(&self) -> [u64; CLASSIC.len()] {
        let mut buckets = self.buckets.iter().peekable();
        let mut sum = 0_u64;
        CLASSIC.map(|(last, _)| {
            while let Some((_, n)) = buckets.next_if(|(index, _)| *index <= last) {
                sum = sum.saturating_add(*n);
            }
            sum
        })
    }
}

/// The bound of a classic bucket in seconds.
#[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
pub(super) fn classic_bound_seconds(last: i32) -> f64 {
    // One rounding, of an exact quotient: the same number that reading the text gives.
    (1_u64 << (last / 4)) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::quantile::upper_bound_ns;

    fn of(buckets: &[(i32, u64)]) -> Durations {
        let mut durations = Durations::default();
        durations.add(10, &Histogram { buckets: buckets.to_vec() });
        durations
    }

    /// Check that each bound, as text and as number, is the upper bound of the bucket that it names.
    #[test]
    fn bounds_are_bounds_of_our_buckets() {
        for (last, text) in CLASSIC {
            assert_eq!(text.parse::<f64>().unwrap(), classic_bound_seconds(last));
            assert_eq!(classic_bound_seconds(last), upper_bound_ns(last) / 1e9);
        }
    }

    /// Check that a call at a bound is below it and one in the next bucket is not, and that none is lost in between.
    #[test]
    fn cumulative_counts_are_exact() {
        let counts = of(&[(0, 1), (32, 2), (33, 4), (136, 8), (137, 16), (180, 32)]).cumulative();
        assert_eq!(counts, [3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 15]);
        assert_eq!(of(&[]).cumulative(), [0; 14]);
    }

    /// Check that adding keeps the order and that raising takes the higher number of each bucket.
    #[test]
    fn adds_and_raises() {
        let mut durations = of(&[(8, 1), (40, 2)]);
        durations.add(5, &Histogram { buckets: vec![(4, 7), (40, 1), (44, 9)] });
        assert_eq!((durations.buckets(), durations.sum_ns), (&[(4, 7), (8, 1), (40, 3), (44, 9)][..], 15));
        assert_eq!(durations.count(), 20);
        durations.raise_to(&of(&[(8, 0), (40, 5), (50, 1)]));
        assert_eq!((durations.buckets(), durations.sum_ns), (&[(4, 7), (8, 1), (40, 5), (44, 9), (50, 1)][..], 15));
    }
}
