//! The JVMs with the same labels, those that have ended included, and the series that they have in common.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::as_u64;
use super::assignments::{Assigned, Assignments, Name};
use super::jni::JniSeries;
use super::series::Series;
use crate::export::exposition::Collected;
use crate::export::families::Id;
use crate::export::input::Limits;
use crate::export::labels::Labels;
use crate::export::series::Value;
use crate::export::totals::nanoseconds;
use crate::model::{JvmLabels, MethodSnapshot, SkipReason, Snapshot, States, Tracing};

/// The series of one set of JVM labels.
#[derive(Debug)]
pub(super) struct Group {
    jvm: Arc<JvmLabels>,
    assignments: Assignments,
    /// The series of methods that have their own, by the number that they were assigned.
    own: Vec<Series>,
    /// The series of all other methods, once there are any.
    shared: Option<Series>,
    /// The series of JNI functions, once any are traced.
    jni: Option<JniSeries>,
    /// The estimated cost of tracing.
    cost: Times,
    /// The CPU time that the JVMs have used.
    cpu: Times,
    /// How many functions of living JVMs are in which state.
    states: States,
    /// How many methods of living JVMs are skipped, in the order of [`SkipReason::ALL`].
    skipped: [u64; SkipReason::ALL.len()],
    /// Since when the counters count: the start of the first JVM's measurement.
    began: Option<Timestamp>,
    /// When the last JVM ended; nothing while one is known to live.
    ended: Option<Instant>,
}

/// Times of JVMs added up, in nanoseconds. `None` as long as no JVM's is known.
#[derive(Debug, Default)]
struct Times {
    ended: Option<u64>,
    shown: Option<u64>,
}

impl Times {
    /// Keeps the last time of a JVM that has ended.
    fn retire(&mut self, time: Option<Duration>) {
        self.ended = sum([self.ended, time.map(nanoseconds)]);
    }

    /// Adds those of the living JVMs to those of ended ones.
    fn update(&mut self, living: impl Iterator<Item = Option<Duration>>) {
        let now = sum(living.map(|time| time.map(nanoseconds)).chain([self.ended]));
        self.shown = now.max(self.shown);
    }
}

impl Group {
    /// A group without a JVM.
    pub(super) fn new(jvm: Arc<JvmLabels>) -> Self {
        Self {
            jvm,
            assignments: Assignments::default(),
            own: Vec::new(),
            shared: None,
            jni: None,
            cost: Times::default(),
            cpu: Times::default(),
            states: States::default(),
            skipped: [0; SkipReason::ALL.len()],
            began: None,
            ended: None,
        }
    }

    /// When the last JVM ended, if none is known to live.
    pub(super) fn ended(&self) -> Option<Instant> {
        self.ended.filter(|_| self.assignments.is_empty())
    }

    /// Keeps the last numbers of a JVM that has ended.
    pub(super) fn retire(&mut self, jvm: &Snapshot, limits: &Limits, now: Instant) {
        self.assign(&[jvm], limits);
        self.begin(&[jvm]);
        self.each_function(jvm, |series, function| series.retire(function, jvm));
        self.assignments.leave(jvm);
        if let Some(totals) = &jvm.jni {
            self.jni().retire(totals, jvm);
        }
        self.cost.retire(jvm.cost);
        self.cpu.retire(jvm.cpu);
        self.ended = Some(now);
    }

    /// Adds up what the JVMs that live now have done and what ended ones did.
    pub(super) fn update(&mut self, jvms: &[&Snapshot], limits: &Limits, now: Instant) {
        self.assignments.keep_only(jvms);
        self.assign(jvms, limits);
        self.begin(jvms);
        self.own.iter_mut().chain(&mut self.shared).for_each(Series::begin);
        for jvm in jvms {
            self.each_function(jvm, |series, function| series.add(function, jvm));
        }
        self.own.iter_mut().chain(&mut self.shared).for_each(Series::finish);
        if jvms.iter().any(|jvm| jvm.jni.is_some()) {
            self.jni();
        }
        if let Some(jni) = &mut self.jni {
            jni.update(jvms);
        }
        self.cost.update(jvms.iter().map(|jvm| jvm.cost));
        self.cpu.update(jvms.iter().map(|jvm| jvm.cpu));
        self.take_stock(jvms);
        self.ended = if jvms.is_empty() { self.ended.or(Some(now)) } else { None };
    }

