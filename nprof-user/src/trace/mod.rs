//! The stages put together for one JVM: from a process to a [`Snapshot`], again and again.
//!
//! ```text
//! Prepared::new     discover ─> hotspot (inventory) ─> resolve (plan)      the target is only read
//! Prepared::attach  attach                                                 probes are in place
//! Tracer::refresh   hotspot ─> resolve ─> attach                           for what was bound since
//! Tracer::snapshot  collect ─> aggregate
//! ```

mod error;
mod fleet;
mod vm;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

pub use error::Error;
pub use fleet::{Fleet, Joining};
pub use vm::survey;

use self::vm::{describe, ended_or, open};
use crate::attach::{Attached, Engine, Session, Target};
use crate::collect::Reader;
use crate::discover::Proc;
use crate::hotspot::Vm;
use crate::model::{Inventory, Jvm, Library, Losses, Method, Plan, Probe, SkipReason, Skipped, Snapshot, States, Traced, Tracing};
use crate::resolve::select::{Selection, Unmatched};
use crate::resolve::{Limits, Planner};
use crate::sys::remote_memory::ProcessMemory;
use crate::{aggregate, discover};

/// Room that the maps keep for functions that are bound later: a quarter more than there are now, and this many.
const HEADROOM: usize = 256;
/// Room that the maps have at least: a JVM that has only just been started has a tenth of what it will have.
const MIN_ROOM: usize = 2048;
/// More functions than any JVM has; a limit for what a broken target can make us plan.
const MAX_FUNCTIONS: usize = 1 << 16;
/// A full walk forgets what was unloaded; between two of them only additions are looked for.
const FULL_WALK_EVERY: Duration = Duration::from_secs(60);

/// How often methods that have been bound since are looked for: with what it takes to attach them, one second is kept.
const LOOK_EVERY: Duration = Duration::from_millis(700);
/// The same while a JVM is young: then it binds most of its methods.
const LOOK_EVERY_WHILE_YOUNG: Duration = Duration::from_millis(100);
const YOUNG: Duration = Duration::from_secs(5);
/// How often the mappings are read where no method has changed: a new library may carry what is not bound yet.
const MAPS_EVERY: Duration = Duration::from_secs(2);
/// What the user wants to be traced.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which methods.
    pub selection: Selection,
    /// Time the calls, or only count them.
    pub timed: bool,
    /// Trace no more functions than this.
    pub max_functions: Option<usize>,
}

/// A JVM whose native methods are known and planned. Nothing has been attached.
#[derive(Debug)]
pub struct Prepared {
    proc: Proc,
    jvm: Jvm,
    vm: Vm<ProcessMemory>,
    planner: Planner,
    methods: Vec<Method>,
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
        let inventory = vm.inventory()?;
        if !inventory.complete {
            tracing::debug!(
                "not all classes were seen: they come and go, or the JVM is starting; they are looked for again"
            );
        }
        let libraries = proc.libraries(jvm.pid)?;
        let functions = options.max_functions.unwrap_or(MAX_FUNCTIONS);
        let mut planner = Planner::new(options.selection.clone(), Limits { functions });
        planner.add(&inventory.methods, &libraries);
        Ok(Self { proc, jvm, vm, planner, methods: inventory.methods, options })
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

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// Attaches everything that is planned, with maps and programs of its own.
    ///
    /// # Errors
    /// If nothing can be attached at all. What cannot be attached among others is skipped, with its reason.
    pub fn attach(mut self) -> Result<Tracer, Error> {
        let planned = self.planner.probes().len();
        let room = (planned + planned / 4 + HEADROOM).max(MIN_ROOM);
        let functions = self.options.max_functions.map_or(room, |most| most.min(room)).max(1);
        self.planner.limit(Limits { functions });
        let capacity = u32::try_from(functions).map_err(|_over| Error::TooMany { functions })?;
        let engine = Engine::load(capacity)?;
        self.attach_to(&engine)
    }

    /// Attaches everything that is planned, with maps and programs that others use too.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_to(self, engine: &Arc<Engine>) -> Result<Tracer, Error> {
        if self.options.timed && self.proc.return_probes_crash(&self.jvm)? {
            return Err(Error::ReturnProbesKill { pid: self.jvm.pid });
        }
        let reader = Reader::new(engine.stats()?, engine.losses()?, engine.shards());
        if !self.proc.is_same(&self.jvm) {
            return Err(Error::Ended { pid: self.jvm.pid });
        }
        let age = self.proc.age(&self.jvm).unwrap_or(YOUNG);
        let target = Target { pid: self.jvm.pid, timed: self.options.timed };
        let mut session = Session::new(Arc::clone(engine), target);
        let attached = session.attach(self.planner.libraries(), self.planner.probes());
        let mut tracer = Tracer {
            proc: self.proc,
            jvm: self.jvm,
            vm: self.vm,
            planner: self.planner,
            session,
            reader,
            timed: self.options.timed,
            started: Timestamp::now(),
            start: Instant::now(),
            end: None,
            late: BTreeMap::new(),
            walked: Instant::now(),
            mapped: Instant::now(),
            looked: Instant::now(),
            age,
        };
        let wanted = tracer.planner.probes().len();
        tracer.take_in(attached, wanted)?;
        Ok(tracer)
    }
}

