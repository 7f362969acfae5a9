//! From samples to what is reported.

mod losses;
mod method;
pub mod quantile;

pub use losses::merge_losses;
pub use method::method;
