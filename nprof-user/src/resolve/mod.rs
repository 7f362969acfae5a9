//! Inventory in, [`Plan`](crate::model::Plan) out: which methods are selected, where each can be probed, at which
//! index, and why the others cannot.

mod allocators;
mod code;
mod guard;
mod image;
mod images;
mod locate;
mod locker;
pub mod mangle;
pub mod nearest;
pub mod pattern;
mod planner;
pub mod program_rule;
mod proof;
pub mod rule;
pub mod select;
mod site;
#[cfg(test)]
mod testing;
pub mod threads;
pub mod thresholds;

pub use allocators::allocator_sites;
pub use guard::Guard;
pub use image::{Image, ImageError};
pub use locker::locker_sites;
pub use planner::{Limits, Planner};
