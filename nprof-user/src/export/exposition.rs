//! All series at one moment: what one scrape answers, before it is written in a format.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::registry::Registry;

use super::families::{Family, Id, TABLE};
use super::labels::Labels;
use super::registered::register;
use super::series::{Series, Value};
use crate::model::JvmLabels;

/// All series at one moment.
#[derive(Debug)]
pub struct Exposition {
    /// The series of each family, in the order of the table.
    families: Vec<Arc<Vec<Series>>>,
    /// Since when the counters count.
    began: Began,
    /// The families of JVMs and of nprof itself: the same series, not copies.
    pub(super) registry: Registry,
}

impl Exposition {
    /// The families that have series, in the order of the table.
    pub(super) fn families(&self) -> impl Iterator<Item = (&'static Family, &[Series])> {
        let all = TABLE.iter().zip(self.families.iter().map(|series| series.as_slice()));
        all.filter(|(_, series)| !series.is_empty())
    }

    /// Since when a counter with these labels counts: it was 0 then.
    pub(super) fn began(&self, labels: &Labels) -> Timestamp {
        let of_jvm = labels.jvm().and_then(|jvm| self.began.jvms.get(jvm));
        of_jvm.copied().unwrap_or(self.began.host)
    }
}

/// Since when counters count.
#[derive(Debug)]
struct Began {
    /// Those of nprof itself.
    host: Timestamp,
    /// Those of JVMs, by their labels.
    jvms: BTreeMap<Arc<JvmLabels>, Timestamp>,
}

/// The series of a moment as long as more of them come.
#[derive(Debug)]
pub(super) struct Collected {
    families: Vec<Vec<Series>>,
    began: Began,
}

impl Collected {
    /// None yet; nprof itself counts since `host`.
    pub(super) fn new(host: Timestamp) -> Self {
        Self { families: TABLE.iter().map(|_| Vec::new()).collect(), began: Began { host, jvms: BTreeMap::new() } }
    }

    /// Says since when the counters of the JVMs with these labels count.
    pub(super) fn began(&mut self, jvm: &Arc<JvmLabels>, at: Timestamp) {
        self.began.jvms.insert(Arc::clone(jvm), at);
    }

    /// Adds a series. There must be no other with these labels in the family.
    pub(super) fn push(&mut self, family: Id, labels: &Arc<Labels>, value: Value) {
        self.families[family as usize].push(Series { labels: Arc::clone(labels), value });
    }

    /// All have come.
    pub(super) fn finish(self) -> Exposition {
        let families: Vec<Arc<Vec<Series>>> = self.families.into_iter().map(Arc::new).collect();
        let mut registry = Registry::default();
        for (family, series) in TABLE.iter().zip(&families).filter(|(family, _)| !family.is_of_methods()) {
            register(&mut registry, family, series);
        }
        Exposition { families, began: self.began, registry }
    }
}
