//! Keeps what tracing costs one JVM within its bounds: counts, asks the policy, and does what it says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::allocations::{self, Allocations};
use super::leaving::Leaving;
use super::look::{Due, Looker};
use super::spent::Spent;
use super::{Calibrated, TracedJvm};
use crate::aggregate;
use crate::attach::Session;
use crate::govern::{Budget, By, Change, Glance, Governor, Observed, Period, Rung, Why};
use crate::model::{Library, Probe, ProbeCost, Tracing};

/// How often the cost is looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// How often it is at the beginning, for so long: what little was seen before may have been no fair sample.
const FIRST_PERIOD: Duration = Duration::from_millis(100);
const FIRST: Duration = Duration::from_secs(2);
/// How long a JVM that was at rest is taken to be: longer than it takes to ask again, on a busy machine too.
const REST: Duration = Duration::from_secs(2);
/// The share of a JVM's own time that is as good as nothing.
const NEGLIGIBLE: f64 = 1e-4;
/// A JVM is taken to use at least so many cores where a period's budget is spent before the period is over: then the governor, which
/// takes it to use less, lowers something.
const LEAST_CORES: f64 = 0.25;
/// The share of a core that a function costs from which on it gets its own links: what may soon be too expensive is to be gone
/// at once then.
const WARM: f64 = 0.001;
/// The most functions with their own links, for that reason and for the next one: each link takes the kernel some time at the end.
const MOST_WARM: usize = 32;
/// Functions that are single-stepped have their own links even if nobody calls them: a burst of calls, of those that free memory
/// after a collection for instance, stops its callers as long as the probe is there.
const MOST_SINGLE_STEPPED: usize = 64;
/// So have natives of these classes, which VM and class library call in bursts in every program: for each reference that a
/// collection has cleared, `Object.notifyAll` tells its queue.
const BURSTS: [&str; 4] =
    ["java.lang.Object", "java.lang.ref.Reference", "java.lang.ref.PhantomReference", "java.lang.ref.Finalizer"];

/// Functions that were not called are watched for a sudden start as long as no more shards of records have to be read for
/// it: some 0.1 ms each time.
const QUIET: usize = 2048;

/// A function, or a method with a stub, whose calls are looked at within a period.
#[derive(Debug)]
struct Watched {
    id: u32,
    record: u32,
    by: By,
    /// What a call costs.
    call_ns: f64,
}

/// One for the governor, and where its calls are recorded.
struct Seen {
    record: u32,
    /// All since the start.
    begun: u64,
    observed: Observed,
}

/// Functions that are looked at together at most.
const TOGETHER: usize = 8;

/// The governing of one JVM.
#[derive(Debug)]
pub(super) struct Overhead {
    governor: Governor,
    calibrated: Calibrated,
    budget: Option<Budget>,
    looker: Looker,
    /// Functions that were called in the last period, and others that may be called a lot in the next.
    watched: Vec<Watched>,
    /// The cores that the JVM used in it.
    cores: f64,
    /// Calls of each function and each method with a stub at the last look.
    seen: BTreeMap<u32, u64>,
    looked: Instant,
    /// The CPU time that the JVM had used by then.
    cpu: Duration,
    spent: Spent,
    start: Instant,
    /// The JVM is at rest and nothing is put off, as of the switches that had been changed so often; else `None`.
    rests: Option<u64>,
    /// The probes on its allocators, if there are to be any: they cost, too.
    allocations: Option<Allocations>,
}

/// What was found out before functions are attached.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// Those that may become too expensive, and are to have their own links.
    pub apart: Vec<u32>,
    /// To be kept until they are attached: what was needed to find out goes when this does.
    _leaving: Option<Leaving>,
}

/// What the probes sit on.
pub(super) type Plan<'a> = (&'a [Library], &'a [Probe]);

impl Overhead {
    /// Nothing is attached yet. `start` is when the measurement began.
    pub(super) fn new(calibrated: Calibrated, budget: Option<Budget>, looker: Looker, start: Instant) -> Self {
        let cpu = looker.cpu();
        Self {
            governor: Governor::new(calibrated.costs, budget),
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
            rests: None,
            allocations: None,
        }
    }

    /// The same where probes on allocators cost something, too.
    pub(super) fn with_allocations(self, allocations: Option<Allocations>) -> Self {
        Self { allocations, ..self }
    }

    /// Takes the probes on allocators away.
    pub(super) fn stop_allocations(&mut self) {
        self.allocations = None;
    }

    pub(super) fn is_due(&self, traced_jvm: &TracedJvm) -> bool {
        self.is_period_over() || self.may_look() || self.is_urgent(traced_jvm)
    }

