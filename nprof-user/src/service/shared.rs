//! What is known of the JVMs that are served, for everybody who asks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::ended_labels::{EndedLabels, key_of};
use super::limits;
use crate::aggregate::WindowKey;
use crate::attach::{JniTable, in_full};
use crate::config::Config;
use crate::discover::{Labels, Proc};
use crate::export::{Backlog, Exporter, Exposition, Host as HostFacts, Measured};
use crate::govern::Costs;
use crate::model::{Jvm, JvmLabels, Snapshot};
use crate::push::{OTLP_METRICS, OTLP_PROFILES, PYROSCOPE, Tally};
use crate::resolve::rule::Rule;
use crate::resolve::thresholds::Thresholds;
use crate::sys::errand;
use crate::trace::{Calibrated, Error, Host, HostLosses, Joins, Profiles, TracedJvm};

/// Rules of users that are kept for JVMs that are yet to start.
const RULES_KEPT: usize = 1_000;

/// The state behind the endpoint and the control socket.
#[derive(Debug)]
pub struct Shared {
    proc: Proc,
    calibrated: Calibrated,
    /// The profile of each JVM, if that is wanted.
    profiles: Option<Profiles>,
    /// The calls of JNI functions of all JVMs, if these are traced.
    jni: Option<Arc<JniTable>>,
    losses: Arc<HostLosses>,
    joins: Arc<Joins>,
    pub(super) started: Timestamp,
    pub(super) start: Instant,
    /// What became of what is pushed.
    tallies: Vec<Arc<Tally>>,
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
    /// Labels of JVMs that have ended, for their last windows.
    ended_labels: EndedLabels,
    /// What the configuration says of methods.
    configured: Vec<Rule>,
    /// What users said of methods since.
    rules: Vec<Rule>,
    /// From when on calls are slow; `None` where nobody looks.
    slow: Option<Thresholds>,
}

impl State {
    /// What is said of methods: what was said last is last, and counts.
    fn all_rules(&self) -> Vec<Rule> {
        self.configured.iter().chain(&self.rules).cloned().collect()
    }
}

/// Whether both say the same.
fn same_rules(one: &[Rule], other: &[Rule]) -> bool {
    let said = |rules: &[Rule]| rules.iter().map(|rule| (rule.pattern.clone(), rule.wanted)).collect::<Vec<_>>();
    said(one) == said(other)
}

/// A JVM that is traced, and what it is called.
#[derive(Debug, Clone)]
pub(super) struct Living {
    pub traced_jvm: Arc<TracedJvm>,
    pub labels: Arc<JvmLabels>,
}

