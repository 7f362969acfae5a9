//! Records, indices and limits that cross a border: kernel and nprof, later target and nprof.
//!
//! Integers only, explicit padding, and a size assert for each record: both sides are compiled by different
//! compilers for different targets and must agree to the byte.
#![no_std]

pub mod cookie;
pub mod exec;
pub mod frame;
pub mod histogram;
pub mod loss;
pub mod stats;
pub mod switch;

pub use cookie::Cookie;
pub use exec::ExecEvent;
pub use frame::{Frame, Frames, MAX_FRAMES, SLOTS};
pub use loss::Loss;
pub use stats::{MethodStats, Mode};
pub use switch::Switch;

/// Names of the maps in the BPF object. At most 15 bytes: the kernel keeps no more.
pub mod maps {
    /// `MethodStats`, one per shard and dense index.
    pub const STATS: &str = "NPROF_STATS";
    /// The frames of most threads, by thread number.
    pub const SLOTS: &str = "NPROF_SLOTS";
    /// The frames of the threads whose slot is taken.
    pub const FRAMES: &str = "NPROF_FRAMES";
    /// Counters by `Loss`.
    pub const LOSSES: &str = "NPROF_LOSSES";
    /// `ExecEvent`s on their way out; a ring buffer.
    pub const EXECS: &str = "NPROF_EXECS";
}

/// Names of the constants that are set when the BPF object is loaded.
pub mod globals {
    /// Number of shards of each method's record, less one; a power of two less one.
    pub const SHARD_MASK: &str = "SHARD_MASK";
    /// Whether the kernel itself lets only hits of the target through: 1, or 0.
    pub const FILTERED: &str = "FILTERED";
}

/// Names of the programs in the BPF object. At most 15 bytes: the kernel keeps no more.
pub mod programs {
    /// Runs when a native method is entered: counts it, or pushes a frame.
    pub const ENTER: &str = "nprof_enter";
    /// Runs when a native method returns: pops its frame and records the call.
    pub const RETURN: &str = "nprof_return";
    /// Runs when any thread of the host ends: closes the calls that a target's thread was still in.
    pub const EXIT: &str = "nprof_exit";
    /// Runs when any process of the host begins to run a program: says so.
    pub const EXEC: &str = "nprof_exec";
}

#[cfg(test)]
mod tests {
    use super::{maps, programs};

    /// Check that the kernel keeps every name whole.
    #[test]
    fn names_fit() {
        let maps = [maps::STATS, maps::SLOTS, maps::FRAMES, maps::LOSSES, maps::EXECS];
        let programs = [programs::ENTER, programs::RETURN, programs::EXIT, programs::EXEC];
        for name in maps.into_iter().chain(programs) {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
