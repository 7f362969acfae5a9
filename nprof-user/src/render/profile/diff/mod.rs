//! Two recordings compared: what takes more or less time, or is called more or less often, than before.
//!
//! Recordings may be of different length, and programs may have done more or less in them. So tables compare what there is in a
//! second of each, or for each call of some method, and pictures draw the first one as if it had been as long as the second, or
//! had as many of these calls.

mod functions;
mod order;
mod row;
mod stacks;

pub use functions::{Shown, table};
pub use order::DiffOrder;
pub use stacks::{Difference, Names};

use crate::model::{Profile, Weight};

/// What two recordings are compared by unless somebody asks for something else: work, where both tell it from waiting.
#[must_use]
pub fn weight(before: &Profile, after: &Profile) -> Weight {
    let [old, new] = [before, after].map(|profile| Weight::default_of(&profile.about));
    if old == new { old } else { Weight::Time }
}

/// What makes numbers of two recordings comparable: how much there is of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Base {
    /// Calls of what; `None` for seconds.
    per: Option<String>,
    /// How many there are before, and after; above zero.
    amounts: [f64; 2],
}

impl Base {
    /// What there is in a second.
    #[must_use]
    pub fn seconds(before: &Profile, after: &Profile) -> Self {
        let seconds = |profile: &Profile| Some(profile.about.elapsed.as_secs_f64()).filter(|seconds| *seconds > 0.0);
        Self { per: None, amounts: [before, after].map(|profile| seconds(profile).unwrap_or(1.0)) }
    }

    /// What there is for each call of the methods of a pattern, which were called so often before and after.
    #[must_use]
    pub fn calls(pattern: &str, calls: [u64; 2]) -> Self {
        Self { per: Some(pattern.to_owned()), amounts: calls.map(|calls| calls.max(1) as f64) }
    }

    /// The part of a number of the first recording, or of the second, that belongs to one second or call.
    fn of(&self, value: u64, is_after: bool) -> f64 {
        value as f64 / self.amounts[usize::from(is_after)]
    }

    /// What a number of the first recording would be if there were as much of it as of the second.
    fn as_after(&self, value: u64) -> u64 {
        let [before, after] = self.amounts;
        rounded(value as f64 * after / before)
    }

    /// What the first recording has to be scaled to have as much of as the second; `None` if there is as much of both.
    fn same(&self) -> Option<String> {
        let [before, after] = self.amounts;
        let calls = || self.per.as_ref().map(|per| format!("number of calls of {per}"));
        (before != after).then(|| calls().unwrap_or_else(|| "length".to_owned()))
    }
}

/// The nearest whole number; 0 for none, the largest for what is beyond it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}
