//! What tracing has cost a JVM.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{MeanTime, Unseen};

/// What tracing has cost a JVM, estimated from the number of calls and the cost of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// In all.
    pub total: Duration,
    /// The CPU time that the JVM has used meanwhile, this cost included.
    pub cpu: Duration,
    /// The share of the JVM's time, lately.
    pub share: f64,
    /// Functions that are not traced as was asked for, or were not until the user switched them off, with their calls per second when that
    /// was decided, and why.
    pub demoted: BTreeMap<u32, (f64, String)>,
    /// How often a function was demoted, and how often one was promoted again.
    pub changes: [u64; 2],
    /// What functions did while they were detached, as far as looks at them tell.
    pub unseen: BTreeMap<u32, Unseen>,
    /// The mean time of calls that were only counted, as far as looks tell.
    pub means: BTreeMap<u32, MeanTime>,
    /// In which share of the time of these threads did not run, as far as looks tell.
    pub waited: BTreeMap<u32, f64>,
    /// How many times as much as in a loop of nothing else the probes of each kind of site have cost.
    pub dearer: [f64; 2],
    /// Whether it is not counted any more what threads ask allocators for, since that cost too much.
    pub allocations_end: bool,
}

impl Default for Spent {
    /// Nothing yet.
    fn default() -> Self {
        Self {
            total: Duration::ZERO,
            cpu: Duration::ZERO,
            share: 0.0,
            demoted: BTreeMap::new(),
            changes: [0; 2],
            unseen: BTreeMap::new(),
            means: BTreeMap::new(),
            waited: BTreeMap::new(),
            dearer: [1.0; 2],
            allocations_end: false,
        }
    }
}
