//! The overhead governor: which functions may be traced how, so that tracing costs a JVM no more than its budget.
//!
//! What was seen in a period goes in, changes of [`Rung`] come out. There is one [`Governor`] per JVM, for probes and stubs
//! together. It has no clock and does no I/O: the caller says what time it is, applies the changes and runs
//! the looks. `docs/overhead.md` tells users what it does.
//!
//! - `terms`: the values that go in and out.
//! - `costs`: what a call costs.
//! - `policy`: when functions are lowered, and when and which are raised again.
//! - `load`: which functions are lowered.
//! - `looks`: when a detached function may be looked at, and what that may cost.
//! - `held`: what is remembered of a function that was lowered.

mod costs;
mod estimate;
mod glance;
mod held;
mod load;
mod looks;
mod policy;
#[cfg(test)]
mod simulated_jvm;
mod terms;
#[cfg(test)]
mod tests;

pub use costs::{COOL_NS, Costs, Dearer, HowMany, StubCosts};
pub use glance::{Glance, clustering, note_lost};
pub use policy::Governor;
pub use terms::{Budget, By, Change, Observed, Period, Programs, Rung, Why};
