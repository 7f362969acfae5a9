//! Keeps what tracing costs one JVM within its bounds: counts, asks the policy, and does what it says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::look::Looker;
use super::spent::Spent;
use super::{Calibrated, TracedJvm};
use crate::attach::Session;
use crate::govern::{Budget, Change, Governor, Observed, Period, Why};
use crate::model::{Bound, Library, Pid, Probe, Tracing};

/// How often the cost is looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// How often it is at the beginning, for so long: what little was seen before may have been no fair sample.
const FIRST_PERIOD: Duration = Duration::from_millis(100);
const FIRST: Duration = Duration::from_secs(2);
/// A JVM is taken to use at least so many cores where a period's budget is spent before the period is over.
const LEAST_CORES: f64 = 0.2;
/// The share of a core that a function costs from which on it gets its own links: what may soon be too expensive is to be gone
/// at once then.
const WARM: f64 = 0.001;
/// The most functions with their own links: each link takes the kernel some time at the end.
const MOST_WARM: usize = 32;

/// Functions that were not called are watched for a sudden start as long as no more shards of records have to be read for
/// it: some 0.1 ms each time.
const QUIET: usize = 2048;

/// A function whose calls are looked at within a period.
#[derive(Debug)]
struct Watched {
    index: u32,
    record: u32,
    /// What a call costs.
    call_ns: f64,
}

/// The governing of one JVM.
#[derive(Debug)]
pub(super) struct Overhead {
    governor: Governor,
    calibrated: Calibrated,
    budget: Option<f64>,
    looker: Looker,
    /// Functions that were called in the last period, and others that may be called a lot in the next.
    watched: Vec<Watched>,
    /// The cores that the JVM used in it.
    cores: f64,
    /// Calls of each function at the last look.
    seen: BTreeMap<u32, u64>,
    looked: Instant,
    /// The CPU time that the JVM had used by then.
    cpu: Duration,
    spent: Spent,
    start: Instant,
}

/// What the probes sit on.
pub(super) type Plan<'a> = (&'a [Library], &'a [Probe]);

impl Overhead {
    /// Nothing is attached yet. `start` is when the measurement began.
    pub(super) fn new(calibrated: Calibrated, budget: Option<f64>, looker: Looker, start: Instant) -> Self {
        let cpu = looker.cpu();
        Self {
            governor: Governor::new(calibrated.costs, budget.map(|share| Budget { share })),
            calibrated,
            budget,
            looker,
            watched: Vec::new(),
            cores: 0.0,
            seen: BTreeMap::new(),
            looked: start,
            cpu,
            spent: Spent::default(),
            start,
        }
    }

    pub(super) fn is_due(&self, traced_jvm: &TracedJvm) -> bool {
        self.is_period_over() || self.may_look() || self.is_urgent(traced_jvm)
    }

    pub(super) fn set_budget(&mut self, share: Option<f64>) {
        self.budget = share;
        self.governor.set_budget(share.map(|share| Budget { share }));
    }

    /// Finds out, before functions are attached, which are too expensive to begin with. Returns those that may become so.
    pub(super) fn begin(&mut self, traced_jvm: &TracedJvm, session: &mut Session, plan: Plan<'_>) -> Vec<u32> {
        let Some(budget) = self.budget.filter(|_| self.calibrated.detaches) else { return Vec::new() };
        // What is not bound yet is not called either.
        let is_bound = |probe: &&Probe| probe.methods.iter().any(|known| known.bound != Bound::Predicted);
        let probes: Vec<Probe> = plan.1.iter().filter(is_bound).cloned().collect();
        let wanted = if traced_jvm.is_timed() { Tracing::Timed } else { Tracing::Counted };
        let observed = self.survey(budget, wanted, (plan.0, &probes));
        session.admit(&probes);
        let second = Duration::from_secs(1);
        let period = Period { now: self.start.elapsed(), length: second, target_cpu: second.mul_f64(self.cores) };
        let changes = self.governor.begin(period, &observed);
        for change in &changes {
            session.switches().begin_with(change.id, change.to);
            self.spent.changes[0] += 1;
        }
        tell(&changes, &observed, traced_jvm.jvm().pid, plan.1);
        self.warmest(&observed)
    }

