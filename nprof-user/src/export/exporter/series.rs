//! The numbers of one method's series: what ended JVMs have done, and what the living ones add.

use std::sync::Arc;
use std::time::Duration;

use crate::export::durations::Durations;
use crate::export::exposition::Collected;
use crate::export::families::Id;
use crate::export::labels::Labels;
use crate::export::series::Value;
use crate::model::{MethodSnapshot, Tracing, Unseen};

/// The counters of a method. They only rise.
#[derive(Debug, Clone, Default)]
struct Totals {
    calls: u64,
    /// Of `calls`, those without a time.
    untimed: u64,
    self_ns: u64,
    probe_ns: u64,
    unwatched_ns: u64,
    durations: Durations,
    estimated: Option<Estimated>,
}

/// What nobody saw, estimated: of counters only what no later look takes back. Errors are no counters, and add up: much of what
/// is not known is the same for all.
#[derive(Debug, Clone, Copy, Default)]
struct Estimated {
    calls: u64,
    error_calls: u64,
    ns: u64,
    /// `None` where no look has timed a call.
    error_ns: Option<u64>,
}

impl Estimated {
    fn add(&mut self, unseen: &Unseen) {
        self.calls = self.calls.saturating_add(unseen.settled.calls);
        self.error_calls = self.error_calls.saturating_add(unseen.error_calls);
        self.ns = self.ns.saturating_add(unseen.settled.total_ns);
        self.error_ns = [self.error_ns, unseen.error_ns].into_iter().flatten().reduce(u64::saturating_add);
    }
}

impl Totals {
    fn add(&mut self, function: &MethodSnapshot) {
        let untimed = function.counted.saturating_add(function.untimed);
        self.calls = self.calls.saturating_add(function.calls);
        self.untimed = self.untimed.saturating_add(untimed);
        // As they were measured, like the buckets: numbers without the probes' part could fall.
        let own_ns = function.self_ns.unwrap_or(function.total_ns).saturating_add(function.probe_ns);
        self.self_ns = self.self_ns.saturating_add(own_ns);
        self.probe_ns = self.probe_ns.saturating_add(function.probe_ns);
        self.unwatched_ns = self.unwatched_ns.saturating_add(nanoseconds(function.traced.unwatched));
        if let Some(unseen) = &function.unseen {
            self.estimated.get_or_insert_default().add(unseen);
        }
        self.durations.add(function.total_ns.saturating_add(function.probe_ns), &function.histogram);
    }

    /// Raises what is lower than it was to what it was. Self time can be: it is the difference of two numbers that are
    /// not read in the same moment.
    fn raise_to(&mut self, before: &Self) {
        let Self { calls, untimed, self_ns, probe_ns, unwatched_ns, durations, estimated } = self;
        *calls = before.calls.max(*calls);
        *untimed = before.untimed.max(*untimed);
        *self_ns = before.self_ns.max(*self_ns);
        *probe_ns = before.probe_ns.max(*probe_ns);
        *unwatched_ns = before.unwatched_ns.max(*unwatched_ns);
        durations.raise_to(&before.durations);
        if let Some(before) = before.estimated {
            let now = estimated.get_or_insert(before);
            now.calls = before.calls.max(now.calls);
            now.ns = before.ns.max(now.ns);
        }
    }
}

/// The series of one method, or of all that have none of their own.
#[derive(Debug)]
pub(super) struct Series {
    labels: Arc<Labels>,
    /// What JVMs have done that have ended.
    ended: Totals,
    /// What was shown at the last scrape.
    shown: Totals,
    /// What is to be shown, while it is added up.
    next: Totals,
    /// Whether calls were ever to be timed.
    timed: bool,
    in_flight: u64,
    /// The least of what is done at the calls of those functions that were demoted.
    demoted: Option<Tracing>,
}

impl Series {
    /// A series of nothing yet.
    pub(super) fn new(labels: Arc<Labels>) -> Self {
        Self {
            labels,
            ended: Totals::default(),
            shown: Totals::default(),
            next: Totals::default(),
            timed: false,
            in_flight: 0,
            demoted: None,
        }
    }

    /// Keeps the last numbers of a function whose JVM has ended.
    pub(super) fn retire(&mut self, function: &MethodSnapshot, timed: bool) {
        self.timed |= timed;
        self.ended.add(function);
    }

    /// Begins to add up.
    pub(super) fn begin(&mut self) {
        self.next = self.ended.clone();
        self.in_flight = 0;
        self.demoted = None;
    }

    /// Adds a function of a living JVM.
    pub(super) fn add(&mut self, function: &MethodSnapshot, timed: bool) {
        self.timed |= timed;
        self.next.add(function);
        self.in_flight = self.in_flight.saturating_add(function.in_flight);
        if function.traced.tracing < function.traced.wanted {
            self.demoted =
                Some(self.demoted.map_or(function.traced.tracing, |least| least.min(function.traced.tracing)));
        }
    }

    /// Has added up.
    pub(super) fn finish(&mut self) {
        self.next.raise_to(&self.shown);
        self.shown = std::mem::take(&mut self.next);
    }

    /// Adds the series to the scrape.
    pub(super) fn show(&self, out: &mut Collected) {
        let Totals { calls, untimed, self_ns, probe_ns, unwatched_ns, durations, estimated } = &self.shown;
        out.push(Id::NativeCalls, &self.labels, Value::Whole(*calls));
        if self.timed {
            out.push(Id::NativeCallDuration, &self.labels, Value::Durations(durations.clone()));
            out.push(Id::NativeCallSelf, &self.labels, Value::Nanoseconds(*self_ns));
            out.push(Id::NativeCallProbe, &self.labels, Value::Nanoseconds(*probe_ns));
            out.push(Id::NativeCallsInFlight, &self.labels, Value::Whole(self.in_flight));
        }
        if *untimed > 0 {
            out.push(Id::NativeCallsUntimed, &self.labels, Value::Whole(*untimed));
        }
        if *unwatched_ns > 0 {
            out.push(Id::NativeUnwatched, &self.labels, Value::Nanoseconds(*unwatched_ns));
        }
        if let Some(Estimated { calls, error_calls, ns, error_ns }) = *estimated {
            out.push(Id::NativeCallsEstimated, &self.labels, Value::Whole(calls));
            out.push(Id::NativeCallsEstimatedError, &self.labels, Value::Whole(error_calls));
            if let Some(error_ns) = error_ns {
                out.push(Id::NativeCallEstimated, &self.labels, Value::Nanoseconds(ns));
                out.push(Id::NativeCallEstimatedError, &self.labels, Value::Nanoseconds(error_ns));
            }
        }
        if let Some(tracing) = self.demoted {
            out.push(Id::DemotedMethod, &self.labels.and("state", tracing.as_str()), Value::Whole(1));
        }
    }
}

/// A duration in nanoseconds; more than 584 years are 584 years.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
