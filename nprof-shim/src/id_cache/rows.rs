//! What each thread counts, in a row of its own: nothing is shared while it looks something up.
//!
//! A row belongs to an environment, of which each thread of the VM has one of its own. It also keeps where the thread's look-ups came
//! from, and leaves those alone that are in vain: where too little is found again for what it costs to keep it, the original is called
//! at once for a growing number of calls.

#![expect(unsafe_code, reason = "rows are in memory that is mapped")]

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

use super::FUNCTIONS;
use crate::memory::anonymous;

/// How many threads can have rows at a time, and in how many places a row is looked for.
const ROW_BITS: u32 = 10;
const ROWS: usize = 1 << ROW_BITS;
const PROBES: usize = 8;
/// How many callers a row tells apart.
const SITES: usize = 16;
/// After so many look-ups in vain it is looked whether this pays.
const PERIOD: u64 = 16;
/// So many must have been found for each that was in vain: that costs a few times what a hit wins.
const WORTH: u64 = 8;
/// How many calls are left alone then, the first time and at most.
const FIRST_PAUSE: u64 = 256;
const LONGEST_PAUSE: u64 = 65_536;
/// One of so many hits is timed, with the original beside it; of the first, more.
const EVERY: u64 = 1_024;
const FIRST: u64 = 4_096;
const EVERY_FIRST: u64 = 64;

/// What is counted of a function, by a thread or all.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    left: AtomicU64,
    timed: AtomicU64,
    hit_ticks: AtomicU64,
    original_ticks: AtomicU64,
    wrong: AtomicU64,
}

/// What is counted of a caller, and whether it is left alone.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Site {
    caller: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    left: AtomicU64,
    /// So many calls are left alone from now on, and so many the next time.
    pause: AtomicU64,
    next_pause: AtomicU64,
    /// Look-ups in vain, and the hits before them.
    in_vain: AtomicU64,
    hits_before: AtomicU64,
}

/// A thread.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Row {
    owner: AtomicUsize,
    /// Odd while the thread is looking.
    looks: AtomicU64,
    functions: [Counts; FUNCTIONS],
    sites: [Site; SITES],
    other: Site,
}

/// All rows, and what threads count that have found none.
#[derive(Debug)]
pub(super) struct Rows {
    rows: &'static [Row],
    rowless: [AtomicU64; FUNCTIONS],
}

/// A thread that was looking.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    row: &'static Row,
    looks: u64,
}

/// What a function has been asked, and what that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sum {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) left: u64,
    pub(crate) timed: u64,
    pub(crate) hit_ticks: u64,
    pub(crate) original_ticks: u64,
    pub(crate) wrong: u64,
}

/// What was asked from a place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Asked {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) left: u64,
}

/// The sums of all threads, by function and by caller; 0 stands for all callers that are not told apart.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) functions: [Sum; FUNCTIONS],
    pub(crate) callers: BTreeMap<usize, Asked>,
}

/// Adds to a word of the thread's own row: nobody else writes there.
#[inline]
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Rows {
    pub(super) fn new() -> io::Result<Self> {
        let words = anonymous((ROWS + 1) * size_of::<Row>())?;
        // SAFETY: all zeros are rows; pages begin with a multiple of a row's alignment; the memory stays, and nobody else has it.
        let rows = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<Row>(), ROWS) };
        Ok(Self { rows, rowless: Default::default() })
    }

    fn places(&self, env: usize) -> impl Iterator<Item = &'static Row> {
        let first = env.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - ROW_BITS);
        let rows = self.rows;
        (first..first + PROBES).map(move |place| &rows[place % ROWS])
    }

    /// The thread's row; `None` if there are too many threads.
    #[inline]
    pub(super) fn of(&self, env: usize) -> Option<&'static Row> {
        self.places(env).next().filter(|row| row.owner.load(Ordering::Relaxed) == env).or_else(|| self.find(env))
    }

    #[cold]
    fn find(&self, env: usize) -> Option<&'static Row> {
        if let Some(row) = self.places(env).find(|row| row.owner.load(Ordering::Relaxed) == env) {
            return Some(row);
        }
        let claim = |row: &&Row| row.owner.compare_exchange(0, env, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        self.places(env).find(claim)
    }

    /// A thread has ended: its row can be another's, who goes on with its counts.
    pub(super) fn release(&self, env: usize) {
        if let Some(row) = self.places(env).find(|row| row.owner.load(Ordering::Relaxed) == env) {
            row.owner.store(0, Ordering::Release);
        }
    }

    /// A call of a thread without a row.
    pub(super) fn count_rowless(&self, function: usize) {
        self.rowless[function].fetch_add(1, Ordering::Relaxed);
    }

    /// The threads that are looking.
    pub(super) fn inside(&self) -> impl Iterator<Item = Look> {
        let look = |row: &'static Row| Look { row, looks: row.looks.load(Ordering::Acquire) };
        self.rows.iter().map(look).filter(|look| look.looks % 2 == 1)
    }

    /// Forgets what was counted.
    pub(super) fn start_over(&self) {
        for row in self.rows.iter().filter(|row| row.has_counted()) {
            row.functions.iter().flat_map(Counts::words).for_each(|word| word.store(0, Ordering::Relaxed));
            row.all_sites().for_each(Site::start_over);
        }
        self.rowless.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// What all threads have counted.
    pub(super) fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for row in self.rows.iter().filter(|row| row.has_counted()) {
            sums.functions.iter_mut().zip(&row.functions).for_each(|(sum, counts)| sum.add(counts));
            row.all_sites().for_each(|site| sums.add(site));
        }
        for (sum, count) in sums.functions.iter_mut().zip(&self.rowless) {
            let count = count.load(Ordering::Relaxed);
            sum.left += count;
            sums.callers.entry(0).or_default().left += count;
        }
        sums.callers.retain(|_, asked| *asked != Asked::default());
        sums
    }
}

