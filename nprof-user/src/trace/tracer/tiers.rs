//! A JVM that is traced by two tiers: which functions need a probe while stubs count in the target, and how a method goes
//! from the one to the other and back with each call counted once.
//!
//! ```text
//! probe ── its stub counts ──> both ── no thread is on its way past the stub any more ──> stub
//! stub ── its probe is attached ──> both ── its stub is off ──> probe
//! ```
//!
//! While there are both, the probe passes over the calls that the stub has counted ([`nprof_common::switch::mark`]).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Tracer;
use crate::attach::{Attached, Gentle, Seen};
use crate::model::{Inventory, Library, Pid, Probe, Skipped};
use crate::shim;
use crate::trace::chosen::Chosen;
use crate::trace::rowless::Rows;
use crate::trace::stubs::{Listed, Recorded, Stubs};
use crate::trace::traced_jvm::StubRecords;

/// How long a thread may take from where the VM has told it the address of a native to the native itself. Until then,
/// the native's probe stays when stubs have taken over.
const ON_ITS_WAY: Duration = Duration::from_secs(2);
/// How long a process that is gone may take to look gone: its sockets are closed before.
const ENDING: Duration = Duration::from_millis(500);
/// So many functions that nobody calls are attached one right after the other.
const TOGETHER: usize = 64;
/// How often the shim's news are read: what is bound meanwhile is counted all the same.
const SERVE_EVERY: Duration = Duration::from_millis(100);

/// Which tier sees which method of a JVM: its stubs, if it has any, and what depends on time. Without stubs probes see
/// everything.
#[derive(Debug)]
pub(in crate::trace) struct Tiers {
    stubs: Stubs,
    chosen: Option<Chosen>,
    /// What threads use, and what gives them their rows.
    rows: Option<Rows>,
    /// When functions that stubs have taken over lose their probes.
    retire: HashMap<u32, Instant>,
    /// The state of the plan when the shim last had its orders.
    ordered: u64,
    /// When the shim was found to be gone.
    lost: Option<Instant>,
    /// When its news were last read.
    served: Option<Instant>,
}

/// Who is to see the calls of a function.
struct Change {
    index: u32,
    /// Now.
    at_once: Seen,
    /// When probes have been attached and detached.
    then: Seen,
}

impl Tiers {
    /// Probes see everything.
    pub(in crate::trace) fn probes(pid: Pid) -> Self {
        Self::new(Stubs::none(pid), None, None)
    }

    pub(in crate::trace) fn new(stubs: Stubs, chosen: Option<Chosen>, rows: Option<Rows>) -> Self {
        Self { stubs, chosen, rows, retire: HashMap::new(), ordered: u64::MAX, lost: None, served: None }
    }

    pub(in crate::trace) fn stubs(&mut self) -> &mut Stubs {
        &mut self.stubs
    }

    /// What stubs record, to be read at any time; `None` without stubs.
    pub(in crate::trace) fn recorded(&self) -> Option<StubRecords> {
        let Recorded { switches, choices } = self.stubs.records()?.clone();
        Some(StubRecords { switches, choices })
    }

    /// The record that slow calls of stubs are counted in.
    pub(in crate::trace) fn slow_record(&self) -> Option<u32> {
        self.chosen.as_ref().and_then(Chosen::record)
    }
}

impl Tracer {
    /// How many methods are counted by stubs, or will be when they are bound.
    #[must_use]
    pub fn stubs(&self) -> usize {
        let stubs = &self.tiers.stubs;
        let methods = self.planner.probes().iter().flat_map(|probe| &probe.methods);
        let skipped = self.planner.skipped().map(|skipped| &skipped.method);
        methods.filter(|known| stubs.sees(known)).count() + skipped.filter(|known| stubs.has_stub(known)).count()
    }

