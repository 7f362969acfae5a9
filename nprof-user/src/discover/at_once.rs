//! The same done for many processes at once: one that keeps its reader waiting holds up few others, for a moment.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

/// How many are done at the same time. They mostly wait, if they take long at all.
const AT_ONCE: usize = 8;

/// Does `work` with each of `items`. The results are in their order. Each thread has its own state, made by `begin`.
pub(super) fn at_once<T: Send, S, R: Send>(
    items: Vec<T>,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, T) -> R + Sync,
) -> Vec<R> {
    let workers = AT_ONCE.min(items.len());
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    let items = Mutex::new(items.into_iter().enumerate());
    // A panic goes on in the caller, when all threads have ended.
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        let mut state = begin();
        while let Some((index, item)) = next() {
            let result = work(&mut state, item);
            results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            // Fewer threads take longer, and nothing else.
            drop(thread::Builder::new().spawn_scoped(scope, run));
        }
        run();
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Check that the order is kept, and that as many as said are at work together.
    #[test]
    fn all_at_once_and_in_order() {
        let all = Barrier::new(AT_ONCE);
        let doubled = at_once(
            (0..AT_ONCE).collect(),
            || (),
            |(), item| {
                all.wait();
                item * 2
            },
        );
        assert_eq!(doubled, (0..AT_ONCE).map(|item| item * 2).collect::<Vec<_>>());
        assert!(at_once(Vec::<u8>::new(), || (), |(), item| item).is_empty());
        assert_eq!(at_once(vec![7; 1000], || 0, |_, item| item), [7; 1000]);
    }
}
