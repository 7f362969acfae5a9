//! Reads this process's memory through the kernel: what is no address is an error, and not a crash.
//!
//! A pipe takes the words and gives them back. That needs no `/proc`, and nothing that a filter of system calls forbids in
//! a process that runs a JVM.

#![expect(unsafe_code, reason = "has the kernel read from any address")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null;
use std::sync::{Mutex, PoisonError};

use rustix::pipe::{PipeFlags, pipe_with};

/// Reads at once. The kernel takes as many bytes into a pipe whole.
pub(super) const MOST_BYTES: usize = 4_096;

/// A way to this process's memory.
#[derive(Debug)]
pub(super) struct Memory(Mutex<Pipe>);

#[derive(Debug)]
struct Pipe {
    out: File,
    into: OwnedFd,
}

impl Memory {
    /// Makes the pipe. It does not get into programs that the process starts.
    pub(super) fn open() -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self(Mutex::new(Pipe { out: out.into(), into })))
    }

    /// Fills the buffer, of [`MOST_BYTES`] at the most, with what stands at an address; `None` where something of it is not
    /// mapped.
    pub(super) fn read(&self, address: usize, buffer: &mut [u8]) -> Option<()> {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = null::<libc::c_void>().with_addr(address);
        // SAFETY: the kernel reads what is there, and returns an error where nothing is.
        let written = unsafe { libc::write(pipe.into.as_raw_fd(), from, buffer.len().min(MOST_BYTES)) };
        let written = usize::try_from(written).ok()?;
        // Also if it is too little, so that the pipe is empty again.
        pipe.out.read_exact(buffer.get_mut(..written)?).ok()?;
        (written == buffer.len()).then_some(())
    }

    /// The word at an address.
    pub(super) fn word(&self, address: usize) -> Option<usize> {
        let mut word = [0; size_of::<usize>()];
        self.read(address, &mut word)?;
        Some(usize::from_ne_bytes(word))
    }

    /// The 16 bits at an address.
    pub(super) fn half(&self, address: usize) -> Option<u16> {
        let mut half = [0; 2];
        self.read(address, &mut half)?;
        Some(u16::from_ne_bytes(half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that words are read, that what is no address gives nothing, and that the next read is right all the same.
    #[test]
    fn reads_own_memory() {
        let memory = Memory::open().unwrap();
        let words = [0x1234_5678_usize, 7];
        let at = words.as_ptr().addr();
        assert_eq!((memory.word(at), memory.word(at + 8)), (Some(words[0]), Some(7)));
        assert_eq!(memory.half(at), Some(0x5678));
        for nowhere in [8, usize::MAX, usize::MAX - 3] {
            assert_eq!(memory.word(nowhere), None);
        }
        assert_eq!(memory.word(at), Some(words[0]));
    }

    /// Check that what is mapped only in part gives nothing, and leaves nothing in the way of the next.
    #[test]
    fn parts_are_nothing() {
        let page = 4_096;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping of two pages.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, libc::PROT_READ, flags, -1, 0) };
        let second = start.wrapping_byte_add(page);
        // SAFETY: the second of them, which nobody uses.
        assert_eq!(unsafe { libc::munmap(second, page) }, 0);
        let (memory, border) = (Memory::open().unwrap(), start.addr() + page);
        assert_eq!(memory.word(border - 4), None);
        assert_eq!(memory.word(border - 8), Some(0));
        assert_eq!(memory.read(border - page, &mut [1; MOST_BYTES]), Some(()));
        assert_eq!(memory.read(border - page, &mut [1; MOST_BYTES + 1]), None);
    }
}
