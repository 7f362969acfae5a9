//! Keeps the slowest of any number of calls.

/// The slowest calls so far, `most` of them.
#[derive(Debug)]
pub(super) struct Slowest<T> {
    most: usize,
    /// The slowest first; of equal ones the earliest.
    kept: Vec<(u64, T)>,
}

impl<T> Slowest<T> {
    /// None, to become `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Vec::new() }
    }

    /// From how many nanoseconds on a call would be kept: longer than the quickest that is, if there is no more room.
    pub(super) fn least(&self) -> u64 {
        match self.kept.last() {
            Some((quickest_ns, _)) if self.kept.len() >= self.most => quickest_ns.saturating_add(1),
            _ => 0,
        }
    }

    /// Whether a call that took so long would be kept.
    pub(super) fn wants(&self, time_ns: u64) -> bool {
        time_ns >= self.least()
    }

    /// Takes in a call, at the cost of the quickest, unless it is the quickest itself.
    pub(super) fn add(&mut self, time_ns: u64, call: T) {
        if self.wants(time_ns) {
            self.kept.truncate(self.most.saturating_sub(1));
            let place = self.kept.partition_point(|(kept_ns, _)| *kept_ns >= time_ns);
            self.kept.insert(place, (time_ns, call));
        }
    }

    /// The calls, the slowest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|(_, call)| call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slowest(times: &[u64], most: usize) -> Slowest<usize> {
        let mut slowest = Slowest::new(most);
        times.iter().enumerate().for_each(|(place, &time_ns)| slowest.add(time_ns, place));
        slowest
    }

    /// Check that the slowest are kept and not the last, the slowest first, and of equal ones the first.
    #[test]
    fn keeps_the_slowest() {
        let kept = |times: &[u64], most| slowest(times, most).iter().copied().collect::<Vec<_>>();
        assert_eq!(kept(&[5, 9, 1, 7, 3], 3), [1, 3, 0]);
        assert_eq!(kept(&[9, 9, 9, 9], 2), [0, 1]);
        assert_eq!(kept(&[1, 2], 3), [1, 0]);
        assert_eq!(kept(&[], 3), Vec::<usize>::new());
    }

    /// Check that everything is wanted while there is room, and then only what takes the place of another.
    #[test]
    fn what_is_wanted() {
        assert_eq!((slowest(&[5, 9], 3).least(), slowest(&[5, 9, 7], 3).least()), (0, 6));
        let full = slowest(&[5, 9, 7], 3);
        assert!(!full.wants(5) && full.wants(6));
        assert_eq!(slowest(&[u64::MAX], 1).least(), u64::MAX);
    }

    /// Check that it makes no difference to what is kept whether calls that are not wanted come at all.
    #[test]
    fn unwanted_calls_change_nothing() {
        let times: Vec<u64> = (0..1_000).map(|n: u64| n * 7_919 % 1_009).collect();
        let mut told = Slowest::new(10);
        for (place, &time_ns) in times.iter().enumerate() {
            if told.wants(time_ns) {
                told.add(time_ns, place);
            }
        }
        assert!(told.iter().eq(slowest(&times, 10).iter()));
        let mut sorted = times.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        assert!(told.iter().map(|&place| times[place]).eq(sorted[..10].iter().copied()));
    }
}