impl Look {
    /// Whether the thread has not done anything else since.
    pub(super) fn goes_on(&self) -> bool {
        self.row.looks.load(Ordering::Acquire) == self.looks
    }
}

impl Row {
    /// Begins to look: until [`Self::done`] nothing is freed that is found.
    #[inline]
    pub(super) fn looking(&self) {
        add(&self.looks, 1);
        // The CPU may look first all the same: who frees has the kernel see to it.
        compiler_fence(Ordering::SeqCst);
    }

    /// Has looked.
    #[inline]
    pub(super) fn done(&self) {
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// The place that a call came from.
    #[inline]
    pub(super) fn site(&self, caller: usize) -> &Site {
        let first = (caller >> 1 ^ caller >> 5 ^ caller >> 9) % SITES;
        for place in [first, first ^ 1] {
            let site = &self.sites[place];
            let there = site.caller.load(Ordering::Relaxed);
            if there == 0 {
                site.caller.store(caller, Ordering::Relaxed);
            }
            if there == caller || there == 0 {
                return site;
            }
        }
        &self.other
    }

    /// Whether the next hit is to be timed.
    #[inline]
    pub(super) fn is_timed(&self, function: usize) -> bool {
        let hits = self.functions[function].hits.load(Ordering::Relaxed);
        hits % EVERY_FIRST == EVERY_FIRST - 1 && (hits < FIRST || hits % EVERY == EVERY - 1)
    }

    #[inline]
    pub(super) fn hit(&self, function: usize, site: &Site) {
        add(&self.functions[function].hits, 1);
        add(&site.hits, 1);
    }

    /// A hit was timed, and the original beside it.
    pub(super) fn timed(&self, function: usize, hit_ticks: u64, original_ticks: u64) {
        let counts = &self.functions[function];
        add(&counts.timed, 1);
        add(&counts.hit_ticks, hit_ticks);
        add(&counts.original_ticks, original_ticks);
    }

    /// The original has said something else than what was kept.
    pub(super) fn wrong(&self, function: usize) {
        add(&self.functions[function].wrong, 1);
    }

    pub(super) fn miss(&self, function: usize, site: &Site) {
        add(&self.functions[function].misses, 1);
        add(&site.misses, 1);
    }

    /// Whether a call is left alone: then it has been counted.
    #[inline]
    pub(super) fn leaves_alone(&self, function: usize, site: &Site) -> bool {
        let pause = site.pause.load(Ordering::Relaxed);
        if pause == 0 {
            return false;
        }
        site.pause.store(pause - 1, Ordering::Relaxed);
        self.leave(function, site);
        true
    }

    /// A call is the original's alone.
    pub(super) fn leave(&self, function: usize, site: &Site) {
        add(&self.functions[function].left, 1);
        add(&site.left, 1);
    }

    fn has_counted(&self) -> bool {
        self.looks.load(Ordering::Relaxed) > 0 || self.owner.load(Ordering::Relaxed) != 0
    }

    fn all_sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.iter().chain([&self.other])
    }
}

