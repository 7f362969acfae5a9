//! Slow calls that wait to be looked at. If they come faster than that, the shortest make room: whoever keeps the slowest misses none of
//! them. Calls that are perhaps not wanted go first, and are counted apart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The end that takes calls out.
#[derive(Debug)]
pub struct SlowQueue {
    number: u64,
    shared: Arc<Shared>,
}

/// The end that puts them in. The queue ends with it.
#[derive(Debug)]
pub(super) struct SlowEntrance {
    most: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    has_news: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The number of the next one.
    next: u64,
    /// In the order in which they came.
    calls: BTreeMap<u64, (Option<u64>, Box<[u8]>)>,
    /// Time and number of each: the shortest first, and of equal ones the latest.
    shortest: BTreeSet<(Option<u64>, Reverse<u64>)>,
    /// How many had to make room.
    passed_over: PassedOver,
    has_ended: bool,
}

/// Calls that had to make room for longer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassedOver {
    /// Of those that are wanted.
    pub wanted: u64,
    /// Of those that are perhaps not.
    pub unasked: u64,
}

/// Both ends of a queue with room for `most` calls. `number` is what it is known by to whoever fills it.
pub(super) fn slow_queue(number: u64, most: usize) -> (SlowEntrance, SlowQueue) {
    let shared = Arc::<Shared>::default();
    (SlowEntrance { most, shared: Arc::clone(&shared) }, SlowQueue { number, shared })
}

impl SlowEntrance {
    /// Puts in a call that took so many nanoseconds; `None`: it is perhaps not wanted, whatever it took.
    pub(super) fn put(&self, time_ns: Option<u64>, record: &[u8]) {
        let mut waiting = self.shared.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.calls.insert(number, (time_ns, record.into()));
        waiting.shortest.insert((time_ns, Reverse(number)));
        if waiting.calls.len() > self.most
            && let Some((time_ns, Reverse(shortest))) = waiting.shortest.pop_first()
        {
            waiting.calls.remove(&shortest);
            let PassedOver { wanted, unasked } = &mut waiting.passed_over;
            *(if time_ns.is_some() { wanted } else { unasked }) += 1;
        }
        drop(waiting);
        self.shared.has_news.notify_one();
    }
}

impl Drop for SlowEntrance {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.has_news.notify_one();
    }
}

impl SlowQueue {
    /// What it is known by to whoever fills it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits for the next call, as the programs have laid it out.
    ///
    /// # Errors
    /// If there is none until then, or if there will be none any more.
    pub fn next(&self, patience: Duration) -> Result<Box<[u8]>, RecvTimeoutError> {
        let is_idle = |waiting: &mut Waiting| waiting.calls.is_empty() && !waiting.has_ended;
        let waited = self.shared.has_news.wait_timeout_while(self.shared.lock(), patience, is_idle);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match waiting.calls.pop_first() {
            Some((number, (time_ns, record))) => {
                waiting.shortest.remove(&(time_ns, Reverse(number)));
                Ok(record)
            }
            None if waiting.has_ended => Err(RecvTimeoutError::Disconnected),
            None => Err(RecvTimeoutError::Timeout),
        }
    }

    /// How many calls had to make room for longer ones since the last time that somebody asked.
    #[must_use]
    pub fn take_passed_over(&self) -> PassedOver {
        std::mem::take(&mut self.shared.lock().passed_over)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Whoever panicked here has at most left a call without its place among the shortest.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &SlowQueue) -> Vec<u8> {
        std::iter::from_fn(|| queue.next(Duration::ZERO).ok()).map(|record| record[0]).collect()
    }

    /// Check that calls come out in the order in which they went in, and that the shortest make room for others, wherever they are.
    #[test]
    fn the_shortest_make_room() {
        let (entrance, queue) = slow_queue(7, 3);
        for (name, time_ns) in [(1, 50), (2, 10), (3, 20), (4, 30), (5, 5), (6, 30)] {
            entrance.put(Some(time_ns), &[name]);
        }
        let passed_over = [3, 0].map(|wanted| PassedOver { wanted, unasked: 0 });
        assert_eq!((queue.number(), [queue.take_passed_over(), queue.take_passed_over()]), (7, passed_over));
        assert_eq!(all(&queue), [1, 4, 6]);
        entrance.put(Some(1), &[7]);
        assert_eq!(all(&queue), [7]);
    }

    /// Check that calls that are perhaps not wanted take the place of none that is, and that the latest of them go first.
    #[test]
    fn the_unasked_go_first() {
        let (entrance, queue) = slow_queue(0, 3);
        let unasked = None;
        for (name, time_ns) in [(1, unasked), (2, Some(10)), (3, unasked), (4, Some(5)), (5, unasked), (6, Some(1))] {
            entrance.put(time_ns, &[name]);
        }
        assert_eq!(queue.take_passed_over(), PassedOver { wanted: 0, unasked: 3 });
        assert_eq!(all(&queue), [2, 4, 6]);
    }

    /// Check that a flood of short calls pushes none of the longest out, however early it came and however late it is read.
    #[test]
    fn a_flood_leaves_the_longest() {
        let (entrance, queue) = slow_queue(0, 100);
        let time_of = |n: u64| if n % 1_000 == 1 { 1_000_000 + n } else { n * 7_919 % 1_009 };
        (0..50_000).for_each(|n| entrance.put(Some(time_of(n)), &n.to_ne_bytes()));
        drop(entrance);
        let left = std::iter::from_fn(|| queue.next(Duration::from_secs(60)).ok());
        let left: Vec<u64> = left.map(|record| u64::from_ne_bytes((&*record).try_into().unwrap())).collect();
        let longest: Vec<u64> = left.iter().copied().filter(|n| n % 1_000 == 1).collect();
        assert!(longest.iter().copied().eq((0..50).map(|n| n * 1_000 + 1)), "{longest:?}");
        assert_eq!((left.len(), queue.take_passed_over().wanted), (100, 49_900));
        assert!(matches!(queue.next(Duration::ZERO), Err(RecvTimeoutError::Disconnected)));
    }

    /// Check that whoever waits is woken by a call, and by the end.
    #[test]
    fn wakes_who_waits() {
        let (entrance, queue) = slow_queue(0, 3);
        assert!(matches!(queue.next(Duration::ZERO), Err(RecvTimeoutError::Timeout)));
        let waiting = std::thread::spawn(move || {
            let patience = Duration::from_secs(60);
            (queue.next(patience).is_ok(), matches!(queue.next(patience), Err(RecvTimeoutError::Disconnected)))
        });
        entrance.put(Some(1), &[1]);
        drop(entrance);
        assert_eq!(waiting.join().unwrap(), (true, true));
    }
}
