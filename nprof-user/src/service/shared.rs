//! What is known of the JVMs that are served, for everybody who asks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::limits;
use crate::attach::in_full;
use crate::config::Config;
use crate::discover::{Labels, Proc};
use crate::export::{Backlog, Exporter, Exposition, Host as HostFacts, Measured};
use crate::govern::Costs;
use crate::model::{Jvm, JvmLabels, Snapshot, Tracing};
use crate::resolve::select::Selection;
use crate::sys::errand;
use crate::trace::{Calibrated, Error, Host, HostLosses, Joins, Rule, TracedJvm};

/// Rules of users that are kept for JVMs that are yet to start.
const RULES_KEPT: usize = 1_000;

/// The state behind the endpoint and the control socket.
#[derive(Debug)]
pub struct Shared {
    proc: Proc,
    calibrated: Calibrated,
    losses: Arc<HostLosses>,
    joins: Arc<Joins>,
    pub(super) started: Timestamp,
    pub(super) start: Instant,
    ready: AtomicBool,
    /// Milliseconds from the start to the last sign of life.
    alive_ms: AtomicU64,
    /// The series. Only scrapes wait for it, and they for each other.
    exporter: Mutex<Exporter>,
    /// Held for moments, also by scrapes: nobody reads counters or adds up meanwhile.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    living: Vec<Living>,
    backlog: Backlog,
    labels: Labels,
    budget: Option<f64>,
    /// JVMs that are there and cannot be traced.
    untraced: Vec<Jvm>,
    /// Demotions and promotions in JVMs that have ended.
    past_changes: [u64; 2],
    /// What users said of methods, by the patterns that they said it with.
    rules: Vec<(Vec<String>, Rule)>,
}

/// A JVM that is traced, and what it is called.
#[derive(Debug, Clone)]
pub(super) struct Living {
    pub traced_jvm: Arc<TracedJvm>,
    pub labels: Arc<JvmLabels>,
}

impl Shared {
    pub(super) fn new(proc: Proc, config: &Config, calibrated: Calibrated, host: &Host) -> Self {
        let state = State {
            living: Vec::new(),
            backlog: Backlog::new(limits(config)),
            labels: config.labels.clone(),
            budget: config.max_overhead,
            untraced: Vec::new(),
            past_changes: [0; 2],
            rules: Vec::new(),
        };
        Self {
            proc,
            calibrated,
            losses: Arc::clone(host.losses()),
            joins: Arc::clone(host.joins()),
            started: Timestamp::now(),
            start: Instant::now(),
            ready: AtomicBool::new(false),
            alive_ms: AtomicU64::new(0),
            exporter: Mutex::new(Exporter::new(limits(config))),
            state: Mutex::new(state),
        }
    }

    /// How many JVMs are traced, and how many methods of them.
    #[must_use]
    pub fn extent(&self) -> (usize, usize) {
        let living = self.living();
        (living.len(), living.iter().map(|living| living.traced_jvm.methods()).sum())
    }

    /// One scrape. Other scrapes wait for it; commands, and JVMs that join or end, do not.
    pub(super) fn collect(&self) -> Exposition {
        let mut exporter = unpoisoned(self.exporter.lock());
        // In one moment: a JVM is among the living or in the backlog, never both.
        let (living, backlog, facts) = {
            let mut state = self.lock();
            (state.living.clone(), state.backlog.take(), self.facts(&mut state))
        };
        backlog.tell(&mut exporter);
        let measure = |Living { traced_jvm, labels }: Living| Measured { labels, snapshot: traced_jvm.snapshot() };
        let measured: Vec<Measured> = living.into_iter().map(measure).collect();
        exporter.collect(&measured, &facts, Instant::now())
    }

