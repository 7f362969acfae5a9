//! What the shim keeps of each thread that is recorded: which methods of a tree it is in, and how far its ring is written.
//!
//! A row belongs to an environment, of which each thread of the VM has one of its own, and has the ring of the same number. Only its
//! thread uses it.

#![expect(unsafe_code, reason = "rows are in memory that is mapped")]

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use nprof_common::THREAD_COUNTERS;
use nprof_common::tree::RINGS;

use crate::memory::anonymous;

/// In how many places a row is looked for.
const PROBES: usize = 16;
const ROW_BITS: u32 = RINGS.trailing_zeros();
/// How many methods of a tree a thread is in at most that are told apart.
pub(super) const LEVELS: usize = 1_952;
/// How many tasks within each other a thread runs at most of which it is known which they are.
const TASKS: usize = 16;
/// In the place of a task's number: nobody has looked yet.
const UNKNOWN: u64 = u64::MAX;

/// A thread's.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Row {
    env: AtomicUsize,
    /// The run that the rest is of.
    pub(super) run: AtomicU32,
    /// Its thread is writing.
    pub(super) inside: AtomicU32,
    /// Its id in the kernel.
    pub(super) tid: AtomicU32,
    /// How many methods of a tree the thread is in.
    pub(super) depth: AtomicU32,
    /// So many more that are not told apart.
    pub(super) beyond: AtomicU32,
    /// The invocation is left out as a whole.
    pub(super) skips: AtomicU32,
    /// How many events have been written, and how many of them were read when it was last looked.
    pub(super) written: AtomicU64,
    pub(super) read: AtomicU64,
    /// Events without room, of which the ring does not tell yet.
    pub(super) lost: AtomicU64,
    /// Where the kernel's row of the thread is; 0 where it has none.
    pub(super) waits: AtomicUsize,
    /// How often it has looked for one in vain.
    pub(super) waits_missed: AtomicU32,
    /// How long it had not been running until what it told last.
    pub(super) off_ns: AtomicU64,
    /// What it had consumed until then, of what is told.
    pub(super) used: [AtomicU64; THREAD_COUNTERS],
    /// So many calls of which nothing is told are not counted until one is, for all of them.
    pub(super) untold: AtomicU64,
    /// The number of the exception's class that came last.
    pub(super) exception: AtomicU32,
    /// The numbers of the methods.
    pub(super) stack: [AtomicU32; LEVELS],
    /// How many tasks the thread runs within each other, and their numbers.
    tasks: AtomicU32,
    task_stack: [AtomicU64; TASKS],
    /// How many tasks it has told of.
    handed: AtomicU64,
    /// The number of the thread itself, which is a task as well.
    started: AtomicU64,
}

/// The rows of all threads.
#[derive(Debug)]
pub(super) struct Rows(&'static [Row]);

impl Rows {
    pub(super) fn new() -> io::Result<Self> {
        let words = anonymous(RINGS * size_of::<Row>())?;
        // SAFETY: that much has been mapped, at the beginning of a page; it stays, is all zeros, and has atomics only.
        Ok(Self(unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<Row>(), RINGS) }))
    }

    /// The row of an environment, and its number; `None` where there is no room.
    #[inline]
    pub(super) fn of(&self, env: usize) -> Option<(usize, &'static Row)> {
        let first = (env >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - ROW_BITS);
        let row = self.0.get(first)?;
        if row.env.load(Ordering::Relaxed) == env { Some((first, row)) } else { self.further(env, first) }
    }

    #[cold]
    fn further(&self, env: usize, first: usize) -> Option<(usize, &'static Row)> {
        let places = || (0..PROBES).map(|probe| (first + probe) % RINGS);
        let at = |place: usize| self.0.get(place).map(|row| (place, row));
        let known = places().filter_map(at).find(|(_, row)| row.env.load(Ordering::Relaxed) == env);
        if known.is_some() {
            return known;
        }
        places().filter_map(at).find(|(_, row)| {
            let taken = row.env.compare_exchange(0, env, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if taken {
                row.begin_thread();
            }
            taken
        })
    }

    /// The thread of an environment has ended. What it has written stays, and whoever gets the row next writes on behind it.
    pub(super) fn release(&self, env: usize) {
        let row = self.0.iter().find(|row| row.env.load(Ordering::Relaxed) == env);
        if let Some(row) = row {
            row.env.store(0, Ordering::Release);
        }
    }

    /// Whether some thread is writing.
    pub(super) fn is_any_inside(&self) -> bool {
        self.0.iter().any(|row| row.inside.load(Ordering::Acquire) != 0)
    }
}

