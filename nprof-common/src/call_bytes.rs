//! How many bytes the calls of a function have moved, call by call.

use crate::histogram::BUCKETS;

/// The timed calls of a function by one number of bytes that each consumed, with traced calls that it made. Calls that consumed none
/// are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "bpf"), derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable))]
#[repr(C)]
pub struct CallBytes {
    /// The most that a call consumed.
    pub max: u64,
    /// Calls by bytes ([`crate::histogram`]).
    pub calls: [u64; BUCKETS],
}

impl CallBytes {
    /// No calls.
    pub const NONE: Self = Self { max: 0, calls: [0; BUCKETS] };
}

const _: () = assert!(size_of::<CallBytes>() == 8 * (1 + BUCKETS));
