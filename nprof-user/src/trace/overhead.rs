//! Keeps what tracing costs one JVM within its bounds: counts, asks the policy, and does what it says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Calibrated, Roster};
use crate::attach::Session;
use crate::discover::Proc;
use crate::govern::{Budget, Change, Governor, Observed, Period, Why};
use crate::model::{Jvm, Library, Pid, Probe, Tracing};

/// How often the cost is looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// How long a function that was detached is counted to find out how often it is called now.
const TRIAL: Duration = Duration::from_millis(20);

/// What tracing has cost a JVM, estimated from the number of calls and the cost of a probe.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spent {
    /// In all.
    pub total: Duration,
    /// The CPU time that the JVM has used meanwhile, this cost included.
    pub cpu: Duration,
    /// The share of the JVM's time, lately.
    pub share: f64,
    /// Functions that are not traced as was asked for, with their calls per second when that was decided, and why.
    pub demoted: BTreeMap<u32, (f64, String)>,
    /// How often a function was demoted, and how often one was promoted again.
    pub changes: [u64; 2],
}

/// The governing of one JVM.
#[derive(Debug)]
pub(super) struct Overhead {
    governor: Governor,
    detaches: bool,
    /// Calls of each function at the last look.
    seen: BTreeMap<u32, u64>,
    looked: Instant,
    cpu: Duration,
    spent: Spent,
    start: Instant,
}

/// What the probes sit on.
pub(super) type Plan<'a> = (&'a [Library], &'a [Probe]);

impl Overhead {
    pub(super) fn new(calibrated: Calibrated, budget: Option<f64>, proc: &Proc, jvm: &Jvm) -> Self {
        let Calibrated { costs, detaches, .. } = calibrated;
        let governor = Governor::new(costs, budget.map(|share| Budget { share }));
        let cpu = proc.cpu_time(jvm.pid).unwrap_or_default();
        let now = Instant::now();
        Self { governor, detaches, seen: BTreeMap::new(), looked: now, cpu, spent: Spent::default(), start: now }
    }

    pub(super) fn is_due(&self) -> bool {
        self.looked.elapsed() >= PERIOD
    }

    pub(super) fn set_budget(&mut self, share: Option<f64>) {
        self.governor.set_budget(share.map(|share| Budget { share }));
    }

    /// Looks at what the last period cost, and demotes and promotes functions.
    pub(super) fn govern(&mut self, proc: &Proc, roster: &Roster, session: &mut Session, plan: Plan<'_>) {
        let period = self.next_period(proc, roster.jvm().pid);
        let observed = self.observe(roster, plan.1);
        for change in self.governor.decide(period, &observed) {
            self.apply(&change, roster, session, plan.1);
        }
        session.settle(plan.0, plan.1);
        for index in self.governor.due_trials(self.start.elapsed()) {
            self.try_out(index, roster, session, plan);
        }
        self.publish(roster);
    }

    fn next_period(&mut self, proc: &Proc, pid: Pid) -> Period {
        let now = Instant::now();
        let length = now.saturating_duration_since(self.looked);
        // A process that is ending has used none.
        let cpu = proc.cpu_time(pid).unwrap_or(self.cpu);
        let target_cpu = cpu.saturating_sub(self.cpu);
        (self.looked, self.cpu) = (now, cpu);
        self.spent.cpu += target_cpu;
        Period { now: now.saturating_duration_since(self.start), length, target_cpu }
    }

    /// The calls of each function since the last look.
    fn observe(&mut self, roster: &Roster, probes: &[Probe]) -> Vec<Observed> {
        let functions = roster.switches().functions();
        let observed = functions.into_iter().filter_map(|(index, record, traced)| {
            // Probes are in the order of the index.
            let place = probes.binary_search_by_key(&index, |probe| probe.index).ok()?;
            let begun = roster.reader().begun(record);
            let before = self.seen.insert(index, begun).unwrap_or(0);
            let calls = begun.saturating_sub(before);
            let (cost, wanted, tracing) = (probes[place].site.cost, traced.wanted, traced.tracing);
            Some(Observed { id: index, cost, wanted, tracing, calls })
        });
        observed.collect()
    }

    fn apply(&mut self, change: &Change, roster: &Roster, session: &Session, probes: &[Probe]) {
        let to = if self.detaches { change.to } else { change.to.max(Tracing::Counted) };
        let before = session.switches().traced(change.id).map(|traced| traced.tracing);
        session.switches().allow(change.id, to);
        let is_demotion = before.is_some_and(|before| to < before);
        self.spent.changes[usize::from(!is_demotion)] += 1;
        let name = name_of(probes, change.id);
        let verb = if is_demotion { "demoted" } else { "promoted" };
        let (pid, rate) = (roster.jvm().pid, change.rate);
        tracing::warn!("process {pid}: {name} is {verb} to {to}, at {rate:.0} calls a second: {}", change.why);
    }

    /// Counts a detached function for a moment, to see whether it may be traced again.
    fn try_out(&mut self, index: u32, roster: &Roster, session: &mut Session, (libraries, probes): Plan<'_>) {
        let switches = Arc::clone(session.switches());
        let Some(record) = switches.record(index) else { return };
        switches.allow(index, Tracing::Counted);
        session.settle(libraries, probes);
        let (before, began) = (roster.reader().begun(record), Instant::now());
        sleep(TRIAL);
        let (calls, length) = (roster.reader().begun(record).saturating_sub(before), began.elapsed());
        let to = self.governor.tried(self.start.elapsed(), index, calls, length);
        switches.allow(index, to);
        session.settle(libraries, probes);
        if to > Tracing::Detached {
            self.spent.changes[1] += 1;
            tracing::warn!(
                "process {}: {} is promoted to {to}: {}",
                roster.jvm().pid,
                name_of(probes, index),
                Why::Retry
            );
        }
        self.seen.insert(index, roster.reader().begun(record));
    }

    fn publish(&mut self, roster: &Roster) {
        (self.spent.total, self.spent.share) = (self.governor.spent(), self.governor.share());
        self.spent.demoted = self.governor.demoted().map(|(id, rate, why)| (id, (rate, why.to_string()))).collect();
        roster.set_spent(self.spent.clone());
    }
}

fn name_of(probes: &[Probe], index: u32) -> String {
    let method = probes.iter().find(|probe| probe.index == index).and_then(|probe| probe.methods.first());
    method.map_or_else(|| format!("function {index}"), |known| format!("{}::{}", known.method.class, known.method.name))
}
