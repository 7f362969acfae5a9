//! A JVM before its probes are attached: read and planned.

use std::sync::{Arc, Once};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nprof_common::rows::ROWS;
use nprof_common::{Counter, Mode};

use super::calibrate::calibrate_stubs;
use super::chosen::{Choice, Chosen};
use super::jvm_jni::JvmJni;
use super::neighbours::terms;
use super::programs::ProgramOptions;
use super::rowless::Rows;
use super::sampling::libjvm_of;
use super::slow::{self, SlowWatch};
use super::stubs::{self, Collected, JniFunction, StubOptions, Stubs};
use super::tracer::{MAX_FUNCTIONS, Parts, Tiers, Tracer, YOUNG};
use super::vm::{describe, ended_or, open};
use super::{Calibrated, Error, Options, TierWanted, calibrate, downcalls};
use crate::attach::{Collect, Engine, PendingPlaces, RowMap, Session, Target, in_full, reach};
use crate::collect::Reader;
use crate::discover::{self, Proc};
use crate::hotspot::{self, Vm};
use crate::model::{ArgsWanted, Collectors, Jvm, Library, Method, Plan, Reach, VirtAddr};
use crate::resolve::select::{Selection, Unmatched};
use crate::resolve::thresholds::Thresholds;
use crate::resolve::{Guard, Limits, Planner};
use crate::shim;
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Threads;

/// Room that the maps keep for functions that are bound later: a quarter more than there are now, and this many.
const HEADROOM: usize = 256;
/// Room that the maps have at least: a JVM that has only just been started has a tenth of what it will have.
const MIN_ROOM: usize = 2048;

/// How long a JVM may take after its start to say where its JNI functions are, and how often it is asked.
const STARTING: Duration = Duration::from_secs(2);
const STARTING_STEP: Duration = Duration::from_millis(10);

/// Whether it was said that no probe can be put where threads get their rows.
static LACK_TOLD: Once = Once::new();

/// The VM's option for [`Planner::plan_critical`].
const CRITICAL_NATIVES: &str = "CriticalJNINatives";

/// A JVM whose native methods are known and planned. Nothing has been attached.
#[derive(Debug)]
pub struct Prepared {
    proc: Proc,
    jvm: Jvm,
    vm: Vm<ProcessMemory>,
    planner: Planner,
    methods: Vec<Method>,
    /// Methods that hold the address of a stub of an earlier nprof. They are planned when the shim has told what it stands
    /// for.
    stubbed: Vec<Method>,
    /// Whether the shim is loaded.
    has_shim: bool,
    /// What is kept of its JNI functions, if they are planned beside others.
    jni: Option<JvmJni>,
    /// JNI functions that are to have stubs, and no native method beside them.
    functions: Vec<JniFunction>,
    options: Options,
}

impl Prepared {
    /// Reads the native methods of a JVM and plans what to probe.
    ///
    /// # Errors
    /// See [`Error`]: the VM is of another kind, its memory cannot be read, or it ends meanwhile.
    pub fn new(proc: Proc, jvm: Jvm, options: Options) -> Result<Self, Error> {
        let known = jvm.clone();
        Self::read(proc.clone(), jvm, options).map_err(|error| ended_or(error, &proc, &known))
    }

    fn read(proc: Proc, mut jvm: Jvm, options: Options) -> Result<Self, Error> {
        let mut vm = open(&proc, &jvm)?;
        describe(&mut jvm, &mut vm);
        let mut inventory = vm.inventory()?;
        if !inventory.complete {
            tracing::debug!(
                "not all classes were seen: they come and go, or the JVM is starting; they are looked for again"
            );
        }
        let libraries = proc.libraries(jvm.pid)?;
        let functions = options.max_functions.unwrap_or(MAX_FUNCTIONS);
        let guard = guard(&proc, &jvm, options.reach)?;
        let mut planner = Planner::new(options.selection.clone(), Limits { functions }, guard);
        if options.args != ArgsWanted::No {
            planner.keep_arguments();
        }
        if calls_critical(&jvm, &libraries) {
            planner.plan_critical();
        }
        let shim = if options.tier == TierWanted::Kernel { None } else { shim::find(&proc, &jvm)? };
        let is_stubbed = |method: &Method| shim.as_ref().is_some_and(|shim| shim.holds(method));
        inventory.methods.retain(|method| !shim::is_own(method));
        let (stubbed, others): (Vec<Method>, Vec<Method>) = inventory.methods.iter().cloned().partition(is_stubbed);
        planner.add(&others, &libraries);
        let has_shim = shim.is_some();
        let (methods, functions) = (inventory.methods, Vec::new());
        Ok(Self { proc, jvm, vm, planner, methods, stubbed, has_shim, jni: None, functions, options })
    }

