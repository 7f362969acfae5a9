//! The numbers of one method's series: what ended JVMs have done, and what the living ones add.

use std::sync::Arc;
use std::time::Duration;

use nprof_common::{Counter, Counters};

use crate::export::distribution::Distribution;
use crate::export::exemplars::Exemplars;
use crate::export::exposition::Collected;
use crate::export::families::{COLLECTED, Id, SIZES};
use crate::export::labels::Labels;
use crate::export::series::Value;
use crate::model::{BytesPerCall, Collectors, Column, MethodSnapshot, Snapshot, Tracing, Unseen};

/// The counters of a method. They only rise.
#[derive(Debug, Clone, Default)]
struct Totals {
    calls: u64,
    /// Of `calls`, those without a time.
    untimed: u64,
    self_ns: u64,
    /// `None` where it is of no function known whether its threads ran.
    split: Option<Split>,
    probe_ns: u64,
    unwatched_ns: u64,
    /// Shared with the scrape that shows it.
    durations: Arc<Distribution>,
    /// The same by bytes, of each counter of bytes that is collected.
    sizes: Vec<(Counter, Arc<Distribution>)>,
    estimated: Option<Estimated>,
    /// What the calls have consumed themselves, where that is collected.
    consumed: Option<Box<Counters>>,
}

/// The parts of the self time, as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
struct Split {
    on_cpu_ns: u64,
    off_cpu_ns: u64,
}

impl Split {
    /// Adds a function of which so much self time was measured, and so much of it off the CPU: not in the same moment.
    fn add(&mut self, own_ns: u64, off_cpu_ns: u64) {
        let off_cpu_ns = off_cpu_ns.min(own_ns);
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(own_ns - off_cpu_ns);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(off_cpu_ns);
    }
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
    fn add(&mut self, function: &MethodSnapshot, collectors: Collectors) {
        let untimed = function.counted.saturating_add(function.untimed);
        self.calls = self.calls.saturating_add(function.calls);
        self.untimed = self.untimed.saturating_add(untimed);
        // As they were measured, like the buckets: numbers without the probes' part could fall.
        let own_ns = function.self_ns.unwrap_or(function.total_ns).saturating_add(function.probe_ns);
        self.self_ns = self.self_ns.saturating_add(own_ns);
        if let Some(off_cpu_ns) = function.off_cpu_ns {
            self.split.get_or_insert_default().add(own_ns, off_cpu_ns);
        }
        self.probe_ns = self.probe_ns.saturating_add(function.probe_ns);
        self.unwatched_ns = self.unwatched_ns.saturating_add(nanoseconds(function.traced.unwatched));
        if let Some(consumed) = function.consumed.as_deref() {
            let sums = self.consumed.get_or_insert_default();
            sums.iter_mut().zip(consumed.own).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        }
        self.add_sizes(function, collectors);
        if let Some(unseen) = &function.unseen {
            self.estimated.get_or_insert_default().add(unseen);
        }
        Arc::make_mut(&mut self.durations)
            .add(function.total_ns.saturating_add(function.probe_ns), &function.histogram);
    }

    /// Adds how many bytes each call has, of calls of which that is known. Most functions have none.
    fn add_sizes(&mut self, function: &MethodSnapshot, collectors: Collectors) {
        let known = function.bytes_per_call.as_deref().zip(function.consumed.as_deref());
        let Some((known, consumed)) = known else { return };
        for (counter, _) in collectors.columns().filter_map(|column| column.per_call) {
            let (of_calls, total) = (known.iter().find(|of| of.counter == counter), consumed.total[counter as usize]);
            if of_calls.is_none() && total > 0 {
                // There was no room for them.
                continue;
            }
            let with_any = of_calls.map_or(0, BytesPerCall::calls);
            let sizes = Arc::make_mut(self.sizes_of(counter));
            sizes.add_none(function.timed_calls().saturating_sub(with_any));
            if let Some(of_calls) = of_calls {
                sizes.add(total, &of_calls.histogram);
            }
        }
    }

    fn sizes_of(&mut self, counter: Counter) -> &mut Arc<Distribution> {
        let place = self.sizes.iter().position(|(of, _)| *of == counter).unwrap_or_else(|| {
            self.sizes.push((counter, Arc::default()));
            self.sizes.len() - 1
        });
        &mut self.sizes[place].1
    }

    /// Raises what is lower than it was to what it was. Self time can be: it is the difference of two numbers that are
    /// not read in the same moment.
    fn raise_to(&mut self, before: &Self) {
        let Self { calls, untimed, self_ns, split, probe_ns, unwatched_ns, durations, sizes: _, estimated, consumed } =
            self;
        *calls = before.calls.max(*calls);
        *untimed = before.untimed.max(*untimed);
        *self_ns = before.self_ns.max(*self_ns);
        *probe_ns = before.probe_ns.max(*probe_ns);
        *unwatched_ns = before.unwatched_ns.max(*unwatched_ns);
        if let Some(before) = before.split {
            let now = split.get_or_insert(before);
            now.on_cpu_ns = before.on_cpu_ns.max(now.on_cpu_ns);
            now.off_cpu_ns = before.off_cpu_ns.max(now.off_cpu_ns);
        }
        if *before.durations != Distribution::default() {
            Arc::make_mut(durations).raise_to(&before.durations);
        }
        if let Some(before) = before.consumed.as_deref() {
            let now = consumed.get_or_insert_default();
            now.iter_mut().zip(before).for_each(|(now, before)| *now = (*before).max(*now));
        }
        if let Some(before) = before.estimated {
            let now = estimated.get_or_insert(before);
            now.calls = before.calls.max(now.calls);
            now.ns = before.ns.max(now.ns);
        }
        for (counter, before) in &before.sizes {
            Arc::make_mut(self.sizes_of(*counter)).raise_to(before);
        }
    }
}

