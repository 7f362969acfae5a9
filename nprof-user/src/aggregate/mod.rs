//! From samples to what is reported.

mod losses;
mod method;
pub mod quantile;
mod tiers;
mod weigh;

pub use losses::merge_losses;
pub use tiers::{ProbeSample, StubSample, rows};
pub use weigh::{Detail, NotRecorded, weigh};
