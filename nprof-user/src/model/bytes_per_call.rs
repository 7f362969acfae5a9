//! How many bytes the calls of a function have moved, each of them.

use nprof_common::{CallBytes, Counter};

use super::Histogram;

/// The timed calls of a function by one number of bytes that each consumed, with traced calls that it made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BytesPerCall {
    /// Which bytes.
    pub counter: Counter,
    /// The most that a call consumed.
    pub max: u64,
    /// The calls that consumed any, in buckets of bytes.
    pub histogram: Histogram,
}

impl BytesPerCall {
    /// What has been counted; `None` of a number that is no counter's.
    #[must_use]
    pub fn of(counter: u32, bytes: &CallBytes) -> Option<Self> {
        let counter = Counter::ALL.into_iter().find(|known| *known as u32 == counter)?;
        let buckets = (0i32..).zip(bytes.calls).filter(|&(_, calls)| calls != 0).collect();
        Some(Self { counter, max: bytes.max, histogram: Histogram { buckets } })
    }

    /// How many calls consumed any.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.histogram.buckets.iter().map(|(_, calls)| calls).sum()
    }
}
