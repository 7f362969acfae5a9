//! From samples to what is reported.

mod losses;
mod method;
pub mod quantile;
mod weigh;

pub use losses::merge_losses;
pub use method::method;
pub use weigh::{Detail, NotRecorded, weigh};
