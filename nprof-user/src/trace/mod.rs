//! The stages put together: from a process to [`Snapshot`](crate::model::Snapshot)s, for one JVM or all of a host.
//!
//! ```text
//! Prepared::new     discover ─> hotspot (inventory) ─> resolve (plan)      the target is only read
//! Prepared::attach  attach                                                 probes are in place
//! Tracer::tick      hotspot ─> resolve ─> attach                           for what was bound since
//!                   collect ─> govern ─> attach                            for what costs too much
//! Roster::snapshot  collect ─> aggregate                                   at any time, by anybody
//! Host::next        all of this for each JVM that comes and goes
//! IdCache           shim                                           ids that are kept in the JVM
//! TreeTracer        shim                                             methods that are enhanced in the JVM
//! Prepared::jni     attach, collect ─> aggregate                           JNI functions as well
//! Prepared::jni_by_stubs   shim, collect ─> aggregate                      JNI functions alone, by stubs
//! Profiles          collect, profile ─> aggregate                          windows of each, if there are to be stacks
//! ```

mod allocations;
mod assemble;
mod by_record;
mod calibrate;
mod chosen;
mod classes;
mod critical;
mod downcalls;
mod end;
mod error;
mod event;
mod exemplars;
mod held;
mod host;
mod id_cache;
mod jni;
mod jni_stubs;
mod jni_tree;
mod joins;
mod jvm_jni;
mod leaving;
mod look;
mod losses;
mod neighbours;
mod on_cpu;
mod overhead;
mod pace;
mod prepared;
mod profiles;
mod programs;
mod recorder;
mod rowless;
mod sampled;
mod sampling;
mod slot;
mod slow;
mod spent;
mod stubs;
mod tokens;
mod traced_jvm;
mod tracer;
mod tree;
mod vm;

pub use calibrate::{Calibrated, calibrate};
pub use end::{Ending, TargetEnd};
pub use error::{Error, Part};
pub use event::Event;
pub use host::{Host, Start};
pub use id_cache::IdCache;
pub use jni::JniTracer;
pub use jni_stubs::JniStubs;
pub use joins::Joins;
pub use losses::HostLosses;
pub use on_cpu::{OnCpu, OnCpuWanted};
pub use pace::Pace;
pub use prepared::Prepared;
pub use profiles::{NoProfile, Profiles, WhichJvm};
pub use programs::ProgramOptions;
pub use recorder::{Recorder, Wanted};
pub use slow::{SlowListener, SlowWatch};
pub use spent::Spent;
pub use stubs::check_stubs;
pub use traced_jvm::TracedJvm;
pub use tracer::Tracer;
pub use tree::{TreeCollector, TreeEnd, TreeRecorder, TreeTracer, TreeWants};
pub use vm::{check_stacks, survey, wait_until_ready};

use crate::attach::Collect;
use crate::discover;
use crate::govern::Budget;
use crate::model::{ArgsWanted, Collectors, Reach, Tracing};
use crate::resolve::rule::Rule;
use crate::resolve::select::Selection;
use crate::resolve::thresholds::Thresholds;

/// For how many JVMs the programs are told where things lie in the VM, if there are many.
pub(crate) const VMS: u32 = 1024;

/// How many rows each of many JVMs has at least for its threads: 512 KiB, and room for 500 threads.
const ROWS_OF_EACH: u32 = 2_048;

/// What the user wants to be traced.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which methods.
    pub selection: Selection,
    /// Time the calls, or only count them.
    pub timed: bool,
    /// What is done at the calls of some methods instead; the last one that selects a method counts.
    pub rules: Vec<Rule>,
    /// Trace no more functions than this, of each JVM.
    pub max_functions: Option<usize>,
    /// Measure how long threads do not run within calls. Of an engine that others use too, it decides.
    pub off_cpu: bool,
    /// What else to collect of calls that are timed. Of an engine that others use too, it decides.
    pub collectors: Collectors,
    /// What tracing may cost a JVM. Without it nothing is demoted, whatever it costs.
    pub budget: Option<Budget>,
    /// From which time on a call is slow: it is told with its stack. Whether any is, an engine decides that others use too.
    pub slow: Option<Thresholds>,
    /// Tell what slow calls were made with. Of an engine that others use too, it decides.
    pub args: ArgsWanted,
    /// Tell the calls of each function apart by thread, which probes alone can. Of an engine that others use too, it decides.
    pub by_thread: bool,
    /// Stubs time one of so many calls of what is called often, and count the others. One times every call.
    pub time_every: u32,
    /// Whom probes are taken to reach; if not said, the kernel is asked.
    pub reach: Option<Reach>,
    /// Who counts.
    pub tier: TierWanted,
    /// Programs of the user's that run beside probes.
    pub programs: Option<ProgramOptions>,
    /// Trace JNI functions, too, beside others of an engine that collects their calls.
    pub jni: bool,
}

impl Options {
    /// Every call of the selected methods is counted and timed by probes, whatever that costs.
    #[must_use]
    pub fn by_probes(selection: Selection) -> Self {
        Self {
            selection,
            timed: true,
            rules: Vec::new(),
            max_functions: None,
            off_cpu: false,
            collectors: Collectors::default(),
            budget: None,
            slow: None,
            args: ArgsWanted::No,
            by_thread: false,
            time_every: 1,
            reach: None,
            tier: TierWanted::Kernel,
            programs: None,
            jni: false,
        }
    }
}

impl Options {
    /// What is to be collected besides counts and times.
    #[must_use]
    pub fn collected(&self) -> Collect {
        let slow = self.slow.as_ref().map_or(Collect::nothing(), |_| SlowWatch::collect());
        let (counters, args, by_thread) = (self.collectors.counters(), self.args, self.by_thread);
        let at_exit = self.rules.iter().any(|rule| rule.wanted == Tracing::Returned);
        Collect { off_cpu: self.off_cpu, counters, args, by_thread, at_exit, ..slow }
    }

    /// The same of many JVMs, some of which may have stubs.
    #[must_use]
    pub fn collected_of_many(&self) -> Collect {
        Collect { rows: if self.need_rows() { ROWS_OF_EACH } else { 0 }, ..self.collected() }
    }

    /// Whether stubs have to know what threads use, if there are any.
    fn need_rows(&self) -> bool {
        let is_collected = self.off_cpu || self.collectors.counters() != 0;
        self.timed && self.tier != TierWanted::Kernel && is_collected
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
