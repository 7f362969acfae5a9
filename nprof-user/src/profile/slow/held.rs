//! Slow calls that stubs have chosen before anybody said whether their method is wanted: they wait until that is known, and take the
//! place of no other meanwhile.

use std::collections::BTreeMap;

use super::slowest::Slowest;

/// The most calls that wait, each with 16 bytes: those of a tenth of a second, of a native that is called a million times in one. Of those
/// beyond nobody will know whose they were.
const MOST_CALLS: usize = 1 << 17;
/// The most of them that are kept with all that is said of them.
const MOST_SAMPLES: usize = 1_000;

/// Calls that wait, by the records of their methods. `T` is what is said of one.
#[derive(Debug)]
pub(super) struct Held<T> {
    /// Of each method as many as are kept of all that are wanted.
    most_of_each: usize,
    by_record: BTreeMap<u32, OfRecord<T>>,
    calls: usize,
    samples: usize,
}

/// The calls of one method that wait.
#[derive(Debug)]
pub(super) struct OfRecord<T> {
    /// All of them.
    pub(super) calls: Vec<HeldCall>,
    /// The slowest of these.
    pub(super) slowest: Slowest<T>,
}

/// A call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeldCall {
    /// How long it took, in nanoseconds.
    pub(super) time_ns: u64,
    /// Whether the kernel has counted it.
    pub(super) is_counted: bool,
}

impl<T> Held<T> {
    /// None, of which at most so many of each method are kept.
    pub(super) fn new(most_of_each: usize) -> Self {
        Self { most_of_each, by_record: BTreeMap::new(), calls: 0, samples: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_record.is_empty()
    }

    /// The records of the methods that it is not known of whether they are wanted.
    pub(super) fn records(&self) -> Vec<u32> {
        self.by_record.keys().copied().collect()
    }

    /// Takes in a call. What `said` says of it is wanted only of the slowest of its method. Returns whether there was room.
    pub(super) fn add(&mut self, record: u32, call: HeldCall, said: impl FnOnce() -> Option<T>) -> bool {
        if self.calls >= MOST_CALLS {
            return false;
        }
        let new = || OfRecord { calls: Vec::new(), slowest: Slowest::new(self.most_of_each) };
        let of = self.by_record.entry(record).or_insert_with(new);
        if of.slowest.wants(call.time_ns) {
            let before = of.slowest.iter().count();
            if before < self.most_of_each && self.samples >= MOST_SAMPLES {
                return false;
            }
            if let Some(said) = said() {
                of.slowest.add(call.time_ns, said);
                self.samples += of.slowest.iter().count() - before;
            }
        }
        of.calls.push(call);
        self.calls += 1;
        true
    }

    /// Takes the calls of a method out.
    pub(super) fn take(&mut self, record: u32) -> Option<OfRecord<T>> {
        let of = self.by_record.remove(&record)?;
        self.calls -= of.calls.len();
        self.samples -= of.slowest.iter().count();
        Some(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(time_ns: u64) -> HeldCall {
        HeldCall { time_ns, is_counted: false }
    }

    /// Check that calls of one method push out none of another, and that of each all are counted and the slowest kept.
    #[test]
    fn each_method_has_its_own() {
        let mut held = Held::new(2);
        for time_ns in [900, 700, 800] {
            assert!(held.add(7, call(time_ns), || Some(time_ns)));
        }
        assert!(held.add(3, call(1), || Some(1)) && !held.is_empty());
        assert_eq!(held.records(), [3, 7]);
        let of = held.take(7).unwrap();
        assert_eq!(of.calls, [900, 700, 800].map(call));
        assert_eq!(of.slowest.iter().copied().collect::<Vec<_>>(), [900, 800]);
        assert_eq!(held.take(3).unwrap().slowest.iter().copied().collect::<Vec<_>>(), [1]);
        assert!(held.take(3).is_none() && held.is_empty() && (held.calls, held.samples) == (0, 0));
    }

    /// Check that a call of which nothing can be said counts all the same.
    #[test]
    fn counts_without_words() {
        let mut held = Held::<u64>::new(2);
        assert!(held.add(1, call(9), || None));
        let of = held.take(1).unwrap();
        assert_eq!((of.calls, of.slowest.iter().count()), (vec![call(9)], 0));
    }

    /// Check that a flood takes no more memory than it may, that there is room again afterwards, and that nothing is asked of calls of
    /// which nothing is kept.
    #[test]
    fn is_bounded() {
        let mut held = Held::new(2);
        assert!((0..MOST_CALLS).all(|n| held.add(1, call(9), || (n < 2).then_some(n))));
        assert_eq!(held.samples, 2);
        assert!(!held.add(2, call(9), || Some(0)));
        assert_eq!(held.take(1).unwrap().calls.len(), MOST_CALLS);
        let told = (0..).take_while(|&record| held.add(record, call(9), || Some(0))).count();
        assert_eq!((told, held.samples), (MOST_SAMPLES, MOST_SAMPLES));
    }
}
