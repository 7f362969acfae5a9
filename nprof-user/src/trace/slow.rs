//! Slow calls: the kernel tells each that took longer than the user wants to hear nothing of, whether a probe or a stub has timed it.
//!
//! ```text
//! probe, at the return ─┐ threshold of the function                 ┌─> the slowest ─> Snapshot
//! stub, at its end ─────┴─────────────> ring ─> profile/slow ────────┴─> whoever hears all of them
//! ```
//!
//! How many there were is counted beside the functions' records ([`SlowTable`]), whatever becomes of the single calls.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::exemplars::Exemplars;
use super::tokens::Tokens;
use super::{Error, VMS};
use crate::attach::{Collect, Engine, Feeds, SlowTable, Switches, VmTable};
use crate::discover::Proc;
use crate::model::{Exemplar, Jvm, Method, Probe, SlowCall, SlowCalls, SlowWait};
use crate::profile::{self, SlowSample, SlowUser, StackRing};
use crate::resolve::thresholds::{self, Thresholds};

/// How much of a stack is copied, in bytes.
const STACK_BYTES: u32 = 32 << 10;
/// The most stacks in a second that the ring has room for.
const MAX_STACKS: u32 = 200;

/// The most calls of a JVM that a listener hears of in a second, and at once.
const HEARD: [f64; 2] = [10.0, 50.0];
/// The same of all JVMs.
const HEARD_OF_ALL: [f64; 2] = [50.0, 200.0];

/// Takes the slow calls of any number of JVMs that share an engine.
#[derive(Debug, Clone)]
pub struct SlowWatch {
    proc: Proc,
    table: SlowTable,
    ring: Arc<StackRing>,
    vms: Arc<VmTable>,
    listener: Option<Heard>,
}

/// Whoever wants to hear of slow calls one by one, such as a log. Not of all, where there are many.
pub trait SlowListener: fmt::Debug + Send + Sync {
    /// A call was slow. `dropped` are those of the JVM that nobody heard of, since the last one that somebody did.
    fn hear(&self, jvm: &Jvm, call: &SlowCall, dropped: u64);

    /// So many calls of a JVM, which has ended, were slow since then.
    fn dropped(&self, jvm: &Jvm, dropped: u64);
}

/// A listener, and how much he may hear of all JVMs together.
#[derive(Debug, Clone)]
struct Heard {
    listener: Arc<dyn SlowListener>,
    of_all: Arc<Mutex<Tokens>>,
}

/// Whose a call is.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    pub(super) method: Method,
    /// How much of its time is the probe's part, in nanoseconds.
    pub(super) inside_ns: u64,
    /// Whether all methods that it may be of have the same arguments.
    pub(super) has_these_arguments: bool,
}

/// Whose a stub's record is.
#[derive(Debug)]
pub(super) enum OfStub {
    /// Not known yet.
    Unknown,
    /// A method's that nobody has asked for.
    Unselected,
    /// This method's.
    Selected(Method),
}

/// Who knows the methods of a JVM.
pub(super) trait Methods: Send + Sync {
    /// Whose a call is; `None` if that is not known, or not yet.
    fn method_of(&self, call: &SlowSample) -> Option<Whose>;

    /// Whose the record of a stub is.
    fn of_stub(&self, record: u32) -> OfStub;
}

/// The slow calls of one JVM.
#[derive(Debug)]
pub(super) struct JvmSlow {
    watch: SlowWatch,
    calls: profile::SlowCalls,
    switches: Arc<Switches>,
    /// What its queue is known by to the ring.
    number: u64,
    /// The record that calls of its stubs are counted in.
    of_stubs: Option<u32>,
    thresholds: Shared,
    /// Of the calls that a listener has heard of.
    exemplars: Arc<Mutex<Exemplars>>,
}

/// From when on calls are slow, which may change.
type Shared = Arc<Mutex<Arc<Thresholds>>>;

/// Says which calls of a JVM are to be told.
struct User {
    table: SlowTable,
    switches: Arc<Switches>,
    of_stubs: Option<u32>,
    methods: Arc<dyn Methods>,
    thresholds: Shared,
    told: Option<Told>,
}

