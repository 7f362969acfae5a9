//! The numbers of one method: what JVMs have done, added up, and the value that each family shows of it.

use std::sync::Arc;
use std::time::Duration;

use nprof_common::{Counter, Counters};

use super::distribution::Distribution;
use super::exemplars::Exemplars;
use super::families::{COLLECTED, Id, SIZES};
use super::labels::Labels;
use super::series::Value;
use crate::model::{BytesPerCall, Collectors, MethodSnapshot, Unseen};

/// One method at one moment, for all scrapes that show it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shown {
    pub(super) labels: Arc<Labels>,
    pub(super) totals: Totals,
    /// Whether calls were ever to be timed.
    pub(super) timed: bool,
    /// What was ever to be collected of them.
    pub(super) collectors: Collectors,
    pub(super) in_flight: u64,
    /// Single calls, if the scrape shows any.
    pub(super) exemplars: Option<Arc<Exemplars>>,
}

/// The families in which most methods have a series. In the others few or none have one.
const OF_MOST: [Id; 7] = [
    Id::NativeCalls,
    Id::NativeCallDuration,
    Id::NativeCallSelf,
    Id::NativeCallOnCpu,
    Id::NativeCallOffCpu,
    Id::NativeCallProbe,
    Id::NativeCallsInFlight,
];

/// All methods at one moment.
#[derive(Debug, Default)]
pub(super) struct Methods {
    all: Vec<Arc<Shown>>,
    /// Those with a series in a family that is not [`OF_MOST`].
    with_others: Vec<Arc<Shown>>,
}

impl Methods {
    /// Adds a method.
    pub(super) fn push(&mut self, method: &Arc<Shown>) {
        self.all.push(Arc::clone(method));
        if method.has_others() {
            self.with_others.push(Arc::clone(method));
        }
    }

    /// Those that may have a series in a family of methods: there are dozens, and to ask each method for each takes as long as to write.
    pub(super) fn that_may_have(&self, family: Id) -> &[Arc<Shown>] {
        if OF_MOST.contains(&family) { &self.all } else { &self.with_others }
    }
}

impl Shown {
    /// Nothing yet.
    pub(super) fn new(labels: Arc<Labels>) -> Self {
        let collectors = Collectors::default();
        Self { labels, totals: Totals::default(), timed: false, collectors, in_flight: 0, exemplars: None }
    }

    /// The value of its series in a family of methods; `None` if it has none there.
    pub(super) fn value(&self, family: Id) -> Option<Value> {
        let Totals { calls, untimed, self_ns, split, probe_ns, unwatched_ns, durations, estimated, .. } = &self.totals;
        let (estimated, if_any) = (estimated.as_deref(), |n: u64| (n > 0).then_some(n));
        match family {
            Id::NativeCalls => Some(Value::Whole(*calls)),
            Id::NativeCallsUntimed => if_any(*untimed).map(Value::Whole),
            Id::NativeUnwatched => if_any(*unwatched_ns).map(Value::Nanoseconds),
            Id::NativeCallsEstimated => estimated.map(|of| Value::Whole(of.calls)),
            Id::NativeCallsEstimatedError => estimated.map(|of| Value::Whole(of.error_calls)),
            Id::NativeCallEstimated => estimated.filter(|of| of.error_ns.is_some()).map(|of| Value::Nanoseconds(of.ns)),
            Id::NativeCallEstimatedError => estimated.and_then(|of| of.error_ns).map(Value::Nanoseconds),
            Id::NativeCallDuration => {
                self.timed.then(|| Value::Durations(durations.clone().unwrap_or_default(), self.exemplars.clone()))
            }
            Id::NativeCallSelf => self.timed.then_some(Value::Nanoseconds(*self_ns)),
            Id::NativeCallOnCpu => split.filter(|_| self.timed).map(|of| Value::Nanoseconds(of.on_cpu_ns)),
            Id::NativeCallOffCpu => split.filter(|_| self.timed).map(|of| Value::Nanoseconds(of.off_cpu_ns)),
            Id::NativeCallProbe => self.timed.then_some(Value::Nanoseconds(*probe_ns)),
            Id::NativeCallsInFlight => self.timed.then_some(Value::Whole(self.in_flight)),
            _ => self.consumed(family).or_else(|| self.sizes(family)),
        }
    }

