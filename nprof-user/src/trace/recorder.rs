//! A recording of one JVM: everything that `trace` measures, and stacks of sampled calls.

use std::sync::Arc;

use super::assemble::assemble;
use super::chosen::Choice;
use super::error::Part;
use super::prepared::Prepared;
use super::sampled::{Sampled, rows_by_record};
use super::sampling::{about_jvm, libjvm_of, period, sampler_setup};
use super::vm::ended_or;
use super::{Error, Tracer, calibrate};
use crate::aggregate::Recorded;
use crate::attach::{Collect, Engine};
use crate::model::{About, Profile, ProfileMode, Snapshot, Spread};
use crate::profile::Sampler;
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Threads;

/// Records that it takes to find out what probes cost.
const CALIBRATED: u32 = 8;

/// What is to be recorded of the calls of native methods, besides their counts and times.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The most stacks in a second.
    pub max_stacks: u32,
    /// How much of a stack is copied, in bytes; what lies beyond is cut.
    pub stack_bytes: u32,
    /// Stacks inside calls, with native frames.
    pub native_stacks: bool,
    /// Every call, for a timeline.
    pub timeline: bool,
    /// The patterns as they were typed, for the recording to say.
    pub patterns: Vec<String>,
    /// How likely the stack of a call is taken of a function that has not been called yet, where it is not as usual.
    pub first_chance: Option<f64>,
}

/// A JVM that is being recorded. Everything is detached when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct Recorder {
    tracer: Tracer,
    sampler: Sampler,
    about: About,
}

/// What a recording begins with.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) tracer: Tracer,
    /// Takes stacks; or why none can be taken.
    pub(super) sampler: Result<Sampler, Error>,
    pub(super) about: About,
}

impl Recording {
    /// Takes no more stacks, detaches everything, and puts together what was measured and, if there were stacks, what was recorded.
    ///
    /// # Errors
    /// If a part of nprof has failed, which is a defect.
    pub(super) fn finish(self) -> Result<(Snapshot, Option<Recorded>), Error> {
        let Self { mut tracer, sampler, about } = self;
        let finished = sampler.ok().map(Sampler::finish).transpose();
        tracer.stop();
        let snapshot = tracer.snapshot();
        let finished = finished.map_err(|error| Error::Defect { what: error.to_string() })?;
        let recorded = finished.map(|finished| {
            let records = rows_by_record(tracer.traced_jvm(), &snapshot);
            let of_index = |(record, spread): (&u32, &Spread)| Some((*records.get(record)?, *spread));
            let spread = finished.sums.spread().iter().filter_map(of_index).collect();
            Recorded { profile: assemble(about, &snapshot, finished, &records), spread }
        });
        Ok((snapshot, recorded))
    }
}

impl Prepared {
    /// Attaches everything that is planned, and takes stacks from now on.
    ///
    /// # Errors
    /// As [`Prepared::attach`]; also if the VM's tables of its code cannot be read.
    pub fn record(self, wanted: Wanted) -> Result<Recorder, Error> {
        let Recording { tracer, sampler, about } = self.begin_recording(wanted)?;
        Ok(Recorder { tracer, sampler: sampler?, about })
    }

    /// The same, where calls are to be counted also if no stacks can be taken.
    ///
    /// # Errors
    /// As [`Prepared::attach`].
    pub(super) fn begin_recording(mut self, wanted: Wanted) -> Result<Recording, Error> {
        let capacity = self.capacity()?;
        let collect = Collect {
            target: self.jvm().pid,
            returns: true,
            stubs: self.wants_stubs(),
            off_cpu: self.measures_off_cpu(),
            rows: self.rows_wanted(),
            inside: wanted.native_stacks,
            period: period(wanted.max_stacks / 2),
            anchor_from_env: if wanted.native_stacks { self.anchor_from_env()? } else { [0; 3] },
            calls: wanted.timeline,
            stack_bytes: wanted.stack_bytes,
            max_stacks: wanted.max_stacks,
            counters: self.collectors().counters(),
            args: self.args_wanted(),
            pending: self.pending_if_args()?,
            ..Collect::nothing()
        };
        let (engine, feeds) = Engine::load_measuring(capacity, &collect)?;
        let collect = Collect { off_cpu: engine.measures_off_cpu(), ..collect };
        let (proc, jvm) = (self.proc().clone(), self.jvm().clone());
        let calibrated = {
            // By an engine of the same kind, but not by the same: the calls of functions of our own are no part of a timeline.
            let like = Collect { calls: collect.tells_args(), rows: 0, ..collect };
            let (engine, _feeds) = Engine::load_collecting(CALIBRATED, &like)?;
            calibrate(&proc, &engine)?
        };
        let choice = if self.wants_stubs() { Choice::ByChance } else { Choice::Nothing };
        let tracer = self.attach_with(&engine, calibrated, (choice, None))?;
        let functions = Sampled::new(Arc::clone(tracer.traced_jvm()), engine).with_first_chance(wanted.first_chance);
        let setup = sampler_setup(&proc, &jvm, feeds, &collect, Box::new(functions))?;
        let sampler =
            Sampler::start(setup).map_err(|error| ended_or(Error::reading(Part::Stacks, &jvm, error), &proc, &jvm));
        let about = About {
            mode: ProfileMode::Calls,
            patterns: wanted.patterns,
            max_stacks: wanted.max_stacks,
            period_ns: collect.inside.then(|| u64::try_from(collect.period.as_nanos()).unwrap_or(u64::MAX)),
            off_cpu: collect.off_cpu,
            native_stacks: wanted.native_stacks,
            ..about_jvm(tracer.jvm())
        };
        Ok(Recording { tracer, sampler, about })
    }
}

impl Prepared {
    /// From a thread's `JNIEnv` to where it notes its last Java frame; zeros if that is not known.
    pub(super) fn anchor_from_env(&self) -> Result<[i64; 3], Error> {
        let libjvm = libjvm_of(self.proc(), self.jvm())?;
        let mut threads = Threads::open(ProcessMemory::new(self.jvm().pid), &libjvm)?;
        let env = threads.refresh().and_then(|()| threads.jni_env_offset());
        // Its end is noticed elsewhere.
        let Ok(Some(env)) = env else { return Ok([0; 3]) };
        let offsets = threads.anchor_offsets();
        Ok([offsets.sp, offsets.pc, offsets.fp].map(|offset| offset.cast_signed().wrapping_sub(env.cast_signed())))
    }
}

impl Recorder {
    /// The JVM.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Does what is due: see [`Tracer::tick`].
    pub fn tick(&mut self) {
        if self.tracer.is_due() {
            self.tracer.tick();
        }
    }

    /// How many stacks were taken so far.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.sampler.stacks()
    }

    /// Everything measured so far but the stacks.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.tracer.snapshot()
    }

    /// Detaches everything and puts together what was recorded.
    ///
    /// # Errors
    /// If a part of nprof has failed, which is a defect.
    pub fn finish(mut self) -> Result<Profile, Error> {
        // First the totals, then the calls that are open: no call is in both, and while probes are attached it is known
        // which are.
        let snapshot = self.tracer.snapshot();
        let finished = self.sampler.finish().map_err(|error| Error::Defect { what: error.to_string() })?;
        self.tracer.stop();
        let records = rows_by_record(self.tracer.traced_jvm(), &snapshot);
        Ok(assemble(self.about, &snapshot, finished, &records))
    }
}
