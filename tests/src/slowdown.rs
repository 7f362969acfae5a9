//! How much slower something is, from pairs of measurements that were taken close to each other: an estimate with its
//! confidence interval.

use std::fmt;

use crate::bars::median;

/// The normal distribution's 97.5 % quantile: 95 % lie within that many standard deviations.
const Z: f64 = 1.959_964;

/// A slow-down in percent, shown as `+0.4 % (-0.1 .. 0.9)`, or with as many digits as the format says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    /// The estimate.
    pub percent: f64,
    /// Where the true value is with a confidence of 95 %: from here
    pub least: f64,
    /// to here. Both are infinite if there are too few pairs to know.
    pub most: f64,
}

impl Slowdown {
    /// Of what was measured without and with, pair by pair, in any unit.
    ///
    /// What is averaged are the logarithms of the ratios: then half as fast and twice as fast are equally far from no
    /// change, and it does not matter which of the two is divided by which.
    #[must_use]
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let logarithms: Vec<f64> = pairs.into_iter().map(|(without, with)| (with / without).ln()).collect();
        let count = count_of(&logarithms);
        let mean = logarithms.iter().sum::<f64>() / count;
        let squares: f64 = logarithms.iter().map(|one| (one - mean).powi(2)).sum();
        let freedom = count - 1.0;
        let half =
            if freedom < 1.0 { f64::INFINITY } else { students_quantile(freedom) * (squares / freedom / count).sqrt() };
        let percent = |logarithm: f64| 100.0 * logarithm.exp_m1();
        Self { percent: percent(mean), least: percent(mean - half), most: percent(mean + half) }
    }

    /// The middle of the pairs' slow-downs, with the interval that its ranks give whatever the distribution: a few pairs in which
    /// something else happened move neither.
    #[must_use]
    pub fn middle(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut percents: Vec<f64> = pairs.into_iter().map(|(without, with)| 100.0 * (with / without - 1.0)).collect();
        percents.sort_by(f64::total_cmp);
        let count = count_of(&percents);
        // How many pairs are below the middle is binomial: the interval leaves out so many at each end.
        let rank = ((count - Z * count.sqrt()) / 2.0).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a small rank")]
        let ends = (rank >= 1.0).then(|| (percents[rank as usize - 1], percents[percents.len() - rank as usize]));
        let (least, most) = ends.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
        Self { percent: median(percents), least, most }
    }
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { percent, least, most } = self;
        let digits = f.precision().unwrap_or(1);
        write!(f, "{percent:+.digits$} % ({least:.digits$} .. {most:.digits$})")
    }
}

#[expect(clippy::cast_precision_loss, reason = "measurements that a benchmark has time for")]
fn count_of(values: &[f64]) -> f64 {
    values.len() as f64
}

/// The 97.5 % quantile of Student's distribution, by its series in the inverse of the degrees of freedom: right to one in
/// a hundred from four of them on.
fn students_quantile(freedom: f64) -> f64 {
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    let third = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0;
    Z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the quantile is the one of the tables.
    #[test]
    fn quantiles_of_the_tables() {
        for (freedom, quantile) in [(4.0, 2.776), (9.0, 2.262), (29.0, 2.045), (1e6, 1.960)] {
            let computed = students_quantile(freedom);
            assert!((computed / quantile - 1.0).abs() < 0.01, "{freedom}: {computed} instead of {quantile}");
        }
    }

    /// Check that pairs that agree leave no doubt, whatever their size, and that the sign is that of a slow-down.
    #[test]
    fn pairs_that_agree() {
        let slower = Slowdown::of([(100.0, 102.0), (1000.0, 1020.0), (1.0, 1.02)]);
        assert!((slower.percent - 2.0).abs() < 1e-9 && (slower.most - slower.least).abs() < 1e-9, "{slower:?}");
        assert!(Slowdown::of([(2.0, 1.0), (2.0, 1.0)]).percent < 0.0);
    }

    /// Check the interval of numbers worked out by hand: logarithms of 0, 1, 2, 3 and 4 hundredths have a mean of 0.02, a
    /// standard error of 0.00707 and, times 2.776, a half width of 0.0196.
    #[test]
    fn an_interval_by_hand() {
        let slower = Slowdown::of([0.0, 0.01, 0.02, 0.03, 0.04].map(|logarithm: f64| (1.0, logarithm.exp())));
        assert_eq!(slower.to_string(), "+2.0 % (0.0 .. 4.0)");
        assert!((slower.least - 0.037).abs() < 0.03, "{slower:?}");
    }

    /// Check the ranks that stand in tables for 50 values, the 18th from each end, that outliers move nothing, and that too few
    /// values have no interval.
    #[test]
    fn the_middle_by_ranks() {
        let mut pairs: Vec<(f64, f64)> = (1..=50).map(|percent| (100.0, 100.0 + f64::from(percent))).collect();
        let middle = Slowdown::middle(pairs.clone());
        assert_eq!(format!("{middle:.2}"), "+26.00 % (18.00 .. 33.00)");
        pairs[49].1 = 1e9;
        assert_eq!(Slowdown::middle(pairs.clone()), middle);
        let few = Slowdown::middle(pairs.into_iter().take(4));
        assert!(few.most.is_infinite() && few.least.is_infinite(), "{few:?}");
    }

    /// Check that one pair has an estimate and no certainty, and that no pair is not a number.
    #[test]
    fn too_few_pairs() {
        let one = Slowdown::of([(1.0, 1.1)]);
        assert!((one.percent - 10.0).abs() < 1e-9 && one.most.is_infinite(), "{one:?}");
        assert!(Slowdown::of([]).percent.is_nan());
    }
}
