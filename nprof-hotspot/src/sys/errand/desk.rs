//! The memory that nprof and a runner share: the system calls that are wanted, what they work on, and what came of them.

use std::io;
use std::ptr::{self, NonNull};

/// The most system calls of one errand.
pub(super) const MAX_STEPS: usize = 6;
/// The most ranges of memory that a runner gives back when it begins.
pub(super) const MAX_GAPS: usize = 96;
/// What system calls work on, in bytes: a list of 1024 pieces of memory, and 256 KiB of what stands there.
pub(crate) const ROOM: usize = (16 << 10) + (256 << 10) + PAGE;
const PAGE: usize = 4096;

/// One system call.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) number: i64,
    pub(super) args: [u64; 6],
    /// Of which earlier step the result is the first argument; itself for none.
    pub(super) first_from: u64,
    /// Whether it is made also where an earlier one has failed.
    pub(super) always: u64,
    pub(super) result: i64,
}

/// What stands at the beginning of the shared memory.
#[repr(C)]
pub(super) struct Header {
    pub(super) gaps: u64,
    pub(super) gap: [[u64; 2]; MAX_GAPS],
    pub(super) steps: u64,
    pub(super) step: [Step; MAX_STEPS],
}

const _: () = assert!(size_of::<Header>() <= PAGE);

/// The result of a step that was not made.
pub(super) const NOT_MADE: i64 = -(libc::ECANCELED as i64);

/// The shared memory: a page with [`Header`], then [`ROOM`] bytes.
#[derive(Debug)]
pub(crate) struct Desk {
    base: NonNull<u8>,
    used: usize,
    runner: u32,
}

// SAFETY: the mapping belongs to this value, and a runner touches it only while its owner waits for it.
unsafe impl Send for Desk {}

/// A place on a desk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    offset: usize,
    len: usize,
}

impl Desk {
    pub(super) const LEN: usize = PAGE + ROOM;

    pub(super) fn new() -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), Self::LEN, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, used: 0, runner: 0 })
    }

    pub(super) fn header(&self) -> *mut Header {
        self.base.as_ptr().cast()
    }

    pub(super) fn belongs_to(&mut self, runner: u32) {
        self.runner = runner;
    }

    /// The process that works at it, which keeps open what the last errand has opened and not closed.
    pub(crate) fn runner(&self) -> u32 {
        self.runner
    }

    /// Forgets the last errand.
    pub(super) fn clear(&mut self) {
        self.used = 0;
        // SAFETY: the header lies in the mapping, which is ours alone while no errand runs.
        unsafe { (*self.header()).steps = 0 };
    }

    /// Reserves `len` bytes, aligned for any number.
    pub(crate) fn reserve(&mut self, len: usize) -> Option<Place> {
        let (offset, end) = (self.used, self.used.checked_add(len)?);
        (end <= ROOM).then(|| {
            self.used = end.next_multiple_of(16);
            Place { offset, len }
        })
    }

    /// Puts bytes there.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Option<Place> {
        let place = self.reserve(bytes.len())?;
        // SAFETY: `place` lies in the mapping, and `bytes` does not: nobody gets a slice of it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(place), bytes.len()) };
        Some(place)
    }

    /// Copies what stands at the beginning of `place`.
    pub(crate) fn copy_to(&self, place: Place, buf: &mut [u8]) {
        let len = buf.len().min(place.len);
        // SAFETY: `place` lies in the mapping and is as long; `buf` is elsewhere.
        unsafe { ptr::copy_nonoverlapping(self.at(place), buf.as_mut_ptr(), len) };
    }

    /// The address of a place, the same for the runner.
    pub(crate) fn address(&self, place: Place) -> u64 {
        self.at(place).addr() as u64
    }

    /// Adds a system call to the errand. Those behind the first that fails are not made.
    pub(crate) fn step(&mut self, number: i64, args: [u64; 6]) -> usize {
        self.add(number, args, None, false)
    }

    /// The same, with the result of an earlier one for its first argument.
    pub(crate) fn step_with(&mut self, from: usize, number: i64, args: [u64; 6]) -> usize {
        self.add(number, args, Some(from), false)
    }

    /// Closes the descriptor that an earlier step opened, if it did.
    pub(crate) fn close(&mut self, from: usize) {
        self.add(libc::SYS_close, [0; 6], Some(from), true);
    }

    fn add(&mut self, number: i64, args: [u64; 6], from: Option<usize>, always: bool) -> usize {
        // SAFETY: as in `clear`.
        let header = unsafe { &mut *self.header() };
        let index = usize::try_from(header.steps).unwrap_or(MAX_STEPS);
        assert!(index < MAX_STEPS, "an errand is a few steps, all written down here");
        let first_from = from.unwrap_or(index) as u64;
        header.step[index] = Step { number, args, first_from, always: always.into(), result: NOT_MADE };
        header.steps += 1;
        index
    }

    /// What came of a step.
    pub(crate) fn result(&self, step: usize) -> io::Result<u64> {
        // SAFETY: as in `clear`; the runner is done.
        let place = unsafe { &raw const (*self.header()).step[step].result };
        // SAFETY: a place in the header.
        let result = unsafe { place.read_volatile() };
        u64::try_from(result).map_err(|_negative| {
            io::Error::from_raw_os_error(i32::try_from(result.wrapping_neg()).unwrap_or(libc::EIO))
        })
    }

    fn at(&self, place: Place) -> *mut u8 {
        // SAFETY: places are made by `reserve` alone, which keeps them within the mapping.
        unsafe { self.base.as_ptr().add(PAGE + place.offset) }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and is not used after this. A runner has its own mapping of it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), Self::LEN) };
    }
}
