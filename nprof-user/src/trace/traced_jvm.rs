//! What is known of a JVM that is traced, for everybody who wants to read it while the [`Tracer`](super::Tracer) is at
//! work: nobody waits for a slow JVM.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::by_record::{OfRecord, Tables};
use super::jvm_jni::JvmJni;
use super::programs::JvmPrograms;
use super::slow::{JvmSlow, Whose};
use super::spent::Spent;
use super::stubs::{self, StubSwitches};
use crate::aggregate;
use crate::attach::{JniRead, Switches};
use crate::collect::Reader;
use crate::govern::By;
use crate::model::{
    Collectors, Jvm, Losses, Method, MethodSnapshot, Price, Prices, Probe, Skipped, SlowCalls, Snapshot, States,
    Traced, Tracing,
};
use crate::profile::SlowSample;
use crate::resolve::rule::Rule;
use crate::resolve::thresholds::Thresholds;
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
    /// Set before anything is attached, if slow calls are looked for.
    slow: OnceLock<JvmSlow>,
    /// Set before anything is attached, if the user has programs that run at calls.
    programs: OnceLock<JvmPrograms>,
    /// What is kept besides the records. Set before anything is attached, if there is something.
    tables: OnceLock<Tables>,
    /// Set before anything is attached, if JNI functions are traced beside those of other JVMs.
    jni: OnceLock<JvmJni>,
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
    /// What else they collect.
    pub collectors: Collectors,
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
    /// What they do at calls.
    pub switches: Arc<StubSwitches>,
    /// Which calls stubs choose by chance.
    pub choices: Choices,
}

