//! A recording of where the threads of a JVM use the CPU, by timer: native code next to all the rest.

use std::sync::Arc;
use std::time::Instant;

use super::error::Part;
use super::sampling::{about_jvm, period, sampler_setup};
use super::vm::{ended_or, wait_until_ready};
use super::{Error, assemble};
use crate::attach::{Collect, Engine};
use crate::discover::Proc;
use crate::model::{About, Jvm, Profile, ProfileMode};
use crate::profile::{Flow, Functions, Paces, Sampler};

/// Room for no function: none is probed.
const NO_FUNCTIONS: u32 = 1;

/// What is to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnCpuWanted {
    /// The most stacks in a second, of all CPUs together.
    pub max_stacks: u32,
    /// How much of a stack is copied, in bytes; what lies beyond is cut.
    pub stack_bytes: u32,
}

/// A JVM whose threads are sampled. The timers end when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct OnCpu {
    jvm: Jvm,
    sampler: Sampler,
    about: About,
    start: Instant,
}

/// No calls are sampled.
struct NoFunctions {
    /// Holds the timers.
    _engine: Arc<Engine>,
}

impl Functions for NoFunctions {
    fn flows(&self) -> Vec<Flow> {
        Vec::new()
    }

    fn pace(&mut self, _paces: &Paces) {}
}

impl OnCpu {
    /// Starts a timer on each CPU.
    ///
    /// # Errors
    /// See [`Error`]: the VM is of another kind, its memory cannot be read, or the kernel refuses.
    pub fn start(proc: &Proc, mut jvm: Jvm, wanted: OnCpuWanted) -> Result<Self, Error> {
        wait_until_ready(proc, &mut jvm)?;
        let period = period(wanted.max_stacks);
        let collect = Collect {
            target: jvm.pid,
            everywhere: true,
            period,
            stack_bytes: wanted.stack_bytes,
            max_stacks: wanted.max_stacks,
            ..Collect::nothing()
        };
        let (engine, feeds) = Engine::load_collecting(NO_FUNCTIONS, &collect)?;
        let setup = sampler_setup(proc, &jvm, feeds, &collect, Box::new(NoFunctions { _engine: engine }))?;
        let sampler =
            Sampler::start(setup).map_err(|error| ended_or(Error::reading(Part::Stacks, &jvm, error), proc, &jvm))?;
        let about = About {
            mode: ProfileMode::OnCpu,
            max_stacks: wanted.max_stacks,
            period_ns: u64::try_from(period.as_nanos()).ok(),
            native_stacks: true,
            ..about_jvm(&jvm)
        };
        Ok(Self { jvm, sampler, about, start: Instant::now() })
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// How many stacks were taken so far.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.sampler.stacks()
    }

    /// Stops the timers and puts together what was recorded.
    ///
    /// # Errors
    /// If a part of nprof has failed, which is a defect.
    pub fn finish(self) -> Result<Profile, Error> {
        let elapsed = self.start.elapsed();
        let finished = self.sampler.finish().map_err(|error| Error::Defect { what: error.to_string() })?;
        Ok(assemble::on_cpu(About { elapsed, ..self.about }, finished))
    }
}
