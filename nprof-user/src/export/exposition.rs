//! All series at one moment: what one scrape answers, before it is written in a format.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use super::families::{Family, Id, TABLE};
use super::labels::Labels;
use super::registered::register;
use super::series::{Series, Value};

/// All series at one moment.
#[derive(Debug)]
pub struct Exposition {
    /// The series of each family, in the order of the table.
    families: Vec<Arc<Vec<Series>>>,
    /// The families of JVMs and of nprof itself: the same series, not copies.
    pub(super) registry: Registry,
}

impl Exposition {
    /// The families that have series, in the order of the table.
    pub(super) fn families(&self) -> impl Iterator<Item = (&'static Family, &[Series])> {
        let all = TABLE.iter().zip(self.families.iter().map(|series| series.as_slice()));
        all.filter(|(_, series)| !series.is_empty())
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
