//! Quantiles of call times, estimated from the histogram.
//!
//! A bucket says between which bounds a call lies, not where. The estimate is the geometric middle of the bucket,
//! the one value that is never further than a factor of 2^(1/8) (9.1 %) from any time in the bucket, wherever
//! the calls lie in it. Interpolating by rank looks finer but is up to 19 % off when all calls take the same time.

use crate::model::Histogram;

/// Buckets per octave.
const PER_OCTAVE: i32 = 4;
/// 2^(0/4), 2^(1/4), 2^(2/4), 2^(3/4).
const STEPS: [f64; 4] = [1.0, 1.189_207_115_002_721, std::f64::consts::SQRT_2, 1.681_792_830_507_429];

/// The upper bound of bucket `index`, which belongs to it, in nanoseconds: 2^(index/4).
#[must_use]
pub fn upper_bound_ns(index: i32) -> f64 {
    // The remainder of a division by 4 is 0 to 3.
    let step = usize::try_from(index.rem_euclid(PER_OCTAVE)).map_or(1.0, |i| STEPS[i]);
    step * 2f64.powi(index.div_euclid(PER_OCTAVE))
}

/// The lower bound of bucket `index`, which does not belong to it, in nanoseconds. Bucket 0 is the lowest that
/// exists: it begins at 0 and holds the calls of 0 and of 1 ns.
#[must_use]
pub fn lower_bound_ns(index: i32) -> f64 {
    if index <= 0 { 0.0 } else { upper_bound_ns(index - 1) }
}

/// The time in nanoseconds that the share `q` (0 to 1) of the timed calls did not exceed, within 10 % (or 1 ns, where
/// that is more); `None` where no call was timed.
///
/// `max_ns` is the longest call. It narrows the bucket that it lies in; a maximum that lies below the bucket is
/// known to be too low and is not believed.
#[must_use]
pub fn quantile(histogram: &Histogram, q: f64, max_ns: u64) -> Option<u64> {
    quantile_with_none(histogram, 0, q, max_ns)
}

/// The same of numbers of bytes, where `none` is how many calls are not in the histogram, as theirs is 0.
#[must_use]
pub fn quantile_with_none(histogram: &Histogram, none: u64, q: f64, max_ns: u64) -> Option<u64> {
    let calls: u64 = histogram.buckets.iter().map(|(_, n)| n).sum();
    let rank = rank(q, calls.saturating_add(none));
    if none > 0 && rank <= none {
        return Some(0);
    }
    let mut seen = none;
    for &(index, n) in &histogram.buckets {
        seen += n;
        if n > 0 && seen >= rank {
            return Some(middle_ns(index, max_ns));
        }
    }
    None
}

/// The place of the quantile among `calls` sorted times, from 1 on.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a rank between 1 and the number of calls; above 2^53 calls it is off by less than 1e-15 of them"
)]
fn rank(q: f64, calls: u64) -> u64 {
    let place = q.clamp(0.0, 1.0) * calls as f64;
    // 0.07 * 100 is a little more than 7 in floating point, but means the 7th call.
    ((place * (1.0 - 4.0 * f64::EPSILON)).ceil() as u64).clamp(1, calls.max(1))
}

/// The geometric middle of the whole nanoseconds in bucket `index`, not above `max_ns` where that lies in it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "bounds are not negative; conversion to u64 saturates beyond 584 years"
)]
fn middle_ns(index: i32, max_ns: u64) -> u64 {
    if index <= 0 {
        return max_ns.min(1);
    }
    let lowest = lower_bound_ns(index).floor() + 1.0;
    let highest = upper_bound_ns(index).floor();
    let max = max_ns as f64;
    let highest = if max >= lowest { highest.min(max) } else { highest };
    // A bucket below 4 ns may hold no whole number at all; a histogram that counts there is answered all the same.
    (lowest * highest.max(1.0)).sqrt().round() as u64
}

#[cfg(test)]
mod tests {
    use super::{lower_bound_ns, quantile, upper_bound_ns};
    use crate::model::Histogram;

    /// The bucket of a time, by whole numbers alone: the least `i` with `ns^4 <= 2^i`.
    fn bucket(ns: u64) -> i32 {
        let fourth = u128::from(ns).pow(4);
        (0..128).find(|&i| fourth <= 1u128 << i).expect("times in tests are below 2^31 ns")
    }

