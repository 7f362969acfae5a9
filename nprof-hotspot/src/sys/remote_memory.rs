//! Reads the memory of another process with `process_vm_readv`: many pieces in one call, nothing stopped, nothing
//! mapped, nothing written.
//!
//! A page may never come, so all of this is done by [`errand`].

use std::io;

use super::errand::{self, Desk, ErrandError, Place};
use crate::model::{Pid, VirtAddr};

/// How many pieces the kernel takes in one call (`UIO_MAXIOV`).
pub const MAX_SPANS: usize = 1024;
/// What is read at a time, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// Why memory of another process could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Nothing is mapped there, or not all of it.
    #[error("{len} bytes at {addr} are not readable")]
    Unreadable {
        /// Where the read began.
        addr: VirtAddr,
        /// How many bytes were wanted.
        len: usize,
    },
    /// The kernel does not let this process look into that one (`PTRACE_MODE_ATTACH`).
    #[error("no permission to read the memory of process {pid}")]
    PermissionDenied {
        /// The process that was to be read.
        pid: Pid,
    },
    /// The process has ended.
    #[error("process {pid} has ended")]
    TargetGone {
        /// The process that was to be read.
        pid: Pid,
    },
    /// More is to be read than nprof spends on one target.
    #[error(
        "the VM's lists of classes take more than the {limit} MiB that nprof has for one JVM, as only forged ones do"
    )]
    TooMuch {
        /// How much, in MiB.
        limit: usize,
    },
    /// All targets together take more than nprof spends on them, and this one the most.
    #[error(
        "the VM's lists of classes take the most of the {limit} MiB that nprof has for all JVMs, and there is no room"
    )]
    TooMuchOfAll {
        /// How much, in MiB.
        limit: usize,
    },
    /// There is no end to what is to be read.
    #[error(
        "a look at the VM's lists of classes has taken {seconds} s of CPU time and is not over, as if they were forged"
    )]
    TooLong {
        /// How long it took, in seconds.
        seconds: u64,
    },
    /// It does not answer.
    #[error(transparent)]
    Stuck(#[from] ErrandError),
    /// The call failed for another reason.
    #[error("cannot read the memory of process {pid}")]
    Os {
        /// The process that was to be read.
        pid: Pid,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl MemoryError {
    /// Whether the target is left out because it takes too much.
    #[must_use]
    pub(crate) fn is_too_much(&self) -> bool {
        matches!(self, Self::TooMuch { .. } | Self::TooMuchOfAll { .. } | Self::TooLong { .. })
    }
}

/// A piece of remote memory that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub addr: VirtAddr,
    /// Its size in bytes.
    pub len: usize,
}

/// The memory of one process. It holds the pid alone: that the pid still means the same process is for the caller
/// to check, by its start time.
#[derive(Debug, Clone)]
pub struct ProcessMemory {
    pid: Pid,
}

impl ProcessMemory {
    /// The memory of process `pid`. Nothing is read yet, so this cannot fail.
    #[must_use]
    pub fn new(pid: Pid) -> Self {
        Self { pid }
    }

    /// The process that is read.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Fills `buf` from `addr` on, whole or not at all.
    ///
    /// # Errors
    /// [`MemoryError::Unreadable`] if not all of it is mapped; otherwise what makes all reads of the process fail.
    pub fn read_exact(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        let span = Span { addr, len: buf.len() };
        match self.read_spans(&[span], buf)? {
            1 => Ok(()),
            _ => Err(MemoryError::Unreadable { addr, len: span.len }),
        }
    }

    /// Reads `spans` one after the other into `buf`, which must be as long as all of them together. Returns how many
    /// were read whole: all, or those before the first that could not be read. At most [`MAX_SPANS`] are looked at.
    ///
    /// # Errors
    /// What makes all reads of the process fail: it has ended, may not be read, or does not answer.
    pub fn read_spans(&self, spans: &[Span], buf: &mut [u8]) -> Result<usize, MemoryError> {
        let spans = &spans[..spans.len().min(MAX_SPANS)];
        let wanted: usize = spans.iter().map(|span| span.len).sum();
        let read = self.read_parts(spans, &mut buf[..wanted])?;
        Ok(whole_spans(spans, read))
    }

    /// Reads part after part, as much as fits on a desk at a time. Returns how many bytes were read, from the first on.
    fn read_parts(&self, spans: &[Span], buf: &mut [u8]) -> Result<usize, MemoryError> {
        let mut read = 0;
        for part in buf.chunks_mut(MAX_BYTES) {
            let wanted = part.len();
            let found = self.read_part(&cut(spans, read, wanted), part)?;
            read += found;
            if found < wanted {
                break;
            }
        }
        Ok(read)
    }

    /// The call itself. Returns how many bytes were read, from the first on.
    fn read_part(&self, spans: &[Span], buf: &mut [u8]) -> Result<usize, MemoryError> {
        let len = buf.len();
        let read = errand::run(
            self.pid,
            |desk| lay(desk, self.pid, spans, len),
            |desk, (call, found)| {
                let read = desk.result(call)?;
                let read = usize::try_from(read).map_or(len, |read| read.min(len));
                desk.copy_to(found, &mut buf[..read]);
                Ok(read)
            },
        )?;
        match read {
            Err(error) if io::Error::raw_os_error(&error) == Some(libc::EFAULT) => Ok(0),
            read => read.map_err(|error| self.classify(error)),
        }
    }

    fn classify(&self, source: io::Error) -> MemoryError {
        let pid = self.pid;
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => MemoryError::PermissionDenied { pid },
            Some(libc::ESRCH) => MemoryError::TargetGone { pid },
            _ => MemoryError::Os { pid, source },
        }
    }
}

