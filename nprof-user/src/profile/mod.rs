//! Stacks as they come out of the kernel become a [`Profile`](crate::model::Profile): unwound and named within
//! milliseconds, summed at once, so that memory grows with the number of different stacks and not with time.
//!
//! ```text
//! Sampler    a thread: reads the ring ─> unwinder ─> naming ─> Sums      every few milliseconds
//! rate controller      how likely calls are to be sampled from now on              every 20 ms
//! Sums       chance and times of each sample, added up by function and stack
//! ```

mod interner;
mod last_java_frames;
mod mounted;
mod naming;
mod off_cpu_samples;
mod open;
mod rate_controller;
mod sampler;
mod slow;
mod stacks;
mod sums;

pub use open::OpenCall;
pub use rate_controller::{Flow, Paces, RateController};
pub use sampler::{Finished, Functions, Sampler, Setup};
pub use slow::{SlowCalls, SlowSample};
pub use sums::{Summed, Sums};
