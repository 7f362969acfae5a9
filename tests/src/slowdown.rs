//! How much slower something is, from pairs of measurements that were taken close to each other: an estimate with its
//! confidence interval.

use std::fmt;

/// The normal distribution's 97.5 % quantile: 95 % lie within that many standard deviations.
const Z: f64 = 1.959_964;
/// After so many halvings a range of logarithms is smaller than what a number of its size can differ by.
const HALVINGS: usize = 64;

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

    /// The middle of the pairs' slow-downs, with its interval by ranks: a few pairs in which something else happened move
    /// neither. It is the estimator of Hodges and Lehmann, with the interval that belongs to Wilcoxon's test of signed ranks. All that
    /// they ask of the distribution is that pairs deviate as likely to one side as to the other. The plain median asks less, and takes
    /// half as many pairs again to know as much.
    #[must_use]
    pub fn middle(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut logarithms: Vec<f64> = pairs.into_iter().map(|(without, with)| (with / without).ln()).collect();
        logarithms.sort_unstable_by(f64::total_cmp);
        let count = count_of(&logarithms);
        let squares = count * (count + 1.0) * (2.0 * count + 1.0);
        let rank = (count * (count + 1.0) / 4.0 - Z * (squares / 24.0).sqrt()).floor();
        let all = logarithms.len() * (logarithms.len() + 1) / 2;
        let at = |place: usize| 100.0 * mean_at(&logarithms, place).exp_m1();
        if rank < 1.0 {
            let percent = if all == 0 { f64::NAN } else { at(all / 2) };
            return Self { percent, least: f64::NEG_INFINITY, most: f64::INFINITY };
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank of these, and not negative"
        )]
        let rank = rank as usize;
        Self { percent: at(all / 2), least: at(rank - 1), most: at(all - rank) }
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

/// The mean of two of these values, which are sorted, or of one and itself, that so many of all such means are less than. There are too many
/// of them for a list: where it can be is halved until nothing is left to halve.
fn mean_at(sorted: &[f64], place: usize) -> f64 {
    let (mut low, mut high) = (sorted[0], sorted[sorted.len() - 1]);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if means_up_to(sorted, middle) > place { high = middle } else { low = middle }
    }
    high
}

/// How many means of two of these values, or of one and itself, are not more than `most`.
fn means_up_to(sorted: &[f64], most: f64) -> usize {
    let mut partners = sorted.len();
    let of_each = sorted.iter().enumerate().map(|(place, one)| {
        while partners > 0 && one + sorted[partners - 1] > 2.0 * most {
            partners -= 1;
        }
        partners.saturating_sub(place)
    });
    of_each.sum()
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

    /// Check the rank that stands in tables for 50 values, the 434th of the 1,275 means from each end, which of these numbers is 0.21 and
    /// 0.30; that an outlier moves nothing, which pair is first changes only the sign, and too few values have no interval.
    #[test]
    fn the_middle_by_ranks() {
        let mut pairs: Vec<(f64, f64)> =
            (1..=50).map(|hundredths| (1.0, (f64::from(hundredths) / 100.0).exp())).collect();
        let middle = Slowdown::middle(pairs.clone());
        let expected = [0.255, 0.21, 0.30].map(|logarithm: f64| 100.0 * logarithm.exp_m1());
        for (found, expected) in [middle.percent, middle.least, middle.most].into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{middle:?}");
        }
        pairs[49].1 = 1e9;
        let moved = Slowdown::middle(pairs.clone());
        assert!((moved.percent - middle.percent).abs() < 1e-9 && (moved.most - middle.most).abs() < 1e-9, "{moved:?}");
        let faster = Slowdown::middle(pairs.iter().map(|&(without, with)| (with, without)));
        assert!((1.0 + faster.least / 100.0) * (1.0 + moved.most / 100.0) - 1.0 < 1e-9, "{faster:?}");
        let few = Slowdown::middle(pairs.into_iter().take(4));
        assert!(few.most.is_infinite() && few.least.is_infinite(), "{few:?}");
        assert!(Slowdown::middle([]).percent.is_nan());
    }

    /// Check that one pair has an estimate and no certainty, and that no pair is not a number.
    #[test]
    fn too_few_pairs() {
        let one = Slowdown::of([(1.0, 1.1)]);
        assert!((one.percent - 10.0).abs() < 1e-9 && one.most.is_infinite(), "{one:?}");
        assert!(Slowdown::of([]).percent.is_nan());
    }
}
