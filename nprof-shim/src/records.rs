//! The records that stubs write: for each method a `MethodStats` and a `StubCounts` per CPU and a spare one.
//!
//! What is read here are sums over shards that are being written; each word is whole. What is counted, and a record's
//! `entered`, may be newer than its histogram, never the other way round by more than the calls that begin meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nprof_common::rows::{BUCKET_ROWS, BUCKETS, LEAST_ROWS, ROWS, ThreadRow};
use nprof_common::wire::{Layout, PAGE, StubCounts};
use nprof_common::{Consumed, Counter, MethodStats};

use crate::memory::{Shared, Words};
use crate::pool::Collecting;

/// Words of a record.
const WORDS: usize = size_of::<MethodStats>() / 8;
/// How many times as large a record is as what its calls consume.
pub(crate) const TIMES: usize = size_of::<MethodStats>() / size_of::<Consumed>();
const _: () = assert!(size_of::<Consumed>() * TIMES == size_of::<MethodStats>());
const _: () = assert!(BUCKETS as u64 <= PAGE);
/// How far the bits of counters of bytes are above those that fit below a page.
pub(crate) const BYTES_SHIFT: u32 = Counter::OF_BYTES.trailing_zeros();
const _: () = assert!(((Counter::OF_BYTES >> BYTES_SHIFT) as u64) < PAGE);

/// The bits of a [`Place`] that hold the number of shards.
pub(crate) const SHARD_BITS: u32 = 16;
/// More shards than the kernel can have CPUs, and fewer than a CPU number that means none.
const MOST_SHARDS: u32 = 0x7fff;
/// More than any nprof maps for one JVM, and so little that no sum of addresses overflows.
const MOST_BYTES: u64 = 1 << 38;

/// Where a stub records: of each of the two the address of the first shard and, in the lower bits, how many there are. One word, so that
/// a stub never sees one without the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What is recorded of timed calls.
    pub(crate) record: u64,
    /// The others are counted.
    pub(crate) counts: u64,
}

/// Where in a file or BPF map records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where the first begins, in bytes.
    pub first: u64,
    /// How many there are.
    pub records: u32,
    /// Shards of each that are CPUs' own. One more follows.
    pub shards: u32,
    /// Whether what calls consume is recorded behind them: a `Consumed` for each shard.
    pub consumed: bool,
    /// Of which counters it is recorded how much each call consumed, on the next page behind that.
    pub bytes: u32,
}

impl Run {
    fn layout(&self) -> Option<Layout> {
        Layout::of(self.records, self.shards.checked_add(1)?, self.consumed, self.bytes)
    }

    /// Whether what each call consumed can be there: it is a part of what is recorded, and begins with a page.
    fn can_have_bytes(&self) -> bool {
        self.bytes == 0 || self.consumed && self.bytes & !Counter::OF_BYTES == 0 && self.first.is_multiple_of(PAGE)
    }
}

/// Memory for the records of a number of methods. It stays mapped for good: a stub may write to it at any time.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    words: Words,
    /// The counts, from those of the first record in the first shard on.
    counts: Words,
    shards: u32,
    shared: Option<Shared>,
    /// Whether what calls consume follows behind them.
    consumed: bool,
    /// Where, from the first of them on, it is how much each call consumed, and of which counters; 0 if that is not recorded.
    bytes: (usize, u32),
    /// What threads have used; without that it is not collected.
    rows: Option<Shared>,
}

