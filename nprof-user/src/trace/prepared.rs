//! A JVM before its probes are attached: read and planned.

use std::sync::Arc;

use nprof_common::Mode;

use super::chosen::{self, Choice, Chosen};
use super::stubs::{self, StubOptions, Stubs};
use super::tracer::{MAX_FUNCTIONS, Parts, Tiers, Tracer, YOUNG};
use super::vm::{describe, ended_or, open};
use super::{Calibrated, Error, Options, TierWanted, calibrate, downcalls};
use crate::attach::{Collect, Engine, Session, Target, reach};
use crate::collect::Reader;
use crate::discover::{self, Proc};
use crate::hotspot::{self, Vm};
use crate::model::{Jvm, Library, Method, Plan, Reach, VirtAddr};
use crate::resolve::select::Unmatched;
use crate::resolve::{Guard, Limits, Planner};
use crate::shim;
use crate::sys::remote_memory::ProcessMemory;

/// Room that the maps keep for functions that are bound later: a quarter more than there are now, and this many.
const HEADROOM: usize = 256;
/// Room that the maps have at least: a JVM that has only just been started has a tenth of what it will have.
const MIN_ROOM: usize = 2048;

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
        if calls_critical(&jvm, &libraries) {
            planner.plan_critical();
        }
        let shim = if options.tier == TierWanted::Kernel { None } else { shim::find(&proc, &jvm)? };
        let is_stubbed = |method: &Method| shim.as_ref().is_some_and(|shim| shim.holds(method));
        inventory.methods.retain(|method| !shim::is_own(method));
        let (stubbed, others): (Vec<Method>, Vec<Method>) = inventory.methods.iter().cloned().partition(is_stubbed);
        planner.add(&others, &libraries);
        Ok(Self { proc, jvm, vm, planner, methods: inventory.methods, stubbed, options })
    }

    /// The patterns that select no method at all, with the names that may have been meant.
    #[must_use]
    pub fn unmatched(&self) -> Vec<Unmatched> {
        self.options.selection.unmatched(&self.methods)
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

    /// Attaches everything that is planned, with its own maps and programs. What a probe costs is measured first.
    ///
    /// # Errors
    /// If nothing can be attached at all. What cannot be attached among others is skipped, with its reason.
    pub fn attach(mut self) -> Result<Tracer, Error> {
        let slow = self.options.slow.map_or(Collect::nothing(), |_| chosen::collect_slow(self.jvm.pid));
        let collect = Collect { off_cpu: self.options.off_cpu, ..slow };
        let (engine, feeds) = Engine::load_measuring(self.capacity()?, &collect)?;
        let calibrated = calibrate(&self.proc, &engine)?;
        let choice = self.options.slow.map_or(Choice::Nothing, |time| Choice::Slow(time, Box::new(feeds)));
        self.attach_with(&engine, calibrated, choice)
    }

    /// Attaches everything that is planned, with maps and programs that others use too. No slow calls are shown.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_to(self, engine: &Arc<Engine>, calibrated: Calibrated) -> Result<Tracer, Error> {
        self.attach_with(engine, calibrated, Choice::Nothing)
    }

    /// Attaches everything that is planned. `choice` says which calls stubs choose, if there are any.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub(super) fn attach_with(
        self,
        engine: &Arc<Engine>,
        calibrated: Calibrated,
        choice: Choice,
    ) -> Result<Tracer, Error> {
        let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
        let tiers = self.begin_stubs(engine, &reader, choice)?;
        self.attach_parts(engine, calibrated, reader, tiers)
    }

    /// Has the shim tell which methods there are, if there are to be stubs.
    fn begin_stubs(&self, engine: &Engine, reader: &Reader, choice: Choice) -> Result<Tiers, Error> {
        let connection = stubs::connect(&self.proc, &self.jvm, self.options.tier, !self.stubbed.is_empty());
        let Some(connection) = connection.map_err(|error| self.ended_or(error.into()))? else {
            return Ok(Tiers::probes(self.jvm.pid));
        };
        let site = VirtAddr(connection.hello().chosen_site);
        let mode = if self.options.timed { Mode::Time } else { Mode::Count };
        let options = StubOptions { mode, threshold_ns: choice.threshold_ns(), time_every: self.options.time_every };
        let mut stubs = match Stubs::begin(connection, (self.jvm.pid, self.methods.len()), reader, options) {
            Ok(stubs) => stubs,
            Err(error) if self.options.tier == TierWanted::Stub => return Err(self.ended_or(error)),
            Err(error) => {
                stubs::fall_back(self.jvm.pid, &error);
                return Ok(Tiers::probes(self.jvm.pid));
            }
        };
        let chosen = Chosen::start((&self.proc, &self.jvm), engine, site, choice).map_err(|source| {
            stubs.detach();
            self.ended_or(Error::ChosenCalls { pid: self.jvm.pid, source: Box::new(source) })
        })?;
        Ok(Tiers::new(stubs, chosen))
    }

    /// Whether there may be stubs.
    pub(super) fn wants_stubs(&self) -> bool {
        self.options.tier != TierWanted::Kernel
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
        engine: &Arc<Engine>,
        calibrated: Calibrated,
        reader: Reader,
        mut tiers: Tiers,
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
        let session = Session::new(Arc::clone(engine), target);
        let stubbed = std::mem::take(&mut self.stubbed);
        if !stubbed.is_empty() {
            let libraries = self.proc.libraries(self.jvm.pid)?;
            self.planner.add(&tiers.stubs().translate(stubbed), &libraries);
        }
        let downcalls = downcalls::are_linked(&self.methods);
        let Self { proc, jvm, vm, planner, options, .. } = self;
        let known = (proc.clone(), jvm.clone());
        // What cannot be attached for want of a target is its end.
        let engine = Arc::clone(engine);
        let parts =
            Parts { proc, jvm, vm, planner, session, reader, tiers, options, engine, calibrated, age, downcalls };
        Tracer::attach(parts).map_err(|error| ended_or(error, &known.0, &known.1))
    }
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
