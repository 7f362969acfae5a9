//! The memory that is shared with one target while trees are followed: class files that are passed, and the rings of its threads.
//!
//! The target writes to it as it likes. What is read from it is copied first, and has bounds.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nprof_common::tree;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::sys::mapped_array::MappedArray;

/// What `/proc/P/maps` of the target shows.
const NAME: &CStr = c"nprof_trees";

/// See above.
#[derive(Debug)]
pub struct TreeMemory {
    memory: OwnedFd,
    mapped: MappedArray,
}

impl TreeMemory {
    /// New memory, of which there is as much as is written to.
    ///
    /// # Errors
    /// When there is none left.
    pub fn new() -> io::Result<Self> {
        // Hosts may forbid memory that could be executed (`vm.memfd_noexec`).
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let memory = memfd_create(NAME, flags)?;
        ftruncate(&memory, (tree::WORDS * size_of::<u64>()) as u64)?;
        // A target that shortened it would have nprof read where nothing is.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapped = MappedArray::map(memory.as_fd(), tree::WORDS, size_of::<u64>())?;
        Ok(Self { memory, mapped })
    }

    /// Has these counters told of, as their bits. To be said before the target maps the memory.
    pub fn count(&self, counters: u32) {
        self.mapped.store(tree::COUNTED, counters.into());
    }

    /// The memory, for the target to map.
    #[must_use]
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// What the shim has put into the area.
    #[must_use]
    pub fn passed(&self, bytes: u32) -> Vec<u8> {
        let bytes = usize::try_from(bytes).unwrap_or(0).min(tree::AREA_BYTES);
        let words = tree::AREA..tree::AREA + bytes.div_ceil(size_of::<u64>());
        let mut passed: Vec<u8> = words.filter_map(|word| self.mapped.load(word)).flat_map(u64::to_ne_bytes).collect();
        passed.truncate(bytes);
        passed
    }

    /// Puts something into the area; how many bytes that are, or `None` if it does not fit.
    #[must_use]
    pub fn pass(&self, bytes: &[u8]) -> Option<u32> {
        if bytes.len() > tree::AREA_BYTES {
            return None;
        }
        for (word, part) in (tree::AREA..).zip(bytes.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.mapped.store(word, u64::from_ne_bytes(whole));
        }
        u32::try_from(bytes.len()).ok()
    }

    /// How many events threads had to leave out that have no ring.
    #[must_use]
    pub fn without_ring(&self) -> u64 {
        self.mapped.load(tree::WITHOUT_RING).unwrap_or(0)
    }

    /// About how many calls of enhanced methods there were of which nothing was told.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.mapped.load(tree::UNTOLD).unwrap_or(0)
    }

    /// The same of one method.
    #[must_use]
    pub fn untold_of(&self, method: u32) -> u64 {
        tree::untold_of(method).and_then(|place| self.mapped.load(place)).unwrap_or(0)
    }

    /// A word of a ring's head.
    #[must_use]
    pub fn head(&self, ring: usize, word: usize) -> u64 {
        self.mapped.load(tree::head_of(ring) + word).unwrap_or(0)
    }

    /// The event of a ring that was written after so many; `None` if nothing meaningful is there.
    #[must_use]
    pub fn event(&self, ring: usize, written: u64) -> Option<tree::Event> {
        let place = tree::place_of(ring, written);
        let mut words = [0; tree::EVENT_WORDS];
        for (to, word) in words.iter_mut().zip(place..) {
            *to = self.mapped.load(word)?;
        }
        tree::Event::of(words)
    }

    /// Says that so many events of a ring have been read.
    pub fn have_read(&self, ring: usize, events: u64) {
        self.mapped.store(tree::head_of(ring) + tree::READ, events);
    }

    /// For tests: writes as a target would.
    #[cfg(test)]
    pub(crate) fn write(&self, ring: usize, event: &tree::Event) {
        let written = self.head(ring, tree::WRITTEN);
        for (place, word) in (tree::place_of(ring, written)..).zip(event.words()) {
            self.mapped.store(place, word);
        }
        self.mapped.store(tree::head_of(ring) + tree::WRITTEN, written + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is put into the area comes out of it, of any length, and that what is too long does not go in.
    #[test]
    fn passes_bytes() {
        let memory = TreeMemory::new().unwrap();
        for length in [0, 1, 7, 8, 9, 1_000, tree::AREA_BYTES] {
            let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let passed = memory.pass(&bytes).unwrap();
            assert_eq!(memory.passed(passed), bytes);
        }
        assert_eq!(memory.pass(&vec![0; tree::AREA_BYTES + 1]), None);
        assert_eq!(memory.passed(u32::MAX).len(), tree::AREA_BYTES);
        assert_eq!((memory.without_ring(), memory.head(0, tree::WRITTEN), memory.event(0, 0)), (0, 0, None));
    }
}