impl Records {
    /// Maps records that others read: a run of them in a BPF map or a file.
    ///
    /// # Errors
    /// When they cannot be where they are said to be, or there is no room for them.
    pub fn map_run(file: OwnedFd, run: Run) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let layout = run.layout().ok_or_else(invalid)?;
        let is_possible = run.can_have_bytes()
            && run.first.is_multiple_of(align_of::<MethodStats>() as u64)
            && (1..=MOST_SHARDS).contains(&run.shards)
            && run.records > 0
            && layout.end <= MOST_BYTES
            && run.first <= MOST_BYTES;
        let file = File::from(file);
        let metadata = file.metadata()?;
        // A BPF map refuses to be mapped beyond its end, a file does not.
        if !is_possible || metadata.is_file() && metadata.len() < run.first + layout.end {
            return Err(invalid());
        }
        let before = run.first % PAGE;
        let bytes = (before + layout.end).next_multiple_of(PAGE);
        // Later runs, which may have some more records, find room where this one was.
        let later = Run { records: run.records.next_power_of_two(), ..run };
        let most = later.layout().map_or(bytes, |later| later.end + 2 * PAGE);
        let [bytes, most] = [bytes, most].map(|size| usize::try_from(size).or(Err(invalid())));
        let shared = Shared::map(file.as_fd(), run.first - before, bytes?, most?)?;
        let part = |from: u64, to: u64| {
            let [from, to] = [from, to].map(|at| usize::try_from((before + at) / 8));
            shared.words().get(from.ok()?..to.ok()?)
        };
        let words = part(0, layout.consumed).ok_or_else(invalid)?;
        let counts = part(layout.counts, layout.end).ok_or_else(invalid)?;
        let bytes = (usize::try_from(layout.bytes).or(Err(invalid()))?, run.bytes);
        let (shards, consumed) = (run.shards, run.consumed);
        Ok(Self { words, counts, shards, shared: Some(shared), consumed, bytes, rows: None })
    }

    /// The same with so many rows of threads, in a map or file that is mapped for reading.
    ///
    /// # Errors
    /// When it is too short, it cannot be that many, or there is no room.
    pub fn with_rows(self, file: OwnedFd, rows: u32) -> io::Result<Self> {
        Ok(Self { rows: Some(map_rows(file, rows)?), ..self })
    }

    /// What is collected of calls; `None` where that is nothing.
    #[must_use]
    pub fn collecting(&self) -> Option<Collecting> {
        let rows = self.rows?.words();
        let buckets = size_of_val(rows) / (BUCKET_ROWS as usize * size_of::<ThreadRow>());
        let rows = rows.as_ptr().addr() | (buckets - 1);
        let first = self.words.as_ptr().addr();
        let consumed = (first + size_of_val(self.words)).wrapping_sub(first / TIMES);
        let consumed = if self.consumed { consumed } else { 0 };
        let (begin, wanted) = self.bytes;
        let bytes = if wanted == 0 { 0 } else { (first + begin) | (wanted >> BYTES_SHIFT) as usize };
        Some(Collecting { rows, consumed, bytes })
    }

    /// Lets go of the rows of threads, if there are some: nobody writes to them any more.
    ///
    /// # Errors
    /// When the kernel has no memory left to do it.
    pub fn let_rows_go(&mut self) -> io::Result<()> {
        self.rows.take().map_or(Ok(()), Shared::let_go)
    }

    /// Lets go of the files or maps, if this is of some. The memory stays, and what is written to it is seen by nobody.
    ///
    /// # Errors
    /// When the kernel has no memory left to do it.
    pub fn let_go(self) -> io::Result<()> {
        self.shared.map_or(Ok(()), Shared::let_go)?;
        self.rows.map_or(Ok(()), Shared::let_go)
    }

    /// How many shards a record has, the spare one left out.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// How many methods there is room for.
    #[must_use]
    pub fn room(&self) -> usize {
        self.words.len() / self.words_of_method()
    }

    /// Where a method's calls are recorded; `None` beyond the room.
    #[must_use]
    pub fn place(&self, index: u32) -> Option<Place> {
        let record = self.method(index)?.as_ptr().addr();
        let counts = self.counts.as_ptr().addr() + index as usize * size_of::<StubCounts>();
        let word = |address: usize| (address as u64) << SHARD_BITS | u64::from(self.shards);
        Some(Place { record: word(record), counts: word(counts) })
    }

    fn method(&self, index: u32) -> Option<Words> {
        let words = self.words_of_method();
        self.words.chunks_exact(words).nth(index as usize)
    }

    fn words_of_method(&self) -> usize {
        (self.shards as usize + 1) * WORDS
    }
}

/// Maps so many rows of threads, to read them.
///
/// # Errors
/// When the map or file is too short, they cannot be that many, or there is no room.
pub(crate) fn map_rows(file: OwnedFd, rows: u32) -> io::Result<Shared> {
    let bytes = rows as usize * size_of::<ThreadRow>();
    let is_possible = rows.is_power_of_two() && (LEAST_ROWS..=ROWS).contains(&rows);
    let file = File::from(file);
    let metadata = file.metadata()?;
    // A BPF map refuses to be mapped beyond its end, a file does not.
    if !is_possible || metadata.is_file() && metadata.len() < bytes as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Later ones, which may be more, find room where these were.
    let most = ROWS as usize * size_of::<ThreadRow>();
    Shared::map_to_read(file.as_fd(), bytes, most)
}

/// Records of tests, and what they hold.
#[cfg(test)]
mod testing {
    use std::mem::offset_of;
    use std::sync::atomic::Ordering;

    use nprof_common::histogram::BUCKETS;
    use nprof_common::wire::COUNTS_STRIDE;

    use super::*;
    use crate::memory::anonymous;

    const MAX: usize = offset_of!(MethodStats, max_ns) / 8;

    impl Records {
        /// Records for so many methods, in memory of our own, with shards for so many CPUs.
        ///
        /// # Errors
        /// When there is no room for them.
        pub fn map_for(methods: usize, cpus: u32) -> io::Result<Self> {
            let shards = cpus.min(MOST_SHARDS);
            let words = anonymous(methods * (shards as usize + 1) * size_of::<MethodStats>())?;
            let counts = anonymous((shards as usize + 1) * COUNTS_STRIDE)?;
            Ok(Self { words, counts, shards, shared: None, consumed: false, bytes: (0, 0), rows: None })
        }