/// What a listener hears of a JVM.
struct Told {
    heard: Heard,
    jvm: Jvm,
    methods: Arc<dyn Methods>,
    exemplars: Arc<Mutex<Exemplars>>,
    tokens: Tokens,
    /// Calls that the reader had and the listener did not hear of.
    dropped: u64,
    /// Of all that were dropped, those that the listener knows of.
    said: u64,
}

impl SlowWatch {
    /// What is to be collected for it.
    #[must_use]
    pub fn collect() -> Collect {
        Collect {
            slow: true,
            stubs: true,
            vms: VMS,
            stack_bytes: STACK_BYTES,
            max_stacks: MAX_STACKS,
            ..Collect::nothing()
        }
    }

    /// The same besides what else is collected.
    #[must_use]
    pub fn collect_with(others: Collect) -> Collect {
        Collect { slow: true, stubs: true, vms: VMS.max(others.vms), ..with_stacks(others) }
    }

    /// Begins to take stacks. `engine` is one that collects slow calls.
    ///
    /// # Errors
    /// If there can be no thread for it, or the engine collects none.
    pub fn start(proc: Proc, engine: &Engine, feeds: Feeds) -> Result<Self, Error> {
        let vms = Arc::clone(feeds.vms());
        Self::by_ring(proc, engine, ring(feeds)?, vms)
    }

    /// The same, by a ring that others use too.
    ///
    /// # Errors
    /// If the engine collects no slow calls.
    pub fn by_ring(proc: Proc, engine: &Engine, ring: Arc<StackRing>, vms: Arc<VmTable>) -> Result<Self, Error> {
        let none = || Error::Defect { what: "slow calls are not collected".to_owned() };
        let table = engine.slow().ok_or_else(none)?.clone();
        Ok(Self { proc, table, ring, vms, listener: None })
    }

    /// The same, and `listener` hears of them.
    #[must_use]
    pub fn heard_by(self, listener: Arc<dyn SlowListener>) -> Self {
        let [per_second, burst] = HEARD_OF_ALL;
        let of_all = Arc::new(Mutex::new(Tokens::new(per_second, burst, Instant::now())));
        Self { listener: Some(Heard { listener, of_all }), ..self }
    }

    /// Begins to read those of a JVM, which `thresholds` says of their methods. `of_stubs` is the record that calls of its stubs are
    /// counted in.
    pub(super) fn begin(
        self,
        jvm: &Jvm,
        (switches, of_stubs): (&Arc<Switches>, Option<u32>),
        thresholds: Thresholds,
        methods: Arc<dyn Methods>,
    ) -> Result<JvmSlow, Error> {
        let pid = jvm.pid;
        let queue = self.ring.add_slow(pid);
        let number = queue.number();
        let thresholds = Shared::new(Mutex::new(Arc::new(thresholds)));
        let told = self.listener.clone().map(|heard| Told::new(heard, jvm.clone(), Arc::clone(&methods)));
        let exemplars = told.as_ref().map(|told| Arc::clone(&told.exemplars)).unwrap_or_default();
        let (table, switches, of_all) = (self.table.clone(), Arc::clone(switches), Arc::clone(&thresholds));
        let user = User { table, switches: Arc::clone(&switches), of_stubs, methods, thresholds: of_all, told };
        let (reads, vms) = ((self.proc.clone(), pid), Arc::clone(&self.vms));
        let calls = profile::SlowCalls::start(reads, queue, vms, Box::new(user)).map_err(|error| {
            self.ring.remove(number);
            Error::Defect { what: error.to_string() }
        })?;
        let slow = JvmSlow { watch: self, calls, switches, number, of_stubs, thresholds, exemplars };
        slow.tell_of_stubs();
        Ok(slow)
    }
}

impl SlowUser for User {
    fn tell_from(&mut self, ns: u64) {
        // Whoever hears of calls one by one has no use for the slowest of all times.
        let ns = if ns > 0 && self.told.is_some() { u64::MAX } else { ns };
        self.records().for_each(|record| self.table.tell_from(record, ns));
    }

    fn wants(&mut self, record: u32, time_ns: u64) -> Option<bool> {
        match self.methods.of_stub(record) {
            OfStub::Unknown => None,
            OfStub::Unselected => Some(false),
            // A stub that was not told of its method, or not yet of another threshold, chooses other calls, too.
            OfStub::Selected(method) => Some(time_ns >= current(&self.thresholds).of(&method)),
        }
    }

