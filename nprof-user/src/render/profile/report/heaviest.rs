//! Which functions a report shows unless it is to show all: a JVM has hundreds, of which a few take nearly all the time.

use std::cmp::Reverse;

/// How many functions the table has.
pub(super) const ROWS: usize = 30;
/// How many functions' stacks are shown.
const SECTIONS: usize = 10;
/// What part of the time their stacks make up, in percent, unless that takes more than [`SECTIONS`].
const ENOUGH: u128 = 95;

/// The places of the greatest of some times that together make up [`ENOUGH`] of the sum, in their order; none of them is
/// zero.
pub(super) fn heaviest(times: &[u64]) -> Vec<usize> {
    let wanted = times.iter().map(|time| u128::from(*time)).sum::<u128>() * ENOUGH;
    let mut places: Vec<usize> = (0..times.len()).filter(|place| times[*place] > 0).collect();
    places.sort_by_key(|place| Reverse(times[*place]));
    let mut shown = 0;
    let is_needed = |place: &usize| {
        let is_needed = shown * 100 < wanted;
        shown += u128::from(times[*place]);
        is_needed
    };
    let mut heaviest: Vec<usize> = places.into_iter().take(SECTIONS).take_while(is_needed).collect();
    heaviest.sort_unstable();
    heaviest
}

#[cfg(test)]
mod tests {
    use super::heaviest;

    /// Check that as many as needed are shown, at most ten, none without time, and in the order in which they came.
    #[test]
    fn most_of_the_time() {
        assert_eq!(heaviest(&[1, 90, 4, 5]), [1, 3]);
        assert_eq!(heaviest(&[1, 89, 4, 5]), [1, 2, 3]);
        assert_eq!(heaviest(&[0, 7, 0]), [1]);
        assert_eq!(heaviest(&[5; 40]), (0..10).collect::<Vec<_>>());
        assert_eq!(heaviest(&[u64::MAX; 3]), [0, 1, 2]);
        assert!(heaviest(&[0, 0]).is_empty() && heaviest(&[]).is_empty());
    }
}
