//! All series at one moment: what one scrape answers, before it is written in a format.

use std::sync::Arc;

use super::durations::Durations;
use super::families::{Family, Id, TABLE};
use super::format::{self, Format};
use super::labels::Labels;

/// All series at one moment.
#[derive(Debug)]
pub struct Exposition {
    /// The series of each family, in the order of the table.
    families: Vec<Vec<Series>>,
}

/// One series and its value.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) labels: Arc<Labels>,
    pub(super) value: Value,
}

/// The value of a series.
#[derive(Debug)]
pub(super) enum Value {
    /// A number of things.
    Whole(u64),
    /// A time in nanoseconds, written in seconds.
    Nanoseconds(u64),
    /// A part of a whole: 0.02 is 2 %.
    Share(f64),
    /// A distribution of times.
    Durations(Durations),
}

impl Exposition {
    pub(super) fn new() -> Self {
        Self { families: TABLE.iter().map(|_| Vec::new()).collect() }
    }

    /// Adds a series. There must be no other with these labels in the family.
    pub(super) fn push(&mut self, family: Id, labels: &Arc<Labels>, value: Value) {
        self.families[family as usize].push(Series { labels: Arc::clone(labels), value });
    }

    /// The families that have series, in the order of the table.
    pub(super) fn families(&self) -> impl Iterator<Item = (&'static Family, &[Series])> {
        let all = TABLE.iter().zip(self.families.iter().map(Vec::as_slice));
        all.filter(|(_, series)| !series.is_empty())
    }

    /// The body of the answer in this format.
    #[must_use]
    pub fn encode(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Text => format::text(self),
            Format::OpenMetrics => format::open_metrics(self),
            Format::Protobuf => format::protobuf(self),
        }
    }
}