    fn hear(&mut self, call: &SlowSample) {
        if self.told.is_none() {
            return;
        }
        let not_told = self.not_told();
        if let Some(told) = &mut self.told {
            told.hear(call, not_told);
        }
    }

    fn pass_over(&mut self, calls: u64) {
        if let Some(told) = &mut self.told {
            told.dropped += calls;
        }
    }

    fn wants_all(&mut self) -> bool {
        self.told.as_mut().is_some_and(|told| told.tokens.has_one(Instant::now()))
    }

    fn end(&mut self) {
        let not_told = self.not_told();
        if let Some(told) = &mut self.told {
            told.end(not_told);
        }
    }
}

impl User {
    fn records(&self) -> impl Iterator<Item = u32> + use<> {
        self.switches.functions().into_iter().map(|(_, record, _)| record).chain(self.of_stubs)
    }

    /// How many slow calls never came to the reader.
    fn not_told(&self) -> u64 {
        let counts = self.records().map(|record| self.table.count(record));
        counts.map(|count| count.kept_back + count.no_room).sum()
    }
}

impl Told {
    fn new(heard: Heard, jvm: Jvm, methods: Arc<dyn Methods>) -> Self {
        let [per_second, burst] = HEARD;
        let tokens = Tokens::new(per_second, burst, Instant::now());
        let exemplars = Arc::default();
        Self { heard, jvm, methods, exemplars, tokens, dropped: 0, said: 0 }
    }

    /// Passes a call on, if there is not too much to hear. `not_told` calls never came here.
    fn hear(&mut self, sample: &SlowSample, not_told: u64) {
        let known = self.methods.method_of(sample);
        let now = Instant::now();
        let may_tell = self.tokens.take(now) && self.heard.takes(now);
        let Some(known) = known.filter(|_| may_tell) else {
            self.dropped += 1;
            return;
        };
        unpoisoned(&self.exemplars).add(exemplar(sample, &known.method));
        let dropped = self.new_drops(not_told);
        self.heard.listener.hear(&self.jvm, &call(sample.clone(), known), dropped);
    }

    fn end(&mut self, not_told: u64) {
        let dropped = self.new_drops(not_told);
        if dropped > 0 {
            self.heard.listener.dropped(&self.jvm, dropped);
        }
    }

    fn new_drops(&mut self, not_told: u64) -> u64 {
        let dropped = self.dropped + not_told;
        let new = dropped.saturating_sub(self.said);
        self.said = dropped.max(self.said);
        new
    }
}

impl Heard {
    fn takes(&self, now: Instant) -> bool {
        // Whoever panicked here has taken one or not.
        self.of_all.lock().unwrap_or_else(PoisonError::into_inner).take(now)
    }
}

impl JvmSlow {
    /// Reads what is left. What was read stays readable.
    pub(super) fn stop(&self) {
        self.watch.ring.flush();
        self.watch.ring.remove(self.number);
        self.calls.finish();
    }

    /// Calls of a function are slow as its methods say, of which some may have been heard of before.
    pub(super) fn begin_function(&self, probe: &Probe) {
        if let Some(record) = self.switches.record(probe.index) {
            self.begin_record(record, threshold_of(probe, &current(&self.thresholds)));
        }
    }

    /// Says anew from when on calls are slow, of functions that are there too.
    pub(super) fn set_thresholds(&self, thresholds: Thresholds, probes: &[Probe]) {
        *unpoisoned(&self.thresholds) = Arc::new(thresholds);
        self.tell_of_stubs();
        probes.iter().for_each(|probe| self.begin_function(probe));
    }

    /// Single calls for a scrape, which has them from now on.
    pub(super) fn show_exemplars(&self) -> Vec<Exemplar> {
        unpoisoned(&self.exemplars).show()
    }

    /// From when on calls are slow.
    pub(super) fn thresholds(&self) -> Arc<Thresholds> {
        current(&self.thresholds)
    }

    /// What a stub chooses is slow. One that was not told of its method yet, or not of another threshold, may choose others.
    fn tell_of_stubs(&self) {
        if let Some(record) = self.of_stubs {
            self.begin_record(record, self.thresholds().least_ns());
        }
    }