    /// Tells the series what has happened, unless a scrape is under way, which leaves it to the next one. Where nobody scrapes
    /// it would grow with each JVM that ends.
    fn catch_up(&self) {
        let mut exporter = match self.exporter.try_lock() {
            Ok(exporter) => exporter,
            Err(TryLockError::Poisoned(panicked)) => panicked.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let backlog = self.lock().backlog.take();
        backlog.tell(&mut exporter);
    }

    fn facts(&self, state: &mut State) -> HostFacts {
        state.untraced.retain(|jvm| self.proc.is_same(jvm));
        let [mut demotions, mut promotions] = state.past_changes;
        for spent in state.living.iter().filter_map(|living| living.traced_jvm.spent()) {
            demotions += spent.changes[0];
            promotions += spent.changes[1];
        }
        let probes = |living: &Living| {
            let states = living.traced_jvm.states();
            let with_probe = Tracing::ALL.into_iter().filter(|state| *state > Tracing::Detached);
            with_probe.map(|state| states.functions[state as usize]).sum::<usize>()
        };
        let reads = errand::tally();
        HostFacts {
            losses: self.losses.read(),
            jvms: state.living.len(),
            untraced_jvms: state.untraced.len(),
            joining_jvms: self.joins.under_way(),
            joins_given_up: self.joins.given_up(),
            reads_given_up: reads.given_up,
            stuck_reads: reads.waiting,
            probes: state.living.iter().map(probes).sum(),
            demotions,
            promotions,
            overhead_budget: state.budget,
            probe_cost_ns: Some(nanoseconds(self.calibrated.costs.timed_ns[0])),
            started: self.started,
        }
    }

    pub(super) fn joined(&self, traced_jvm: Arc<TracedJvm>) {
        let mut state = self.lock();
        let rules: Vec<Rule> = state.rules.iter().map(|(_, rule)| rule.clone()).collect();
        for rule in &rules {
            traced_jvm.obey(rule);
        }
        traced_jvm.set_rules(rules);
        let labels = Arc::new(self.proc.labels(traced_jvm.jvm(), &state.labels));
        state.living.push(Living { traced_jvm, labels });
    }

    pub(super) fn ended(&self, traced_jvm: &Arc<TracedJvm>, snapshot: Snapshot, now: Instant) {
        let mut state = self.lock();
        let Some(place) = state.living.iter().position(|living| Arc::ptr_eq(&living.traced_jvm, traced_jvm)) else {
            return;
        };
        let Living { traced_jvm, labels } = state.living.swap_remove(place);
        if let Some(spent) = traced_jvm.spent() {
            state.past_changes[0] += spent.changes[0];
            state.past_changes[1] += spent.changes[1];
        }
        state.backlog.retire(Measured { labels, snapshot }, now);
        drop(state);
        self.catch_up();
    }

    pub(super) fn untraced(&self, jvm: Jvm, error: &Error) {
        let cause = in_full(error);
        tracing::warn!("process {} ({}) is not traced: {cause}", jvm.pid, jvm.main.escape_debug());
        let mut state = self.lock();
        // Also where nobody scrapes, which would do this too.
        state.untraced.retain(|jvm| self.proc.is_same(jvm));
        state.untraced.push(jvm);
    }

    pub(super) fn reload(&self, config: &Config) {
        let mut state = self.lock();
        state.backlog.set_limits(limits(config));
        state.budget = config.max_overhead;
        if state.labels != config.labels {
            state.labels = config.labels.clone();
            let State { living, labels, backlog, .. } = &mut *state;
            for living in living {
                living.labels = Arc::new(self.proc.labels(living.traced_jvm.jvm(), labels));
            }
            backlog.relabel();
        }
    }

    /// Says what is to be done at the calls of some methods, in all JVMs, those that start later included. Returns how
    /// many functions that concerns now; if it concerns none, it is not kept.
    pub(super) fn rule(&self, patterns: Vec<String>, selection: Selection, wanted: Tracing) -> usize {
        let mut state = self.lock();
        let rule = Rule { selection, wanted };
        let concerned = state.living.iter().map(|living| living.traced_jvm.obey(&rule)).sum();
        if concerned > 0 {
            // The same words again take the place of what they said before.
            state.rules.retain(|(known, _)| *known != patterns);
            state.rules.push((patterns, rule));
            let surplus = state.rules.len().saturating_sub(RULES_KEPT);
            state.rules.drain(..surplus);
            let rules: Vec<Rule> = state.rules.iter().map(|(_, rule)| rule.clone()).collect();
            state.living.iter().for_each(|living| living.traced_jvm.set_rules(rules.clone()));
        }
        concerned
    }

    pub(super) fn living(&self) -> Vec<Living> {
        self.lock().living.clone()
    }

    pub(super) fn budget(&self) -> Option<f64> {
        self.lock().budget
    }

    pub(super) fn costs(&self) -> &Costs {
        &self.calibrated.costs
    }

    /// How the joining of JVMs goes.
    pub(super) fn joins(&self) -> &Joins {
        &self.joins
    }

    pub(super) fn losses(&self) -> &HostLosses {
        &self.losses
    }

    /// The JVMs that ran at the start are traced.
    pub(super) fn is_ready(&self) {
        self.ready.store(true, Ordering::Release);
        self.is_alive();
    }

    pub(super) fn was_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// The loop that everything depends on goes round.
    pub(super) fn is_alive(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.alive_ms.store(now, Ordering::Relaxed);
    }

    /// How long ago the loop last went round.
    pub(super) fn silent_for(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_millis(self.alive_ms.load(Ordering::Relaxed)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

/// Goes on after a panic. A scrape that panicked has left the series as they were, or is told as a defect by the next.
fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// A calibrated cost, in whole nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "never negative, and far below the limit")]
pub(super) fn nanoseconds(cost: f64) -> u64 {
    cost.max(0.0).round() as u64
}
