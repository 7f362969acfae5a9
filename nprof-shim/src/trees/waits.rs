//! How long a thread has not been running, and what it has consumed, by the row that the kernel keeps of it ([`nprof_common::rows`]), without a system call.
//!
//! All that is in a row is written while its thread is in the kernel, so the thread itself reads what is exact. It finds its row once in a run.

#![expect(unsafe_code, reason = "rows are in memory that is mapped, and found by its address")]

use std::arch::x86_64::_rdtsc;
use std::mem::offset_of;
use std::ptr::with_exposed_provenance;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

use nprof_common::THREAD_COUNTERS;
use nprof_common::rows::{BUCKET_ROWS, ThreadRow, Used, bucket_of};

use crate::memory::Words;
use crate::pool;

const ROW_WORDS: usize = size_of::<ThreadRow>() / 8;
const KEY: usize = offset_of!(ThreadRow, key) / 8;
const SINCE: usize = offset_of!(ThreadRow, since_ns) / 8;
const OFF: usize = (offset_of!(ThreadRow, used) + offset_of!(Used, off_ns)) / 8;
const COUNTERS: usize = (offset_of!(ThreadRow, used) + offset_of!(Used, counters)) / 8;
/// How often it is read until nothing has changed meanwhile.
const TRIES: u32 = 4;

/// The rows of all threads.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Where they are, and how many words. They stay mapped, be it to something else.
    first: AtomicUsize,
    words: AtomicUsize,
}

/// A moment, and how long the thread had not been running until then, in nanoseconds, if that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) ticks: u64,
    pub(super) off_ns: Option<u64>,
}

impl Waits {
    /// From now on these. No thread is looking meanwhile.
    pub(super) fn set(&self, rows: Option<Words>) {
        self.words.store(0, Ordering::Release);
        if let Some(rows) = rows {
            self.first.store(rows.as_ptr().expose_provenance(), Ordering::Release);
            self.words.store(rows.len(), Ordering::Release);
        }
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn are_known(&self) -> bool {
        self.words.load(Ordering::Acquire) > 0
    }

    fn rows(&self) -> Words {
        let words = self.words.load(Ordering::Acquire);
        if words == 0 {
            return &[];
        }
        let first = with_exposed_provenance::<AtomicU64>(self.first.load(Ordering::Acquire));
        // SAFETY: so many words have been mapped there, which stay mapped for good, and have atomics only.
        unsafe { std::slice::from_raw_parts(first, words) }
    }

    /// The address of the current thread's row, which it asks for if it has none; `None` if it gets none.
    #[cold]
    pub(super) fn find(&self) -> Option<usize> {
        self.look().or_else(|| {
            pool::ask();
            self.look()
        })
    }

    fn look(&self) -> Option<usize> {
        let rows = self.rows();
        // SAFETY: it takes nothing, and cannot fail. The C libraries of x86-64 give the address of the control block.
        let key = unsafe { libc::pthread_self() };
        let buckets =
            u32::try_from(rows.len() / (BUCKET_ROWS as usize * ROW_WORDS)).ok().filter(|&buckets| buckets > 0)?;
        let first = (bucket_of(key, buckets) * BUCKET_ROWS) as usize;
        let mut places =
            (first..first + BUCKET_ROWS as usize).filter_map(|place| rows.get(place * ROW_WORDS..)?.first_chunk());
        let row: &[AtomicU64; ROW_WORDS] = places.find(|row| row[KEY].load(Ordering::Relaxed) == key)?;
        Some(row.as_ptr().expose_provenance())
    }
}

/// Now, for the thread whose row is at this address; without one, 0.
#[inline]
pub(super) fn moment(row: usize) -> Moment {
    if row == 0 {
        return Moment { ticks: ticks(), off_ns: None };
    }
    // SAFETY: a row has been mapped there, which stays mapped for good, and has atomics only.
    let row = unsafe { &*with_exposed_provenance::<[AtomicU64; ROW_WORDS]>(row) };
    let mut off_ns = row[OFF].load(Ordering::Relaxed);
    for _ in 0..TRIES {
        compiler_fence(Ordering::SeqCst);
        let ticks = ticks();
        compiler_fence(Ordering::SeqCst);
        if row[SINCE].load(Ordering::Relaxed) != 0 {
            // The kernel has not told that this thread runs, and so not how long it did not.
            pool::ask();
        }
        // What came in between is either in both or in none.
        let now_ns = row[OFF].load(Ordering::Relaxed);
        if now_ns == off_ns {
            return Moment { ticks, off_ns: Some(off_ns) };
        }
        off_ns = now_ns;
    }
    Moment { ticks: ticks(), off_ns: Some(off_ns) }
}

/// What the thread has consumed until now whose row is at this address; `None` without one.
#[inline]
pub(super) fn used(row: usize) -> Option<&'static [AtomicU64]> {
    if row == 0 {
        return None;
    }
    // SAFETY: as above.
    let row = unsafe { &*with_exposed_provenance::<[AtomicU64; ROW_WORDS]>(row) };
    row.get(COUNTERS..COUNTERS + THREAD_COUNTERS)
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux lets all processes use it unless told not to.
    unsafe { _rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::anonymous;

    /// Check that a thread finds its own row among others, that nothing is known without one, and that what the row says is read.
    #[test]
    fn a_thread_finds_its_row() {
        const BUCKETS: u32 = 4;
        let words = anonymous((BUCKETS * BUCKET_ROWS) as usize * size_of::<ThreadRow>()).unwrap();
        let waits = Waits::default();
        assert!(!waits.are_known() && waits.find().is_none());
        waits.set(Some(words));
        assert!(waits.are_known() && waits.find().is_none());
        // SAFETY: it takes nothing, and cannot fail.
        let key = unsafe { libc::pthread_self() };
        let place = ((bucket_of(key, BUCKETS) * BUCKET_ROWS) as usize + 3) * ROW_WORDS;
        words[place + KEY - ROW_WORDS].store(key + 64, Ordering::Relaxed);
        words[place + KEY].store(key, Ordering::Relaxed);
        words[place + OFF].store(1_234, Ordering::Relaxed);
        let row = waits.find().unwrap();
        let (first, second) = (moment(row), moment(0));
        assert_eq!((first.off_ns, second.off_ns), (Some(1_234), None));
        assert!(first.ticks <= second.ticks);
        waits.set(None);
        assert!(!waits.are_known());
    }
}