    pub(super) fn set_budget(&mut self, budget: Option<Budget>) {
        self.budget = budget;
        self.governor.set_budget(budget);
    }

    /// Finds out, before functions are attached, which are too expensive to begin with.
    pub(super) fn begin(&mut self, traced_jvm: &TracedJvm, session: &mut Session, plan: Plan<'_>) -> Begun {
        let Some(budget) = self.budget.filter(|_| self.calibrated.detaches) else { return Begun::default() };
        let wanted = |probe: &Probe| session.switches().attachable(probe.index).unwrap_or(Tracing::Off);
        let is_wanted = |probe: &&Probe| wanted(probe).is_watched();
        let probes: Vec<Probe> = plan.1.iter().filter(is_wanted).cloned().collect();
        let (observed, leaving) = self.survey(traced_jvm, budget.share, wanted, (plan.0, &probes));
        let second = Duration::from_secs(1);
        let period = Period { now: self.start.elapsed(), length: second, target_cpu: second.mul_f64(self.cores) };
        let changes = self.governor.begin(period, &observed);
        for change in &changes {
            session.switches().begin_with(change.id, change.to.tracing());
            self.spent.changes[0] += 1;
        }
        tell(&changes, &observed, traced_jvm, plan.1);
        let single_stepped = probes.iter().filter(|probe| probe.site.cost == ProbeCost::SingleStepped);
        let mut apart = self.warmest(&observed);
        apart.extend(single_stepped.map(|probe| probe.index).take(MOST_SINGLE_STEPPED));
        apart.extend(probes.iter().filter(|probe| comes_in_bursts(probe)).map(|probe| probe.index));
        apart.sort_unstable();
        apart.dedup();
        Begun { apart, _leaving: Some(leaving) }
    }

    /// Watches functions that are to be attached, or have just been: until the period is over nothing else would tell that one is
    /// called all the time.
    pub(super) fn watch(&mut self, traced_jvm: &TracedJvm, probes: &[Probe]) {
        let costs = self.calibrated.costs.cooled();
        for Seen { record, observed: Observed { id, by, tracing, .. }, .. } in probed(traced_jvm, probes) {
            if is_lowerable(by, tracing) && self.may_watch(by, 0, traced_jvm) {
                self.watched.push(Watched { id, record, by, call_ns: costs.of(tracing, by) });
            }
        }
    }

    /// Whether a function is watched within a period: one that was called in the last, or whose calls are expensive, and others as long
    /// as there are not too many to read.
    fn may_watch(&self, by: By, calls: u64, traced_jvm: &TracedJvm) -> bool {
        let most = QUIET / traced_jvm.reader().shards().max(1);
        calls > 0 || by.site() == Some(ProbeCost::SingleStepped) || self.watched.len() < most
    }

    /// How often each function is called in a second, before any is attached; and the cores that the JVM uses.
    fn survey(
        &mut self,
        traced_jvm: &TracedJvm,
        budget: f64,
        wanted: impl Fn(&Probe) -> Tracing,
        (libraries, probes): Plan<'_>,
    ) -> (Vec<Observed>, Leaving) {
        let (began, cpu) = (Instant::now(), self.looker.cpu());
        let (rates, leaving) = self.looker.survey(libraries, probes, budget, self.calibrated.costs);
        let used = self.looker.cpu().saturating_sub(cpu);
        self.cores = used.as_secs_f64() / began.elapsed().as_secs_f64().max(0.001);
        let observed = probes.iter().filter_map(|probe| {
            let (index, wanted) = (probe.index, wanted(probe));
            let (by, wanted) = (traced_jvm.by_probe(probe, wanted), Rung::from(wanted));
            Some(Observed { id: index, by, wanted, tracing: wanted, calls: rounded(*rates.get(&index)?) })
        });
        (observed.collect(), leaving)
    }

    /// The functions that may soon be too expensive, of those that were called so often in a second.
    fn warmest(&self, observed: &[Observed]) -> Vec<u32> {
        let ns = |seen: &Observed| seen.calls as f64 * self.calibrated.costs.of(seen.wanted, seen.by);
        let mut warm: Vec<&Observed> = observed.iter().filter(|seen| ns(seen) >= WARM * 1e9).collect();
        warm.sort_by(|a, b| ns(b).total_cmp(&ns(a)));
        warm.into_iter().take(MOST_WARM).map(|seen| seen.id).collect()
    }

