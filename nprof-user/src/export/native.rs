//! Call times as a Prometheus native histogram.
//!
//! Ours has bounds of 2^(i/4) *nanoseconds*; that of Prometheus has bounds of 2^(j/4) *seconds* (schema 2), and as 1e9
//! is no power of 2^(1/4), no bound of ours is one of theirs. Renaming bucket `i` to `i - 120` (4 x log2(1e9) is
//! 119.59) would keep schema 2 but say 6.9 % less for every time. With twice the resolution (schema 3) the nearest bound
//! is 1.56 % above ours: 2i - 239 for 2i - 239.18. So this is what is exported, and each bucket of ours becomes two of
//! theirs. Its calls are halved between them, which is how Prometheus 3 itself divides a bucket when it computes a
//! quantile. The number of calls and the sum of their times stay exact. Schemas 4 to 6 are hardly nearer, at 0.5 % and
//! more, for up to 16 buckets in place of one.

use super::durations::Durations;

/// Eight buckets per octave.
pub(super) const SCHEMA: i32 = 3;

/// The upper bound of the zero bucket in seconds: 1 ns. It is our bucket 0, which holds 0 and 1 ns.
pub(super) const ZERO_THRESHOLD: f64 = 1e-9;

/// 8 x log2(1e9) is 239.179.
const SHIFT: i32 = 239;

/// The buckets of a native histogram in the shape that Protobuf wants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Native {
    /// Calls in the zero bucket.
    pub(super) zero_count: u64,
    /// Runs of buckets: the gap before the run (the first: its index), and its length.
    pub(super) spans: Vec<(i32, u32)>,
    /// For each bucket of the runs, how many more calls it holds than the bucket before.
    pub(super) deltas: Vec<i64>,
}

impl Native {
    /// The native histogram of these times.
    pub(super) fn new(durations: &Durations) -> Self {
        let mut native = Self::default();
        let mut next = 0;
        let mut before = 0;
        for &(index, n) in durations.buckets() {
            if index <= 0 {
                native.zero_count = native.zero_count.saturating_add(n);
                continue;
            }
            let upper = index * 2 - SHIFT;
            for (at, n) in [(upper - 1, n / 2), (upper, n - n / 2)] {
                native.push_bucket(at - next, n, &mut before);
                next = at + 1;
            }
        }
        native
    }

    /// Adds a bucket `gap` places after the last one.
    fn push_bucket(&mut self, gap: i32, n: u64, before: &mut i64) {
        match self.spans.last_mut() {
            Some((_, length)) if gap == 0 => *length += 1,
            _ => self.spans.push((gap, 1)),
        }
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        self.deltas.push(n - *before);
        *before = n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::quantile::upper_bound_ns;
    use crate::model::Histogram;

    fn native(buckets: &[(i32, u64)]) -> Native {
        let mut durations = Durations::default();
        durations.add(0, &Histogram { buckets: buckets.to_vec() });
        Native::new(&durations)
    }

    /// Index and count of each bucket, read as Prometheus reads them.
    fn expand(native: &Native) -> Vec<(i32, i64)> {
        let mut out = Vec::new();
        let (mut at, mut count, mut deltas) = (0, 0, native.deltas.iter());
        for &(gap, length) in &native.spans {
            at += gap;
            for _ in 0..length {
                count += deltas.next().unwrap();
                out.push((at, count));
                at += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        out
    }

    /// Check the documented error: each bound is 1.56 % above the one that was measured with.
    #[test]
    fn bounds_are_within_the_documented_error() {
        for index in 1..181 {
            let measured = upper_bound_ns(index) / 1e9;
            let &(last, _) = expand(&native(&[(index, 1)])).last().unwrap();
            let exported = 2f64.powf(f64::from(last) / 8.0);
            let error = exported / measured - 1.0;
            assert!((0.0156..0.0157).contains(&error), "{index}: {error}");
        }
    }

    /// Check that neighbours are one run, that gaps begin a new one, and that no call is lost in halving.
    #[test]
    fn spans_and_deltas() {
        let native = native(&[(0, 5), (120, 3), (121, 10), (130, 1)]);
        assert_eq!(native.zero_count, 5);
        assert_eq!(native.spans, [(0, 4), (16, 2)]);
        assert_eq!(expand(&native), [(0, 1), (1, 2), (2, 5), (3, 5), (20, 0), (21, 1)]);
    }

    /// Check that no histogram breaks it: none, an empty one, and impossible indices and counts.
    #[test]
    fn edges() {
        assert_eq!(native(&[]), Native::default());
        assert_eq!(expand(&native(&[(180, u64::MAX)])).len(), 2);
        assert_eq!(native(&[(-3, 2), (0, 1)]).zero_count, 3);
    }
}
