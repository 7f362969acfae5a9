//! What the exporter is given: by the configuration, and at each scrape.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::{JvmLabels, Losses, ProfilesStatus, Pushes, Snapshot};

/// What bounds the number of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many methods get their own series for each set of JVM labels. The others share one.
    pub series_per_jvm: usize,
    /// How long the series stay after the last JVM with these labels has ended.
    pub keep_ended: Duration,
    /// Whether the signature is a label. If not, overloads share a series.
    pub with_signature: bool,
}

/// What was measured of one JVM, and what it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Its labels.
    pub labels: Arc<JvmLabels>,
    /// What was measured, from the start of the measurement on.
    pub snapshot: Snapshot,
}

/// What is known of all JVMs together and of nprof itself. The counters are from the start of nprof on.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// What went wrong in the measurement, ended JVMs included. A counter: every reason is listed from the start on.
    pub losses: Losses,
    /// JVMs that are traced now.
    pub jvms: usize,
    /// JVMs that run and are selected but cannot be traced.
    pub untraced_jvms: usize,
    /// JVMs that are being read and attached to, or wait for that.
    pub joining_jvms: usize,
    /// JVMs that took too long to be read and attached to.
    pub joins_given_up: u64,
    /// Reads of targets that were given up because the target kept them waiting.
    pub reads_given_up: u64,
    /// Of these, those that wait still.
    pub stuck_reads: usize,
    /// Functions that carry a probe now.
    pub probes: usize,
    /// How often a function was demoted because tracing it cost too much.
    pub demotions: u64,
    /// How often a demoted function was given back some of what was asked for.
    pub promotions: u64,
    /// What became of what was pushed, for each target.
    pub pushes: Vec<Pushes>,
    /// The most that tracing may cost a JVM, as a share of its own time, if that is limited.
    pub overhead_budget: Option<f64>,
    /// What the probes of one timed call cost, in nanoseconds, if that was measured.
    pub probe_cost_ns: Option<u64>,
    /// The profiles, if they are kept.
    pub profiles: Option<ProfilesStatus>,
    /// When nprof began to measure.
    pub started: Timestamp,
}
