//! From samples to what is reported.

mod method;
pub mod quantile;

pub use method::method;
