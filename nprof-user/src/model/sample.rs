//! What the kernel has recorded of one function.

use nprof_common::MethodStats;

/// A record, all shards summed, from the start to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The record's number in the kernel.
    pub record: u32,
    /// The sum of all shards.
    pub stats: MethodStats,
}