    /// How often each function is called in a second, before any is attached; and the cores that the JVM uses.
    fn survey(&mut self, budget: f64, wanted: Tracing, (libraries, probes): Plan<'_>) -> Vec<Observed> {
        let costs = self.calibrated.costs;
        let price = |probe: &Probe| costs.of(Tracing::Counted, probe.site.cost);
        let (began, cpu) = (Instant::now(), self.looker.cpu());
        let glances = self.looker.survey(libraries, probes, budget, price);
        let used = self.looker.cpu().saturating_sub(cpu);
        self.cores = used.as_secs_f64() / began.elapsed().as_secs_f64().max(0.001);
        let observed = probes.iter().filter_map(|probe| {
            let (index, cost) = (probe.index, probe.site.cost);
            let rate = glances.get(&index)?.calls_per_second(price(probe));
            Some(Observed { id: index, cost, wanted, tracing: wanted, calls: rounded(rate) })
        });
        observed.collect()
    }

    /// The functions that may soon be too expensive, of those that were called so often in a second.
    fn warmest(&self, observed: &[Observed]) -> Vec<u32> {
        let ns = |seen: &Observed| seen.calls as f64 * self.calibrated.costs.of(seen.wanted, seen.cost);
        let mut warm: Vec<&Observed> = observed.iter().filter(|seen| ns(seen) >= WARM * 1e9).collect();
        warm.sort_by(|a, b| ns(b).total_cmp(&ns(a)));
        warm.into_iter().take(MOST_WARM).map(|seen| seen.id).collect()
    }

    /// Looks at what the last period cost, and demotes and promotes functions.
    pub(super) fn govern(&mut self, traced_jvm: &TracedJvm, session: &mut Session, plan: Plan<'_>) {
        if self.is_period_over() || self.is_urgent(traced_jvm) {
            let period = self.next_period();
            let observed = self.observe(traced_jvm, plan.1);
            let changes = self.governor.decide(period, &observed);
            self.apply(&changes, session);
            tell(&changes, &observed, traced_jvm.jvm().pid, plan.1);
            session.settle(plan.0, plan.1);
        }
        if self.looker.is_free()
            && let Some(index) = self.governor.due_look()
        {
            self.look(index, traced_jvm, session, plan);
        }
        self.publish(traced_jvm);
    }

    /// Gives back what it has in the kernel, when the target has ended.
    pub(super) fn give_back(self) {
        self.looker.give_back();
    }

    fn may_look(&self) -> bool {
        self.governor.may_look() && self.looker.is_free()
    }

    /// Whether a whole period's budget is spent, though the period is not over.
    fn is_urgent(&self, traced_jvm: &TracedJvm) -> bool {
        let Some(budget) = self.budget else { return false };
        let cost_ns = |watched: &Watched| {
            let before = self.seen.get(&watched.index).copied().unwrap_or(0);
            traced_jvm.reader().begun(watched.record).saturating_sub(before) as f64 * watched.call_ns
        };
        let spent_ns: f64 = self.watched.iter().map(cost_ns).sum();
        spent_ns > budget * self.period().as_secs_f64() * 1e9 * self.cores.max(LEAST_CORES)
    }

    fn is_period_over(&self) -> bool {
        self.looked.elapsed() >= self.period()
    }

    fn period(&self) -> Duration {
        if self.start.elapsed() < FIRST { FIRST_PERIOD } else { PERIOD }
    }

    fn next_period(&mut self) -> Period {
        let now = Instant::now();
        let length = now.saturating_duration_since(self.looked);
        // A process that has ended has used none since.
        let target_cpu = self.looker.cpu().saturating_sub(self.cpu);
        self.looked = now;
        self.cpu += target_cpu;
        self.spent.cpu += target_cpu;
        self.cores = target_cpu.as_secs_f64() / length.as_secs_f64().max(0.001);
        Period { now: now.saturating_duration_since(self.start), length, target_cpu }
    }

    /// The calls of each function since the last look.
    fn observe(&mut self, traced_jvm: &TracedJvm, probes: &[Probe]) -> Vec<Observed> {
        let functions = traced_jvm.switches().functions();
        let most = QUIET / traced_jvm.reader().shards().max(1);
        self.watched.clear();
        let observed = functions.into_iter().filter_map(|(index, record, traced)| {
            // Probes are in the order of the index.
            let place = probes.binary_search_by_key(&index, |probe| probe.index).ok()?;
            let begun = traced_jvm.reader().begun(record);
            let before = self.seen.insert(index, begun).unwrap_or(0);
            let calls = begun.saturating_sub(before);
            let (cost, wanted, tracing) = (probes[place].site.cost, traced.wanted, traced.tracing);
            if calls > 0 || (tracing.is_watched() && self.watched.len() < most) {
                self.watched.push(Watched { index, record, call_ns: self.calibrated.costs.of(tracing, cost) });
            }
            Some(Observed { id: index, cost, wanted, tracing, calls })
        });
        observed.collect()
    }