impl Shared {
    pub(super) fn new(
        proc: Proc,
        config: &Config,
        (calibrated, profiles, jni): (Calibrated, Option<Profiles>, Option<Arc<JniTable>>),
        host: &Host,
    ) -> Self {
        let state = State {
            living: Vec::new(),
            backlog: Backlog::new(limits(config)),
            labels: config.labels.clone(),
            budget: config.max_overhead,
            untraced: Vec::new(),
            past_changes: [0; 2],
            ended_labels: EndedLabels::default(),
            configured: config.rules.clone(),
            rules: Vec::new(),
            slow: config.slow.clone(),
        };
        Self {
            proc,
            calibrated,
            profiles,
            jni,
            losses: Arc::clone(host.losses()),
            joins: Arc::clone(host.joins()),
            started: Timestamp::now(),
            start: Instant::now(),
            tallies: tallies(config),
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

    /// The profile of each JVM, if that is wanted.
    #[must_use]
    pub fn profiles(&self) -> Option<&Profiles> {
        self.profiles.as_ref()
    }

    /// One scrape, with single calls if it shows these. Other scrapes wait for it; commands, and JVMs that join or end, do not.
    pub(super) fn collect(&self, with_exemplars: bool) -> Exposition {
        let mut exporter = unpoisoned(self.exporter.lock());
        // In one moment: a JVM is among the living or in the backlog, never both.
        let (living, backlog, facts) = {
            let mut state = self.lock();
            (state.living.clone(), state.backlog.take(), self.facts(&mut state))
        };
        backlog.tell(&mut exporter);
        let living: Vec<_> = living.into_iter().map(|Living { traced_jvm, labels }| (labels, traced_jvm)).collect();
        // Once for all JVMs, and before the records: these then have all calls that are known by caller.
        let jni = self.jni.as_ref().map(|table| table.read_all());
        let measure = |traced_jvm: &Arc<TracedJvm>| traced_jvm.snapshot_for_scrape(jni.as_ref(), with_exemplars);
        exporter.measure(&living, measure, &facts, Instant::now())
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
        let reads = errand::tally();
        HostFacts {
            losses: self.losses.read(),
            jvms: state.living.len(),
            untraced_jvms: state.untraced.len(),
            joining_jvms: self.joins.under_way(),
            joins_given_up: self.joins.given_up(),
            reads_given_up: reads.given_up,
            stuck_reads: reads.waiting,
            profiles: self.profiles.as_ref().map(Profiles::status),
            probes: state.living.iter().map(|living| living.traced_jvm.probed()).sum(),
            demotions,
            promotions,
            pushes: self.tallies.iter().map(|tally| tally.read()).collect(),
            overhead_budget: state.budget,
            probe_cost_ns: Some(nanoseconds(self.calibrated.costs.timed_ns[0])),
            started: self.started,
        }
    }

    pub(super) fn joined(&self, traced_jvm: Arc<TracedJvm>) {
        if let Some(profiles) = &self.profiles {
            profiles.joined(&traced_jvm);
        }
        let mut state = self.lock();
        // What the configuration says it has heard already.
        for rule in &state.rules {
            traced_jvm.obey(rule);
        }
        traced_jvm.set_rules(state.all_rules());
        // What was configured it has heard already; users may have said something else since.
        state.slow.iter().for_each(|slow| traced_jvm.set_slow_from(slow));
        let labels = Arc::new(self.proc.labels(traced_jvm.jvm(), &state.labels));
        state.living.push(Living { traced_jvm, labels });
    }

    pub(super) fn ended(&self, traced_jvm: &Arc<TracedJvm>, snapshot: Snapshot, now: Instant) {
        if let Some(profiles) = &self.profiles {
            profiles.ended(traced_jvm, &snapshot);
        }
        let mut state = self.lock();
        let Some(place) = state.living.iter().position(|living| Arc::ptr_eq(&living.traced_jvm, traced_jvm)) else {
            return;
        };
        let Living { traced_jvm, labels } = state.living.swap_remove(place);
        state.ended_labels.add(&traced_jvm, &labels);
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
        if !same_rules(&state.configured, &config.rules) {
            state.configured.clone_from(&config.rules);
            let rules = state.all_rules();
            state.living.iter().for_each(|living| living.traced_jvm.obey_only(rules.clone()));
        }
    }

    /// Says what is to be done at the calls of some methods, in all JVMs, those that start later included. Returns how
    /// many functions that concerns now; if it concerns none, it is not kept.
    pub(super) fn rule(&self, rule: Rule) -> usize {
        let mut state = self.lock();
        let concerned = state.living.iter().map(|living| living.traced_jvm.obey(&rule)).sum();
        if concerned > 0 {
            // The same words again take the place of what they said before.
            state.rules.retain(|known| known.pattern != rule.pattern);
            state.rules.push(rule);
            let surplus = state.rules.len().saturating_sub(RULES_KEPT);
            state.rules.drain(..surplus);
            let rules = state.all_rules();
            state.living.iter().for_each(|living| living.traced_jvm.set_rules(rules.clone()));
        }
        concerned
    }

    /// Says from when on calls are slow, in all JVMs, those that start later included.
    ///
    /// # Errors
    /// If nobody looks for slow calls, or it is not said rightly.
    pub(super) fn set_slow_from(&self, texts: &[String]) -> Result<(), String> {
        let mut state = self.lock();
        let slow = state.slow.as_ref().ok_or(
            "slow calls are not looked for: start nprof with `nprof serve --slow 100ms`, or set `slow` in its configuration",
        )?;
        let slow = slow.with(texts).map_err(|error| error.to_string())?.limited_to(RULES_KEPT);
        state.living.iter().for_each(|living| living.traced_jvm.set_slow_from(&slow));
        state.slow = Some(slow);
        Ok(())
    }

    /// The labels of a JVM that is traced, or was lately.
    pub(super) fn labels_of(&self, key: WindowKey) -> Option<Arc<JvmLabels>> {
        let state = self.lock();
        let living = state.living.iter().find(|living| key_of(living.traced_jvm.jvm()) == key);
        living.map(|living| Arc::clone(&living.labels)).or_else(|| state.ended_labels.of(key))
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

    /// What becomes of what is pushed, by target.
    pub(super) fn tallies(&self) -> &[Arc<Tally>] {
        &self.tallies
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }
}

/// Where the outcomes are counted of what the configuration wants to be pushed.
fn tallies(config: &Config) -> Vec<Arc<Tally>> {
    let wanted = [
        (OTLP_METRICS, config.otlp.is_some()),
        (OTLP_PROFILES, config.otlp.as_ref().is_some_and(|otlp| otlp.profiles)),
        (PYROSCOPE, config.pyroscope.is_some()),
    ];
    wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(target, _)| Arc::new(Tally::new(target))).collect()
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
