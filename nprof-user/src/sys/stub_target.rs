//! Functions of nprof's own behind stubs of the in-process tier, to find out what a stub costs.

#![expect(
    unsafe_code,
    reason = "calls a function at the address of a stub, and reads where the thread's control block is"
)]

use std::arch::asm;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;

use nprof_common::rows::{BUCKET_ROWS, BUCKETS, ROWS, ThreadRow, bucket_of};
use nprof_shim::pool::{Mode, Parameters, Stub};
use nprof_shim::records::Place;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;

/// A stub before a function that does nothing.
#[derive(Debug, Clone, Copy)]
pub struct StubTarget {
    stub: Stub,
}

impl StubTarget {
    /// Takes a stub that records at `place`, and does nothing yet; `None` when all stubs of this process have been taken.
    #[must_use]
    pub fn new(place: Place) -> Option<Self> {
        let (original, stack_words, index) = (nothing as *const () as usize, 0, 0);
        let (mode, threshold_ns) = (Mode::Off, u64::MAX);
        Stub::take(&Parameters { original, stack_words, index, place, mode, threshold_ns }).map(|stub| Self { stub })
    }

    /// Changes what is done at calls.
    pub fn set_mode(self, mode: Mode) {
        self.stub.set_mode(mode);
    }

    /// What is to be called: the stub, which goes on to the function.
    #[must_use]
    pub fn entry(self) -> extern "C" fn() {
        // SAFETY: a stub stands before `nothing`, which takes nothing and gives nothing, and passes everything on. It is never
        // taken back.
        unsafe { std::mem::transmute::<usize, extern "C" fn()>(self.stub.entry()) }
    }
}

/// The function without a stub.
#[must_use]
pub fn bare() -> extern "C" fn() {
    nothing
}

/// A file with as many rows of threads as there may be, in which the current thread has one.
///
/// # Errors
/// If there is no memory left.
pub fn row_of_this_thread() -> io::Result<OwnedFd> {
    let memory = memfd_create(c"nprof_rows", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, u64::from(ROWS) * size_of::<ThreadRow>() as u64)?;
    let key = this_thread();
    let row = u64::from(bucket_of(key, BUCKETS) * BUCKET_ROWS) * size_of::<ThreadRow>() as u64;
    pwrite(&memory, &key.to_ne_bytes(), row + offset_of!(ThreadRow, key) as u64)?;
    Ok(memory)
}

/// The address of the current thread's control block.
fn this_thread() -> u64 {
    let address;
    // SAFETY: every thread of x86-64 Linux has this word, which points to itself.
    unsafe { asm!("mov {}, fs:[0]", out(reg) address, options(nostack, readonly, preserves_flags)) };
    address
}

extern "C" fn nothing() {
    std::hint::black_box(());
}
