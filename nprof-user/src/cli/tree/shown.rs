//! Which invocations are shown, and which limits others are beyond.

use std::time::{Duration, Instant};

use crate::model::Invocation;
use crate::render::tree::ShownLimits;

/// Lets invocations through.
#[derive(Debug)]
pub(in crate::cli) struct Shown {
    min_ns: Option<u64>,
    most: Option<u64>,
    most_in_second: Option<u32>,
    count: u64,
    /// In the second that began then.
    shown_now: (Instant, u32),
    reached: ShownLimits,
}

impl Shown {
    /// Lets through those that take as long, and of these so many, altogether and in a second.
    pub(in crate::cli) fn new(min: Option<Duration>, most: Option<u64>, most_in_second: Option<u32>) -> Self {
        let min_ns = min.map(|min| u64::try_from(min.as_nanos()).unwrap_or(u64::MAX));
        let shown_now = (Instant::now(), 0);
        Self { min_ns, most, most_in_second, count: 0, shown_now, reached: ShownLimits::default() }
    }

    /// Whether an invocation is one that is shown; it is counted then.
    pub(in crate::cli) fn lets_through(&mut self, invocation: &Invocation) -> bool {
        // One without an end took longer than is known.
        let is_long = self.min_ns.is_none_or(|min| invocation.total_ns().is_none_or(|total| total >= min));
        if !is_long {
            self.reached.min_ns = self.min_ns;
        } else if self.has_all() {
            self.reached.most = self.most;
        } else if !self.has_room_now() {
            self.reached.most_in_second = self.most_in_second;
        } else {
            self.count += 1;
            return true;
        }
        false
    }

    fn has_room_now(&mut self) -> bool {
        let Some(most) = self.most_in_second else { return true };
        let (since, shown) = &mut self.shown_now;
        if since.elapsed() >= Duration::from_secs(1) {
            (*since, *shown) = (Instant::now(), 0);
        }
        *shown += 1;
        *shown <= most
    }

    /// Whether there are as many as were asked for.
    pub(in crate::cli) fn has_all(&self) -> bool {
        self.most.is_some_and(|most| self.count >= most)
    }

    /// The least time, in nanoseconds.
    pub(in crate::cli) fn min_ns(&self) -> Option<u64> {
        self.min_ns
    }

    /// How many were let through.
    pub(in crate::cli) fn count(&self) -> u64 {
        self.count
    }

    /// The limits that others were beyond.
    pub(in crate::cli) fn reached(&self) -> ShownLimits {
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{TreeNode, TreeThread};

    fn taking(total_ns: u64) -> Invocation {
        Invocation::new(TreeThread::Platform(1), vec![TreeNode { calls: 1, total_ns, ..TreeNode::default() }])
    }

    /// Check that of the limits those are said to be reached by which something was left out, each for itself and all together.
    #[test]
    fn limits_that_are_reached() {
        let ns = |ns| Some(Duration::from_nanos(ns));
        let shown_of = |mut shown: Shown, times: &[u64]| {
            times.iter().for_each(|ns| _ = shown.lets_through(&taking(*ns)));
            (shown.count(), shown.has_all(), shown.reached())
        };
        let reached = |min_ns, most, most_in_second| ShownLimits { min_ns, most, most_in_second };
        let none = ShownLimits::default();
        assert_eq!(shown_of(Shown::new(None, None, None), &[1, 2]), (2, false, none));
        assert_eq!(shown_of(Shown::new(ns(2), Some(2), None), &[2, 3]), (2, true, none));
        assert_eq!(shown_of(Shown::new(ns(2), Some(1), None), &[2, 3]), (1, true, reached(None, Some(1), None)));
        assert_eq!(shown_of(Shown::new(ns(2), Some(9), None), &[1, 2]), (1, false, reached(Some(2), None, None)));
        let paced = Shown::new(ns(2), Some(9), Some(0));
        assert_eq!(shown_of(paced, &[1, 2]), (0, false, reached(Some(2), None, Some(0))));
        let all = Shown::new(ns(2), Some(1), Some(1));
        assert_eq!(shown_of(all, &[1, 2, 2]), (1, true, reached(Some(2), Some(1), None)));
    }
}
