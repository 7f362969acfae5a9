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

    /// Adds the calls of another function or time.
    pub fn add(&mut self, more: &Self) {
        self.max = self.max.max(more.max);
        for &(index, calls) in &more.histogram.buckets {
            let buckets = &mut self.histogram.buckets;
            match buckets.binary_search_by_key(&index, |(index, _)| *index) {
                Ok(at) => buckets[at].1 = buckets[at].1.saturating_add(calls),
                Err(at) => buckets.insert(at, (index, calls)),
            }
        }
    }

    /// How many calls consumed any.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.histogram.buckets.iter().fold(0, |sum, (_, calls)| sum.saturating_add(*calls))
    }
}
