//! From samples to what is reported.

mod losses;
mod method;
mod narrow;
pub mod quantile;
mod sampled;
mod tiers;
mod weigh;

pub use losses::merge_losses;
pub use narrow::narrow;
pub use sampled::{Timed, estimate};
pub use tiers::{ProbeSample, StubSample, rows};
pub use weigh::{Detail, NotRecorded, open_ns, weigh};
