//! The stages put together: from a process to [`Snapshot`](crate::model::Snapshot)s, for one JVM or all of a host.
//!
//! ```text
//! Prepared::new     discover ─> hotspot (inventory) ─> resolve (plan)      the target is only read
//! Prepared::attach  attach                                                 probes are in place
//! Tracer::tick      hotspot ─> resolve ─> attach                           for what was bound since
//!                   collect ─> govern ─> attach                            for what costs too much
//! Roster::snapshot  collect ─> aggregate                                   at any time, by anybody
//! Host::next        all of this for each JVM that comes and goes
//! ```

mod assemble;
mod calibrate;
mod chosen;
mod downcalls;
mod end;
mod error;
mod event;
mod host;
mod joins;
mod look;
mod losses;
mod on_cpu;
mod overhead;
mod pace;
mod prepared;
mod recorder;
mod sampling;
mod slot;
mod spent;
mod stubs;
mod traced_jvm;
mod tracer;
mod vm;

pub use calibrate::{Calibrated, calibrate};
pub use end::{Ending, TargetEnd};
pub use error::{Error, Part};
pub use event::Event;
pub use host::{Host, Start};
pub use joins::Joins;
pub use losses::HostLosses;
pub use on_cpu::{OnCpu, OnCpuWanted};
pub use pace::Pace;
pub use prepared::Prepared;
pub use recorder::{Recorder, Wanted};
pub use spent::Spent;
pub use stubs::check_stubs;
pub use traced_jvm::{Rule, TracedJvm};
pub use tracer::Tracer;
pub use vm::{check_stacks, survey, wait_until_ready};

use std::time::Duration;

use crate::discover;
use crate::model::Reach;
use crate::resolve::select::Selection;

/// What the user wants to be traced.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which methods.
    pub selection: Selection,
    /// Time the calls, or only count them.
    pub timed: bool,
    /// Trace no more functions than this, of each JVM.
    pub max_functions: Option<usize>,
    /// Measure how long threads do not run within calls that probes see. Of an engine that others use too, it decides.
    pub off_cpu: bool,
    /// The share of a JVM's time that probes may cost it. Without it nothing is demoted, whatever it costs.
    pub budget: Option<f64>,
    /// From which time on a call of a method with a stub is slow: its stack is taken.
    pub slow: Option<Duration>,
    /// Stubs time one of so many calls of what is called often, and count the others. One times every call.
    pub time_every: u32,
    /// Whom probes are taken to reach; if not said, the kernel is asked.
    pub reach: Option<Reach>,
    /// Who counts.
    pub tier: TierWanted,
}

impl Options {
    /// Every call of the selected methods is counted and timed by probes, whatever that costs.
    #[must_use]
    pub fn by_probes(selection: Selection) -> Self {
        Self {
            selection,
            timed: true,
            max_functions: None,
            off_cpu: false,
            budget: None,
            slow: None,
            time_every: 1,
            reach: None,
            tier: TierWanted::Kernel,
        }
    }
}

/// Who is to count calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierWanted {
    /// Stubs where the shim is loaded already, else probes.
    #[default]
    Auto,
    /// Probes of the kernel. The shim is left alone.
    Kernel,
    /// Stubs in the target, which gets the shim for that; probes where there can be no stub.
    Stub,
    /// The same, and probes alone in a JVM that cannot have the shim.
    StubOrProbe,
}

impl From<discover::Error> for Error {
    fn from(error: discover::Error) -> Self {
        Self::Discover(error)
    }
}
