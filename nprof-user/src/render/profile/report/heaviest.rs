//! Which functions a report shows unless it is to show all: a JVM has hundreds, of which a few take nearly all the time.

use std::cmp::Reverse;

/// How many functions the table has at most, and how many in any case.
const ROWS: usize = 30;
const FEWEST_ROWS: usize = 10;
/// What part of the work they make up, in percent: what hardly works, and what only waits, takes no room.
const NEARLY_ALL: u128 = 99;
/// How many functions' stacks are shown.
const SECTIONS: usize = 10;
/// What part of the time their stacks make up, in percent, unless that takes more than [`SECTIONS`].
const ENOUGH: u128 = 95;
/// What part of the time a function has, in percent, whose stacks are shown beyond that.
const MUCH: u128 = 1;

/// How many of some functions the table has, of times in the order of the table.
pub(super) fn rows(times: &[u64]) -> usize {
    let nearly_all = times.iter().map(|time| u128::from(*time)).sum::<u128>() * NEARLY_ALL;
    let mut so_far = 0;
    let is_needed = |time: &&u64| {
        let is_needed = so_far * 100 < nearly_all;
        so_far += u128::from(**time);
        is_needed
    };
    times.iter().take_while(is_needed).count().clamp(FEWEST_ROWS, ROWS).min(times.len())
}

/// The places of the greatest of some times that together make up [`ENOUGH`] of the sum, and of those that are [`MUCH`] of it, in
/// their order; none of them is zero.
pub(super) fn heaviest(times: &[u64]) -> Vec<usize> {
    let all = times.iter().map(|time| u128::from(*time)).sum::<u128>();
    let mut places: Vec<usize> = (0..times.len()).filter(|place| times[*place] > 0).collect();
    places.sort_by_key(|place| Reverse(times[*place]));
    let mut shown = 0;
    let is_needed = |place: &usize| {
        let is_much = u128::from(times[*place]) * 100 >= all * MUCH;
        let is_needed = is_much || shown * 100 < all * ENOUGH;
        shown += u128::from(times[*place]);
        is_needed
    };
    let mut heaviest: Vec<usize> = places.into_iter().take(SECTIONS).take_while(is_needed).collect();
    heaviest.sort_unstable();
    heaviest
}

#[cfg(test)]
mod tests {
    use super::{heaviest, rows};

    /// Check that the table has what makes up nearly all the work, ten rows if there are as many, and thirty at most.
    #[test]
    fn nearly_all_of_the_work() {
        let mut times = vec![1_000_u64; 12];
        times.extend([1; 40]);
        assert_eq!(rows(&times), 12);
        assert_eq!((rows(&[5; 40]), rows(&[0; 40]), rows(&[7, 0, 0]), rows(&[])), (30, 10, 3, 0));
    }

    /// Check that as many as needed are shown, at most ten, none without time, and in the order in which they came.
    #[test]
    fn most_of_the_time() {
        assert_eq!(heaviest(&[1, 900, 4, 50]), [1, 3]);
        assert_eq!(heaviest(&[1, 900, 40, 50]), [1, 2, 3]);
        assert_eq!(heaviest(&[0, 7, 0]), [1]);
        assert_eq!(heaviest(&[5; 40]), (0..10).collect::<Vec<_>>());
        assert_eq!(heaviest(&[u64::MAX; 3]), [0, 1, 2]);
        assert!(heaviest(&[0, 0]).is_empty() && heaviest(&[]).is_empty());
    }
}
