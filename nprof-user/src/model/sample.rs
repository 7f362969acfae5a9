//! What the kernel has recorded of one function.

use nprof_common::MethodStats;

/// The record of one dense index, all shards summed, from the start to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The dense index.
    pub index: u32,
    /// The sum of all shards.
    pub stats: MethodStats,
}
