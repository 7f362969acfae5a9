//! Stacks as they come out of the kernel become a [`Profile`](crate::model::Profile): unwound and named within
//! milliseconds, summed at once, so that memory grows with the number of different stacks and not with time.
//!
//! ```text
//! Sampler    a thread: reads the ring ─> unwinder ─> naming ─> Sums      every few milliseconds
//! pacer      how likely calls are to be sampled from now on              every 20 ms
//! Sums       chance and times of each sample, added up by function and stack
//! ```

mod anchors;
mod interner;
mod mounted;
mod naming;
mod open;
mod pacer;
mod sampler;
mod slow;
mod stacks;
mod stops;
mod sums;

pub use open::OpenCall;
pub use pacer::{Flow, Pacer, Paces};
pub use sampler::{Finished, Flows, Sampler, Setup};
pub use slow::{SlowCalls, SlowSample};
pub use sums::{Summed, Sums};
