//! Memory that stubs write to, and rows of threads that they read. It stays mapped for good: a thread may stand in a stub for hours and write then.
//!
//! So a map that nprof gives and takes away leaves its addresses behind, and no memory but the few pages that late calls
//! touch. The next map gets the same addresses: what stays is what one nprof needs, however many come and go.

#![expect(unsafe_code, reason = "maps memory")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// All addresses that are used again later, of which the map has the first.
    region: Words,
    /// As much memory of our own, which takes its place later: at a time when nothing may go wrong.
    shelter: Words,
}

/// Addresses that have been used, behind which nothing is that anybody needs.
static FREE: Mutex<Vec<Words>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Words>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Free addresses for so many words, if there are as many.
fn take_free(words: usize) -> Option<Words> {
    let mut free = free();
    // The smallest: the others are for larger maps.
    let fitting = free.iter().enumerate().filter(|(_, region)| region.len() >= words);
    let (smallest, _) = fitting.min_by_key(|(_, region)| region.len())?;
    Some(free.swap_remove(smallest))
}

impl Shared {
    /// Maps a part of it; `offset` is a multiple of the size of a page. Where no addresses are free for it, it gets as many
    /// as it may ever need, `most`.
    ///
    /// # Errors
    /// When it is no map, cannot be written, is too short, or there is no room.
    pub(crate) fn map(file: BorrowedFd<'_>, offset: u64, bytes: usize, most: usize) -> io::Result<Self> {
        let new = shared(file, PROTECTION, offset, bytes)?;
        Self::settle(new, most).inspect_err(|_no_room| unmap(new))
    }

    /// Maps a map from its beginning that may only be read. Where no addresses are free for it, it gets `most`.
    ///
    /// # Errors
    /// When it is no map, is too short, or there is no room.
    pub(crate) fn map_to_read(file: BorrowedFd<'_>, bytes: usize, most: usize) -> io::Result<Self> {
        let new = shared(file, libc::PROT_READ, 0, bytes)?;
        Self::settle(new, most).inspect_err(|_no_room| unmap(new))
    }

    /// Moves a new mapping to where it is to be.
    fn settle(new: Words, most: usize) -> io::Result<Self> {
        let shelter = anonymous(size_of_val(new))?;
        let region = match take_free(new.len()) {
            Some(region) => region,
            None => anonymous(most.max(size_of_val(new))).inspect_err(|_no_room| unmap(shelter))?,
        };
        let words = &region[..new.len()];
        // If that fails the region is left alone for good: nobody knows what is there.
        move_to(words, new).inspect_err(|_no_memory| unmap(shelter))?;
        Ok(Self { words, region, shelter })
    }

    pub(crate) fn words(&self) -> Words {
        self.words
    }

    /// Lets go of the map, whose addresses are memory of our own from then on: what is still written goes nowhere.
    ///
    /// # Errors
    /// When the kernel has no memory left to do it.
    pub(crate) fn let_go(self) -> io::Result<()> {
        move_to(self.words, self.shelter)?;
        free().push(self.region);
        Ok(())
    }
}

fn shared(file: BorrowedFd<'_>, protection: i32, offset: u64, bytes: usize) -> io::Result<Words> {
    let offset = i64::try_from(offset).or(Err(io::ErrorKind::InvalidInput))?;
    // SAFETY: a new mapping, wherever there is room, touches nothing that exists.
    let address = unsafe { libc::mmap(null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), offset) };
    words(address, bytes)
}

/// Puts what is mapped elsewhere, as much, in place of what is mapped here.
///
/// # Errors
/// When the kernel has no memory left to do it.
fn move_to(place: Words, from: Words) -> io::Result<()> {
    let (bytes, flags) = (size_of_val(place), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: both mappings have this length; nobody has seen what is moved, and the place is mapped again in the same
    // step: its words are atomic ones and have no values that anything depends on.
    let address = unsafe { libc::mremap(address_of(from), bytes, bytes, flags, address_of(place)) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
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
pub(crate) mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;

    /// Free addresses are the process's; tests that map files take turns.
    pub(crate) fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        let _turn = turn();
        let file = file(3 * 4_096);
        let shared = Shared::map(file.as_fd(), 4_096, 2 * 4_096, 0).unwrap();
        shared.words()[1].store(5, Ordering::Relaxed);
        assert_eq!(word_of(&file, 4_096 + 8), 5);
        shared.let_go().unwrap();
        assert_eq!(shared.words()[1].load(Ordering::Relaxed), 0);
        shared.words()[1].store(6, Ordering::Relaxed);
        assert_eq!((word_of(&file, 4_096 + 8), shared.words()[1].load(Ordering::Relaxed)), (5, 6));
    }

    /// Check that addresses are used again when they are free, by what needs as many or fewer, that nothing of what was there
    /// before is left, and that they are not used twice at a time.
    #[test]
    fn uses_addresses_again() {
        const PAGE: usize = 4_096;
        let _turn = turn();
        let file = file(64 * PAGE as u64);
        let map = |pages: usize| Shared::map(file.as_fd(), 0, pages * PAGE, 64 * PAGE).unwrap();
        let first = map(48);
        let address = first.words().as_ptr();
        first.let_go().unwrap();
        first.words()[0].store(7, Ordering::Relaxed);
        for pages in [48, 64, 32] {
            let again = map(pages);
            let beside = map(64);
            assert_eq!((again.words().as_ptr(), again.words().len()), (address, pages * PAGE / 8));
            assert_ne!(beside.words().as_ptr(), address);
            assert_eq!(again.words()[0].load(Ordering::Relaxed), 0);
            again.words()[1].store(pages as u64, Ordering::Relaxed);
            assert_eq!(word_of(&file, 8), pages as u64);
            again.let_go().unwrap();
            assert_eq!(again.words()[1].load(Ordering::Relaxed), 0);
            unmap(beside.region);
            unmap(beside.shelter);
        }
    }

    /// Check that what cannot be mapped is refused.
    #[test]
    fn refuses() {
        let _turn = turn();
        let read_only = File::open("/proc/self/exe").unwrap();
        assert!(Shared::map(read_only.as_fd(), 0, 4_096, 0).is_err());
        assert!(Shared::map(file(4_096).as_fd(), u64::MAX, 4_096, 0).is_err());
    }
}