/// Lays a read of `len` bytes on the desk. Returns which step it is, and where the bytes will be.
fn lay(desk: &mut Desk, pid: Pid, spans: &[Span], len: usize) -> Option<(usize, Place)> {
    let described: Vec<u8> =
        spans.iter().flat_map(|span| [span.addr.0, span.len as u64]).flat_map(u64::to_le_bytes).collect();
    let remote = desk.put(&described)?;
    let found = desk.reserve(len)?;
    let local: Vec<u8> = [desk.address(found), len as u64].into_iter().flat_map(u64::to_le_bytes).collect();
    let local = desk.put(&local)?;
    let (local, remote) = (desk.address(local), desk.address(remote));
    let call = desk.step(libc::SYS_process_vm_readv, [pid.0.into(), local, 1, remote, spans.len() as u64, 0]);
    Some((call, found))
}

/// The spans of the bytes from `from` on, `len` of them.
fn cut(spans: &[Span], from: usize, len: usize) -> Vec<Span> {
    let (mut skip, mut left) = (from, len);
    let part = |span: &Span| {
        let before = skip.min(span.len);
        skip -= before;
        let len = (span.len - before).min(left);
        left -= len;
        (len > 0).then_some(Span { addr: VirtAddr(span.addr.0.wrapping_add(before as u64)), len })
    };
    spans.iter().filter_map(part).collect()
}

/// How many of `spans` lie wholly within the first `read` bytes.
fn whole_spans(spans: &[Span], read: usize) -> usize {
    let mut end = 0;
    spans
        .iter()
        .take_while(|span| {
            end += span.len;
            end <= read
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_memory() -> ProcessMemory {
        ProcessMemory::new(Pid(std::process::id()))
    }

    fn addr_of(bytes: &[u8]) -> VirtAddr {
        VirtAddr(bytes.as_ptr().addr() as u64)
    }

    /// Check that several pieces of our own memory arrive in order.
    #[test]
    fn reads_several_spans() {
        let source = *b"abcdefgh";
        let spans = [Span { addr: addr_of(&source[4..]), len: 4 }, Span { addr: addr_of(&source), len: 2 }];
        let mut buf = [0; 6];
        assert_eq!(own_memory().read_spans(&spans, &mut buf).unwrap(), 2);
        assert_eq!(&buf, b"efghab");
    }

    /// Check that a hole ends the pieces that count as read, and that a single read of it names its address.
    #[test]
    fn stops_at_a_hole() {
        let source = *b"abcd";
        let hole = VirtAddr(8);
        let spans = [Span { addr: addr_of(&source), len: 4 }, Span { addr: hole, len: 8 }];
        assert_eq!(own_memory().read_spans(&spans, &mut [0; 12]).unwrap(), 1);
        let error = own_memory().read_exact(hole, &mut [0; 8]).unwrap_err();
        assert!(matches!(error, MemoryError::Unreadable { addr, len: 8 } if addr == hole));
    }

    /// Check that a process that has ended is told apart from memory that is not there.
    #[test]
    fn names_a_target_that_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id());
        child.wait().unwrap();
        let error = ProcessMemory::new(pid).read_exact(VirtAddr(0x1000), &mut [0; 8]).unwrap_err();
        assert!(matches!(error, MemoryError::TargetGone { pid: gone } if gone == pid));
    }

    /// Check that what is too long for one read is read in parts, across pieces, and stops at a hole in any of them.
    #[test]
    fn reads_in_parts() {
        let source: Vec<u8> = (0..3 * MAX_BYTES).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (first, second) = source.split_at(MAX_BYTES / 2 + 1);
        let spans = [first, second].map(|piece| Span { addr: addr_of(piece), len: piece.len() });
        let mut buf = vec![0; source.len()];
        assert_eq!(own_memory().read_spans(&spans, &mut buf).unwrap(), 2);
        assert!(buf == source);
        let holed = [spans[0], Span { addr: VirtAddr(8), len: 2 * MAX_BYTES }];
        assert_eq!(own_memory().read_spans(&holed, &mut buf).unwrap(), 1);
    }

    /// Check that a span read only in part does not count.
    #[test]
    fn counts_whole_spans_alone() {
        let span = |len| Span { addr: VirtAddr(0), len };
        let spans = [span(8), span(8), span(8)];
        assert_eq!(whole_spans(&spans, 24), 3);
        assert_eq!(whole_spans(&spans, 23), 2);
        assert_eq!(whole_spans(&spans, 7), 0);
    }
}
