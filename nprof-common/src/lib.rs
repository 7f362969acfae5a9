//! Records, indices and limits that cross a border: kernel and nprof, later target and nprof.
//!
//! Integers only, explicit padding, and a size assert for each record: both sides are compiled by different
//! compilers for different targets and must agree to the byte.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod cookie;
pub mod exec;
pub mod frame;
pub mod histogram;
pub mod loss;
pub mod stack;
pub mod stats;
pub mod switch;
// What follows is no business of the BPF programs, and does not make their object another one.
#[cfg(not(target_arch = "bpf"))]
mod vm_linked;
#[cfg(not(target_arch = "bpf"))]
pub mod wire;

pub use cookie::Cookie;
pub use exec::ExecEvent;
pub use frame::{Frame, Frames, MAX_FRAMES, SLOTS};
pub use loss::Loss;
pub use stack::{
    CallEvent, Chunk, FrozenPlaces, LastJavaFrame, LastJavaFramePlace, OffCpu, Pace, StackHeader, StackKind, VmPlaces,
};
pub use stats::{MethodStats, Mode};
pub use switch::{Lane, Switch};
#[cfg(not(target_arch = "bpf"))]
pub use vm_linked::is_vm_linked;

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
    /// `StackHeader`s, each with its pages, on their way out; a ring buffer.
    pub const STACKS: &str = "NPROF_STACKS";
    /// `CallEvent`s on their way out; a ring buffer.
    pub const CALLS: &str = "NPROF_CALLS";
    /// One `Pace`.
    pub const PACE: &str = "NPROF_PACE";
    /// `LastJavaFramePlace`s by thread number.
    pub const ANCHORS: &str = "NPROF_ANCHORS";
    /// One `VmPlaces`.
    pub const VM: &str = "NPROF_VM";
    /// How long each thread with calls has not been running.
    pub const OFF_CPU: &str = "NPROF_OFF_CPU";
}

/// Names of the constants that are set when the BPF object is loaded.
pub mod globals {
    /// Number of shards of each method's record, less one; a power of two less one.
    pub const SHARD_MASK: &str = "SHARD_MASK";
    /// Whether the kernel itself lets only hits of the target through: 1, or 0.
    pub const FILTERED: &str = "FILTERED";
    /// What is collected besides counts and times: bits of `stack::collect`.
    pub const COLLECT: &str = "COLLECT";
    /// From a `JNIEnv` to where its thread notes its last Java frame, in bytes: stack pointer, program counter, frame
    /// pointer; zeros if that is not known.
    pub const ANCHOR_FROM_ENV: &str = "ANCHOR_FROM_ENV";
    /// How many pages of a stack are copied.
    pub const STACK_PAGES: &str = "STACK_PAGES";
    /// The process that the timer and the switches of threads are of interest in.
    pub const TARGET: &str = "TARGET";
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
    /// Runs when a timer fires on a CPU: takes the stack of a target's thread.
    pub const TICK: &str = "nprof_tick";
    /// Runs when a stub in a target has chosen a call: takes the stack of its caller.
    pub const CHOSEN: &str = "nprof_chosen";
    /// Runs when a CPU switches from one thread to another: measures how long a target's threads do not run.
    pub const SWITCH: &str = "nprof_switch";
}

#[cfg(test)]
mod tests {
    use super::{maps, programs};

    /// Check that the kernel keeps every name whole.
    #[test]
    fn names_fit() {
        let counts = [maps::STATS, maps::SLOTS, maps::FRAMES, maps::LOSSES, maps::EXECS];
        let stacks = [maps::STACKS, maps::CALLS, maps::PACE, maps::ANCHORS, maps::VM, maps::OFF_CPU];
        let programs = [
            programs::ENTER,
            programs::RETURN,
            programs::EXIT,
            programs::EXEC,
            programs::TICK,
            programs::SWITCH,
            programs::CHOSEN,
        ];
        for name in counts.into_iter().chain(stacks).chain(programs) {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
