//! Where it can be seen what a program asks an allocator for.

use nprof_common::alloc::Request;

use super::{FileOffset, ProbeCost};

/// The entry of a function of an allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorSite {
    /// Where the probe sits.
    pub offset: FileOffset,
    /// What a hit costs there.
    pub cost: ProbeCost,
    /// Which arguments say how many bytes are asked for.
    pub request: Request,
    /// The function's rank in its allocator: one that does its work by jumping to another has the higher one.
    pub rank: u32,
    /// How far the allocator's code reaches before the probe and behind it, in bytes.
    pub reach: [u64; 2],
}
