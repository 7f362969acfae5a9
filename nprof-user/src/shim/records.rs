//! The records of the stubs in one target, in memory that it maps.
//!
//! The target writes to it as it likes, so it is of no use for anything else: no other JVM's records are there, and nothing
//! that the kernel's programs read.

use std::ffi::CStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nprof_common::MethodStats;
use nprof_common::wire::Layout;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::sys::mapped_array::MappedArray;

/// What `/proc/P/maps` of the target shows.
const NAME: &CStr = c"nprof_stub_records";
/// More than any JVM needs: of 64 thousand methods on 512 CPUs.
const MOST_BYTES: u64 = 64 << 30;

/// Which calls stubs choose, where they choose all of them by chance: read at each timed call.
#[derive(Debug, Clone)]
pub struct Choices {
    mapped: Arc<MappedArray>,
    shards: u32,
}

impl Choices {
    /// Sets the chances of a record's calls, of 2^32: one for each call, and one for each nanosecond that it takes.
    pub fn set(&self, record: u32, per_call: u64, per_ns: u64) {
        let word = |offset: usize| offset / size_of::<u64>();
        let size = word(size_of::<MethodStats>());
        for shard in 0..self.shards as usize {
            let first = (record as usize * self.shards as usize + shard) * size;
            self.mapped.store(first + word(offset_of!(MethodStats, probability)), per_call);
            self.mapped.store(first + word(offset_of!(MethodStats, probability_per_ns)), per_ns);
        }
    }
}

/// Records for the methods of one target.
#[derive(Debug)]
pub struct Records {
    memory: OwnedFd,
    mapped: Arc<MappedArray>,
    /// How many there are.
    pub records: u32,
    /// Shards of each. The last is for all CPUs beyond the others.
    pub shards: u32,
    /// Whether what calls consume is behind them, and of which counters of bytes, as bits, how much each call consumed.
    pub consumed: Option<u32>,
    layout: Layout,
}

impl Records {
    /// Memory for so many records and, if that is wanted, for what calls consume, and of which counters of bytes for how much each call does.
    /// There is as much of it as is written to. It keeps its size: a target that shortened it would have nprof read where nothing is.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn new(records: u32, shards: u32, consumed: Option<u32>) -> io::Result<Self> {
        let layout = Layout::of(records, shards, consumed.is_some(), consumed.unwrap_or(0));
        let is_possible = |layout: &Layout| layout.consumed > 0 && layout.end <= MOST_BYTES;
        let layout = layout.filter(is_possible).ok_or(io::ErrorKind::InvalidInput)?;
        // Hosts may forbid memory that could be executed (`vm.memfd_noexec`).
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let memory = memfd_create(NAME, flags)?;
        ftruncate(&memory, layout.end)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapped = MappedArray::map(memory.as_fd(), word_at(layout.end), size_of::<u64>())?;
        Ok(Self { memory, mapped: Arc::new(mapped), records, shards, consumed, layout })
    }

    /// The same memory, as nprof reads it.
    #[must_use]
    pub fn mapped(&self) -> Arc<MappedArray> {
        Arc::clone(&self.mapped)
    }

    /// The word of that memory at which it begins what calls consume; `None` where that is not recorded.
    #[must_use]
    pub fn first_consumed(&self) -> Option<usize> {
        self.consumed.map(|_bytes| word_at(self.layout.consumed))
    }

    /// The word of that memory at which it begins how much each call consumed, and of which counters, as bits; `None` where that is not
    /// recorded.
    #[must_use]
    pub fn bytes(&self) -> Option<(usize, u32)> {
        let wanted = self.consumed.filter(|wanted| *wanted != 0)?;
        Some((word_at(self.layout.bytes), wanted))
    }

    /// The word of that memory at which it begins what stubs have counted.
    #[must_use]
    pub fn first_counts(&self) -> usize {
        word_at(self.layout.counts)
    }

    /// What says whose stacks are taken, of the same memory.
    #[must_use]
    pub fn choices(&self) -> Choices {
        Choices { mapped: self.mapped(), shards: self.shards }
    }

    /// The memory, for the target to map.
    #[must_use]
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// The word that so many bytes are before.
fn word_at(bytes: u64) -> usize {
    usize::try_from(bytes / size_of::<u64>() as u64).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use nprof_common::{CallBytes, Consumed};

    use super::*;

    /// Check that there is room for each word of the last record and for no more, and that nobody can change the size.
    #[test]
    fn keeps_its_size() {
        let records = Records::new(3, 2, None).unwrap();
        assert_eq!(records.first_consumed(), None);
        let words = word_at(Layout::of(3, 2, false, 0).unwrap().end);
        assert!(records.first_counts() >= 3 * 2 * size_of::<MethodStats>() / size_of::<u64>());
        assert!(records.mapped().store(words - 1, 7) && !records.mapped().store(words, 7));
        assert_eq!(records.mapped().load(words - 1), Some(7));
        let file = std::fs::File::from(records.memory().try_clone_to_owned().unwrap());
        for length in [0, 1 << 20] {
            assert_eq!(file.set_len(length).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }

    /// Check that how much each call consumed has its own page, and room for each wanted counter of the last record.
    #[test]
    fn has_room_for_bytes() {
        let records = Records::new(3, 2, Some(0b11_0000)).unwrap();
        let (at, wanted) = records.bytes().unwrap();
        assert_eq!((wanted, at % 512, Records::new(3, 2, Some(0)).unwrap().bytes()), (0b11_0000, 0, None));
        assert!(at >= records.first_consumed().unwrap() + 3 * 2 * size_of::<Consumed>() / 8);
        assert!(records.first_counts() >= at + 3 * 2 * size_of::<CallBytes>() / 8);
    }

    /// Check that a target that says it has no stubs, or more than anybody, gets none.
    #[test]
    fn has_bounds() {
        for (records, shards) in [(0, 2), (2, 0), (u32::MAX, u32::MAX)] {
            assert_eq!(Records::new(records, shards, Some(0)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