impl Row {
    /// Nothing is known of the thread yet.
    fn begin_thread(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
        self.started.store(UNKNOWN, Ordering::Relaxed);
        for word in [&self.depth, &self.beyond, &self.skips, &self.waits_missed, &self.tasks] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Nothing is known of this run yet.
    #[cold]
    pub(super) fn begin_run(&self, run: u32) {
        self.begin_thread();
        for word in [&self.written, &self.read, &self.lost, &self.handed] {
            word.store(0, Ordering::Relaxed);
        }
        self.run.store(run, Ordering::Relaxed);
    }

    /// Whether the thread is in no method of a tree.
    #[inline]
    pub(super) fn is_outside(&self) -> bool {
        self.depth.load(Ordering::Relaxed) == 0 && self.beyond.load(Ordering::Relaxed) == 0
    }

    /// Whether the thread is in an invocation of which it tells.
    pub(super) fn is_told(&self) -> bool {
        !self.is_outside() && self.skips.load(Ordering::Relaxed) == 0
    }

    /// The thread enters a method.
    #[inline]
    pub(super) fn push(&self, method: u32) {
        let depth = self.depth.load(Ordering::Relaxed);
        match self.stack.get(depth as usize) {
            Some(place) => {
                place.store(method, Ordering::Relaxed);
                self.depth.store(depth + 1, Ordering::Relaxed);
            }
            None => self.beyond.store(self.beyond.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed),
        }
    }

    /// The thread leaves a method, and all that it is in within it: an exception leaves natives unsaid. `false` if it was not in it.
    #[inline]
    pub(super) fn pop(&self, method: u32) -> bool {
        let beyond = self.beyond.load(Ordering::Relaxed);
        if beyond > 0 {
            self.beyond.store(beyond - 1, Ordering::Relaxed);
            return true;
        }
        let mut depth = self.depth.load(Ordering::Relaxed);
        while depth > 0 {
            depth -= 1;
            if self.stack.get(depth as usize).is_some_and(|place| place.load(Ordering::Relaxed) == method) {
                self.depth.store(depth, Ordering::Relaxed);
                return true;
            }
        }
        false
    }
}

/// The tasks that the thread runs, and those that it hands to others.
impl Row {
    /// How many tasks it has told of before one that it tells of now.
    pub(super) fn next_task(&self) -> u64 {
        let before = self.handed.load(Ordering::Relaxed);
        self.handed.store(before + 1, Ordering::Relaxed);
        before
    }

    /// It begins to run a task.
    pub(super) fn begin_task(&self, number: u64) {
        let running = self.tasks.load(Ordering::Relaxed);
        if let Some(place) = self.task_stack.get(running as usize) {
            place.store(number, Ordering::Relaxed);
        }
        self.tasks.store(running.saturating_add(1), Ordering::Relaxed);
    }

    /// It has run the one that it began last; one that began before this was told is unknown.
    pub(super) fn end_task(&self) {
        self.tasks.store(self.tasks.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }

    /// The task that it runs, which is 0 if nobody has told of it; the thread itself where it runs none.
    pub(super) fn task(&self, of_thread: impl FnOnce() -> u64) -> u64 {
        match self.tasks.load(Ordering::Relaxed).checked_sub(1) {
            Some(last) => self.task_stack.get(last as usize).map_or(0, |place| place.load(Ordering::Relaxed)),
            None => self.started(of_thread),
        }
    }

    fn started(&self, of_thread: impl FnOnce() -> u64) -> u64 {
        let known = self.started.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return known;
        }
        let number = of_thread();
        self.started.store(number, Ordering::Relaxed);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a thread keeps its row, that others have others, and that a row is another's when its thread has ended.
    #[test]
    fn rows_belong_to_threads() {
        let rows = Rows::new().unwrap();
        let numbers: Vec<usize> = (1..=300).map(|env| rows.of(env << 6).unwrap().0).collect();
        let mut apart = numbers.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), numbers.len());
        assert_eq!((1..=300).map(|env| rows.of(env << 6).unwrap().0).collect::<Vec<_>>(), numbers);
        rows.release(7 << 6);
        assert_eq!(rows.0[numbers[6]].env.load(Ordering::Relaxed), 0);
    }

    /// Check that what is left takes along what is within it, and that what was not entered is not left.
    #[test]
    fn leaving_takes_along() {
        let rows = Rows::new().unwrap();
        let (_, row) = rows.of(64).unwrap();
        for method in [1, 2, 1, 3] {
            row.push(method);
        }
        assert!(!row.pop(9) && row.pop(2));
        assert_eq!(row.depth.load(Ordering::Relaxed), 1);
        assert!(row.pop(1) && !row.pop(1));
    }

    /// Check that the innermost task counts, be it an unknown one, that too many within each other are unknown, and that the thread is a task
    /// where it runs no other, for which it is looked once.
    #[test]
    fn the_innermost_task() {
        let rows = Rows::new().unwrap();
        let (_, row) = rows.of(64).unwrap();
        assert_eq!((row.next_task(), row.next_task()), (0, 1));
        row.begin_run(1);
        assert_eq!(row.next_task(), 0);
        let of_thread = || 5;
        row.end_task();
        assert_eq!(row.task(of_thread), 5);
        row.begin_task(8);
        row.begin_task(0);
        assert_eq!(row.task(|| unreachable!()), 0);
        row.end_task();
        assert_eq!(row.task(|| unreachable!()), 8);
        (0..TASKS as u64).for_each(|more| row.begin_task(100 + more));
        assert_eq!(row.task(|| unreachable!()), 0);
        (0..TASKS).for_each(|_| row.end_task());
        assert_eq!(row.task(|| unreachable!()), 8);
        row.end_task();
        assert_eq!(row.task(|| unreachable!("once")), 5);
    }

    /// Check that a thread that is in more methods than are told apart comes back to where it was.
    #[test]
    fn deeper_than_told_apart() {
        let rows = Rows::new().unwrap();
        let (_, row) = rows.of(64).unwrap();
        (0..LEVELS + 100).for_each(|_| row.push(5));
        (0..LEVELS + 100).for_each(|_| assert!(row.pop(5)));
        assert!(!row.pop(5));
    }
}
