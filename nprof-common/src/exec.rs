//! The record of a program's start, as it crosses the ring buffer.

#[cfg(not(target_arch = "bpf"))]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A process has begun to run a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct ExecEvent {
    /// The process, in the initial namespace.
    pub tgid: u32,
    /// Always zero: the ring buffer hands out multiples of 8 bytes.
    pub padding: u32,
}

const _: () = assert!(size_of::<ExecEvent>() == 8);

impl ExecEvent {
    /// The record of a process.
    #[must_use]
    #[inline(always)]
    pub const fn new(tgid: u32) -> Self {
        Self { tgid, padding: 0 }
    }
}