    /// Looks at what the last period cost, if that is over or its budget spent, and decides what of all `probes` is demoted and promoted.
    /// Returns whether it did: the session is to be settled then.
    pub(super) fn keep_within(&mut self, traced_jvm: &TracedJvm, session: &Session, probes: &[Probe]) -> bool {
        if !self.is_period_over() && !self.is_urgent(traced_jvm) {
            return false;
        }
        self.rests = None;
        let period = self.next_period();
        let observed = self.observe(traced_jvm, probes);
        let changes = self.governor.decide(period, &observed);
        self.apply(&changes, traced_jvm, session);
        tell(&changes, &observed, traced_jvm, probes);
        true
    }

    /// Keeps what tracing costs within its bounds, and looks at a function that is demoted. Returns whether a period has ended.
    pub(super) fn govern(&mut self, traced_jvm: &TracedJvm, session: &mut Session, plan: Plan<'_>) -> bool {
        let has_ended = self.keep_within(traced_jvm, session, plan.1);
        if has_ended {
            session.settle(plan.0, plan.1);
        }
        for seen in self.looker.finished() {
            self.looked(seen, traced_jvm, session, plan);
        }
        if self.looker.is_free() {
            self.look(session, plan);
        }
        self.publish(traced_jvm);
        has_ended
    }

    /// Passes over a period in which the JVM was at rest, unless something was put off or is to be looked at. The next one is as
    /// long as that JVM's rest, which is to be confirmed within [`REST`]. To ask each function whether something is put off is more than all
    /// else that is done for one at rest: it is asked again when one was changed. A call ends the rest.
    pub(super) fn rest(&mut self, traced_jvm: &TracedJvm) {
        let switches = traced_jvm.switches();
        let changes = switches.changes();
        if self.rests != Some(changes) {
            let rests = self.governor.demoted().next().is_none() && !switches.are_any_due();
            self.rests = rests.then_some(changes);
        }
        if self.rests.is_some() {
            self.next_period();
            traced_jvm.set_cpu(self.spent.cpu);
        }
    }

    /// Whether the last periods had next to nothing to govern, and nothing is lowered that could be raised.
    pub(super) fn is_quiet(&self) -> bool {
        self.governor.share() <= NEGLIGIBLE && !self.governor.holds_any()
    }

    /// The JVM is not at rest any more.
    pub(super) fn wake(&mut self) {
        self.rests = None;
    }

    /// Gives back what it has in the kernel, when the target has ended.
    pub(super) fn give_back(self) {
        self.looker.give_back();
    }

    fn may_look(&self) -> bool {
        self.looker.has_finished() || (self.looker.is_free() && self.governor.may_look())
    }

    /// Whether a whole period's budget is spent, though the period is not over.
    fn is_urgent(&self, traced_jvm: &TracedJvm) -> bool {
        let Some(budget) = self.budget else { return false };
        let most_ns = budget.share * self.period().as_secs_f64() * 1e9 * self.cores.max(LEAST_CORES);
        // Probes have not cost more than the JVM has used. That is quickly asked, and mostly enough.
        if self.looker.cpu().saturating_sub(self.cpu).as_secs_f64() * 1e9 <= most_ns {
            return false;
        }
        let cost_ns = |watched: &Watched| {
            let before = self.seen.get(&watched.id).copied().unwrap_or(0);
            begun(traced_jvm, watched.by, watched.record).saturating_sub(before) as f64 * watched.call_ns
        };
        let spent_ns: f64 = self.watched.iter().map(cost_ns).sum();
        spent_ns > most_ns
    }

