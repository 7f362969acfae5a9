//! Memory that stubs write to. It stays mapped for good: a thread may stand in a stub for hours and write then.
//!
//! So each map that nprof gives and takes away leaves as many addresses behind as it had, and no memory but the few pages
//! that late calls touch.

#![expect(unsafe_code, reason = "maps memory")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU64;

/// Words that are mapped until the process ends.
pub(crate) type Words = &'static [AtomicU64];

/// So many bytes of zeros that nobody else sees, rounded up to words.
pub(crate) fn anonymous(bytes: usize) -> io::Result<Words> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, wherever there is room, touches nothing that exists.
    let address = unsafe { libc::mmap(null_mut(), bytes, PROTECTION, flags, -1, 0) };
    words(address, bytes)
}

const PROTECTION: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Memory of a BPF map, or of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared {
    words: Words,
    /// As much memory of our own, which takes its place later: at a time when nothing may go wrong.
    shelter: Words,
}

impl Shared {
    /// Maps a part of it; `offset` is a multiple of the size of a page.
    ///
    /// # Errors
    /// When it is no map, cannot be written, is too short, or there is no room.
    pub(crate) fn map(file: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let offset = i64::try_from(offset).or(Err(io::ErrorKind::InvalidInput))?;
        let shelter = anonymous(bytes)?;
        // SAFETY: a new mapping, wherever there is room, touches nothing that exists.
        let address = unsafe { libc::mmap(null_mut(), bytes, PROTECTION, libc::MAP_SHARED, file.as_raw_fd(), offset) };
        match words(address, bytes) {
            Ok(words) => Ok(Self { words, shelter }),
            Err(error) => {
                unmap(shelter);
                Err(error)
            }
        }
    }

    pub(crate) fn words(&self) -> Words {
        self.words
    }

    /// Lets go of the map, whose addresses are memory of our own from then on: what is still written goes nowhere.
    ///
    /// # Errors
    /// When the kernel has no memory left to do it.
    pub(crate) fn let_go(self) -> io::Result<()> {
        let (from, to) = (address_of(self.shelter), address_of(self.words));
        let (bytes, flags) = (size_of_val(self.words), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        // SAFETY: both mappings have this length; nobody has seen the first, and the second is mapped again in the same
        // step: its words are atomic ones and have no values that anything depends on.
        let address = unsafe { libc::mremap(from, bytes, bytes, flags, to) };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn address_of(words: Words) -> *mut libc::c_void {
    null::<libc::c_void>().with_addr(words.as_ptr().addr()).cast_mut()
}

/// Unmaps what nobody has seen yet.
fn unmap(words: Words) {
    // SAFETY: the only reference to it ends here.
    unsafe { libc::munmap(address_of(words), size_of_val(words)) };
}

fn words(address: *mut libc::c_void, bytes: usize) -> io::Result<Words> {
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is page aligned, has this length, stays, and is used as atomics only.
    Ok(unsafe { std::slice::from_raw_parts(address.cast::<AtomicU64>(), bytes / 8) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;

    fn file(bytes: u64) -> File {
        // SAFETY: the name is a C string.
        let raw = unsafe { libc::memfd_create(c"records".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor is new, and nobody else's.
        let file = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(raw) };
        file.set_len(bytes).unwrap();
        file
    }

    fn word_of(file: &File, at: u64) -> u64 {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at).unwrap();
        u64::from_ne_bytes(word)
    }

    /// Check that what is written arrives in the file until it is let go of, and nowhere from then on.
    #[test]
    fn lets_go() {
        let file = file(3 * 4_096);
        let shared = Shared::map(file.as_fd(), 4_096, 2 * 4_096).unwrap();
        shared.words()[1].store(5, Ordering::Relaxed);
        assert_eq!(word_of(&file, 4_096 + 8), 5);
        shared.let_go().unwrap();
        assert_eq!(shared.words()[1].load(Ordering::Relaxed), 0);
        shared.words()[1].store(6, Ordering::Relaxed);
        assert_eq!((word_of(&file, 4_096 + 8), shared.words()[1].load(Ordering::Relaxed)), (5, 6));
    }

    /// Check that what cannot be mapped is refused.
    #[test]
    fn refuses() {
        let read_only = File::open("/proc/self/exe").unwrap();
        assert!(Shared::map(read_only.as_fd(), 0, 4_096).is_err());
        assert!(Shared::map(file(4_096).as_fd(), u64::MAX, 4_096).is_err());
    }
}
