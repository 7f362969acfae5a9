//! Stacks as they come out of the kernel become a [`Profile`](crate::model::Profile): unwound and named within
//! milliseconds, summed at once, so that memory grows with the number of different stacks and not with time.
//!
//! ```text
//! Sampler    a thread: reads the ring ─> unwinder ─> Namer, another: naming ─> Sums   every few milliseconds
//! StackRing  the same for many JVMs: a thread reads the ring ─> JvmStacks, on a thread for each: unwinder ─> naming ─> Sums
//! SlowCalls  a thread for each JVM: calls above a threshold, from the same ring ─> the slowest
//! MadeStacks the same for stacks of what native code makes ─> by what was made
//! rate controller      how likely calls are to be sampled from now on              every 20 ms, sooner if too many are chosen
//! Sums       chance and times of each sample, added up by function and stack
//! ```

mod arguments;
mod callers;
mod frames;
mod interner;
mod jvm_stacks;
mod last_java_frames;
mod made;
mod mounted;
mod namer;
mod naming;
mod off_cpu_samples;
mod open;
mod open_vm;
mod pacing;
mod rate_controller;
mod sampler;
mod slow;
mod slow_queue;
mod stack_ring;
mod stacks;
mod sums;
mod timeline;

pub use arguments::{Arguments, NotedWords};
pub use jvm_stacks::JvmStacks;
pub use made::{CallPath, MadeStacks};
pub use open::{Moment, OpenCall, open_times};
pub use rate_controller::{Flow, Paces, RateController, UNKNOWN, UNKNOWN_OF_MANY};
pub use sampler::{Finished, Functions, Sampler, Setup};
pub use slow::{SlowCalls, SlowSample, SlowUser, SlowWait, Tally};
pub use slow_queue::{PassedOver, SlowQueue};
pub use stack_ring::{StackQueue, StackRing};
pub use sums::{Summed, Sums};
pub use timeline::Timeline;
