//! What each thread's calls of a function add up to, where that is asked for.

/// Bytes of a thread's name, with the zero at its end.
pub const NAME_BYTES: usize = 16;

/// One thread's calls of one function: its part of the function's [`crate::MethodStats`], whose fields these are. Only the thread
/// itself adds to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
#[repr(C)]
pub struct ThreadCalls {
    /// Calls that were only counted.
    pub counted: u64,
    /// Calls that have ended and were timed.
    pub timed: u64,
    /// Calls that have ended without a time.
    pub untimed: u64,
    /// The time of the timed ones, in nanoseconds.
    pub total_ns: u64,
    /// Of this, the time in traced calls that they made.
    pub child_ns: u64,
    /// Of the rest, the time that the thread was not running.
    pub off_ns: u64,
    /// What the thread was called at its last call.
    pub name: [u8; NAME_BYTES],
}

impl ThreadCalls {
    /// No calls.
    pub const NONE: Self =
        Self { counted: 0, timed: 0, untimed: 0, total_ns: 0, child_ns: 0, off_ns: 0, name: [0; NAME_BYTES] };
}

const _: () = assert!(size_of::<ThreadCalls>() == 64);