    /// The series of JNI functions, new ones if need be.
    fn jni(&mut self) -> &mut JniSeries {
        self.jni.get_or_insert_with(|| JniSeries::new(Arc::clone(&self.jvm)))
    }

    /// Moves the begin of the counters back to that of the earliest of these JVMs.
    fn begin(&mut self, jvms: &[&Snapshot]) {
        self.began = jvms.iter().map(|jvm| jvm.started).chain(self.began).min();
    }

    /// Counts states and skipped methods.
    fn take_stock(&mut self, jvms: &[&Snapshot]) {
        self.states = States::default();
        self.skipped = [0; SkipReason::ALL.len()];
        for jvm in jvms {
            for (sum, n) in self.states.functions.iter_mut().zip(jvm.states.functions) {
                *sum += n;
            }
            for (sum, reason) in self.skipped.iter_mut().zip(SkipReason::ALL) {
                *sum += as_u64(jvm.skipped_for(reason).count());
            }
        }
    }

    /// Gives every function a series.
    fn assign(&mut self, jvms: &[&Snapshot], limits: &Limits) {
        for name in self.assignments.assign(jvms, limits) {
            self.own.push(Series::new(Labels::of_jvm(&self.jvm, name.labels())));
        }
        if self.shared.is_none() && jvms.iter().any(|jvm| self.has_hidden(jvm)) {
            let name = Name::other(limits.with_signature);
            self.shared = Some(Series::new(Labels::of_jvm(&self.jvm, name.labels())));
        }
    }

    fn has_hidden(&self, jvm: &Snapshot) -> bool {
        self.assignments
            .of_jvm(jvm)
            .is_some_and(|assignments| assignments.values().any(|assigned| matches!(assigned, Assigned::Shared(_))))
    }

    /// Calls `f` with each function of a JVM and its series.
    fn each_function(&mut self, jvm: &Snapshot, f: impl Fn(&mut Series, &MethodSnapshot)) {
        let Some(assignments) = self.assignments.of_jvm(jvm) else { return };
        for function in &jvm.methods {
            let series = match assignments.get(&function.index) {
                Some(Assigned::Own(at)) => self.own.get_mut(*at),
                Some(Assigned::Shared(_)) => self.shared.as_mut(),
                None => None,
            };
            if let Some(series) = series {
                f(series, function);
            }
        }
    }

    /// Adds the series to the scrape.
    pub(super) fn show(&self, out: &mut Collected) {
        if let Some(began) = self.began {
            out.began(&self.jvm, began);
        }
        for series in self.own.iter().chain(&self.shared) {
            series.show(out);
        }
        if let Some(jni) = &self.jni {
            jni.show(out);
        }
        let labels = Labels::of_jvm(&self.jvm, Vec::new());
        for (tracing, n) in Tracing::ALL.iter().zip(self.states.functions) {
            out.push(Id::Methods, &labels.and("state", tracing.as_str()), Value::Whole(as_u64(n)));
        }
        for (reason, n) in SkipReason::ALL.iter().zip(self.skipped) {
            out.push(Id::SkippedMethods, &labels.and("reason", reason.as_str()), Value::Whole(n));
        }
        out.push(Id::SeriesHidden, &labels, Value::Whole(as_u64(self.assignments.hidden())));
        for (family, times) in [(Id::Overhead, &self.cost), (Id::JvmCpu, &self.cpu)] {
            if let Some(ns) = times.shown {
                out.push(family, &labels, Value::Nanoseconds(ns));
            }
        }
    }
}

/// The sum of what is known.
fn sum(parts: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    parts.into_iter().flatten().reduce(u64::saturating_add)
}
