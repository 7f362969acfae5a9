//! A BPF array of integers, mapped into this process: read and written without a system call.
#![expect(unsafe_code, reason = "mmap, and atomic access to memory that the kernel writes")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How much is mapped at a time, in bytes: a multiple of every size of a page.
const STEP: usize = 1 << 20;
/// Readable and writable by both sides.
const PROTECTION: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// The values of a `BPF_MAP_TYPE_ARRAY` with `BPF_F_MMAPABLE`, as 8-byte words: value `i` begins at word
/// `i * words_per_value`.
#[derive(Debug)]
pub struct MappedArray {
    base: NonNull<u8>,
    /// What is reserved, in bytes.
    length: usize,
    value_size: usize,
    /// How much of that is mapped, in bytes from the beginning on. It only grows.
    mapped: AtomicUsize,
    /// The array, where more of it may be mapped.
    rest: Option<Mutex<OwnedFd>>,
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
        // SAFETY: a new mapping at a place of the kernel's choice; the kernel checks the length against the map's.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, PROTECTION, libc::MAP_SHARED, array.as_raw_fd(), 0) };
        Ok(Self { base: mapped(base)?, length, value_size, mapped: AtomicUsize::new(length), rest: None })
    }

    /// The same, of which only the first values are mapped; others are once they are [reached](Self::reach). Whatever is mapped counts as
    /// memory of this process, touched or not.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn map_first(array: BorrowedFd<'_>, values: usize, value_size: usize) -> io::Result<Self> {
        let length = values.checked_mul(value_size).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: addresses of the kernel's choice, which nobody can access.
        let base = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        let (base, rest) = (mapped(base)?, Some(Mutex::new(array.try_clone_to_owned()?)));
        let array = Self { base, length, value_size, mapped: AtomicUsize::new(0), rest };
        array.reach(1)?;
        Ok(array)
    }

    /// Has at least the first `values` values mapped. Those beyond the end are none.
    ///
    /// # Errors
    /// What the kernel answers: there is no memory for the mapping.
    pub fn reach(&self, values: usize) -> io::Result<()> {
        let wanted = values.saturating_mul(self.value_size).min(self.length).next_multiple_of(STEP).min(self.length);
        let Some(rest) = self.rest.as_ref().filter(|_| wanted > self.mapped.load(Ordering::Acquire)) else {
            return Ok(());
        };
        let array = rest.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.mapped.load(Ordering::Acquire);
        if wanted <= now {
            return Ok(());
        }
        let (flags, offset) = (libc::MAP_SHARED | libc::MAP_FIXED, i64::try_from(now).map_err(io::Error::other)?);
        // SAFETY: below the length that is reserved.
        let at = unsafe { self.base.add(now) };
        // SAFETY: in place of addresses that are reserved for this, and that nobody can access yet.
        let part =
            unsafe { libc::mmap(at.as_ptr().cast(), wanted - now, PROTECTION, flags, array.as_raw_fd(), offset) };
        mapped(part)?;
        self.mapped.store(wanted, Ordering::Release);
        Ok(())
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
        if offset.checked_add(size)? > self.mapped.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the offset is inside what is mapped.
        Some(unsafe { self.base.add(offset) })
    }
}

/// Where a mapping lies, if there is one.
fn mapped(base: *mut libc::c_void) -> io::Result<NonNull<u8>> {
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: all of it was made by `map` or `map_first`, in one piece of addresses, and is not used after this. It cannot fail for a whole mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const WORDS: usize = STEP / size_of::<u64>();

    /// Check that what is not reached is not there, that what is reached is the array's, and that nothing changes place.
    #[test]
    fn is_mapped_as_far_as_it_is_reached() {
        let values = 3 * STEP / 64 + 1;
        let memory = memfd_create("nprof-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, (values * 64) as u64).unwrap();
        let whole = MappedArray::map(memory.as_fd(), values, 64).unwrap();
        let growing = MappedArray::map_first(memory.as_fd(), values, 64).unwrap();
        for word in [0, WORDS - 1, WORDS, 3 * WORDS + 7] {
            assert!(whole.store(word, word as u64 + 1));
        }
        assert_eq!((growing.load(WORDS - 1), growing.load(WORDS)), (Some(WORDS as u64), None));
        growing.reach(STEP / 64 + 1).unwrap();
        assert_eq!((growing.load(WORDS), growing.load(2 * WORDS)), (Some(WORDS as u64 + 1), None));
        assert!(growing.store(0, 5) && !growing.store(2 * WORDS, 5));
        growing.reach(usize::MAX).unwrap();
        let last = 3 * WORDS + 7;
        assert_eq!((growing.load(last), growing.load(last + 1)), (Some(last as u64 + 1), None));
        assert_eq!(whole.load(0), Some(5));
    }
}
