//! What is known of a JVM that is traced, for everybody who wants to read it while the [`Tracer`](super::Tracer) is at
//! work: nobody waits for a slow JVM.

mod open;
mod rules;
mod snapshot;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;

pub(super) use self::open::OpenCalls;
use super::by_record::Tables;
use super::jvm_jni::JvmJni;
use super::programs::JvmPrograms;
use super::slow::{self, JvmSlow, OfStub, Whose};
use super::spent::Spent;
use super::stubs::{self, StubSwitches};
use crate::aggregate;
use crate::attach::Switches;
use crate::collect::Reader;
use crate::govern::By;
use crate::model::{Collectors, Jvm, Losses, Method, Prices, Probe, Skipped, States, Traced, Tracing};
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
    /// Set before anything is attached.
    open: OnceLock<OpenCalls>,
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
    /// Records of stubs whose methods are not selected.
    pub unselected: HashSet<u32>,
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

impl slow::Methods for Weak<TracedJvm> {
    fn method_of(&self, call: &SlowSample) -> Option<Whose> {
        let jvm = self.upgrade()?;
        let functions = jvm.records().map(|(index, record)| (record, index)).collect();
        jvm.method_in(&jvm.listed(), &functions, call)
    }

    fn of_stub(&self, record: u32) -> OfStub {
        let Some(listed) = self.upgrade().map(|jvm| jvm.listed()) else { return OfStub::Unknown };
        match listed.stubs.iter().find(|stub| stub.about.record == record) {
            Some(stub) => OfStub::Selected(stub.about.method.method.clone()),
            None if listed.unselected.contains(&record) => OfStub::Unselected,
            None => OfStub::Unknown,
        }
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
        let (jni, open, state) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Self { jvm, known, started, start, reader, stubs, switches, slow, programs, tables, jni, open, state }
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
            jni.learn(|| self.records().map(|(index, record)| (record, index)).collect());
        }
    }

    /// What is kept there besides the records is of its calls, too.
    pub(super) fn set_tables(&self, tables: Tables) {
        // It is set once, before anybody else knows of the JVM.
        drop(self.tables.set(tables));
    }

    /// Its calls that have not returned are known there.
    pub(super) fn set_open(&self, open: OpenCalls) {
        // It is set once, before anybody else knows of the JVM.
        drop(self.open.set(open));
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
        self.open.get().into_iter().for_each(OpenCalls::end);
        self.lock().end.get_or_insert(elapsed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
