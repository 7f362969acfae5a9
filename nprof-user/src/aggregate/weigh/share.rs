//! Scaling what samples say to a total that is known exactly.

/// Divides `total` by `weights`, as close to them as whole numbers can be: what is left after rounding down goes to the
/// largest remainders, the earlier one where they are equal. The parts add up to `total` exactly.
///
/// Gives `None` where no weight says anything: all are zero, negative or no number.
pub(super) fn divide(total: u64, weights: &[f64]) -> Option<Vec<u64>> {
    let weights = whole(weights)?;
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut parts = Vec::with_capacity(weights.len());
    let mut remainders = Vec::with_capacity(weights.len());
    for (at, weight) in weights.iter().enumerate() {
        // Below 2^64 * 2^53, and never more than `total` after the division.
        let product = u128::from(total) * u128::from(*weight);
        parts.push(u64::try_from(product / sum).unwrap_or(total));
        remainders.push((product % sum, at));
    }
    let given: u64 = parts.iter().sum();
    remainders.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let left = usize::try_from(total - given).unwrap_or(usize::MAX);
    for (_, at) in remainders.iter().take(left) {
        parts[*at] += 1;
    }
    Some(parts)
}

/// The weights as whole numbers, the largest of which is 2^52: floats would not add up exactly.
fn whole(weights: &[f64]) -> Option<Vec<u64>> {
    const ONE: f64 = (1_u64 << 52) as f64;
    let sound = |weight: f64| if weight.is_finite() { weight.max(0.0) } else { 0.0 };
    let largest = weights.iter().copied().map(sound).fold(0.0, f64::max);
    let scaled = |weight: &f64| round(sound(*weight) / largest * ONE);
    (largest > 0.0).then(|| weights.iter().map(scaled).collect())
}

/// The nearest whole number; 0 for what is negative or no number, the largest one for what is beyond it.
#[expect(clippy::cast_possible_truncation, reason = "the cast of a float saturates")]
pub(super) fn round(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::{divide, round};

    /// Check that what is left after rounding goes to the largest remainders, the earlier of equal ones first.
    #[test]
    fn largest_remainders_come_first() {
        assert_eq!(divide(10, &[1.0, 1.0, 1.0]), Some(vec![4, 3, 3]));
        assert_eq!(divide(10, &[1.0, 2.0, 4.0]), Some(vec![1, 3, 6]));
        assert_eq!(divide(7, &[0.5]), Some(vec![7]));
        assert_eq!(divide(0, &[1.0, 3.0]), Some(vec![0, 0]));
    }

    /// Check that weights which say nothing give no division, and that a bad one beside good ones gets nothing.
    #[test]
    fn weights_that_say_nothing() {
        assert_eq!(divide(10, &[]), None);
        assert_eq!(divide(10, &[0.0, -1.0, f64::NAN, f64::INFINITY]), None);
        assert_eq!(divide(10, &[f64::NAN, 2.0, f64::NEG_INFINITY, -3.0]), Some(vec![0, 10, 0, 0]));
    }

    /// Check that parts add up to the total and are within one of their share, also beyond what floats can count.
    #[test]
    fn parts_add_up() {
        let mut state = 7_u64;
        for total in [1, 3, 1_000_003, (1 << 53) + 1, u64::MAX] {
            for count in [1, 2, 3, 10, 1000] {
                let weights: Vec<f64> = (0..count)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        f64::from(u32::try_from(state >> 40).unwrap())
                    })
                    .collect();
                let parts = divide(total, &weights).unwrap();
                assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
                let sum: f64 = weights.iter().sum();
                for (part, weight) in parts.iter().zip(&weights) {
                    let share = total as f64 * weight / sum;
                    assert!((*part as f64 - share).abs() <= 1.0 + share * 1e-12, "{part} for {share} of {total}");
                }
            }
        }
    }

    /// Check that no float leads astray.
    #[test]
    fn rounds_anything() {
        assert_eq!([0.4, 0.5, -3.0, f64::NAN].map(round), [0, 1, 0, 0]);
        assert_eq!([f64::INFINITY, 1e300].map(round), [u64::MAX; 2]);
    }
}
