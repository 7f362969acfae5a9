//! What was lost in several JVMs, added up.

use nprof_common::Loss;

use crate::model::Losses;

/// The sum over several JVMs, reason by reason, in the order in which the reasons first appear. Of no JVM: every
/// reason, at zero.
#[must_use]
pub fn merge_losses<'a>(all: impl IntoIterator<Item = &'a Losses>) -> Losses {
    let mut counts: Vec<(&'static str, u64)> = Vec::new();
    for &(reason, n) in all.into_iter().flat_map(|losses| &losses.counts) {
        match counts.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum = sum.saturating_add(n),
            None => counts.push((reason, n)),
        }
    }
    if counts.is_empty() {
        counts.extend(Loss::ALL.map(|loss| (loss.as_str(), 0)));
    }
    Losses { counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each reason is added up, that one known to only one JVM stays, and that sums do not wrap.
    #[test]
    fn adds_reason_by_reason() {
        let a = Losses { counts: vec![("unreturned", 1), ("too-deep", 0)] };
        let b = Losses { counts: vec![("too-deep", 5), ("bad-index", 7), ("unreturned", u64::MAX)] };
        let sum = merge_losses([&a, &b]);
        assert_eq!(sum.counts, [("unreturned", u64::MAX), ("too-deep", 5), ("bad-index", 7)]);
        assert_eq!(merge_losses([&a]), a);
    }

    /// Check that a run without a JVM lists every reason, at zero.
    #[test]
    fn lists_every_reason_of_no_jvm() {
        let none = merge_losses([]);
        assert_eq!((none.counts.len(), none.total()), (Loss::ALL.len(), 0));
    }
}
