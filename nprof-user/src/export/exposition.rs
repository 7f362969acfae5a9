//! All series at one moment: what one scrape answers, before it is written in a format.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use super::durations::Durations;
use super::families::{Family, Id, TABLE};
use super::format::{self, Format};
use super::labels::Labels;
use super::registered::register;

/// All series at one moment.
#[derive(Debug)]
pub struct Exposition {
    /// The series of each family, in the order of the table.
    families: Vec<Arc<Vec<Series>>>,
    /// The families of JVMs and of nprof itself: the same series, not copies.
    pub(super) registry: Registry,
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

impl Value {
    /// As the one kind of number that Protobuf and the crate `prometheus-client` have; `None` for a distribution.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(n) => Some(as_float(*n)),
            Self::Nanoseconds(ns) => Some(seconds(*ns)),
            Self::Share(share) => Some(*share),
            Self::Durations(_) => None,
        }
    }
}

/// Nanoseconds in seconds, rounded once.
pub(super) fn seconds(ns: u64) -> f64 {
    as_float(ns) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn as_float(n: u64) -> f64 {
    n as f64
}

impl Exposition {
    /// The families that have series, in the order of the table.
    pub(super) fn families(&self) -> impl Iterator<Item = (&'static Family, &[Series])> {
        let all = TABLE.iter().zip(self.families.iter().map(|series| series.as_slice()));
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

/// The series of a moment as long as more of them come.
#[derive(Debug)]
pub(super) struct Collected(Vec<Vec<Series>>);

impl Collected {
    /// None yet.
    pub(super) fn new() -> Self {
        Self(TABLE.iter().map(|_| Vec::new()).collect())
    }

    /// Adds a series. There must be no other with these labels in the family.
    pub(super) fn push(&mut self, family: Id, labels: &Arc<Labels>, value: Value) {
        self.0[family as usize].push(Series { labels: Arc::clone(labels), value });
    }

    /// All have come.
    pub(super) fn finish(self) -> Exposition {
        let families: Vec<Arc<Vec<Series>>> = self.0.into_iter().map(Arc::new).collect();
        let mut registry = Registry::default();
        for (family, series) in TABLE.iter().zip(&families).filter(|(family, _)| !family.is_of_methods()) {
            register(&mut registry, family, series);
        }
        Exposition { families, registry }
    }
}
