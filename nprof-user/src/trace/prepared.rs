//! A JVM before its probes are attached: read and planned.

use std::sync::Arc;

use super::tracer::{Parts, Tracer, YOUNG};
use super::vm::{describe, ended_or, open};
use super::{Error, Governing, Options, calibrate};
use crate::attach::{Engine, Session, Target};
use crate::collect::Reader;
use crate::discover::Proc;
use crate::hotspot::Vm;
use crate::model::{Jvm, Method, Plan};
use crate::resolve::select::Unmatched;
use crate::resolve::{Limits, Planner};
use crate::sys::remote_memory::ProcessMemory;

/// Room that the maps keep for functions that are bound later: a quarter more than there are now, and this many.
const HEADROOM: usize = 256;
/// Room that the maps have at least: a JVM that has only just been started has a tenth of what it will have.
const MIN_ROOM: usize = 2048;
/// More functions than any JVM has; a limit for what a broken target can make us plan.
pub(super) const MAX_FUNCTIONS: usize = 1 << 16;

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

    /// Attaches everything that is planned, with maps and programs of its own. If tracing may cost no more than the share
    /// `budget` of the JVM's time, it is measured first what a probe costs.
    ///
    /// # Errors
    /// If nothing can be attached at all. What cannot be attached among others is skipped, with its reason.
    pub fn attach(mut self, budget: Option<f64>) -> Result<Tracer, Error> {
        let engine = Engine::load(self.capacity()?)?;
        if budget.is_some() {
            self.options.governing = Some(Governing { budget, ..calibrate(&self.proc, &engine)? });
        }
        self.attach_to(&engine)
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

    /// Attaches everything that is planned, with maps and programs that others use too.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_to(self, engine: &Arc<Engine>) -> Result<Tracer, Error> {
        if self.options.timed && self.proc.return_probes_crash(&self.jvm)? {
            return Err(Error::ReturnProbesKill { pid: self.jvm.pid });
        }
        let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
        if !self.proc.is_same(&self.jvm) {
            return Err(Error::Ended { pid: self.jvm.pid });
        }
        let age = self.proc.age(&self.jvm).unwrap_or(YOUNG);
        let target = Target { pid: self.jvm.pid, timed: self.options.timed };
        let session = Session::new(Arc::clone(engine), target);
        let Self { proc, jvm, vm, planner, options, .. } = self;
        Tracer::attach(Parts { proc, jvm, vm, planner, session, reader, options, age })
    }
}
