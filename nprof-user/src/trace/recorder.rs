//! A recording of one JVM: everything that `trace` measures, and stacks of sampled calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nprof_common::Pace;

use super::assemble::assemble;
use super::chosen::Choice;
use super::error::Part;
use super::prepared::Prepared;
use super::sampling::{about_jvm, libjvm_of, period, sampler_setup};
use super::traced_jvm::Listed;
use super::vm::ended_or;
use super::{Error, TracedJvm, Tracer, calibrate, stubs};
use crate::attach::{Collect, Engine, fixed_point};
use crate::collect::Reader;
use crate::model::{About, PlannedMethod, Profile, ProfileMode, Snapshot, Tier};
use crate::profile::{Flow, Functions, Paces, Sampler};
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Threads;

/// Records that it takes to find out what probes cost.
const CALIBRATED: u32 = 8;

/// What is to be recorded of the calls of native methods, besides their counts and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The most stacks in a second.
    pub max_stacks: u32,
    /// How much of a stack is copied, in bytes; what lies beyond is cut.
    pub stack_bytes: u32,
    /// Measure how long threads do not run inside calls.
    pub off_cpu: bool,
    /// Stacks inside calls, with native frames.
    pub native_stacks: bool,
    /// Every call, for a timeline.
    pub timeline: bool,
    /// The patterns as they were typed, for the recording to say.
    pub patterns: Vec<String>,
}

/// A JVM that is being recorded. Everything is detached when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct Recorder {
    tracer: Tracer,
    sampler: Sampler,
    about: About,
}

impl Prepared {
    /// Attaches everything that is planned, and takes stacks from now on.
    ///
    /// # Errors
    /// As [`Prepared::attach`]; also if the VM's tables of its code cannot be read.
    pub fn record(mut self, wanted: Wanted) -> Result<Recorder, Error> {
        let capacity = self.capacity()?;
        let collect = Collect {
            target: self.jvm().pid,
            returns: true,
            stubs: self.wants_stubs(),
            off_cpu: wanted.off_cpu,
            inside: wanted.native_stacks,
            period: period(wanted.max_stacks / 2),
            anchor_from_env: if wanted.native_stacks { self.anchor_from_env()? } else { [0; 3] },
            calls: wanted.timeline,
            stack_bytes: wanted.stack_bytes,
            max_stacks: wanted.max_stacks,
            ..Collect::nothing()
        };
        let (engine, feeds) = Engine::load_measuring(capacity, &collect)?;
        let collect = Collect { off_cpu: engine.measures_off_cpu(), ..collect };
        let (proc, jvm) = (self.proc().clone(), self.jvm().clone());
        let calibrated = {
            // By an engine of the same kind, but not by the same: the calls of functions of our own are no part of a timeline.
            let like = Collect { calls: false, ..collect };
            let (engine, _feeds) = Engine::load_collecting(CALIBRATED, &like)?;
            calibrate(&proc, &engine)?
        };
        let choice = if self.wants_stubs() { Choice::ByChance } else { Choice::Nothing };
        let tracer = self.attach_with(&engine, calibrated, choice)?;
        let functions = Sampled { traced_jvm: Arc::clone(tracer.traced_jvm()), engine, chances: BTreeMap::new() };
        let setup = sampler_setup(&proc, &jvm, feeds, &collect, Box::new(functions))?;
        let sampler =
            Sampler::start(setup).map_err(|error| ended_or(Error::reading(Part::Stacks, &jvm, error), &proc, &jvm))?;
        let about = About {
            mode: ProfileMode::Calls,
            patterns: wanted.patterns,
            max_stacks: wanted.max_stacks,
            period_ns: collect.inside.then(|| u64::try_from(collect.period.as_nanos()).unwrap_or(u64::MAX)),
            off_cpu: collect.off_cpu,
            native_stacks: wanted.native_stacks,
            ..about_jvm(tracer.jvm())
        };
        Ok(Recorder { tracer, sampler, about })
    }
}

impl Prepared {
    /// From a thread's `JNIEnv` to where it notes its last Java frame; zeros if that is not known.
    fn anchor_from_env(&self) -> Result<[i64; 3], Error> {
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
        let traced_jvm = self.tracer.traced_jvm();
        let mut records: HashMap<u32, u32> = traced_jvm.records().map(|(index, record)| (record, index)).collect();
        records.extend(rows_of_stubs(&traced_jvm.listed(), &snapshot));
        Ok(assemble(self.about, &snapshot, finished, &records))
    }
}

/// The functions of a JVM, probed ones and those of stubs.
struct Sampled {
    traced_jvm: Arc<TracedJvm>,
    engine: Arc<Engine>,
    /// The chances that the records of stubs have, of 2^32: for each call, and for each nanosecond of it.
    chances: BTreeMap<u32, [u64; 2]>,
}

impl Functions for Sampled {
    fn flows(&self) -> Vec<Flow> {
        let flow = |reader: &Reader, record, number| Flow {
            record: number,
            calls: reader.begun(record),
            self_ns: reader.self_ns(record),
        };
        let reader = self.traced_jvm.reader();
        let probed = self.traced_jvm.records().map(|(_, record)| flow(reader, record, record));
        let listed = self.traced_jvm.listed();
        let of_stub = |stub: &stubs::Listed| {
            let record = stub.about.record;
            Some(flow(&self.traced_jvm.stub_records()?.reader, record, Flow::of_stub(record)))
        };
        probed.chain(listed.stubs.iter().filter_map(of_stub)).collect()
    }

    fn pace(&mut self, paces: &Paces) {
        let mut changed: BTreeMap<u32, u64> = BTreeMap::new();
        for &(number, probability) in &paces.probabilities {
            match Flow::stub(number) {
                Some(record) => drop(changed.insert(record, fixed_point(probability))),
                None => self.engine.set_sample_probability(number, probability),
            }
        }
        let Some(stubs) = self.traced_jvm.stub_records() else { return };
        let period_ns = u64::try_from(paces.period.as_nanos()).unwrap_or(u64::MAX).max(1);
        let per_ns = (Pace::CERTAIN / period_ns).max(1);
        for stub in &self.traced_jvm.listed().stubs {
            let record = stub.about.record;
            let before = self.chances.get(&record).copied();
            let per_call = changed.remove(&record).or(before.map(|[per_call, _]| per_call)).unwrap_or_default();
            // Each change is a write for each CPU.
            let is_like_before = before.is_some_and(|[call, ns]| call == per_call && ns.abs_diff(per_ns) <= ns / 16);
            if !is_like_before {
                stubs.choices.set(record, per_call, per_ns);
                self.chances.insert(record, [per_call, per_ns]);
            }
        }
    }
}

/// The rows that the records of stubs are in, by [`Flow::of_stub`]: those that name their method and have calls of stubs.
fn rows_of_stubs(listed: &Listed, snapshot: &Snapshot) -> HashMap<u32, u32> {
    let mut rows: HashMap<[&str; 3], u32> = HashMap::new();
    for row in snapshot.methods.iter().filter(|row| row.tier != Tier::Kernel) {
        rows.extend(row.methods.iter().map(|known| (name_of(known), row.index)));
    }
    let row = |stub: &stubs::Listed| Some((Flow::of_stub(stub.about.record), *rows.get(&name_of(&stub.about.method))?));
    listed.stubs.iter().filter_map(row).collect()
}

fn name_of(known: &PlannedMethod) -> [&str; 3] {
    [&known.method.class, &known.method.name, &known.method.signature]
}
