//! One method's series, from scrape to scrape: what ended JVMs have done, and what the living ones add.

use std::sync::Arc;

use crate::export::exemplars::Exemplars;
use crate::export::exposition::Collected;
use crate::export::families::Id;
use crate::export::labels::Labels;
use crate::export::series::Value;
use crate::export::totals::{Estimated, Shown, Split, Totals};
use crate::model::{Collectors, MethodSnapshot, Snapshot, Tracing};

/// The series of one method, or of all that have none of their own.
#[derive(Debug)]
pub(super) struct Series {
    /// What JVMs have done that have ended, once one has.
    ended: Option<Box<Totals>>,
    /// What was shown at the last scrape.
    shown: Arc<Shown>,
    /// What is to be shown, while it is added up.
    next: Option<Box<Next>>,
    /// Whether calls were ever to be timed.
    timed: bool,
    /// What was ever to be collected of them.
    collectors: Collectors,
    /// The least of what is done at the calls of those functions that were demoted.
    demoted: Option<Tracing>,
}

/// What is added up for a scrape.
#[derive(Debug, Default)]
struct Next {
    totals: Totals,
    in_flight: u64,
    exemplars: Option<Exemplars>,
}

impl Series {
    /// A series of nothing yet.
    pub(super) fn new(labels: Arc<Labels>) -> Self {
        let (shown, collectors) = (Arc::new(Shown::new(labels)), Collectors::default());
        Self { ended: None, shown, next: None, timed: false, collectors, demoted: None }
    }

    /// Keeps the last numbers of a function whose JVM has ended.
    pub(super) fn retire(&mut self, function: &MethodSnapshot, jvm: &Snapshot) {
        self.is_of(jvm);
        self.ended.get_or_insert_default().add(function, jvm.collectors);
    }

    /// Begins to add up.
    pub(super) fn begin(&mut self) {
        let totals = self.ended.as_deref().cloned();
        self.next = totals.map(|totals| Box::new(Next { totals, ..Next::default() }));
        self.demoted = None;
    }

    /// Notes how a JVM is measured that has calls here.
    fn is_of(&mut self, jvm: &Snapshot) {
        self.timed |= jvm.timed;
        self.collectors = self.collectors.and(jvm.collectors);
    }

    /// Adds a function of a living JVM.
    pub(super) fn add(&mut self, function: &MethodSnapshot, jvm: &Snapshot) {
        self.is_of(jvm);
        let next = self.next.get_or_insert_default();
        next.totals.add(function, jvm.collectors);
        next.in_flight = next.in_flight.saturating_add(function.in_flight);
        for exemplar in jvm.slow.iter().flat_map(|slow| &slow.exemplars) {
            if function.methods.iter().any(|known| known.method.is_same(&exemplar.method)) {
                next.exemplars.get_or_insert_default().add(exemplar);
            }
        }
        if function.traced.tracing < function.traced.wanted {
            self.demoted =
                Some(self.demoted.map_or(function.traced.tracing, |least| least.min(function.traced.tracing)));
        }
    }

    /// Has added up. What has not changed is shared with scrapes that still show it.
    pub(super) fn finish(&mut self) {
        let Next { mut totals, in_flight, exemplars } = *self.next.take().unwrap_or_default();
        totals.raise_to(&self.shown.totals);
        let (labels, exemplars) = (Arc::clone(&self.shown.labels), exemplars.map(Arc::new));
        let now = Shown { labels, totals, timed: self.timed, collectors: self.collectors, in_flight, exemplars };
        if *self.shown != now {
            self.shown = Arc::new(now);
        }
    }

    /// Adds the series to the scrape as that of a JNI function.
    pub(super) fn show_function(&self, out: &mut Collected) {
        let Shown { labels, totals, in_flight, .. } = self.shown.as_ref();
        let Totals { calls, untimed, self_ns, split, probe_ns, unwatched_ns, estimated, .. } = totals;
        let mut push = |family, value| out.push(family, labels, value);
        push(Id::JniCalls, Value::Whole(*calls));
        push(Id::JniCallSelf, Value::Nanoseconds(*self_ns));
        if let Some(Split { on_cpu_ns, off_cpu_ns }) = *split {
            push(Id::JniCallOnCpu, Value::Nanoseconds(on_cpu_ns));
            push(Id::JniCallOffCpu, Value::Nanoseconds(off_cpu_ns));
        }
        push(Id::JniCallProbe, Value::Nanoseconds(*probe_ns));
        push(Id::JniCallsInFlight, Value::Whole(*in_flight));
        if *untimed > 0 {
            push(Id::JniCallsUntimed, Value::Whole(*untimed));
        }
        if *unwatched_ns > 0 {
            push(Id::JniUnwatched, Value::Nanoseconds(*unwatched_ns));
        }
        if let Some(Estimated { calls, error_calls, ns, error_ns }) = estimated.as_deref().copied() {
            push(Id::JniCallsEstimated, Value::Whole(calls));
            push(Id::JniCallsEstimatedError, Value::Whole(error_calls));
            if let Some(error_ns) = error_ns {
                push(Id::JniCallEstimated, Value::Nanoseconds(ns));
                push(Id::JniCallEstimatedError, Value::Nanoseconds(error_ns));
            }
        }
        if let Some(tracing) = self.demoted {
            out.push(Id::DemotedJniFunction, &labels.and("state", tracing.as_str()), Value::Whole(1));
        }
    }

    /// Adds the series to the scrape.
    pub(super) fn show(&self, out: &mut Collected) {
        out.show(&self.shown);
        if let Some(tracing) = self.demoted {
            out.push(Id::DemotedMethod, &self.shown.labels.and("state", tracing.as_str()), Value::Whole(1));
        }
    }
}
