//! Two recordings compared: what takes more or less time, or is called more or less often, than before.
//!
//! Recordings may be of different length. So tables compare what there is in a second of each, and pictures draw the
//! first one as if it had been as long as the second.

mod functions;
mod stacks;

use std::time::Duration;

pub use functions::table;
pub use stacks::{Difference, Names};

use crate::model::{Profile, Weight};

/// What two recordings are compared by unless somebody asks for something else: work, where both tell it from waiting.
#[must_use]
pub fn weight(before: &Profile, after: &Profile) -> Weight {
    let [old, new] = [before, after].map(|profile| Weight::default_of(&profile.about));
    if old == new { old } else { Weight::Time }
}

/// What makes numbers of a recording this long comparable with those of another one.
fn scale(of: Duration, to: Duration) -> f64 {
    if of.is_zero() || to.is_zero() { 1.0 } else { to.as_secs_f64() / of.as_secs_f64() }
}

/// The nearest whole number; 0 for none, the largest for what is beyond it.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an estimate; the cast saturates")]
fn scaled(value: u64, by: f64) -> u64 {
    (value as f64 * by).round() as u64
}