impl Site {
    /// A look-up was in vain: nothing was kept, or something else had to go for it.
    pub(super) fn in_vain(&self) {
        add(&self.in_vain, 1);
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain < PERIOD {
            return;
        }
        let hits = self.hits.load(Ordering::Relaxed);
        let found = hits.saturating_sub(self.hits_before.load(Ordering::Relaxed));
        let next = self.next_pause.load(Ordering::Relaxed).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        if found < WORTH * in_vain {
            self.pause.store(next, Ordering::Relaxed);
            self.next_pause.store(next * 2, Ordering::Relaxed);
        } else {
            self.next_pause.store(next / 2, Ordering::Relaxed);
        }
        self.hits_before.store(hits, Ordering::Relaxed);
        self.in_vain.store(0, Ordering::Relaxed);
    }

    fn start_over(&self) {
        self.caller.store(0, Ordering::Relaxed);
        let words =
            [&self.hits, &self.misses, &self.left, &self.pause, &self.next_pause, &self.in_vain, &self.hits_before];
        words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Counts {
    fn words(&self) -> [&AtomicU64; 7] {
        let Self { hits, misses, left, timed, hit_ticks, original_ticks, wrong } = self;
        [hits, misses, left, timed, hit_ticks, original_ticks, wrong]
    }
}

impl Sum {
    fn add(&mut self, counts: &Counts) {
        let [hits, misses, left, timed, hit_ticks, original_ticks, wrong] =
            counts.words().map(|word| word.load(Ordering::Relaxed));
        self.hits += hits;
        self.misses += misses;
        self.left += left;
        self.timed += timed;
        self.hit_ticks += hit_ticks;
        self.original_ticks += original_ticks;
        self.wrong += wrong;
    }
}

impl Sums {
    fn add(&mut self, site: &Site) {
        let asked = self.callers.entry(site.caller.load(Ordering::Relaxed)).or_default();
        asked.hits += site.hits.load(Ordering::Relaxed);
        asked.misses += site.misses.load(Ordering::Relaxed);
        asked.left += site.left.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that threads have rows of their own, that a row goes on where its thread has ended, and that there may be too many.
    #[test]
    fn each_thread_has_a_row() {
        let rows = Rows::new().unwrap();
        let [one, other] = [0x1000, 0x2000].map(|env| rows.of(env).unwrap());
        assert!(!std::ptr::eq(one, other) && std::ptr::eq(one, rows.of(0x1000).unwrap()));
        one.miss(0, one.site(0x77));
        rows.release(0x1000);
        let next = rows.of(0x1000).unwrap();
        next.hit(0, next.site(0x77));
        assert_eq!(rows.sums().callers[&0x77], Asked { hits: 1, misses: 1, left: 0 });
        let rowless = (1..4_000).filter(|env| rows.of(env * 0x1_0000).is_none()).count();
        assert!(rowless >= 4_000 - ROWS - 1, "{rowless}");
    }

    /// Check that who is looking is seen until it has looked.
    #[test]
    fn looking_is_seen() {
        let rows = Rows::new().unwrap();
        let row = rows.of(0x1000).unwrap();
        row.looking();
        let looks: Vec<Look> = rows.inside().collect();
        assert!(looks.len() == 1 && looks[0].goes_on());
        row.done();
        assert!(!looks[0].goes_on() && rows.inside().next().is_none());
    }

    /// Check that a caller is left alone longer and longer where nothing is found again, and never where enough is.
    #[test]
    fn leaves_alone_who_asks_in_vain() {
        let rows = Rows::new().unwrap();
        let row = rows.of(0x1000).unwrap();
        let (vain, good) = (row.site(0x10), row.site(0x12));
        assert!(!std::ptr::eq(vain, good));
        let mut asked = 0;
        for _ in 0..1_000_000 {
            if !row.leaves_alone(0, vain) {
                vain.in_vain();
                asked += 1;
            }
        }
        assert!((PERIOD..30 * PERIOD).contains(&asked), "{asked}");
        for round in 0..10_000 {
            row.hit(1, good);
            if round % (2 * WORTH) == 0 {
                good.in_vain();
            }
            assert!(!row.leaves_alone(1, good));
        }
        let sums = rows.sums();
        assert_eq!((sums.functions[0].left, sums.functions[1].hits), (1_000_000 - asked, 10_000));
    }

    /// Check that callers beyond those that are told apart are counted together.
    #[test]
    fn many_callers() {
        let rows = Rows::new().unwrap();
        let row = rows.of(0x1000).unwrap();
        for caller in 1..=200 {
            row.hit(2, row.site(caller));
        }
        let sums = rows.sums();
        assert_eq!(sums.callers.values().map(|asked| asked.hits).sum::<u64>(), 200);
        assert!(sums.callers.len() == SITES + 1 && sums.callers[&0].hits == 200 - SITES as u64);
        rows.start_over();
        assert!(rows.sums().callers.is_empty());
    }
}