    fn apply(&mut self, changes: &[Change], session: &Session) {
        for change in changes {
            let to = if self.calibrated.detaches { change.to } else { change.to.max(Tracing::Counted) };
            let before = session.switches().traced(change.id).map(|traced| traced.tracing);
            if before.is_some_and(|before| to > before) {
                self.looker.wait_until_gone();
            }
            session.switches().allow(change.id, to);
            self.spent.changes[usize::from(before.is_none_or(|before| to >= before))] += 1;
        }
    }

    /// Looks at a demoted function, to see what it does and whether it may be traced again.
    fn look(&mut self, index: u32, traced_jvm: &TracedJvm, session: &mut Session, (libraries, probes): Plan<'_>) {
        let Ok(place) = probes.binary_search_by_key(&index, |probe| probe.index) else {
            return self.governor.missed(self.start.elapsed(), index);
        };
        let (costs, site) = (self.calibrated.costs, &probes[place].site);
        let price = |tracing| costs.of(tracing, site.cost);
        let before = session.switches().traced(index).map_or(Tracing::Detached, |traced| traced.tracing);
        let Some(mut glance) = self.looker.look(libraries, &probes[place], before, price) else {
            return self.governor.missed(self.start.elapsed(), index);
        };
        let inside = self.calibrated.prices.at(site.cost);
        glance.total_ns = glance.total_ns.saturating_sub(inside.inside_ns.saturating_mul(glance.timed));
        glance.inside_error_ns = inside.inside_error_ns;
        let to = self.governor.looked(self.start.elapsed(), index, &glance);
        if to > before {
            self.looker.wait_until_gone();
            session.switches().allow(index, to);
            session.settle(libraries, probes);
            self.spent.changes[1] += 1;
            let pid = traced_jvm.jvm().pid;
            tracing::info!("process {pid}: {} is promoted to {to}: {}", name_of(probes, index), Why::Retry);
            if let Some(record) = session.record(index) {
                self.seen.insert(index, traced_jvm.reader().begun(record));
            }
        }
    }

    /// Lets everybody know what tracing has cost up to now, and what is estimated.
    pub(super) fn publish(&mut self, traced_jvm: &TracedJvm) {
        (self.spent.total, self.spent.share) = (self.governor.spent(), self.governor.share());
        self.spent.demoted = self.governor.demoted().map(|(id, rate, why)| (id, (rate, why.to_string()))).collect();
        self.spent.unseen = self.governor.unseen(self.start.elapsed());
        self.spent.means = self.governor.means();
        self.spent.waited = self.governor.waited();
        traced_jvm.set_spent(self.spent.clone());
    }
}

/// One line for the demotions of a period and one for the promotions, each with the function that is called most.
fn tell(changes: &[Change], observed: &[Observed], pid: Pid, probes: &[Probe]) {
    let before = |change: &Change| observed.iter().find(|seen| seen.id == change.id).map(|seen| seen.tracing);
    let (down, up): (Vec<&Change>, Vec<&Change>) = changes.iter().partition(|change| Some(change.to) < before(change));
    let line = |changes: &[&Change], verb: &str| {
        let change = changes.first()?;
        let more = match changes.len() - 1 {
            0 => String::new(),
            more => format!("; so are {more} more"),
        };
        let (name, to, rate, why) = (name_of(probes, change.id), change.to, change.rate, change.why);
        Some(format!("process {pid}: {name} is {verb} to {to}, at {rate:.0} calls a second: {why}{more}"))
    };
    line(&down, "demoted").into_iter().for_each(|line| tracing::warn!("{line}"));
    line(&up, "promoted").into_iter().for_each(|line| tracing::info!("{line}"));
}

fn name_of(probes: &[Probe], index: u32) -> String {
    let method = probes.iter().find(|probe| probe.index == index).and_then(|probe| probe.methods.first());
    method.map_or_else(|| format!("function {index}"), |known| format!("{}::{}", known.method.class, known.method.name))
}

/// A rate as a number of calls.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn rounded(rate: f64) -> u64 {
    rate.max(0.0).round() as u64
}
