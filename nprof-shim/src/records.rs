//! The records that stubs write: for each method a `MethodStats` per CPU and a spare one.
//!
//! What is read here are sums over shards that are being written; each word is whole. A record's `counted` and
//! `entered` may be newer than its histogram, never the other way round by more than the calls that begin meanwhile.

#![expect(unsafe_code, reason = "maps memory")]

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use nprof_common::MethodStats;
use nprof_common::histogram::BUCKETS;

/// Words of a record.
const WORDS: usize = size_of::<MethodStats>() / 8;
const MAX: usize = offset_of!(MethodStats, max_ns) / 8;

/// Memory for the records of a number of methods. It stays mapped for good: a stub may write to it at any time.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    words: &'static [AtomicU64],
    shards: u32,
}

impl Records {
    /// Maps records for `methods` methods, each with a shard for each CPU of the machine and the spare one.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn map(methods: usize) -> io::Result<Self> {
        Self::map_for(methods, possible_cpus())
    }

    /// As [`Self::map`], for a number of CPUs.
    ///
    /// # Errors
    /// When there is no room for them.
    pub fn map_for(methods: usize, cpus: u32) -> io::Result<Self> {
        let length = methods * (cpus as usize + 1) * size_of::<MethodStats>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, wherever there is room, touches nothing that exists.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is page aligned, of this length, zeroed, never unmapped, and used as atomics only.
        let words = unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), length / 8) };
        Ok(Self { words, shards: cpus })
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

    /// The address of the first shard of a method; `None` beyond the room.
    #[must_use]
    pub fn address(&self, index: u32) -> Option<usize> {
        Some(self.method(index)?.as_ptr().addr())
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
        from_words(&sum)
    }

    fn method(&self, index: u32) -> Option<&'static [AtomicU64]> {
        let words = self.words_of_method();
        self.words.chunks_exact(words).nth(index as usize)
    }

    fn words_of_method(&self) -> usize {
        (self.shards as usize + 1) * WORDS
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

/// How many CPUs there can ever be: one more than the highest number.
fn possible_cpus() -> u32 {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok();
    listed.and_then(|list| highest(&list)).map_or_else(configured_cpus, |highest| highest.saturating_add(1))
}

/// The highest number in a list of ranges: 7 of `0-3,6-7`.
fn highest(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

fn configured_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
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
        assert_eq!(records.address(3), None);
    }

    /// Check that records are apart by the size that the stubs multiply with.
    #[test]
    fn shards_lie_side_by_side() {
        let records = Records::map_for(2, 4).unwrap();
        let (first, second) = (records.address(0).unwrap(), records.address(1).unwrap());
        assert_eq!(second - first, 5 * size_of::<MethodStats>());
    }

    /// Check that the highest CPU is found in the kernel's lists.
    #[test]
    fn reads_lists_of_cpus() {
        assert_eq!(highest("0-3,6-7\n"), Some(7));
        assert_eq!(highest("0\n"), Some(0));
        assert_eq!(highest("\n"), None);
        assert!(possible_cpus() >= 1);
    }
}