/// A JVM that is being traced. Everything is detached when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct Tracer {
    proc: Proc,
    jvm: Jvm,
    vm: Vm<ProcessMemory>,
    planner: Planner,
    session: Session,
    reader: Reader,
    timed: bool,
    started: Timestamp,
    start: Instant,
    end: Option<Duration>,
    /// When the probes that were attached after the start were.
    late: BTreeMap<u32, Duration>,
    /// When the classes were last walked as a whole.
    walked: Instant,
    /// When the mappings were last read.
    mapped: Instant,
    /// When methods that have been bound since were last looked for.
    looked: Instant,
    /// The JVM's age at the start.
    age: Duration,
}

impl Tracer {
    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// How many methods are traced: more than functions, where methods share one.
    #[must_use]
    pub fn methods(&self) -> usize {
        self.planner.probes().iter().map(|probe| probe.methods.len()).sum()
    }

    /// How many selected methods are not traced.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.planner.skipped().count()
    }

    /// Whether it is time for another [`Self::refresh`].
    #[must_use]
    pub fn is_due(&self) -> bool {
        let is_young = self.age + self.start.elapsed() < YOUNG;
        let pause = if is_young { LOOK_EVERY_WHILE_YOUNG } else { LOOK_EVERY };
        self.looked.elapsed() >= pause
    }

    /// Looks for methods that have been bound since, and attaches their probes. Returns how many functions were added.
    ///
    /// # Errors
    /// If the target's memory cannot be read any more: it has ended, as a rule.
    pub fn refresh(&mut self) -> Result<usize, Error> {
        self.looked = Instant::now();
        let found = if self.walked.elapsed() >= FULL_WALK_EVERY {
            self.walked = Instant::now();
            self.vm.inventory()?
        } else {
            Inventory { methods: self.vm.refresh()?, complete: false }
        };
        if found.methods.is_empty() && self.mapped.elapsed() < MAPS_EVERY {
            return Ok(0);
        }
        self.mapped = Instant::now();
        let libraries = self.proc.libraries(self.jvm.pid)?;
        let added = if found.complete {
            {
                let (session, reader) = (&self.session, &self.reader);
                let is_counted = |index| session.record(index).is_some_and(|record| reader.sample(record).is_some());
                self.planner.renew(&found.methods, &libraries, is_counted)
            }
        } else {
            self.planner.add(&found.methods, &libraries)
        };
        if added.is_empty() {
            return Ok(0);
        }
        let attached = self.session.attach(self.planner.libraries(), &added);
        let now = self.start.elapsed();
        self.late.extend(attached.attached.iter().map(|&index| (index, now)));
        self.take_in(attached, usize::MAX)?;
        Ok(added.len())
    }

    /// What went wrong in the measurement so far, of all JVMs that share maps with this one.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.reader.losses()
    }

    /// Everything measured from the start to now, or to the end if tracing was stopped.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let probes = self.planner.probes();
        let methods = probes.iter().filter_map(|probe| {
            let sample = self.reader.sample(self.session.record(probe.index)?)?;
            let late = self.late.get(&probe.index).copied().unwrap_or_default();
            Some(aggregate::method(&sample, probe, &self.library_name(probe), late, Traced::as_wanted(Tracing::Timed)))
        });
        let mut skipped: Vec<Skipped> = self.planner.skipped().cloned().collect();
        skipped.sort_by(|a, b| name_of(a).cmp(&name_of(b)));
        Snapshot {
            started: self.started,
            methods: methods.collect(),
            elapsed: self.end.unwrap_or_else(|| self.start.elapsed()),
            jvm: self.jvm.clone(),
            ended: false,
            timed: self.timed,
            traced: probes.len(),
            states: States::default(),
            cost: None,
            cpu: None,
            skipped: skipped.into(),
            losses: self.reader.losses(),
        }
    }

    /// Detaches all probes. The records stay readable; calls that have not returned by now stay in flight.
    pub fn stop(&mut self) {
        self.end.get_or_insert(self.start.elapsed());
        self.session.detach();
    }

    /// Ends the tracing of a JVM that has ended: its last snapshot. What it had in the kernel is given to others.
    #[must_use]
    pub fn end(mut self) -> Snapshot {
        self.stop();
        let snapshot = self.snapshot();
        self.session.give_back();
        snapshot
    }

    /// Moves what could not be attached from the plan's probes to what is skipped.
    ///
    /// # Errors
    /// If of `wanted` probes every one failed with its library.
    fn take_in(&mut self, attached: Attached, wanted: usize) -> Result<(), Error> {
        self.planner.refuse(&attached.refused, SkipReason::RefusedByKernel);
        self.planner.refuse(&attached.no_room, SkipReason::OverLimit);
        let failed: usize = attached.failed.iter().map(|(_, indices)| indices.len()).sum();
        for (error, indices) in attached.failed {
            if failed == wanted {
                return Err(error.into());
            }
            tracing::warn!("{error}: {} methods there are not traced", indices.len());
            self.planner.refuse(&indices, SkipReason::UnreadableLibrary);
        }
        Ok(())
    }

    fn library_name(&self, probe: &Probe) -> String {
        self.planner.libraries().get(probe.site.library.0).map(Library::name).unwrap_or_default()
    }
}

fn name_of(skipped: &Skipped) -> (&str, &str, &str) {
    let method = &skipped.method.method;
    (&method.class, &method.name, &method.signature)
}

impl From<discover::Error> for Error {
    fn from(error: discover::Error) -> Self {
        Self::Discover(error)
    }
}
