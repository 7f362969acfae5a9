//! What waits to be pushed, because the receiver is away or slow: bounded, and when there is no more room the oldest goes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::body::Bodies;
use super::tally::Tally;
use crate::model::PushOutcome;

/// The most that waits, compressed: hours of a host's profiles.
const MOST_BYTES: usize = 16 << 20;

/// What waits to be pushed. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Outbox {
    waiting: Arc<Mutex<Waiting>>,
    added: Arc<Notify>,
    removed: Arc<Notify>,
    tally: Arc<Tally>,
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Each with its number, the oldest first.
    pushes: VecDeque<(u64, Bodies)>,
    bytes: usize,
    next: u64,
}

impl Outbox {
    pub(super) fn new(tally: Arc<Tally>) -> Self {
        Self { waiting: Arc::default(), added: Arc::default(), removed: Arc::default(), tally, most_bytes: MOST_BYTES }
    }

    /// Adds a push. What has no room any more has failed.
    pub(super) fn add(&self, bodies: Bodies) {
        let mut waiting = self.lock();
        waiting.bytes += bodies.bytes;
        let number = waiting.next;
        waiting.next += 1;
        waiting.pushes.push_back((number, bodies));
        while waiting.bytes > self.most_bytes
            && let Some((_, oldest)) = waiting.pushes.pop_front()
        {
            waiting.bytes -= oldest.bytes;
            self.tally.ended(PushOutcome::Failed);
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// The oldest push and its number. It stays where it is.
    pub(super) async fn oldest(&self) -> (u64, Bodies) {
        loop {
            // One that is added meanwhile is noted.
            if let Some(oldest) = self.lock().pushes.front().cloned() {
                return oldest;
            }
            self.added.notified().await;
        }
    }

    /// Takes out the push of this number, unless it went for want of room.
    pub(super) fn remove(&self, number: u64) {
        let mut waiting = self.lock();
        if waiting.pushes.front().is_some_and(|(oldest, _)| *oldest == number)
            && let Some((_, oldest)) = waiting.pushes.pop_front()
        {
            waiting.bytes -= oldest.bytes;
        }
        drop(waiting);
        self.removed.notify_one();
    }

    /// Nothing waits any more.
    pub(super) async fn emptied(&self) {
        while !self.lock().pushes.is_empty() {
            self.removed.notified().await;
        }
    }

    /// Gives up what waits, and says how many pushes that were.
    pub(super) fn give_up(&self) -> usize {
        let given_up = std::mem::take(&mut *self.lock()).pushes.len();
        (0..given_up).for_each(|_| self.tally.ended(PushOutcome::Failed));
        given_up
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(text: &str) -> Bodies {
        let mut bodies = Bodies::default();
        bodies.push(text.as_bytes(), 1);
        bodies
    }

    /// Check that pushes come in order, stay until they are removed, and that the oldest go and are counted where there is no room.
    #[tokio::test]
    async fn oldest_goes_first() {
        let tally = Arc::new(Tally::new("t"));
        let mut outbox = Outbox::new(Arc::clone(&tally));
        outbox.most_bytes = 2 * bodies("a").bytes;
        outbox.add(bodies("a"));
        let (first, _) = outbox.oldest().await;
        assert_eq!(outbox.oldest().await.0, first, "it stays");
        outbox.add(bodies("b"));
        outbox.add(bodies("c"));
        assert_eq!(tally.read().outcomes[PushOutcome::Failed as usize], 1);
        outbox.remove(first);
        let (second, _) = outbox.oldest().await;
        assert_ne!(second, first, "b is still there: a went for want of room");
        outbox.remove(second);
        assert_eq!((outbox.give_up(), outbox.give_up()), (1, 0));
        assert_eq!(tally.read().outcomes[PushOutcome::Failed as usize], 2);
        outbox.emptied().await;
    }
}