    fn begin_record(&self, record: u32, threshold_ns: u64) {
        // A listener may hear of calls that are none of the slowest.
        self.watch.table.only_slowest(record, self.watch.listener.is_none());
        self.watch.table.set_threshold(record, threshold_ns);
    }

    /// The slow calls so far. `method_of` knows whose they are; of a call of which it does not, or not yet,
    /// nothing is said.
    pub(super) fn read(&self, method_of: impl Fn(&SlowSample) -> Option<Whose>) -> SlowCalls {
        let functions = self.switches.functions();
        let counts = functions.iter().map(|(_, record, _)| *record).chain(self.of_stubs);
        let tally = self.calls.tally();
        let counts: Vec<_> = counts.map(|record| self.watch.table.count(record)).collect();
        let thresholds = self.thresholds();
        let named = |sample| method_of(&sample).map(|known| call(sample, known));
        let mut slowest: Vec<SlowCall> = self.calls.slowest().into_iter().filter_map(named).collect();
        // The parts of probes are not all alike.
        slowest.sort_by_key(|call| std::cmp::Reverse(call.time_ns));
        SlowCalls {
            threshold_ns: thresholds::known(thresholds.usual_ns()),
            by_pattern: thresholds.by_pattern(),
            total: (counts.iter().map(|count| count.calls).sum::<u64>() + tally.more).saturating_sub(tally.fewer),
            unread: counts.iter().map(|count| count.no_room).sum::<u64>() + tally.unread,
            slowest,
            exemplars: Vec::new(),
        }
    }
}

/// With room for the stacks of single calls besides what else is collected.
pub(super) fn with_stacks(others: Collect) -> Collect {
    let max_stacks = MAX_STACKS.saturating_add(others.max_stacks);
    Collect { stack_bytes: STACK_BYTES.max(others.stack_bytes), max_stacks, ..others }
}

/// Begins to take the stacks of single calls.
pub(super) fn ring(feeds: Feeds) -> Result<Arc<StackRing>, Error> {
    let ring = StackRing::start(feeds, MAX_STACKS);
    ring.map(Arc::new).map_err(|error| Error::Defect { what: error.to_string() })
}

fn current(thresholds: &Shared) -> Arc<Thresholds> {
    Arc::clone(&unpoisoned(thresholds))
}

fn unpoisoned<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these is set as a whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn exemplar(sample: &SlowSample, method: &Method) -> Exemplar {
    let SlowSample { time_ns, ended, thread, callers, .. } = sample;
    let caller = callers.first().cloned().unwrap_or_default();
    Exemplar { method: method.clone(), time_ns: *time_ns, ended: *ended, thread: thread.clone(), caller }
}

/// The least that its methods say.
fn threshold_of(probe: &Probe, thresholds: &Thresholds) -> u64 {
    probe.methods.iter().map(|known| thresholds.of(&known.method)).min().unwrap_or(u64::MAX)
}

/// A call with the name of its method.
fn call(sample: SlowSample, whose: Whose) -> SlowCall {
    let Whose { method, inside_ns, has_these_arguments } = whose;
    let SlowSample { ended, ended_ns, tid, thread, by_stub, time_ns, off_ns, consumed, wait, callers, args, .. } =
        sample;
    SlowCall {
        ended,
        ended_ns,
        arguments: args.map(|args| args.of(&method.signature).filter(|_| has_these_arguments).map(Box::new)),
        method,
        // As in the totals, without the probes' own part.
        time_ns: time_ns.saturating_sub(inside_ns),
        off_cpu_ns: off_ns,
        consumed,
        wait: wait.map(|wait| SlowWait { ns: wait.ns, frames: wait.frames }),
        tid,
        thread,
        by_stub,
        callers,
    }
}

/// Says that calls of methods with stubs are not seen in a JVM, where probes would reach others.
pub(super) fn tell_without_stubs(jvm: &Jvm) {
    tracing::warn!(
        "process {} ({}): slow calls of methods with stubs are not seen: this kernel lets probes reach other processes",
        jvm.pid,
        jvm.main.escape_debug()
    );
}