        /// The sum over the shards of a method; of no calls beyond the room.
        #[must_use]
        pub fn sum(&self, index: u32) -> MethodStats {
            let mut sum = [0u64; WORDS];
            for shard in self.method(index).unwrap_or_default().chunks_exact(WORDS) {
                for (at, (sum, word)) in sum.iter_mut().zip(shard).enumerate() {
                    let word = word.load(Ordering::Relaxed);
                    *sum = if at == MAX { word.max(*sum) } else { sum.wrapping_add(word) };
                }
            }
            let stats = from_words(&sum);
            MethodStats { counted: stats.counted + self.counted(index), ..stats }
        }

        /// The calls of a method that were counted apart from its record.
        fn counted(&self, index: u32) -> u64 {
            let first = (index as usize * size_of::<StubCounts>() + offset_of!(StubCounts, counted)) / 8;
            let shards = self.counts.chunks_exact(COUNTS_STRIDE / 8);
            shards.map(|shard| shard[first].load(Ordering::Relaxed)).sum()
        }
    }

    fn from_words(words: &[u64; WORDS]) -> MethodStats {
        const HISTOGRAM: usize = offset_of!(MethodStats, histogram) / 8;
        let mut histogram = [0; BUCKETS];
        histogram.copy_from_slice(&words[HISTOGRAM..HISTOGRAM + BUCKETS]);
        MethodStats {
            counted: words[offset_of!(MethodStats, counted) / 8],
            entered: words[offset_of!(MethodStats, entered) / 8],
            total_ns: words[offset_of!(MethodStats, total_ns) / 8],
            max_ns: words[MAX],
            histogram,
            ..MethodStats::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use nprof_common::histogram::BUCKETS;

    use super::*;

    /// Check that shards are summed, the maximum is the highest, and another method's record is left out.
    #[test]
    fn sums_shards() {
        let records = Records::map_for(3, 2).unwrap();
        assert_eq!((records.room(), records.shards()), (3, 2));
        for (shard, value) in [(0, 5), (1, 9), (2, 7)] {
            for word in 0..WORDS {
                records.method(1).unwrap()[shard * WORDS + word].store(value, Ordering::Relaxed);
            }
        }
        let sum = records.sum(1);
        assert_eq!((sum.counted, sum.entered, sum.total_ns, sum.max_ns), (21, 21, 21, 9));
        assert_eq!(sum.histogram, [21; BUCKETS]);
        assert_eq!(records.sum(0), MethodStats::ZERO);
        assert_eq!(records.sum(3), MethodStats::ZERO);
        assert_eq!(records.place(3), None);
    }

    /// Check that places hold the number of shards, and records are apart by the size that the stubs multiply with.
    #[test]
    fn shards_lie_side_by_side() {
        let records = Records::map_for(2, 4).unwrap();
        let places = [0, 1].map(|index| records.place(index).unwrap());
        let apart = [places.map(|place| place.record), places.map(|place| place.counts)].map(|[first, second]| {
            assert_eq!((first & 0xffff, second & 0xffff), (4, 4));
            (second >> SHARD_BITS) - (first >> SHARD_BITS)
        });
        assert_eq!(apart, [5 * size_of::<MethodStats>() as u64, size_of::<StubCounts>() as u64]);
    }

    /// Check that a run begins where it is said to, ends where it ends, and is refused where there is none.
    #[test]
    fn a_run_in_a_file() {
        let _turn = crate::memory::tests::turn();
        let file = tempfile::tempfile().unwrap();
        let size = size_of::<MethodStats>() as u64;
        let run = Run { first: 3 * size, records: 2, shards: 2, consumed: false, bytes: 0 };
        file.set_len(run.first + run.layout().unwrap().end).unwrap();
        let mapped = |run| Records::map_run(file.try_clone().unwrap().into(), run);
        let records = mapped(run).unwrap();
        assert_eq!((records.room(), records.shards()), (2, 2));
        records.method(1).unwrap()[WORDS].store(7, Ordering::Relaxed);
        let mut word = [0; 8];
        file.read_exact_at(&mut word, run.first + 4 * size).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 7);
        for wrong in [
            Run { records: 3, ..run },
            Run { first: run.first + 64, ..run },
            Run { first: 8, ..run },
            Run { shards: 0, ..run },
            Run { records: 0, ..run },
            Run { first: u64::MAX - 63, ..run },
            Run { records: u32::MAX, shards: u32::MAX, ..run },
            Run { first: 0, bytes: Counter::ReadBytes.bit(), ..run },
            Run { first: 0, consumed: true, bytes: Counter::Syscalls.bit(), ..run },
            Run { first: 64, consumed: true, bytes: Counter::ReadBytes.bit(), ..run },
            Run { first: 0, consumed: true, bytes: Counter::OF_BYTES, ..run },
        ] {
            assert!(mapped(wrong).is_err(), "{wrong:?}");
        }
    }
}