    /// The patterns that select no method at all, with the names that may have been meant.
    #[must_use]
    pub fn unmatched(&self) -> Vec<Unmatched> {
        self.options.selection.unmatched(&self.methods)
    }

    /// The same of another selection.
    #[must_use]
    pub fn unmatched_by(&self, selection: &Selection) -> Vec<Unmatched> {
        selection.unmatched(&self.methods)
    }

    /// What there is to say of rules that are about no method at all.
    #[must_use]
    pub fn idle_rules(&self) -> Vec<String> {
        let rules = self.options.rules.iter().filter_map(|rule| rule.unmatched(&self.methods));
        let of_programs = self.options.programs.iter().flat_map(|programs| programs.idle(&self.methods));
        let of_slow = self.options.slow.iter().flat_map(|slow| slow.rules());
        let of_slow = of_slow.filter_map(|rule| rule.unmatched(&self.methods));
        rules.chain(of_programs).chain(of_slow).collect()
    }

    /// What would be probed, and what not.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.planner.plan()
    }

    /// Whether no method is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let selects = |method: &Method| self.options.selection.selects(method);
        self.planner.probes().is_empty() && self.planner.skipped().next().is_none() && !self.stubbed.iter().any(selects)
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// The same with stubs for these JNI functions.
    pub(super) fn with_functions(self, functions: Vec<JniFunction>) -> Self {
        Self { functions, ..self }
    }

    /// Attaches everything that is planned, with its own maps and programs. What a probe costs is measured first.
    ///
    /// # Errors
    /// If nothing can be attached at all. What cannot be attached among others is skipped, with its reason.
    pub fn attach(mut self) -> Result<Tracer, Error> {
        let slow = self.options.collected();
        let rows = self.rows_wanted();
        let counts_exceptions = slow.counters & Counter::Exceptions.bit() != 0;
        let pending = if counts_exceptions { self.pending_places()? } else { self.pending_if_args()? };
        let wanted = Collect { rows, pending, ..slow };
        let (engine, feeds) = Engine::load_measuring(self.capacity()?, &wanted)?;
        let calibrated = calibrate(&self.proc, &engine)?;
        let slow = wanted.slow.then(|| SlowWatch::start(self.proc.clone(), &engine, feeds)).transpose()?;
        let choice = slow.as_ref().map_or(Choice::Nothing, |_| self.choice_of_slow());
        self.attach_with(&engine, calibrated, (choice, slow))
    }

    /// Attaches everything that is planned, with maps and programs that others use too. Stubs choose slow calls, if there is
    /// somebody who reads them; otherwise calls by chance, if the engine takes their stacks.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_to(
        mut self,
        engine: &Arc<Engine>,
        calibrated: Calibrated,
        slow: Option<SlowWatch>,
    ) -> Result<Tracer, Error> {
        self.plan_beside(engine);
        let choice = match &slow {
            Some(_) if !engine.samples() => self.choice_of_slow(),
            _ if engine.takes_chosen() => Choice::ByChance,
            _ => Choice::Nothing,
        };
        self.attach_with(engine, calibrated, (choice, slow))
    }

    /// Attaches everything that is planned. `choice` says which calls stubs choose, if there are any.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub(super) fn attach_with(
        self,
        engine: &Arc<Engine>,
        calibrated: Calibrated,
        (choice, slow): (Choice, Option<SlowWatch>),
    ) -> Result<Tracer, Error> {
        let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards()).with_consumed(engine.consumed());
        let tiers = self.begin_stubs(engine, &reader, self.possible(choice, engine))?;
        self.attach_parts((engine, calibrated), reader, tiers, slow)
    }

    fn choice_of_slow(&self) -> Choice {
        Choice::Slow(self.options.slow.as_ref().map_or(u64::MAX, Thresholds::least_ns))
    }

    /// Whether whatever stubs choose is wanted, of whichever method.
    fn wants_all(&self, choice: Choice) -> bool {
        let has_rules = self.options.slow.as_ref().is_some_and(|slow| !slow.rules().is_empty());
        !matches!(choice, Choice::Slow(_)) || self.options.selection.is_all() && !has_rules
    }

    /// What stubs can choose on this kernel. Who has asked for stubs is told by an error.
    fn possible(&self, choice: Choice, engine: &Engine) -> Choice {
        if engine.takes_chosen() || self.options.tier == TierWanted::Stub || !matches!(choice, Choice::Slow(_)) {
            return choice;
        }
        if self.wants_stubs() {
            slow::tell_without_stubs(&self.jvm);
        }
        Choice::Nothing
    }

    /// Has the shim tell which methods there are, if there are to be stubs.
    fn begin_stubs(&self, engine: &Arc<Engine>, reader: &Reader, choice: Choice) -> Result<Tiers, Error> {
        let rows = self.make_rows(engine)?;
        if rows.is_none() && !self.functions.is_empty() {
            return Err(Error::NoRowsForFunctions { pid: self.jvm.pid });
        }
        let collected = self.collected(engine, rows.is_some());
        if !self.options.collectors.is_empty() && !collected.consumed {
            match self.options.tier {
                TierWanted::Stub => return Err(Error::NoRows { pid: self.jvm.pid }),
                TierWanted::Auto | TierWanted::Kernel => return Ok(Tiers::probes(self.jvm.pid)),
                // Stubs were asked for first: they count, and nothing is collected of their calls.
                TierWanted::StubOrProbe => {}
            }
        }
        if matches!(self.options.tier, TierWanted::Stub | TierWanted::StubOrProbe) {
            // Not when the shim waits for its orders: a JVM that starts binds methods meanwhile.
            calibrate_stubs(0, collected.is_any());
        }
        let connection = stubs::connect(&self.proc, &self.jvm, self.options.tier, !self.stubbed.is_empty());
        let Some(connection) = connection.map_err(|error| self.ended_or(error.into()))? else {
            return Ok(Tiers::probes(self.jvm.pid));
        };
        let hello = *connection.hello();
        let rowless_site = VirtAddr(hello.rowless_site);
        let give = |map| Rows::give(map, (&self.proc, &self.jvm), engine, rowless_site);
        let rows = rows.map(give).transpose().map_err(|error| self.ended_or(error))?;
        let mode = if self.options.timed { Mode::Time } else { Mode::Count };
        let price = calibrate_stubs(hello.sharding, collected.is_any());
        let (time_every, wants_all) = (self.options.time_every, self.wants_all(choice));
        let options = StubOptions { mode, choice, time_every, price, collected, wants_all };
        let jvm = (self.jvm.pid, self.methods.len());
        let of_threads = (reader, rows.as_ref().map(Rows::map));
        let mut stubs = match Stubs::begin(connection, jvm, of_threads, (options, &self.functions)) {
            Ok(stubs) => stubs,
            Err(error) if self.options.tier == TierWanted::Stub => return Err(self.ended_or(error)),
            Err(error) => {
                stubs::fall_back(self.jvm.pid, &error);
                return Ok(Tiers::probes(self.jvm.pid));
            }
        };
        let site = VirtAddr(hello.chosen_site);
        let chosen = Chosen::start((&self.proc, &self.jvm), engine, site, choice).map_err(|source| {
            stubs.detach();
            self.ended_or(Error::ChosenCalls { pid: self.jvm.pid, source: Box::new(source) })
        })?;
        Ok(Tiers::new(stubs, chosen, rows))
    }

    /// Whether there may be stubs before long.
    fn may_have_stubs(&self) -> bool {
        match self.options.tier {
            TierWanted::Kernel => false,
            TierWanted::Auto => self.has_shim,
            TierWanted::Stub | TierWanted::StubOrProbe => true,
        }
    }

    /// Whether stubs will have to know what threads use.
    fn may_need_rows(&self) -> bool {
        self.options.need_rows() && self.may_have_stubs()
    }

    /// How many rows its threads are to have, if it is the only JVM.
    pub(super) fn rows_wanted(&self) -> u32 {
        if self.may_need_rows() { ROWS } else { 0 }
    }

    /// Rows for the threads of the JVM, if its stubs are to have some and can. Who has asked for stubs alone is told by an error if
    /// the kernel makes none.
    fn make_rows(&self, engine: &Engine) -> Result<Option<RowMap>, Error> {
        if !self.may_need_rows() {
            return Ok(None);
        }
        let Some(maps) = engine.row_maps() else {
            if engine.lacks_rows() && engine.measures_off_cpu() {
                // The kernel is the same for all JVMs.
                LACK_TOLD.call_once(tell_lack);
            }
            return Ok(None);
        };
        let threads = self.proc.threads(self.jvm.pid).map_err(|error| self.ended_or(error.into()))?;
        match maps.make(threads) {
            Err(error) if self.options.tier != TierWanted::Stub => {
                let (pid, main) = (self.jvm.pid, self.jvm.main.escape_debug());
                tracing::warn!(
                    "process {pid} ({main}): not known what threads use in methods with stubs: {}",
                    in_full(&error)
                );
                Ok(None)
            }
            made => Ok(Some(made?)),
        }
    }

    /// What is told of what calls were made with.
    pub(super) fn args_wanted(&self) -> ArgsWanted {
        self.options.args
    }

    /// How the programs find exceptions, where they have to for what calls were made with.
    pub(super) fn pending_if_args(&self) -> Result<PendingPlaces, Error> {
        if self.options.args == ArgsWanted::No { Ok(PendingPlaces::default()) } else { self.pending_places() }
    }

    /// What stubs can collect with an engine.
    fn collected(&self, engine: &Engine, has_rows: bool) -> Collected {
        let consumed = has_rows && !self.options.collectors.is_empty();
        let args = self.options.args != ArgsWanted::No;
        let bytes = if consumed { self.options.collectors.counters() & Counter::OF_BYTES } else { 0 };
        Collected { off_cpu: has_rows && engine.measures_off_cpu(), consumed, bytes, args }
    }

    /// Plans JNI functions as well, if they are wanted beside others and the VM says where they are: native methods are traced in any
    /// case.
    fn plan_beside(&mut self, engine: &Engine) {
        let Some(table) = engine.jni().filter(|_| self.options.jni) else { return };
        let begin = || {
            let begun = JvmJni::begin(&self.proc, &self.jvm, (engine, table), || self.pending_places());
            begun.map_err(|error| self.ended_or(error))
        };
        // One that has only just been started may not say yet where they are.
        let patience = Instant::now() + STARTING;
        let is_starting = || Instant::now() < patience && self.proc.age(&self.jvm).is_some_and(|age| age < YOUNG);
        let mut begun = begin();
        while begun.as_ref().is_err_and(|error| !matches!(error, Error::Ended { .. })) && is_starting() {
            sleep(STARTING_STEP);
            begun = begin();
        }
        match begun {
            Ok((jni, functions)) => {
                self.plan_jni(&functions);
                self.jni = Some(jni);
            }
            // It is told elsewhere.
            Err(Error::Ended { .. }) => {}
            Err(error) => {
                let (pid, main, cause) = (self.jvm.pid, self.jvm.main.escape_debug(), in_full(&error));
                tracing::warn!("process {pid} ({main}): JNI functions are not traced: {cause}");
            }
        }
    }

    /// Plans JNI functions as well, each as a method.
    pub(super) fn plan_jni(&mut self, functions: &[Method]) {
        self.planner.add_jni(functions);
    }

    /// How the programs find pending exceptions; zeros if the VM does not say.
    pub(super) fn pending_places(&self) -> Result<PendingPlaces, Error> {
        let libjvm = libjvm_of(&self.proc, &self.jvm)?;
        let mut threads = Threads::open(ProcessMemory::new(self.jvm.pid), &libjvm)?;
        // Its end is noticed elsewhere.
        let env = threads.jni_env().unwrap_or_default();
        match env.zip(threads.pending_exception_offset()) {
            Some(((env, table), offset)) => {
                let from_env = offset.cast_signed().wrapping_sub(env.cast_signed());
                Ok(PendingPlaces { from_env, env: [env, table.0] })
            }
            None => {
                let pid = self.jvm.pid;
                tracing::warn!(
                    "process {pid}: its VM does not say where exceptions are: they are not told from results"
                );
                Ok(PendingPlaces::default())
            }
        }
    }

    /// Whether there may be stubs.
    pub(super) fn wants_stubs(&self) -> bool {
        self.options.tier != TierWanted::Kernel
    }

    /// Whether it is to be measured how long threads do not run within calls.
    pub(super) fn measures_off_cpu(&self) -> bool {
        self.options.off_cpu
    }

    /// What is to be collected of calls besides counts and times.
    pub(super) fn collectors(&self) -> Collectors {
        self.options.collectors
    }

    /// What an engine is to collect for that.
    pub(super) fn engine_collects(&self) -> Collect {
        self.options.collected()
    }

    fn ended_or(&self, error: Error) -> Error {
        ended_or(error, &self.proc, &self.jvm)
    }

    /// How many functions the maps are to have room for, if they are this JVM's alone. No more will be planned.
    pub(super) fn capacity(&mut self) -> Result<u32, Error> {
        let planned = self.planner.probes().len();
        let room = (planned + planned / 4 + HEADROOM).max(MIN_ROOM);
        let functions = self.options.max_functions.map_or(room, |most| most.min(room)).max(1);
        self.planner.limit(Limits { functions });
        u32::try_from(functions).map_err(|_over| Error::TooMany { functions })
    }

    pub(super) fn proc(&self) -> &Proc {
        &self.proc
    }

    fn attach_parts(
        mut self,
        (engine, calibrated): (&Arc<Engine>, Calibrated),
        reader: Reader,
        mut tiers: Tiers,
        slow: Option<SlowWatch>,
    ) -> Result<Tracer, Error> {
        if engine.reach() == Reach::Everyone && !self.planner.is_guarded() {
            // Which places may be probed was decided for a kernel that keeps probes to the target.
            return Err(Error::Defect { what: "probes would reach more than was planned for".to_owned() });
        }
        if self.options.timed && self.proc.return_probes_crash(&self.jvm)? {
            return Err(Error::ReturnProbesKill { pid: self.jvm.pid });
        }
        if !self.proc.is_same(&self.jvm) {
            return Err(Error::Ended { pid: self.jvm.pid });
        }
        let age = self.proc.age(&self.jvm).unwrap_or(YOUNG);
        let target = Target { pid: self.jvm.pid, timed: self.options.timed };
        let mut session = Session::new(Arc::clone(engine), target);
        let load = |programs: &ProgramOptions| programs.load(engine.capacity(), &calibrated.costs);
        let programs = self.options.programs.as_ref().map(load).transpose()?;
        if let Some(programs) = &programs {
            programs.begin(&mut session);
        }
        let wanted = (&self.options.selection, self.options.max_functions, self.options.timed, self.jni.is_some());
        session.begin_sharing(terms(&self.proc, &self.jvm, wanted));
        let stubbed = std::mem::take(&mut self.stubbed);
        if !stubbed.is_empty() {
            let libraries = self.proc.libraries(self.jvm.pid)?;
            self.planner.add(&tiers.stubs().translate(stubbed), &libraries);
        }
        let downcalls = downcalls::are_linked(&self.methods);
        let Self { proc, jvm, vm, planner, jni, options, .. } = self;
        let known = (proc.clone(), jvm.clone());
        // What cannot be attached for want of a target is its end.
        let engine = Arc::clone(engine);
        let parts = Parts {
            proc,
            jvm,
            vm,
            planner,
            session,
            reader,
            tiers,
            options,
            engine,
            calibrated,
            slow,
            programs,
            jni,
            age,
            downcalls,
        };
        Tracer::attach(parts).map_err(|error| ended_or(error, &known.0, &known.1))
    }
}

