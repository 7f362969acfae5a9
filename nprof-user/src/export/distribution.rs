//! Calls by their time or by the bytes that each moved, added up over functions and JVMs, and their classic buckets.

use crate::model::Histogram;

/// The classic buckets: the index of the last of our buckets that each holds, and its bound as `le`.
///
/// The bounds are bounds of our own buckets as well (4^k is the upper bound of bucket 8k), so that the counts are exact. Finer ones would
/// be paid for in each of thousands of series; who wants them has native histograms.
///
/// The texts are those that Go writes, exponent and all, because that is what Prometheus makes of the bounds in
/// Protobuf: a series keeps its name when the format changes.
pub(super) type Classic = [(i32, &'static str); 14];

/// Those of times: powers of 4 of nanoseconds, from 256 ns, below what a probe costs, to 17 s.
pub(super) const CLASSIC: Classic = [
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

/// Those of bytes: powers of 4, from a few to 256 MiB.
pub(super) const CLASSIC_BYTES: Classic = [
    (8, "4"),
    (16, "16"),
    (24, "64"),
    (32, "256"),
    (40, "1024"),
    (48, "4096"),
    (56, "16384"),
    (64, "65536"),
    (72, "262144"),
    (80, "1.048576e+06"),
    (88, "4.194304e+06"),
    (96, "1.6777216e+07"),
    (104, "6.7108864e+07"),
    (112, "2.68435456e+08"),
];

/// What calls are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Their time, measured in nanoseconds and written in seconds.
    Time,
    /// The bytes that each moved.
    Bytes,
}

impl By {
    /// The classic buckets.
    pub(super) fn classic(self) -> &'static Classic {
        match self {
            Self::Time => &CLASSIC,
            Self::Bytes => &CLASSIC_BYTES,
        }
    }

    /// The bound of a classic bucket in the unit that is written.
    #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
    pub(super) fn bound(self, last: i32) -> f64 {
        let bound = (1_u64 << (last / 4)) as f64;
        // One rounding, of an exact quotient: the same number that reading the text gives.
        if self == Self::Time { bound / 1e9 } else { bound }
    }
}

/// Numbers of calls by time or bytes, and the sum of these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Distribution {
    /// The time of all, in nanoseconds, or their bytes.
    pub(super) sum: u64,
    /// Bucket index, as in [`Histogram`], and number of calls; in rising order.
    buckets: Vec<(i32, u64)>,
}

impl Distribution {
    /// The number of calls.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// The buckets with calls, in rising order.
    pub(super) fn buckets(&self) -> &[(i32, u64)] {
        &self.buckets
    }

    /// Adds the calls of a function.
    pub(super) fn add(&mut self, sum: u64, histogram: &Histogram) {
        self.sum = self.sum.saturating_add(sum);
        self.merge(&histogram.buckets, u64::saturating_add);
    }

    /// Adds calls that moved nothing.
    pub(super) fn add_none(&mut self, calls: u64) {
        if calls > 0 {
            self.merge(&[(0, calls)], u64::saturating_add);
        }
    }

    /// Raises every number that is lower than it was to what it was.
    pub(super) fn raise_to(&mut self, before: &Self) {
        self.sum = self.sum.max(before.sum);
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

    /// How many calls took at most as long, or moved as much, as each of these bounds says.
    pub(super) fn cumulative(&self, classic: &Classic) -> [u64; CLASSIC.len()] {
        let mut buckets = self.buckets.iter().peekable();
        let mut sum = 0_u64;
        classic.map(|(last, _)| {
            while let Some((_, n)) = buckets.next_if(|(index, _)| *index <= last) {
                sum = sum.saturating_add(*n);
            }
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::quantile::upper_bound_ns;

    fn of(buckets: &[(i32, u64)]) -> Distribution {
        let mut durations = Distribution::default();
        durations.add(10, &Histogram { buckets: buckets.to_vec() });
        durations
    }

    /// Check that each bound, as text and as number, is the upper bound of the bucket that it names.
    #[test]
    fn bounds_are_bounds_of_our_buckets() {
        for (by, unit) in [(By::Time, 1e9), (By::Bytes, 1.0)] {
            for (last, text) in *by.classic() {
                assert_eq!(text.parse::<f64>().unwrap(), by.bound(last));
                assert_eq!(by.bound(last), upper_bound_ns(last) / unit);
            }
        }
    }

    /// Check that a call at a bound is below it and one in the next bucket is not, and that none is lost in between.
    #[test]
    fn cumulative_counts_are_exact() {
        let counts = of(&[(0, 1), (32, 2), (33, 4), (136, 8), (137, 16), (180, 32)]).cumulative(&CLASSIC);
        assert_eq!(counts, [3, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 15]);
        assert_eq!(of(&[]).cumulative(&CLASSIC), [0; 14]);
    }

    /// Check that adding keeps the order and that raising takes the higher number of each bucket.
    #[test]
    fn adds_and_raises() {
        let mut durations = of(&[(8, 1), (40, 2)]);
        durations.add(5, &Histogram { buckets: vec![(4, 7), (40, 1), (44, 9)] });
        assert_eq!((durations.buckets(), durations.sum), (&[(4, 7), (8, 1), (40, 3), (44, 9)][..], 15));
        assert_eq!(durations.count(), 20);
        let mut bytes = of(&[(8, 1), (40, 2)]);
        bytes.add_none(0);
        assert_eq!(bytes.buckets(), &[(8, 1), (40, 2)]);
        bytes.add_none(3);
        assert_eq!((bytes.buckets(), bytes.sum), (&[(0, 3), (8, 1), (40, 2)][..], 10));
        durations.raise_to(&of(&[(8, 0), (40, 5), (50, 1)]));
        assert_eq!((durations.buckets(), durations.sum), (&[(4, 7), (8, 1), (40, 5), (44, 9), (50, 1)][..], 15));
    }
}
