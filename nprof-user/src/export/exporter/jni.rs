//! The series of the JNI functions of one group of JVMs: what ended JVMs have done, and what the living ones add.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::as_u64;
use super::series::Series;
use crate::export::exposition::Collected;
use crate::export::families::Id;
use crate::export::labels::Labels;
use crate::export::series::Value;
use crate::model::{
    JniFamily, JniReferences, JniResource, JniThrownSum, JniTotals, JvmLabels, MethodSnapshot, SharedStr, Snapshot,
    States, Tracing,
};

/// How many pairs of native method and class of exceptions have their own series. A program that throws has a few.
pub(super) const MAX_EXCEPTIONS: usize = 100;

/// A native method's class and name, and the class of exceptions.
type Thrown = [SharedStr; 3];

/// The counters of a group. They only rise.
#[derive(Debug, Clone, Default)]
struct Sums {
    /// Redundant look-ups by function: number, and nanoseconds.
    redundant: BTreeMap<SharedStr, [u64; 2]>,
    /// How much was made and let go, in the order of [`JniResource::FOLLOWED`].
    references: [[u64; 2]; JniResource::FOLLOWED.len()],
    /// Critical sections: number, and nanoseconds.
    critical: [u64; 2],
    /// Exceptions that were pending, and that were cleared.
    thrown: BTreeMap<Thrown, [u64; 2]>,
}

/// The series of the JNI functions of JVMs with the same labels.
#[derive(Debug)]
pub(super) struct JniSeries {
    jvm: Arc<JvmLabels>,
    functions: BTreeMap<SharedStr, Series>,
    /// What JVMs have done that have ended.
    ended: Sums,
    /// What was shown at the last scrape.
    shown: Sums,
    /// Exceptions that have their own series: once given, it stays.
    own_thrown: BTreeSet<Thrown>,
    /// How many have none, of living JVMs.
    hidden: usize,
    /// How much there is more than there was, of living JVMs, in the order of [`JniResource::FOLLOWED`]; `None` if it is not known of
    /// one of them.
    live: [Option<i64>; JniResource::FOLLOWED.len()],
    states: States,
    unseen: usize,
}

impl JniSeries {
    /// Series of nothing yet.
    pub(super) fn new(jvm: Arc<JvmLabels>) -> Self {
        Self {
            jvm,
            functions: BTreeMap::new(),
            ended: Sums::default(),
            shown: Sums::default(),
            own_thrown: BTreeSet::new(),
            hidden: 0,
            live: [Some(0); JniResource::FOLLOWED.len()],
            states: States::default(),
            unseen: 0,
        }
    }

    /// Keeps the last numbers of a JVM that has ended.
    pub(super) fn retire(&mut self, totals: &JniTotals, jvm: &Snapshot) {
        self.assign(&[totals]);
        for row in &totals.functions {
            if let Some(series) = self.series(row) {
                series.retire(row, jvm);
            }
        }
        self.ended.add(totals, &self.own_thrown);
    }

    /// Adds up what the JVMs that live now have done and what ended ones did.
    pub(super) fn update(&mut self, jvms: &[&Snapshot]) {
        let living: Vec<(&JniTotals, &Snapshot)> =
            jvms.iter().filter_map(|jvm| Some((jvm.jni.as_deref()?, *jvm))).collect();
        let totals: Vec<&JniTotals> = living.iter().map(|(totals, _)| *totals).collect();
        self.assign(&totals);
        self.functions.values_mut().for_each(Series::begin);
        for (totals, jvm) in &living {
            for row in &totals.functions {
                if let Some(series) = self.series(row) {
                    series.add(row, jvm);
                }
            }
        }
        self.functions.values_mut().for_each(Series::finish);
        let mut next = self.ended.clone();
        totals.iter().for_each(|totals| next.add(totals, &self.own_thrown));
        next.raise_to(&self.shown);
        self.shown = next;
        self.take_stock(&totals);
    }

    /// The series of a function's row.
    fn series(&mut self, row: &MethodSnapshot) -> Option<&mut Series> {
        let name = &row.methods.first()?.method.name;
        let new = || {
            let family = SharedStr::from(JniFamily::of(name).as_str());
            Series::new(Labels::of_jvm(&self.jvm, vec![("function", name.clone()), ("family", family)]))
        };
        Some(self.functions.entry(name.clone()).or_insert_with(new))
    }

    /// Gives exceptions series of their own, as long as there are any: to those that were thrown most often, if there are more.
    fn assign(&mut self, all: &[&JniTotals]) {
        let mut new: BTreeMap<Thrown, u64> = BTreeMap::new();
        for of in all.iter().flat_map(|totals| &totals.thrown) {
            let name = name(of);
            if !self.own_thrown.contains(&name) {
                *new.entry(name).or_default() += of.pending.saturating_add(of.cleared);
            }
        }
        let mut new: Vec<(Thrown, u64)> = new.into_iter().collect();
        new.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        let room = MAX_EXCEPTIONS.saturating_sub(self.own_thrown.len());
        self.own_thrown.extend(new.into_iter().take(room).map(|(name, _)| name));
    }