fn tell_lack() {
    tracing::warn!(
        "not measured how long threads wait in methods with stubs: this kernel puts a probe into every process that has \
         the file mapped, so none is put where stubs find what a thread uses"
    );
}

/// What is asked of a place for a probe, where the kernel writes it into other processes too. Who may not ask the kernel
/// may not attach probes either.
fn guard(proc: &Proc, jvm: &Jvm, known: Option<Reach>) -> Result<Option<Guard>, Error> {
    let asked = || {
        reach().unwrap_or_else(|error| {
            tracing::debug!("not known whom probes reach: {error}");
            Reach::Target
        })
    };
    match known.unwrap_or_else(asked) {
        Reach::Target => Ok(None),
        Reach::Everyone => Ok(Some(Guard::new(proc.writes_as_root(jvm)?))),
    }
}

/// Whether compiled code of the VM calls the critical functions of methods. One that does not say so has no such option.
fn calls_critical(jvm: &Jvm, libraries: &[Library]) -> bool {
    let flags = discover::libjvm(libraries)
        .and_then(|libjvm| hotspot::flags(ProcessMemory::new(jvm.pid), libjvm, [CRITICAL_NATIVES]).ok());
    flags.is_some_and(|[critical]| critical.is_some_and(|flag| flag.is_on))
}
