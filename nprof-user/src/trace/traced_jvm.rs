//! What is known of a JVM that is traced, for everybody who wants to read it while the [`Tracer`](super::Tracer) is at
//! work: nobody waits for a slow JVM.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::spent::Spent;
use super::stubs;
use crate::aggregate;
use crate::attach::Switches;
use crate::collect::Reader;
use crate::model::{
    Jvm, Losses, MethodSnapshot, Prices, Probe, Skipped, SlowCall, SlowCalls, Snapshot, States, Traced, Tracing,
};
use crate::profile::{self, SlowSample};
use crate::resolve::select::Selection;
use crate::shim::Choices;

/// The functions of one JVM, and access to their records.
#[derive(Debug)]
pub struct TracedJvm {
    jvm: Jvm,
    known: Known,
    started: Timestamp,
    start: Instant,
    reader: Reader,
    stubs: Option<StubRecords>,
    switches: Arc<Switches>,
    state: Mutex<State>,
}

/// What is known of a measurement from the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Whether calls are timed, and not only counted.
    pub timed: bool,
    /// What probes cost.
    pub prices: Prices,
    /// Whether they measure how long threads do not run.
    pub off_cpu: bool,
}

#[derive(Debug, Default)]
struct State {
    listed: Arc<Listed>,
    end: Option<Duration>,
    spent: Option<Spent>,
    /// What the user wants of which methods; later ones count.
    rules: Vec<Rule>,
}

/// What stubs record.
#[derive(Debug)]
pub(super) struct StubRecords {
    pub reader: Reader,
    /// Which calls stubs choose by chance.
    pub choices: Choices,
    /// Slow calls, and from how many nanoseconds on a call is one.
    pub slow: Option<(Arc<profile::SlowCalls>, u64)>,
}

/// What is to be done at the calls of some methods, those that are bound later included.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Which methods.
    pub selection: Selection,
    /// What.
    pub wanted: Tracing,
}

/// The plan, as far as it is of interest to readers.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub probes: Vec<Probe>,
    /// File names, by [`crate::model::LibraryId`].
    pub libraries: Vec<String>,
    /// When the probes that were attached after the start were.
    pub late: BTreeMap<u32, Duration>,
    pub skipped: Arc<[Skipped]>,
    pub stubs: Vec<stubs::Listed>,
    /// Whether the JVM makes calls that are not seen: downcalls.
    pub downcalls: bool,
}

impl Listed {
    /// How many methods only stubs can see.
    fn only_stubbed(&self) -> usize {
        self.stubs.iter().filter(|stub| stub.probe.is_none()).count()
    }
}

impl TracedJvm {
    /// A traced JVM without functions.
    pub(super) fn new(
        jvm: Jvm,
        known: Known,
        (reader, stubs): (Reader, Option<StubRecords>),
        switches: Arc<Switches>,
    ) -> Self {
        let (started, start) = (Timestamp::now(), Instant::now());
        Self { jvm, known, started, start, reader, stubs, switches, state: Mutex::default() }
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// How many methods are traced: more than functions, where methods share one.
    #[must_use]
    pub fn methods(&self) -> usize {
        let listed = self.listed();
        listed.probes.iter().map(|probe| probe.methods.len()).sum::<usize>() + listed.only_stubbed()
    }

    /// How many functions have a probe, or may have one again.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.listed().probes.len()
    }

    /// What tracing costs the JVM, as far as that is known.
    #[must_use]
    pub fn spent(&self) -> Option<Spent> {
        self.lock().spent.clone()
    }

    /// Says what is to be done at the calls of some methods that are there now. It is done when this returns, unless a
    /// probe has to be attached for it first. Returns how many functions that concerns.
    pub fn obey(&self, rule: &Rule) -> usize {
        self.obey_for(rule, &self.listed().probes)
    }

