//! A BPF array of integers, mapped into this process: read and written without a system call.
#![expect(unsafe_code, reason = "mmap, and atomic access to memory that the kernel writes")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// The values of a `BPF_MAP_TYPE_ARRAY` with `BPF_F_MMAPABLE`, as 8-byte words: value `i` begins at word
/// `i * words_per_value`.
#[derive(Debug)]
pub struct MappedArray {
    base: NonNull<u8>,
    /// In bytes.
    length: usize,
}

// SAFETY: the memory is shared with the kernel in any case and only accessed atomically.
unsafe impl Send for MappedArray {}
// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// Maps `values` values of `value_size` bytes each (a multiple of 8).
    ///
    /// # Errors
    /// What the kernel answers, such as for a map that is not mappable.
    pub fn map(array: BorrowedFd<'_>, values: usize, value_size: usize) -> io::Result<Self> {
        let length = values.checked_mul(value_size).ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice; the kernel checks the length against the map's.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, array.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    /// The 8-byte word at `index`, or `None` beyond the end.
    #[must_use]
    pub fn load(&self, index: usize) -> Option<u64> {
        let place = self.place(index, size_of::<u64>())?;
        // SAFETY: inside the mapping, and aligned as a multiple of 8 from a page's start.
        let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
        Some(word.load(Ordering::Acquire))
    }

    /// Writes the 8-byte word at `index`. Returns whether there is such an index.
    pub fn store(&self, index: usize, value: u64) -> bool {
        let Some(place) = self.place(index, size_of::<u64>()) else { return false };
        // SAFETY: as in `load`.
        let word = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
        word.store(value, Ordering::Release);
        true
    }

    fn place(&self, index: usize, size: usize) -> Option<NonNull<u8>> {
        let offset = index.checked_mul(size)?;
        if offset.checked_add(size)? > self.length {
            return None;
        }
        // SAFETY: the offset is inside the mapping.
        Some(unsafe { self.base.add(offset) })
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and is not used after this. It cannot fail for a whole mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