/// The series of one method, or of all that have none of their own.
#[derive(Debug)]
pub(super) struct Series {
    labels: Arc<Labels>,
    /// What JVMs have done that have ended, once one has.
    ended: Option<Box<Totals>>,
    /// What was shown at the last scrape.
    shown: Totals,
    /// What is to be shown, while it is added up.
    next: Option<Box<Totals>>,
    /// Whether calls were ever to be timed.
    timed: bool,
    /// What was ever to be collected of them.
    collectors: Collectors,
    in_flight: u64,
    /// Single calls, if the scrape shows any.
    exemplars: Arc<Exemplars>,
    /// The least of what is done at the calls of those functions that were demoted.
    demoted: Option<Tracing>,
}

impl Series {
    /// A series of nothing yet.
    pub(super) fn new(labels: Arc<Labels>) -> Self {
        let (collectors, shown) = (Collectors::default(), Totals::default());
        Self {
            labels,
            ended: None,
            shown,
            next: None,
            timed: false,
            collectors,
            in_flight: 0,
            exemplars: Arc::default(),
            demoted: None,
        }
    }

    /// Keeps the last numbers of a function whose JVM has ended.
    pub(super) fn retire(&mut self, function: &MethodSnapshot, jvm: &Snapshot) {
        self.is_of(jvm);
        self.ended.get_or_insert_default().add(function, jvm.collectors);
    }

    /// Begins to add up.
    pub(super) fn begin(&mut self) {
        self.next.clone_from(&self.ended);
        self.in_flight = 0;
        self.exemplars = Arc::default();
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
        self.next.get_or_insert_default().add(function, jvm.collectors);
        self.in_flight = self.in_flight.saturating_add(function.in_flight);
        for exemplar in jvm.slow.iter().flat_map(|slow| &slow.exemplars) {
            if function.methods.iter().any(|known| known.method == exemplar.method)
                && let Some(exemplars) = Arc::get_mut(&mut self.exemplars)
            {
                exemplars.add(exemplar);
            }
        }
        if function.traced.tracing < function.traced.wanted {
            self.demoted =
                Some(self.demoted.map_or(function.traced.tracing, |least| least.min(function.traced.tracing)));
        }
    }

    /// Has added up.
    pub(super) fn finish(&mut self) {
        let mut next = self.next.take().unwrap_or_default();
        next.raise_to(&self.shown);
        self.shown = *next;
    }

    /// Adds the series to the scrape as that of a JNI function.
    pub(super) fn show_function(&self, out: &mut Collected) {
        let Totals { calls, untimed, self_ns, split, probe_ns, unwatched_ns, estimated, .. } = &self.shown;
        let mut push = |family, value| out.push(family, &self.labels, value);
        push(Id::JniCalls, Value::Whole(*calls));
        push(Id::JniCallSelf, Value::Nanoseconds(*self_ns));
        if let Some(Split { on_cpu_ns, off_cpu_ns }) = *split {
            push(Id::JniCallOnCpu, Value::Nanoseconds(on_cpu_ns));
            push(Id::JniCallOffCpu, Value::Nanoseconds(off_cpu_ns));
        }
        push(Id::JniCallProbe, Value::Nanoseconds(*probe_ns));
        push(Id::JniCallsInFlight, Value::Whole(self.in_flight));
        if *untimed > 0 {
            push(Id::JniCallsUntimed, Value::Whole(*untimed));
        }
        if *unwatched_ns > 0 {
            push(Id::JniUnwatched, Value::Nanoseconds(*unwatched_ns));
        }
        if let Some(Estimated { calls, error_calls, ns, error_ns }) = *estimated {
            push(Id::JniCallsEstimated, Value::Whole(calls));
            push(Id::JniCallsEstimatedError, Value::Whole(error_calls));
            if let Some(error_ns) = error_ns {
                push(Id::JniCallEstimated, Value::Nanoseconds(ns));
                push(Id::JniCallEstimatedError, Value::Nanoseconds(error_ns));
            }
        }
        if let Some(tracing) = self.demoted {
            out.push(Id::DemotedJniFunction, &self.labels.and("state", tracing.as_str()), Value::Whole(1));
        }
    }

    /// Adds the series to the scrape.
    pub(super) fn show(&self, out: &mut Collected) {
        let Totals { calls, untimed, self_ns, split, probe_ns, unwatched_ns, durations, sizes, estimated, consumed } =
            &self.shown;
        out.push(Id::NativeCalls, &self.labels, Value::Whole(*calls));
        if self.timed {
            out.push(
                Id::NativeCallDuration,
                &self.labels,
                Value::Durations(Arc::clone(durations), Arc::clone(&self.exemplars)),
            );
            out.push(Id::NativeCallSelf, &self.labels, Value::Nanoseconds(*self_ns));
            if let Some(Split { on_cpu_ns, off_cpu_ns }) = *split {
                out.push(Id::NativeCallOnCpu, &self.labels, Value::Nanoseconds(on_cpu_ns));
                out.push(Id::NativeCallOffCpu, &self.labels, Value::Nanoseconds(off_cpu_ns));
            }
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
        if let Some(consumed) = consumed {
            let wanted = |column: &Column| self.collectors.columns().any(|of| of == column);
            for (family, column) in COLLECTED.iter().filter(|(_, column)| wanted(column)) {
                out.push(*family, &self.labels, Value::Whole(column.of(consumed)));
            }
        }
        for (family, counter) in SIZES.iter() {
            if let Some((_, of)) = sizes.iter().find(|(known, of)| known == counter && of.sum > 0) {
                out.push(*family, &self.labels, Value::Bytes(Arc::clone(of)));
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