    /// Moves all methods that can have stubs to these, or back to probes. Each call is counted by one of them. It is done
    /// when later [`Tracer::tick`]s have done it; without a shim in the target nothing is.
    pub fn prefer_stubs(&mut self, wanted: bool) {
        self.tiers.stubs.want(wanted);
        // Probes first: they pass over what stubs still count.
        self.share_out();
        self.order_stubs();
    }

    /// Whether [`Tracer::prefer_stubs`] has been done.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.tiers.stubs.is_settled() && self.tiers.retire.is_empty()
    }

    /// Attaches probes of functions that need them, and takes in the others without. Those of which stubs see some calls
    /// are told so.
    pub(super) fn attach_probes(&mut self, probes: &[Probe]) -> Attached {
        // Before anything is attached: what is to be off needs no probe.
        self.session.admit(probes);
        self.traced_jvm.obey_all(probes);
        if let Some(programs) = self.traced_jvm.programs() {
            programs.choose(probes, &mut self.session);
        }
        if !self.tiers.stubs.are_there() {
            // All are seen by probes already: to say so again would write each function's record once more.
            return self.attach_within_budget(probes);
        }
        let seen = |probe: &Probe| self.tiers.stubs.share(&probe.methods);
        let (stubbed, probed): (Vec<Probe>, Vec<Probe>) =
            probes.iter().cloned().partition(|probe| seen(probe) == Seen::ByStubs);
        let shares: Vec<(u32, Seen)> = probed.iter().map(|probe| (probe.index, seen(probe))).collect();
        let mut no_room = self.session.leave_to_stubs(&stubbed);
        let mut attached = self.attach_within_budget(&probed);
        attached.no_room.append(&mut no_room);
        for (index, seen) in shares {
            self.session.switches().see([index], seen);
        }
        attached.attached.iter().for_each(|&index| self.tiers.stubs.probed(index));
        attached
    }

    /// Attaches probes, as far as the budget allows: first those of functions that nobody calls yet.
    fn attach_within_budget(&mut self, probes: &[Probe]) -> Attached {
        let (bound, unbound): (Vec<Probe>, Vec<Probe>) = probes.iter().cloned().partition(|probe| probe.is_bound());
        let mut attached = self.attach_gently(&unbound, probes);
        attached.append(self.attach_bound(&bound));
        self.overhead.watch(&self.traced_jvm, &unbound);
        attached
    }

    /// Attaches probes of functions that are not bound, of `all` that are to be attached, so that a JVM at work does not notice: these are
    /// most of all. What is traced already is watched meanwhile.
    fn attach_gently(&mut self, probes: &[Probe], all: &[Probe]) -> Attached {
        let mut attached = Attached::default();
        let gentle = Gentle::begin(self.jvm.pid, probes.len());
        let mut gentle = if self.is_young() { gentle.while_young() } else { gentle };
        let mut waiting: BTreeSet<u32> = all.iter().map(|probe| probe.index).collect();
        let is_tracing = !self.traced_jvm.listed().probes.is_empty();
        for some in probes.chunks(TOGETHER) {
            gentle.wait_for(some.len());
            if is_tracing {
                self.keep_within_budget(&waiting);
            }
            attached.append(self.session.attach(self.planner.libraries(), some));
            some.iter().for_each(|probe| _ = waiting.remove(&probe.index));
        }
        attached
    }

    /// Attaches probes of functions that may be called; what may soon be too expensive last and with its own links, so that it can be
    /// detached at once. That takes some milliseconds each, in which those before it are watched.
    fn attach_bound(&mut self, probes: &[Probe]) -> Attached {
        let plan = (self.planner.libraries(), probes);
        let begun = self.overhead.begin(&self.traced_jvm, &mut self.session, plan);
        let (apart, together): (Vec<Probe>, Vec<Probe>) =
            probes.iter().cloned().partition(|probe| begun.apart.contains(&probe.index));
        let mut attached = self.session.attach(plan.0, &together);
        self.overhead.watch(&self.traced_jvm, &together);
        let mut waiting: BTreeSet<u32> = apart.iter().map(|probe| probe.index).collect();
        for probe in &apart {
            self.keep_within_budget(&waiting);
            attached.append(self.session.attach(self.planner.libraries(), std::slice::from_ref(probe)));
            self.overhead.watch(&self.traced_jvm, std::slice::from_ref(probe));
            waiting.remove(&probe.index);
        }
        attached
    }

    /// Takes away what has become too expensive while others are `waiting` to be attached.
    fn keep_within_budget(&mut self, waiting: &BTreeSet<u32>) {
        let (libraries, probes) = (self.planner.libraries(), self.planner.probes());
        if self.overhead.keep_within(&self.traced_jvm, &self.session, probes) {
            let attached = probes.iter().filter(|probe| !waiting.contains(&probe.index));
            self.session.settle(libraries, &attached.cloned().collect::<Vec<Probe>>());
        }
    }

    /// The first orders to the shim, before any probe is attached: what gets a stub needs none.
    pub(super) fn begin_stubs(&mut self) {
        if self.tiers.stubs.are_there() {
            self.session.switches().expect_stubs(true);
            self.look_for_libraries();
            self.tiers.ordered = self.planner.changes();
            self.tiers.stubs.order(&self.planner, |_index| false);
            self.tiers.stubs.wait_until_settled();
            self.tiers.stubs.begin_late(self.traced_jvm.start());
        }
    }

    /// Takes in libraries that have been mapped since methods were looked for: the shim may have told of methods in them.
    fn look_for_libraries(&mut self) {
        if !self.tiers.stubs.is_outside_of(self.planner.libraries()) {
            return;
        }
        match self.proc.libraries(self.jvm.pid) {
            Ok(libraries) => _ = self.planner.add(&[], &libraries),
            Err(error) => tracing::debug!("process {}: no look for new libraries: {error}", self.jvm.pid),
        }
    }

    /// Whether there may be something to do about stubs.
    pub(super) fn are_stubs_due(&self) -> bool {
        let Tiers { stubs, served, .. } = &self.tiers;
        stubs.are_there() && served.is_none_or(|served| served.elapsed() >= SERVE_EVERY)
    }

    /// Does what the shim's news and the plan ask for.
    pub(super) fn serve_stubs(&mut self) {
        if !self.tiers.stubs.are_there() {
            return;
        }
        let tiers = &mut self.tiers;
        tiers.served = Some(Instant::now());
        let has_news = tiers.stubs.read();
        tiers.stubs.keep_switched();
        if tiers.stubs.is_lost() {
            return self.go_on_without_stubs(has_news);
        }
        let is_due = has_news || tiers.stubs.has_doubts() || tiers.ordered != self.planner.changes();
        if has_news {
            let are_maps_old = self.tiers.stubs.is_outside_of(self.planner.libraries());
            if let Err(error) = self.refresh(are_maps_old) {
                tracing::debug!("process {}: no look for new methods: {error}", self.jvm.pid);
            }
        }
        if is_due {
            self.order_stubs();
        }
        let is_waiting = !self.tiers.retire.is_empty();
        if ((is_due || is_waiting) && self.share_out()) || has_news {
            self.publish();
        }
    }

    /// Has all stubs taken away.
    pub(super) fn end_stubs(&mut self) {
        self.tiers.stubs.detach();
        self.tiers.rows = None;
        if let Some(chosen) = &mut self.tiers.chosen {
            chosen.stop();
        }
    }

    /// Tells the shim what the plan asks for.
    pub(super) fn order_stubs(&mut self) {
        if !self.tiers.stubs.are_there() {
            return;
        }
        self.tiers.ordered = self.planner.changes();
        let switches = self.session.switches();
        self.tiers.stubs.order(&self.planner, |index| switches.has_probe(index));
    }

    /// Attaches and detaches probes so that every call is seen by one tier. Returns whether something has changed.
    fn share_out(&mut self) -> bool {
        let changes = self.due_changes();
        let switches = Arc::clone(self.session.switches());
        for change in &changes {
            switches.see([change.index], change.at_once);
        }
        if changes.is_empty() {
            return false;
        }
        self.session.settle(self.planner.libraries(), self.planner.probes());
        for change in changes {
            if change.then == Seen::ByProbes {
                switches.see([change.index], Seen::ByProbes);
            }
            if switches.has_probe(change.index) {
                self.tiers.stubs.probed(change.index);
            }
        }
        true
    }

    /// The functions whose calls are to be seen by others than they are.
    fn due_changes(&mut self) -> Vec<Change> {
        let (tiers, now, switches) = (&mut self.tiers, Instant::now(), self.session.switches());
        let mut changes = Vec::new();
        for probe in self.planner.probes() {
            let index = probe.index;
            let Some(before) = switches.seen(index) else { continue };
            let (then, has_probe) = (tiers.stubs.share(&probe.methods), switches.has_probe(index));
            if then != Seen::ByStubs || !has_probe {
                tiers.retire.remove(&index);
            }
            let at_once = match then {
                Seen::ByStubs if has_probe && *tiers.retire.entry(index).or_insert(now + ON_ITS_WAY) > now => {
                    Seen::ByBoth
                }
                // Seen by nobody until the probe is there, which is no pause of the user's making.
                Seen::ByProbes if !has_probe && before != Seen::ByProbes => Seen::ByBoth,
                then => then,
            };
            if before != at_once {
                changes.push(Change { index, at_once, then });
            }
        }
        changes
    }

    /// Goes on by probes alone when the shim is gone and the JVM is not.
    fn go_on_without_stubs(&mut self, has_news: bool) {
        if has_news {
            // Its last words.
            self.order_stubs();
            self.publish();
        }
        let tiers = &mut self.tiers;
        let since = *tiers.lost.get_or_insert_with(Instant::now);
        if since.elapsed() < ENDING || !self.proc.is_same(&self.jvm) {
            return;
        }
        let Some(error) = tiers.stubs.give_up() else { return };
        tiers.rows = None;
        self.session.switches().expect_stubs(false);
        self.share_out();
        self.publish();
        tracing::warn!("{error}: calls are counted by the kernel from now on, and some in between were not");
    }

    /// Has stubs of methods do nothing that are not selected any more. They stay bound: to come back costs nothing.
    pub(super) fn select_stubs(&self) {
        self.tiers.stubs.select(&self.planner);
    }

    /// Methods with the addresses that they were bound to, where the VM holds those of stubs. The shim's own methods are
    /// left out.
    pub(super) fn translate(&mut self, mut found: Inventory) -> Inventory {
        found.methods.retain(|method| !shim::is_own(method));
        Inventory { methods: self.tiers.stubs.translate(found.methods), ..found }
    }

    /// Another nprof may have put stubs before methods that probes see here: they are where they were.
    pub(super) fn see_through_stubs(&self, found: &mut Inventory, libraries: &[Library]) {
        if self.tiers.stubs.are_there() {
            return;
        }
        let Some(shim) = shim::among(libraries) else { return };
        for method in found.methods.iter_mut().filter(|method| shim.holds(method)) {
            if let Some(code) = self.planner.code_of(method) {
                method.code = code;
            }
        }
    }

    /// What stubs count, to be published.
    pub(in crate::trace) fn listed_stubs(&self) -> Vec<Listed> {
        self.tiers.stubs.listed()
    }

    /// Records of stubs whose methods are not selected.
    pub(super) fn unselected_stubs(&self) -> HashSet<u32> {
        self.tiers.stubs.unselected().collect()
    }

    /// Whether a method is traced although no probe can be.
    pub(super) fn is_stubbed(&self, skipped: &Skipped) -> bool {
        self.tiers.stubs.has_stub(&skipped.method)
    }
}
