//! All series at one moment: what one scrape answers, before it is written in a format.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::registry::Registry;

use super::families::{Family, Id, TABLE};
use super::labels::Labels;
use super::registered::register;
use super::series::{Series, Value};
use super::totals::{Methods, Shown};
use crate::model::JvmLabels;

/// All series at one moment.
#[derive(Debug)]
pub struct Exposition {
    /// The methods. Their series are made of them when they are written: all together they would be megabytes.
    methods: Methods,
    /// The other series of each family, in the order of the table.
    families: Vec<Arc<Vec<Series>>>,
    /// Since when the counters count.
    began: Began,
    /// The families of JVMs and of nprof itself: the same series, not copies.
    pub(super) registry: Registry,
}

impl Exposition {
    /// The families that have series, in the order of the table.
    pub(super) fn families(&self) -> impl Iterator<Item = (&'static Family, AllSeries<'_>)> {
        let all = Id::ALL.iter().zip(&self.families);
        let all = all.map(|(family, others)| AllSeries { methods: &self.methods, family: *family, others });
        all.filter(|series| !series.is_empty()).map(|series| (&TABLE[series.family as usize], series))
    }

    /// Since when a counter with these labels counts: it was 0 then.
    pub(super) fn began(&self, labels: &Labels) -> Timestamp {
        let of_jvm = labels.jvm().and_then(|jvm| self.began.jvms.get(jvm));
        of_jvm.copied().unwrap_or(self.began.host)
    }
}

/// All series of a family.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllSeries<'a> {
    methods: &'a Methods,
    family: Id,
    others: &'a [Series],
}

impl<'a> AllSeries<'a> {
    /// One after the other.
    pub(super) fn iter(self) -> impl Iterator<Item = Series> + use<'a> {
        let is_of_methods = TABLE[self.family as usize].is_of_methods();
        let methods = if is_of_methods { self.methods.that_may_have(self.family) } else { &[] };
        let of_method = move |method: &Arc<Shown>| {
            let value = method.value(self.family)?;
            Some(Series { labels: Arc::clone(&method.labels), value })
        };
        methods.iter().filter_map(of_method).chain(self.others.iter().cloned())
    }

    fn is_empty(self) -> bool {
        self.iter().next().is_none()
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
    methods: Methods,
    families: Vec<Vec<Series>>,
    began: Began,
}

impl Collected {
    /// None yet; nprof itself counts since `host`.
    pub(super) fn new(host: Timestamp) -> Self {
        Self {
            methods: Methods::default(),
            families: TABLE.iter().map(|_| Vec::new()).collect(),
            began: Began { host, jvms: BTreeMap::new() },
        }
    }

    /// Says since when the counters of the JVMs with these labels count.
    pub(super) fn began(&mut self, jvm: &Arc<JvmLabels>, at: Timestamp) {
        self.began.jvms.insert(Arc::clone(jvm), at);
    }

    /// Adds the series of a method. There must be no other with its labels.
    pub(super) fn show(&mut self, method: &Arc<Shown>) {
        self.methods.push(method);
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
        Exposition { methods: self.methods, families, began: self.began, registry }
    }
}