    fn is_period_over(&self) -> bool {
        self.looked.elapsed() >= if self.rests.is_some() { REST } else { self.period() }
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

    /// The calls of each function, and of each method with a stub, since the last look.
    fn observe(&mut self, traced_jvm: &TracedJvm, probes: &[Probe]) -> Vec<Observed> {
        let costs = self.calibrated.costs.cooled();
        self.watched.clear();
        let allocators = self.allocations.iter().flat_map(|probes| probes.observe(traced_jvm.reader()));
        let allocators = allocators.map(|(record, begun, observed)| Seen { record, begun, observed });
        let seen: Vec<Seen> = probed(traced_jvm, probes).chain(stubbed(traced_jvm)).chain(allocators).collect();
        let observed = seen.into_iter().map(|Seen { record, begun, mut observed }| {
            let Observed { id, by, tracing, .. } = observed;
            let before = self.seen.insert(id, begun).unwrap_or(0);
            observed.calls = begun.saturating_sub(before);
            if is_lowerable(by, tracing) && self.may_watch(by, observed.calls, traced_jvm) {
                self.watched.push(Watched { id, record, by, call_ns: costs.of(tracing, by) });
            }
            observed
        });
        observed.collect()
    }

    fn apply(&mut self, changes: &[Change], traced_jvm: &TracedJvm, session: &Session) {
        for change in changes {
            if allocations::is_meant(change.id) {
                self.give_up_allocations(change, traced_jvm);
                continue;
            }
            let of_stub = traced_jvm
                .stub_records()
                .and_then(|stubs| stubs.switches.allow(aggregate::record_of(change.id), change.to));
            let before = of_stub.or_else(|| self.apply_to_probe(change, session));
            self.spent.changes[usize::from(before.is_none_or(|before| change.to >= before))] += 1;
        }
    }

    /// What allocators are asked for is not counted any more. It is not begun again: who reads the numbers could not tell what is
    /// missing.
    fn give_up_allocations(&mut self, change: &Change, traced_jvm: &TracedJvm) {
        let Some(probes) = self.allocations.as_mut().filter(|_| !change.to.is_watched()) else { return };
        probes.stop();
        if std::mem::replace(&mut self.spent.allocations_end, true) {
            return;
        }
        let (pid, Change { rate, why, .. }) = (traced_jvm.jvm().pid, change);
        tracing::warn!(
            "process {pid}: what its threads allocate is not counted any longer, and not shown: at {rate:.0} calls of malloc and its \
             kin a second, {why}; --max-overhead allows more"
        );
    }

    /// Returns what was done before.
    fn apply_to_probe(&mut self, change: &Change, session: &Session) -> Option<Rung> {
        let to = if self.calibrated.detaches { change.to } else { change.to.max(Rung::Counted) };
        let before = session.switches().traced(change.id).map(|traced| Rung::from(traced.tracing));
        if before.is_some_and(|before| to > before) {
            self.looker.wait_until_gone(change.id);
        }
        session.switches().allow(change.id, to.tracing());
        before
    }

    /// Starts to look at demoted functions, to see what they do and whether they may be traced again.
    fn look(&mut self, session: &Session, (libraries, probes): Plan<'_>) {
        let indices = self.governor.due_looks();
        let place = |index: &u32| probes.binary_search_by_key(index, |probe| probe.index).ok();
        let due = indices.iter().take(TOGETHER).map_while(|index| {
            let probe = probes.get(place(index)?)?;
            let price = |rung| self.calibrated.costs.of(rung, By::Probe(probe.site.cost));
            let tracing = session.switches().traced(*index).map_or(Tracing::Detached, |traced| traced.tracing);
            Some(Due {
                probe,
                tracing,
                rate: self.governor.rate(*index),
                prices: [price(Rung::Timed), price(Rung::Counted)],
            })
        });
        let due: Vec<Due<'_>> = due.collect();
        if self.looker.start(libraries, &due, self.governor.look()) == 0
            && let Some(first) = indices.first()
        {
            self.governor.missed(self.start.elapsed(), *first);
        }
    }

    /// A look has ended, and its probes are gone.
    fn looked(
        &mut self,
        (index, mut glance): (u32, Glance),
        traced_jvm: &TracedJvm,
        session: &mut Session,
        (libraries, probes): Plan<'_>,
    ) {
        let Ok(place) = probes.binary_search_by_key(&index, |probe| probe.index) else { return };
        let inside = self.calibrated.prices.at(probes[place].site.cost);
        glance.total_ns = glance.total_ns.saturating_sub(inside.inside_ns.saturating_mul(glance.timed));
        glance.inside_error_ns = inside.inside_error_ns;
        let before = session.switches().traced(index).map_or(Tracing::Detached, |traced| traced.tracing);
        let (calls, ms, pid) = (glance.all(), glance.length.as_secs_f64() * 1e3, traced_jvm.jvm().pid);
        tracing::debug!(
            "process {pid}: {} was called {calls} times in {ms:.1} ms, {} timed calls took {} ns",
            name_of(traced_jvm, probes, index),
            glance.timed,
            glance.total_ns
        );
        let to = self.governor.looked(self.start.elapsed(), index, &glance).tracing();
        if to > before {
            session.switches().allow(index, to);
            session.settle(libraries, probes);
            self.spent.changes[1] += 1;
            let (pid, name) = (traced_jvm.jvm().pid, name_of(traced_jvm, probes, index));
            tracing::info!("process {pid}: {name} is promoted to {to}: {}", Why::Retry);
            if let Some(record) = session.record(index) {
                self.seen.insert(index, traced_jvm.reader().begun(record));
            }
        }
    }

    /// Lets everybody know what tracing has cost up to now, and what is estimated.
    pub(super) fn publish(&mut self, traced_jvm: &TracedJvm) {
        (self.spent.total, self.spent.share) = (self.governor.spent(), self.governor.share());
        let functions = self.governor.lowered().filter(|(id, ..)| !allocations::is_meant(*id));
        self.spent.demoted = functions.map(|(id, rate, why)| (id, (rate, why.to_string()))).collect();
        self.spent.unseen = self.governor.unseen(self.start.elapsed());
        self.spent.means = self.governor.means();
        self.spent.waited = self.governor.waited();
        self.spent.dearer = self.governor.dearer();
        traced_jvm.set_spent(self.spent.clone());
    }
}

/// Whether a native is one that VM and class library call in bursts.
fn comes_in_bursts(probe: &Probe) -> bool {
    probe.methods.iter().any(|known| BURSTS.contains(&&*known.method.class))
}

/// Whether there is less that can be done at a function's calls. Without that it is never urgent.
fn is_lowerable(by: By, tracing: Rung) -> bool {
    by.ladder().last().is_some_and(|bottom| tracing > *bottom)
}

/// The calls of a record since the start.
fn begun(traced_jvm: &TracedJvm, by: By, record: u32) -> u64 {
    match (by, traced_jvm.stub_records()) {
        (By::Probe(_) | By::ProbeAnd(..), _) => traced_jvm.reader().begun(record),
        (By::Stub, Some(stubs)) => stubs.switches.reader().begun(record),
        (By::Stub, None) => 0,
    }
}

/// The functions that have a probe, or may have one.
fn probed<'a>(traced_jvm: &'a TracedJvm, probes: &'a [Probe]) -> impl Iterator<Item = Seen> + use<'a> {
    traced_jvm.switches().functions().into_iter().filter_map(|(id, record, traced)| {
        // Probes are in the order of the index.
        let place = probes.binary_search_by_key(&id, |probe| probe.index).ok()?;
        let (by, begun) = (traced_jvm.by_probe(&probes[place], traced.wanted), traced_jvm.reader().begun(record));
        let (wanted, tracing) = (traced.wanted.into(), traced.tracing.into());
        Some(Seen { record, begun, observed: Observed { id, by, wanted, tracing, calls: 0 } })
    })
}

/// The methods that have a stub.
fn stubbed(traced_jvm: &TracedJvm) -> impl Iterator<Item = Seen> + use<'_> {
    traced_jvm.stub_records().into_iter().flat_map(|stubs| {
        stubs.switches.governed().into_iter().map(|method| {
            let (id, begun) = (aggregate::id_of(method.record), stubs.switches.reader().begun(method.record));
            let observed = Observed { id, by: By::Stub, wanted: method.wanted, tracing: method.rung, calls: 0 };
            Seen { record: method.record, begun, observed }
        })
    })
}