/// The plan, as far as it is of interest to readers.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub probes: Arc<Vec<Probe>>,
    /// File names, by [`crate::model::LibraryId`].
    pub libraries: Vec<String>,
    /// When the probes that were attached after the start were.
    pub late: BTreeMap<u32, Duration>,
    pub skipped: Arc<[Skipped]>,
    pub stubs: Vec<stubs::Listed>,
    /// The JNI functions that are traced beside native methods, by index.
    pub beside: HashSet<u32>,
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
        let (slow, programs, tables) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (jni, state) = (OnceLock::new(), Mutex::default());
        Self { jvm, known, started, start, reader, stubs, switches, slow, programs, tables, jni, state }
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// How many methods are traced: more than functions, where methods share one. JNI functions beside them are none.
    #[must_use]
    pub fn methods(&self) -> usize {
        let listed = self.listed();
        let of_methods = listed.probes.iter().filter(|probe| !listed.beside.contains(&probe.index));
        of_methods.map(|probe| probe.methods.len()).sum::<usize>() + listed.only_stubbed()
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

    /// Says what is to be done at the calls of some methods that are there now. With probes it is done when this returns, unless
    /// one has to be attached for it first; the shim has been told of it by then, and does it when it reads that. Returns how
    /// many functions that concerns.
    pub fn obey(&self, rule: &Rule) -> usize {
        let listed = self.listed();
        let stubs = listed.stubs.iter().filter(|stub| rule.selects(&stub.about.method.method));
        let (records, only_stubbed) = stubs.fold((HashSet::new(), 0), |(mut records, only), stub| {
            records.insert(stub.about.record);
            (records, only + usize::from(stub.probe.is_none()))
        });
        if let Some(stubs) = &self.stubs {
            stubs.switches.want(|record| records.contains(&record), rule.wanted);
        }
        self.obey_for(rule, &listed.probes) + only_stubbed
    }

    /// How many functions a rule is about that are there now, those that only stubs see included.
    #[must_use]
    pub fn concerned<W>(&self, rule: &Rule<W>) -> usize {
        let listed = self.listed();
        let stubs = listed.stubs.iter().filter(|stub| stub.probe.is_none() && rule.selects(&stub.about.method.method));
        listed.probes.iter().filter(|probe| concerns(rule, probe)).count() + stubs.count()
    }

    /// A method that this rule is about and that it cannot be done to while it is traced: its calls are counted at their other end.
    #[must_use]
    pub fn refuses(&self, rule: &Rule) -> Option<Method> {
        let (listed, wanted) = (self.listed(), self.possible(rule.wanted));
        let refuses = |probe: &&Probe| concerns(rule, probe) && !self.switches.may_become(probe.index, wanted);
        let refusing = listed.probes.iter().find(refuses)?;
        refusing.methods.iter().map(|known| &known.method).find(|method| rule.selects(method)).cloned()
    }

    /// Replaces all rules: what is done at the calls of each method is what the last one of these says that selects it, or what is
    /// usual.
    pub fn obey_only(&self, rules: Vec<Rule>) {
        let usual = if self.known.timed { Tracing::Timed } else { Tracing::Counted };
        let last = |concerns: &dyn Fn(&Rule) -> bool| {
            rules.iter().rev().find(|rule| concerns(rule)).map_or(usual, |rule| self.possible(rule.wanted))
        };
        let listed = self.listed();
        for probe in listed.probes.iter() {
            self.switches.want([probe.index], last(&|rule| concerns(rule, probe)));
        }
        for (stubs, stub) in self.stubs.iter().flat_map(|stubs| listed.stubs.iter().map(move |stub| (stubs, stub))) {
            let wanted = last(&|rule| rule.selects(&stub.about.method.method));
            stubs.switches.want(|record| record == stub.about.record, wanted);
        }
        self.set_rules(rules);
    }

    /// Sets the rules for methods that are bound from now on; later ones count.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        if let Some(stubs) = &self.stubs {
            stubs.switches.set_rules(rules.clone());
        }
        self.lock().rules = rules;
    }

    /// Applies the rules to functions that are new, and those about slow calls, before they get a probe.
    pub(super) fn obey_all(&self, probes: &[Probe]) {
        let rules = self.lock().rules.clone();
        for probe in probes {
            if let Some(slow) = self.slow.get() {
                slow.begin_function(probe);
            }
            if let Some(rule) = rules.iter().rev().find(|rule| concerns(rule, probe)) {
                self.switches.begin_as(probe.index, self.possible(rule.wanted));
            }
        }
    }

    fn obey_for(&self, rule: &Rule, probes: &[Probe]) -> usize {
        let concerned: Vec<u32> =
            probes.iter().filter(|probe| concerns(rule, probe)).map(|probe| probe.index).collect();
        self.switches.want(concerned.iter().copied(), self.possible(rule.wanted));
        concerned.len()
    }

    /// What can be done: what only counts from the start has no probes on returns.
    fn possible(&self, wanted: Tracing) -> Tracing {
        if self.known.timed { wanted } else { wanted.min(Tracing::Counted) }
    }

    /// The name of a function: that of a method that is bound to it; or of a method with a stub, by what the governor calls it.
    #[must_use]
    pub fn name(&self, id: u32) -> Option<(String, String)> {
        let listed = self.listed();
        let of_probe = listed.probes.iter().find(|probe| probe.index == id).and_then(|probe| probe.methods.first());
        let of_stub = || listed.stubs.iter().find(|stub| stub.about.id() == id).map(|stub| &stub.about.method);
        of_probe.or_else(of_stub).map(|known| (known.method.class.to_string(), known.method.name.to_string()))
    }

    /// The functions that have a record in the kernel: index, and number of the record.
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        self.switches.functions().into_iter().map(|(index, record, _)| (index, record))
    }

    /// The same without JNI functions that are traced beside native methods.
    pub(super) fn records_of_methods(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let listed = self.listed();
        self.records().filter(move |(index, _)| !listed.beside.contains(index))
    }

    /// The same, the record first, with a method that is bound to each.
    pub(super) fn functions_by_record(&self) -> Vec<(u32, u32, Method)> {
        let listed = self.listed();
        let records: HashMap<u32, u32> = self.records().collect();
        let named = listed.probes.iter().filter_map(|probe| {
            Some((*records.get(&probe.index)?, probe.index, probe.methods.first()?.method.clone()))
        });
        named.collect()
    }

    /// How a function is traced, or a method with a stub, by what the governor calls it.
    #[must_use]
    pub fn traced(&self, id: u32) -> Option<Traced> {
        let of_stub = || self.stubs.as_ref()?.switches.traced(aggregate::record_of(id));
        self.switches.traced(id).or_else(of_stub)
    }

    /// How many functions are traced in which way, by probes and by stubs.
    #[must_use]
    pub fn states(&self) -> States {
        self.states_of(&self.listed())
    }

    /// How many functions have a probe at the moment.
    #[must_use]
    pub fn probed(&self) -> usize {
        self.switches.probed()
    }

    /// A function that stubs see is in the least state of its methods.
    fn states_of(&self, listed: &Listed) -> States {
        let mut of_functions: HashMap<u32, Traced> = HashMap::new();
        let mut of_methods = Vec::new();
        for stub in listed.stubs.iter().filter(|stub| stub.last.is_none()) {
            let Some(traced) = self.stubs.as_ref().and_then(|stubs| stubs.switches.traced(stub.about.record)) else {
                continue;
            };
            match stub.probe {
                Some(index) => {
                    let least = of_functions.entry(index).or_insert(traced);
                    *least = if traced.tracing < least.tracing { traced } else { *least };
                }
                None => of_methods.push(traced),
            }
        }
        let is_method = |index| !listed.beside.contains(&index);
        let mut states = self.switches.states(is_method, |index| of_functions.get(&index).copied());
        of_methods.into_iter().for_each(|traced| states.add(traced));
        states
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

    /// Whether calls are timed, where no rule says otherwise.
    pub(super) fn is_timed(&self) -> bool {
        self.known.timed
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
        // Before the records: these then have all calls that are known by caller.
        let jni = self.jni.get().map(JvmJni::read);
        self.snapshot_with(jni.as_ref())
    }

    /// The same of native methods alone, whatever is traced beside them.
    pub(super) fn snapshot_of_methods(&self) -> Snapshot {
        self.snapshot_with(None)
    }

    /// The same where what the kernel keeps of JNI functions has been read for all JVMs.
    fn snapshot_with(&self, jni: Option<&JniRead>) -> Snapshot {
        let snapshot = self.snapshot_of_all();
        let Some(known) = self.jni.get() else { return snapshot };
        let listed = self.listed();
        let beside = &listed.beside;
        let (functions, methods): (Vec<_>, Vec<_>) =
            snapshot.methods.into_iter().partition(|row| beside.contains(&row.index));
        let records = self.records().map(|(index, record)| (record, index)).collect();
        let states = self.switches.states(|index| beside.contains(&index), |_| None);
        let traced = snapshot.traced.saturating_sub(beside.len());
        let probes = listed.probes.iter().filter(|probe| beside.contains(&probe.index));
        let totals = |read| known.totals(read, (functions, &methods), (records, states), probes);
        let jni = jni.map(|read| Box::new(totals(read)));
        let of_methods = listed.skipped.iter().filter(|skipped| !skipped.method.is_jni_function());
        let skipped = if of_methods.clone().count() == listed.skipped.len() {
            snapshot.skipped
        } else {
            of_methods.cloned().collect()
        };
        Snapshot { methods, traced, jni, skipped, ..snapshot }
    }

    fn snapshot_of_all(&self) -> Snapshot {
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
            states: self.states_of(&listed),
            cost: spent.as_ref().map(|spent| spent.total),
            cpu: spent.as_ref().map(|spent| spent.cpu),
            cost_share: spent.as_ref().map(|spent| spent.share),
            prices: self.prices(spent.as_ref()),
            collectors: self.collectors(spent.as_ref()),
            slow: self.slow_calls(&listed),
            jni: None,
            programs: self.programs().map(JvmPrograms::values).unwrap_or_default(),
            skipped: Arc::clone(&listed.skipped),
            downcalls: listed.downcalls,
            losses: self.reader.losses(),
        }
    }

    /// What a call of a function costs, with what the user's programs add.
    fn price_of(&self, probe: &Probe, prices: &Prices, traced: Traced) -> Price {
        let (price, site) = (prices.at(probe.site.cost), probe.site.cost);
        // A probe on the return traps twice, as both do.
        let counted_ns = if traced.wanted == Tracing::Returned { price.timed_ns } else { price.counted_ns };
        let price = Price { counted_ns, ..price };
        self.programs().map_or(price, |programs| programs.dearer(price, probe.index, site, traced.wanted))
    }

    /// Who sees the calls of a function of which the user wants so much, by its probe.
    pub(super) fn by_probe(&self, probe: &Probe, wanted: Tracing) -> By {
        let site = probe.site.cost;
        let by = self.programs().map_or(By::Probe(site), |programs| programs.by(probe.index, site, wanted));
        if wanted != Tracing::Returned {
            return by;
        }
        let price = self.known.prices.at(site);
        by.with_dearer_counts(u32::try_from(price.timed_ns.saturating_sub(price.counted_ns)).unwrap_or(u32::MAX))
    }

    /// What is collected: nothing that is not known to the end.
    fn collectors(&self, spent: Option<&Spent>) -> Collectors {
        let all = self.known.collectors;
        if spent.is_some_and(|spent| spent.allocations_end) { all.without_allocations() } else { all }
    }

    /// The same for a scrape, with single calls if it shows these. `jni` is what has been read for all JVMs.
    #[must_use]
    pub fn snapshot_for_scrape(&self, jni: Option<&JniRead>, with_exemplars: bool) -> Snapshot {
        let mut snapshot = self.snapshot_with(jni);
        if let Some((slow, calls)) = self.slow.get().zip(snapshot.slow.as_mut()).filter(|_| with_exemplars) {
            calls.exemplars = slow.show_exemplars();
        }
        snapshot
    }

    /// What calls have cost this JVM, which depends on how often it makes them.
    fn prices(&self, spent: Option<&Spent>) -> Prices {
        self.known.prices.dearer(spent.map_or([1.0; 2], |spent| spent.dearer))
    }

    /// What each function has, and each method that stubs told apart.
    fn rows(&self, listed: &Listed, spent: Option<&Spent>) -> Vec<MethodSnapshot> {
        // Before the records: these then have all calls that are known by thread.
        let mut tables = self.tables.get().map(Tables::read).unwrap_or_default();
        let functions = self.switches.functions();
        let prices = self.prices(spent);
        let mut stubs = self.stub_samples(listed);
        let of_probe = |probe: &Probe| {
            let place = functions.binary_search_by_key(&probe.index, |(index, ..)| *index).ok()?;
            let (_, record, traced) = functions[place];
            let OfRecord { threads, bytes_per_call } = tables.take(record);
            let seen = aggregate::ProbeSample {
                probe,
                library: listed.libraries.get(probe.site.library.0).map_or("", String::as_str),
                price: self.price_of(probe, &prices, traced),
                traced_after: listed.late.get(&probe.index).copied().unwrap_or_default(),
                traced,
                off_cpu: self.measures_off_cpu(),
                stats: self.reader.sample(record).map(|sample| sample.stats),
                unseen: spent.and_then(|spent| spent.unseen.get(&probe.index).copied()),
                mean: spent.and_then(|spent| spent.means.get(&probe.index).copied()),
                waited: spent.and_then(|spent| spent.waited.get(&probe.index).copied()),
                consumed: self.reader.consumed(record),
                bytes_per_call,
                threads,
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
            let (record, switches) = (stub.about.record, self.stubs.as_ref().map(|stubs| &stubs.switches));
            let now = || switches?.reader().sample(record).map(|sample| sample.stats);
            if let Some(stats) = stub.last.or_else(now) {
                let estimated_ns = switches.and_then(|switches| switches.estimate(record, &stats));
                let traced = switches.and_then(|switches| switches.traced(record)).unwrap_or(stub.about.traced);
                // What was consumed is known as long as the shim is there.
                let consumed = switches.filter(|_| stub.last.is_none()).and_then(|of| of.reader().consumed(record));
                let sample = aggregate::StubSample { stats, estimated_ns, traced, consumed, ..stub.about.clone() };
                samples.entry(stub.probe).or_default().push(sample);
            }
        }
        samples
    }

    fn slow_calls(&self, listed: &Listed) -> Option<SlowCalls> {
        let slow = self.slow.get()?;
        let functions: HashMap<u32, u32> = self.records().map(|(index, record)| (record, index)).collect();
        Some(slow.read(|call| self.method_in(listed, &functions, call)))
    }

    /// Whose a slow call is.
    pub(super) fn method_of(&self, call: &SlowSample) -> Option<Whose> {
        let functions = self.records().map(|(index, record)| (record, index)).collect();
        self.method_in(&self.listed(), &functions, call)
    }

    fn method_in(&self, listed: &Listed, functions: &HashMap<u32, u32>, call: &SlowSample) -> Option<Whose> {
        if call.by_stub {
            let stub = listed.stubs.iter().find(|stub| stub.about.record == call.record)?;
            let (method, inside_ns) = (stub.about.method.method.clone(), stub.about.price.rounded().inside_ns);
            return Some(Whose { method, inside_ns, has_these_arguments: true });
        }
        let index = functions.get(&call.record)?;
        let probe = listed.probes.iter().find(|probe| probe.index == *index)?;
        let (method, inside_ns) =
            (probe.methods.first()?.method.clone(), self.known.prices.at(probe.site.cost).inside_ns);
        let has_these_arguments = probe.methods.iter().all(|known| known.method.signature == method.signature);
        Some(Whose { method, inside_ns, has_these_arguments })
    }

    /// Its slow calls are read there from now on.
    pub(super) fn set_slow(&self, slow: JvmSlow) {
        if let Some(stubs) = &self.stubs {
            stubs.switches.set_thresholds((*slow.thresholds()).clone(), |_| None);
        }
        // It is set once, before anybody else knows of the JVM.
        drop(self.slow.set(slow));
    }

    /// These programs run at its calls from now on.
    pub(super) fn set_programs(&self, programs: JvmPrograms) {
        // It is set once, before anybody else knows of the JVM.
        drop(self.programs.set(programs));
    }

    /// Its JNI functions are traced beside native methods.
    pub(super) fn set_jni(&self, jni: JvmJni) {
        // It is set once, before anybody else knows of the JVM.
        drop(self.jni.set(jni));
    }

    /// What is kept of its JNI functions, if they are.
    pub(super) fn jni(&self) -> Option<&JvmJni> {
        self.jni.get()
    }

    /// Learns names of what native code has thrown, while they are loaded.
    pub(super) fn learn_jni(&self) {
        if let Some(jni) = self.jni.get() {
            jni.learn(&self.records().map(|(index, record)| (record, index)).collect());
        }
    }

    /// What is kept there besides the records is of its calls, too.
    pub(super) fn set_tables(&self, tables: Tables) {
        // It is set once, before anybody else knows of the JVM.
        drop(self.tables.set(tables));
    }

    /// The user's programs that run at its calls, if there are any.
    pub(super) fn programs(&self) -> Option<&JvmPrograms> {
        self.programs.get()
    }

    /// Says anew from when on calls are slow, of methods that are there and of later ones. Where nobody looks for slow calls it changes
    /// nothing.
    pub fn set_slow_from(&self, thresholds: &Thresholds) {
        let (Some(slow), listed) = (self.slow.get(), self.listed()) else { return };
        if *slow.thresholds() == *thresholds {
            return;
        }
        slow.set_thresholds(thresholds.clone(), &listed.probes);
        if let Some(stubs) = &self.stubs {
            let of_stub = |stub: &stubs::Listed| (stub.about.record, thresholds.of(&stub.about.method.method));
            let by_record: HashMap<u32, u64> = listed.stubs.iter().map(of_stub).collect();
            stubs.switches.set_thresholds(thresholds.clone(), |record| by_record.get(&record).copied());
        }
    }

    /// Its slow calls, if they are looked for.
    pub(super) fn slow(&self) -> Option<&JvmSlow> {
        self.slow.get()
    }

    /// When tracing began.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// How long ago tracing began.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether probes measure how long threads do not run within calls.
    pub(super) fn measures_off_cpu(&self) -> bool {
        self.known.off_cpu && self.known.timed
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
        let beside = listed.probes.iter().filter(|probe| self.jni.get().is_some() && probe.is_of_jni_function());
        let beside = beside.map(|probe| probe.index).collect();
        self.lock().listed = Arc::new(Listed { beside, ..listed });
    }

    pub(super) fn set_spent(&self, spent: Spent) {
        self.lock().spent = Some(spent);
    }

    /// The CPU time that the JVM has used, where nothing else is new.
    pub(super) fn set_cpu(&self, cpu: Duration) {
        if let Some(spent) = &mut self.lock().spent {
            spent.cpu = cpu;
        }
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

/// Whether a rule is about a function: one of its methods.
fn concerns<W>(rule: &Rule<W>, probe: &Probe) -> bool {
    probe.methods.iter().any(|known| rule.selects(&known.method))
}