    /// Sets the rules for methods that are bound from now on; later ones count.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.lock().rules = rules;
    }

    /// Applies the rules to functions that are new.
    pub(super) fn obey_all(&self, probes: &[Probe]) {
        let rules = self.lock().rules.clone();
        for rule in &rules {
            self.obey_for(rule, probes);
        }
    }

    fn obey_for(&self, rule: &Rule, probes: &[Probe]) -> usize {
        // What only counts from the start has no probes on returns.
        let wanted = if self.known.timed { rule.wanted } else { rule.wanted.min(Tracing::Counted) };
        let selects = |probe: &&Probe| probe.methods.iter().any(|known| rule.selection.selects(&known.method));
        let concerned: Vec<u32> = probes.iter().filter(selects).map(|probe| probe.index).collect();
        self.switches.want(concerned.iter().copied(), wanted);
        concerned.len()
    }

    /// The name of a function: that of a method that is bound to it.
    #[must_use]
    pub fn name(&self, index: u32) -> Option<(String, String)> {
        let listed = self.listed();
        let probe = listed.probes.iter().find(|probe| probe.index == index)?;
        probe.methods.first().map(|known| (known.method.class.clone(), known.method.name.clone()))
    }

    /// The functions that have a record in the kernel: index, and number of the record.
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        self.switches.functions().into_iter().map(|(index, record, _)| (index, record))
    }

    /// How a function is traced.
    #[must_use]
    pub fn traced(&self, index: u32) -> Option<Traced> {
        self.switches.traced(index)
    }

    /// How many functions are traced in which way.
    #[must_use]
    pub fn states(&self) -> States {
        self.switches.states()
    }

    /// What went wrong in the measurement so far, of all JVMs that share maps with this one.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.reader.losses()
    }

    /// What stubs record; `None` where there are none.
    pub(super) fn stub_records(&self) -> Option<&StubRecords> {
        self.stubs.as_ref()
    }

    /// The method whose calls are in a record, `class::method`.
    pub(super) fn name_of_record(&self, record: u32) -> Option<String> {
        let (index, ..) = self.switches.functions().into_iter().find(|(_, of, _)| *of == record)?;
        let listed = Arc::clone(&self.lock().listed);
        let probe = listed.probes.iter().find(|probe| probe.index == index)?;
        let method = &probe.methods.first()?.method;
        Some(format!("{}::{}", method.class, method.name))
    }

    /// Everything measured from the start to now, or to the end if tracing was stopped.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (listed, end, spent) = {
            let state = self.lock();
            (Arc::clone(&state.listed), state.end, state.spent.clone())
        };
        let elapsed = end.unwrap_or_else(|| self.start.elapsed());
        Snapshot {
            started: self.started,
            methods: self.rows(&listed, spent.as_ref()),
            elapsed,
            jvm: self.jvm.clone(),
            ended: false,
            timed: self.known.timed,
            traced: listed.probes.len() + listed.only_stubbed(),
            states: self.switches.states(),
            cost: spent.as_ref().map(|spent| spent.total),
            cpu: spent.as_ref().map(|spent| spent.cpu),
            cost_share: spent.map(|spent| spent.share),
            prices: self.known.prices,
            slow: self.slow_calls(&listed),
            skipped: Arc::clone(&listed.skipped),
            downcalls: listed.downcalls,
            losses: self.reader.losses(),
        }
    }

    /// What each function has, and each method that stubs told apart.
    fn rows(&self, listed: &Listed, spent: Option<&Spent>) -> Vec<MethodSnapshot> {
        let functions = self.switches.functions();
        let mut stubs = self.stub_samples(listed);
        let of_probe = |probe: &Probe| {
            let place = functions.binary_search_by_key(&probe.index, |(index, ..)| *index).ok()?;
            let (_, record, traced) = functions[place];
            let seen = aggregate::ProbeSample {
                probe,
                library: listed.libraries.get(probe.site.library.0).map_or("", String::as_str),
                price: self.known.prices.at(probe.site.cost),
                traced_after: listed.late.get(&probe.index).copied().unwrap_or_default(),
                traced,
                off_cpu: self.known.off_cpu && self.known.timed,
                stats: self.reader.sample(record).map(|sample| sample.stats),
                unseen: spent.and_then(|spent| spent.unseen.get(&probe.index).copied()),
                mean: spent.and_then(|spent| spent.means.get(&probe.index).copied()),
                waited: spent.and_then(|spent| spent.waited.get(&probe.index).copied()),
            };
            Some(aggregate::rows(Some(&seen), &stubs.remove(&Some(probe.index)).unwrap_or_default()))
        };
        let mut rows: Vec<MethodSnapshot> = listed.probes.iter().filter_map(of_probe).flatten().collect();
        // What is left is of no probe, or not any more.
        rows.extend(stubs.into_values().flat_map(|stubs| aggregate::rows(None, &stubs)));
        rows
    }

    /// What stubs have recorded, by the index of the function.
    fn stub_samples(&self, listed: &Listed) -> HashMap<Option<u32>, Vec<aggregate::StubSample>> {
        let mut samples: HashMap<_, Vec<_>> = HashMap::new();
        for stub in &listed.stubs {
            let now = || self.stubs.as_ref()?.reader.sample(stub.about.record).map(|sample| sample.stats);
            if let Some(stats) = stub.last.or_else(now) {
                let estimated_ns = stub.before.and_then(|before| aggregate::estimate(&stats, before));
                let sample = aggregate::StubSample { stats, estimated_ns, ..stub.about.clone() };
                samples.entry(stub.probe).or_default().push(sample);
            }
        }
        samples
    }

    /// The slow calls of methods with stubs.
    fn slow_calls(&self, listed: &Listed) -> Option<SlowCalls> {
        let (slow, threshold_ns) = self.stubs.as_ref()?.slow.as_ref()?;
        let (last, total) = slow.last();
        let call = |sample: SlowSample| {
            let stub = listed.stubs.iter().find(|stub| stub.about.record == sample.record)?;
            let SlowSample { ended, tid, thread, time_ns, callers, .. } = sample;
            Some(SlowCall { ended, method: stub.about.method.method.clone(), time_ns, tid, thread, callers })
        };
        Some(SlowCalls { threshold_ns: *threshold_ns, total, last: last.into_iter().filter_map(call).collect() })
    }

    /// When tracing began.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// How long ago tracing began.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether calls are to be timed, and not only counted.
    pub(super) fn is_timed(&self) -> bool {
        self.known.timed
    }

    pub(super) fn switches(&self) -> &Arc<Switches> {
        &self.switches
    }

    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(super) fn listed(&self) -> Arc<Listed> {
        Arc::clone(&self.lock().listed)
    }

    /// Publishes what is planned now.
    pub(super) fn list(&self, listed: Listed) {
        self.lock().listed = Arc::new(listed);
    }

    pub(super) fn set_spent(&self, spent: Spent) {
        self.lock().spent = Some(spent);
    }

    /// Tracing has been stopped.
    pub(super) fn end(&self) {
        let elapsed = self.elapsed();
        self.lock().end.get_or_insert(elapsed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