    /// Whether it may have a series in a family that is not [`OF_MOST`].
    fn has_others(&self) -> bool {
        let Totals { untimed, unwatched_ns, estimated, sizes, consumed, .. } = &self.totals;
        *untimed > 0 || *unwatched_ns > 0 || estimated.is_some() || consumed.is_some() || !sizes.is_empty()
    }

    /// What the calls have consumed, where that is collected.
    fn consumed(&self, family: Id) -> Option<Value> {
        let consumed = self.totals.consumed.as_deref()?;
        let (_, column) = COLLECTED.iter().find(|(of, _)| *of == family)?;
        let is_wanted = self.collectors.columns().any(|of| of == *column);
        is_wanted.then(|| Value::Whole(column.of(consumed)))
    }

    /// How many bytes each call has, where there are any.
    fn sizes(&self, family: Id) -> Option<Value> {
        let sizes = Some(&self.totals.sizes).filter(|sizes| !sizes.is_empty())?;
        let (_, counter) = SIZES.iter().find(|(of, _)| *of == family)?;
        let (_, of) = sizes.iter().find(|(known, of)| known == counter && of.sum > 0)?;
        Some(Value::Bytes(Arc::clone(of)))
    }
}

/// The counters of a method. They only rise.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) calls: u64,
    /// Of `calls`, those without a time.
    pub(super) untimed: u64,
    pub(super) self_ns: u64,
    /// `None` where it is of no function known whether its threads ran.
    pub(super) split: Option<Split>,
    pub(super) probe_ns: u64,
    pub(super) unwatched_ns: u64,
    /// Shared with the scrapes that show it. `None` as long as there were no calls.
    pub(super) durations: Option<Arc<Distribution>>,
    /// The same by bytes, of each counter of bytes that is collected.
    pub(super) sizes: Vec<(Counter, Arc<Distribution>)>,
    pub(super) estimated: Option<Box<Estimated>>,
    /// What the calls have consumed themselves, where that is collected.
    pub(super) consumed: Option<Box<Counters>>,
}

/// The parts of the self time, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Split {
    pub(super) on_cpu_ns: u64,
    pub(super) off_cpu_ns: u64,
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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Estimated {
    pub(super) calls: u64,
    pub(super) error_calls: u64,
    pub(super) ns: u64,
    /// `None` where no look has timed a call.
    pub(super) error_ns: Option<u64>,
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
    /// Adds what a JVM has done.
    pub(super) fn add(&mut self, function: &MethodSnapshot, collectors: Collectors) {
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
        let total_ns = function.total_ns.saturating_add(function.probe_ns);
        if total_ns > 0 || !function.histogram.buckets.is_empty() {
            Arc::make_mut(self.durations.get_or_insert_default()).add(total_ns, &function.histogram);
        }
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
    pub(super) fn raise_to(&mut self, before: &Self) {
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
        if let Some(before) = &before.durations {
            Arc::make_mut(durations.get_or_insert_default()).raise_to(before);
        }
        if let Some(before) = before.consumed.as_deref() {
            let now = consumed.get_or_insert_default();
            now.iter_mut().zip(before).for_each(|(now, before)| *now = (*before).max(*now));
        }
        if let Some(before) = &before.estimated {
            let now = estimated.get_or_insert_with(|| before.clone());
            now.calls = before.calls.max(now.calls);
            now.ns = before.ns.max(now.ns);
        }
        for (counter, before) in &before.sizes {
            Arc::make_mut(self.sizes_of(*counter)).raise_to(before);
        }
    }
}

/// A duration in nanoseconds; more than 584 years are 584 years.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