    fn histogram(times: &[u64]) -> Histogram {
        let mut counts = std::collections::BTreeMap::new();
        for &ns in times {
            *counts.entry(bucket(ns)).or_insert(0) += 1;
        }
        Histogram { buckets: counts.into_iter().collect() }
    }

    /// A generator of pseudo-random numbers (xorshift), so that a failure can be repeated.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        fn below(&mut self, limit: u64) -> u64 {
            self.next() % limit
        }
    }

    /// Compares with the exact quantiles of `times` and gives the largest relative error.
    fn largest_error(times: &mut [u64]) -> f64 {
        times.sort_unstable();
        let histogram = histogram(times);
        let max = times[times.len() - 1];
        let mut largest: f64 = 0.0;
        for percent in 0..=100_usize {
            let exact = times[(percent * times.len()).div_ceil(100).max(1) - 1];
            let estimate = quantile(&histogram, percent as f64 / 100.0, max).unwrap();
            assert!(estimate <= max, "{estimate} is above the maximum {max}");
            // One nanosecond is the unit: 0 and 1 share a bucket, and 10 % of 5 ns cannot be written.
            if estimate.abs_diff(exact) > 1 {
                largest = largest.max(estimate.abs_diff(exact) as f64 / exact as f64);
            }
        }
        largest
    }

    /// Check the bounds at and between whole octaves.
    #[test]
    fn bounds_follow_the_schema() {
        assert_eq!((lower_bound_ns(0), upper_bound_ns(0)), (0.0, 1.0));
        assert_eq!(upper_bound_ns(4), 2.0);
        assert_eq!((upper_bound_ns(40), upper_bound_ns(252)), (1024.0, 2f64.powi(63)));
        for index in 1..256 {
            assert_eq!(lower_bound_ns(index), upper_bound_ns(index - 1));
            assert!((upper_bound_ns(index) / 2f64.powf(f64::from(index) / 4.0) - 1.0).abs() < 1e-14);
        }
        for ns in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 30) - 1]) {
            let index = bucket(ns);
            assert!(lower_bound_ns(index) < ns as f64 && ns as f64 <= upper_bound_ns(index), "{ns}");
        }
    }

    /// Check that no quantile of random times of any spread is further than 10 % from the exact one.
    #[test]
    fn random_times_within_ten_percent() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for round in 0..400 {
            let size = 1 + random.below(500);
            let octaves = 1 + round % 30;
            let mut times: Vec<u64> = (0..size)
                .map(|_| {
                    let octave = random.below(octaves);
                    (1 << octave) + random.below(1 << octave)
                })
                .collect();
            let error = largest_error(&mut times);
            assert!(error <= 0.10, "round {round}: {error}");
        }
    }

    /// Check that the bound holds where all calls crowd at one end of a bucket, for each single time.
    #[test]
    fn crowded_times_within_ten_percent() {
        for ns in (0..3000).chain((3000..700_000_000).step_by(3_999_971)) {
            let mut times = [ns, ns, ns, ns * 3 + 1];
            let error = largest_error(&mut times);
            assert!(error <= 0.10, "{ns}: {error}");
        }
    }

    /// Check that nothing gives no quantile and that the shortest times are exact.
    #[test]
    fn edges() {
        assert_eq!(quantile(&Histogram::default(), 0.5, 0), None);
        assert_eq!(quantile(&Histogram { buckets: vec![(7, 0)] }, 0.5, 3), None);
        assert_eq!(quantile(&histogram(&[0, 0]), 0.5, 0), Some(0));
        assert_eq!(quantile(&histogram(&[1]), 0.5, 1), Some(1));
        assert_eq!(quantile(&histogram(&[2, 2]), 0.99, 2), Some(2));
        assert_eq!(quantile(&histogram(&[1_000_000]), 0.5, 1_000_000), Some(939_012));
    }

    /// Check that a maximum known to be too low does not pull a quantile out of its bucket.
    #[test]
    fn does_not_believe_a_maximum_below_the_bucket() {
        let histogram = histogram(&[1000, 1000]);
        assert_eq!(quantile(&histogram, 0.5, 10), quantile(&histogram, 0.5, u64::MAX));
    }

    /// Check that a histogram from a broken source is answered without a panic.
    #[test]
    fn survives_impossible_buckets() {
        for index in [i32::MIN, -1, 1, 256, i32::MAX] {
            let broken = Histogram { buckets: vec![(index, 1)] };
            assert!(quantile(&broken, 0.5, 5).is_some());
        }
    }
}