    /// Looks at what may fall, too.
    fn take_stock(&mut self, living: &[&JniTotals]) {
        self.live = JniResource::FOLLOWED.map(|resource| {
            let of = |totals: &&JniTotals| totals.references.iter().find(|of| of.resource == resource)?.live();
            living.iter().map(of).try_fold(0i64, |sum, live| Some(sum.saturating_add(live?)))
        });
        (self.states, self.unseen) = (States::default(), 0);
        for totals in living {
            for (sum, n) in self.states.functions.iter_mut().zip(totals.states.functions) {
                *sum += n;
            }
            self.unseen += totals.unseen;
        }
        let names: HashSet<Thrown> = living.iter().flat_map(|totals| &totals.thrown).map(name).collect();
        self.hidden = names.iter().filter(|name| !self.own_thrown.contains(*name)).count();
    }

    /// Adds the series to the scrape.
    pub(super) fn show(&self, out: &mut Collected) {
        self.functions.values().for_each(|series| series.show_function(out));
        let labels = Labels::of_jvm(&self.jvm, Vec::new());
        let states = Tracing::ALL.iter().map(|tracing| tracing.as_str()).zip(self.states.functions);
        for (state, n) in states.chain([("unseen", self.unseen)]) {
            out.push(Id::JniFunctions, &labels.and("state", state), Value::Whole(as_u64(n)));
        }
        for (function, [calls, ns]) in &self.shown.redundant {
            let labels = labels.and("function", function);
            out.push(Id::JniRedundant, &labels, Value::Whole(*calls));
            out.push(Id::JniRedundantTime, &labels, Value::Nanoseconds(*ns));
        }
        for ((resource, [made, released]), live) in
            JniResource::FOLLOWED.iter().zip(self.shown.references).zip(self.live)
        {
            let labels = labels.and("kind", resource.as_str());
            out.push(Id::JniMade, &labels, Value::Whole(made));
            out.push(Id::JniReleased, &labels, Value::Whole(released));
            if let Some(live) = live {
                out.push(Id::JniLive, &labels, Value::Difference(live));
            }
        }
        let [sections, ns] = self.shown.critical;
        out.push(Id::JniCritical, &labels, Value::Whole(sections));
        out.push(Id::JniCriticalTime, &labels, Value::Nanoseconds(ns));
        for (name, counts) in &self.shown.thrown {
            let [class, method, exception] = name.clone();
            let own = vec![("class", class), ("method", method), ("exception", exception)];
            let labels = Labels::of_jvm(&self.jvm, own);
            for (state, n) in ["pending", "cleared"].into_iter().zip(counts) {
                out.push(Id::JniExceptions, &labels.and("state", state), Value::Whole(*n));
            }
        }
        out.push(Id::JniExceptionsHidden, &labels, Value::Whole(as_u64(self.hidden)));
    }
}

impl Sums {
    /// Adds the sums of a JVM. Exceptions without a series of their own share one.
    fn add(&mut self, totals: &JniTotals, own_thrown: &BTreeSet<Thrown>) {
        for (function, [calls, ns]) in &totals.redundant {
            add(self.redundant.entry(function.clone()).or_default(), [*calls, *ns]);
        }
        for JniReferences { resource, sums, .. } in &totals.references {
            let place = JniResource::FOLLOWED.iter().position(|of| of == resource);
            if let Some(place) = place {
                add(&mut self.references[place], [sums.made, sums.let_go]);
            }
        }
        add(&mut self.critical, totals.critical);
        for of in &totals.thrown {
            let name = Some(name(of)).filter(|name| own_thrown.contains(name)).unwrap_or_else(other);
            add(self.thrown.entry(name).or_default(), [of.pending, of.cleared]);
        }
    }

    /// Raises what is lower than it was: the name of a class may be learnt after a first exception.
    fn raise_to(&mut self, before: &Self) {
        for (function, counts) in &before.redundant {
            raise(self.redundant.entry(function.clone()).or_default(), *counts);
        }
        for (now, before) in self.references.iter_mut().zip(before.references) {
            raise(now, before);
        }
        raise(&mut self.critical, before.critical);
        for (name, counts) in &before.thrown {
            raise(self.thrown.entry(name.clone()).or_default(), *counts);
        }
    }
}

fn add(sums: &mut [u64; 2], more: [u64; 2]) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
}

fn raise(now: &mut [u64; 2], before: [u64; 2]) {
    now.iter_mut().zip(before).for_each(|(now, before)| *now = before.max(*now));
}

/// What tells the series of exceptions apart.
fn name(of: &JniThrownSum) -> Thrown {
    let (class, method) = of.method.clone().unwrap_or_else(|| ("".into(), "none".into()));
    [class, method, of.class.as_deref().unwrap_or("unknown").into()]
}

/// The name of the series that all share that have none of their own.
fn other() -> Thrown {
    ["".into(), "other".into(), "other".into()]
}