/// One line for the demotions of a period and one for the promotions, each with the function that is called most.
fn tell(changes: &[Change], observed: &[Observed], traced_jvm: &TracedJvm, probes: &[Probe]) {
    let pid = traced_jvm.jvm().pid;
    let before = |change: &Change| observed.iter().find(|seen| seen.id == change.id).map(|seen| seen.tracing);
    let functions = changes.iter().filter(|change| !allocations::is_meant(change.id));
    let (down, up): (Vec<&Change>, Vec<&Change>) = functions.partition(|change| Some(change.to) < before(change));
    let line = |changes: &[&Change], verb: &str| {
        let change = changes.first()?;
        let more = match changes.len() - 1 {
            0 => String::new(),
            more => format!("; so are {more} more"),
        };
        let (name, to, rate, why) = (name_of(traced_jvm, probes, change.id), change.to, change.rate, change.why);
        Some(format!("process {pid}: {name} is {verb} to {to}, at {rate:.0} calls a second: {why}{more}"))
    };
    line(&down, "demoted").into_iter().for_each(|line| tracing::warn!("{line}"));
    line(&up, "promoted").into_iter().for_each(|line| tracing::info!("{line}"));
}

/// The name of a function, also of one that is not published yet.
fn name_of(traced_jvm: &TracedJvm, probes: &[Probe], id: u32) -> String {
    let method = probes.iter().find(|probe| probe.index == id).and_then(|probe| probe.methods.first());
    let planned = method.map(|known| (known.method.class.to_string(), known.method.name.to_string()));
    let name = planned.or_else(|| traced_jvm.name(id));
    name.map_or_else(|| format!("function {id}"), |(class, method)| format!("{class}::{method}"))
}

/// A rate as a number of calls.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn rounded(rate: f64) -> u64 {
    rate.max(0.0).round() as u64
}
