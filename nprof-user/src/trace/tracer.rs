//! One JVM that is being traced.

mod rest;
mod tiers;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::rest::Rest;
pub(super) use self::tiers::Tiers;
use super::allocations::Allocations;
use super::by_record::Tables;
use super::jvm_jni::JvmJni;
use super::look::Looker;
use super::neighbours::{HostNeighbours, terms};
use super::overhead::Overhead;
use super::programs::JvmPrograms;
use super::slow::SlowWatch;
use super::traced_jvm::{Known, Listed, OpenCalls, TracedJvm};
use super::{Calibrated, Error, Options, downcalls, losses};
use crate::attach::{Attached, Engine, LossLog, Session, Target, in_full};
use crate::collect::Reader;
use crate::discover::{Activity, Proc};
use crate::govern::Budget;
use crate::hotspot::Vm;
use crate::model::{Inventory, Jvm, Library, SkipReason, Skipped, Snapshot};
use crate::resolve::select::Selection;
use crate::resolve::{Limits, Planner};
use crate::sys::remote_memory::ProcessMemory;

/// More functions than any JVM has; a limit for what a broken target can make us plan.
pub(super) const MAX_FUNCTIONS: usize = 1 << 16;
/// A full walk is not repeated before so many times of what the last one took: with hundreds of thousands of classes
/// that is seconds.
const FULL_WALK_PAUSE: u32 = 500;
/// How often methods that have been bound since are looked for: with what it takes to attach them, one second is kept.
const LOOK_EVERY: Duration = Duration::from_millis(700);
/// The same while a JVM is young: then it binds most of its methods.
const LOOK_EVERY_WHILE_YOUNG: Duration = Duration::from_millis(100);
/// How old a JVM is that is not young any more.
pub(super) const YOUNG: Duration = Duration::from_secs(5);
/// A pause between two looks that is told.
const SLOW: Duration = Duration::from_secs(5);
/// How often the mappings are read where no method has changed: a new library may carry what is not bound yet.
const MAPS_EVERY: Duration = Duration::from_secs(2);

/// A JVM that is being traced. Everything is detached when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct Tracer {
    proc: Proc,
    jvm: Jvm,
    vm: Vm<ProcessMemory>,
    planner: Planner,
    session: Session,
    traced_jvm: Arc<TracedJvm>,
    overhead: Overhead,
    tiers: Tiers,
    /// When the probes that were attached after the start were.
    late: BTreeMap<u32, Duration>,
    /// When the classes were last walked as a whole.
    walked: Instant,
    /// What the last walk took.
    walk_took: Duration,
    /// When the mappings were last read.
    mapped: Instant,
    /// When methods that have been bound since were last looked for.
    looked: Instant,
    /// Whether the JVM's program runs.
    activity: Activity,
    /// When that was last asked.
    asked: Instant,
    /// What has been done since it has.
    rest: Rest,
    /// The JVM's age at the start.
    age: Duration,
    /// Whether it has linked downcalls.
    downcalls: bool,
    /// Single losses, if they are wanted and nobody else reads them.
    losses: Option<LossLog>,
}

/// What a tracer is made of.
pub(super) struct Parts {
    pub proc: Proc,
    pub jvm: Jvm,
    pub vm: Vm<ProcessMemory>,
    pub planner: Planner,
    pub session: Session,
    pub reader: Reader,
    pub tiers: Tiers,
    pub options: Options,
    pub engine: Arc<Engine>,
    pub calibrated: Calibrated,
    /// Takes slow calls, if these are looked for.
    pub slow: Option<SlowWatch>,
    /// Programs of the user's, which the session runs.
    pub programs: Option<JvmPrograms>,
    /// What is kept of its JNI functions, if they are traced beside others.
    pub jni: Option<JvmJni>,
    pub age: Duration,
    /// Whether the JVM has linked downcalls so far.
    pub downcalls: bool,
}

impl Tracer {
    /// Attaches everything that is planned.
    ///
    /// # Errors
    /// If nothing can be attached at all. What cannot be attached among others is skipped, with its reason.
    pub(super) fn attach(parts: Parts) -> Result<Self, Error> {
        let Parts { proc, jvm, vm, planner, session, reader, tiers, options, .. } = parts;
        let Parts { engine, calibrated, slow, programs, jni, age, downcalls, .. } = parts;
        let stubs = tiers.recorded();
        let switches = Arc::clone(session.switches());
        let known = Known {
            timed: options.timed,
            prices: calibrated.prices,
            off_cpu: engine.measures_off_cpu(),
            collectors: options.collectors,
        };
        let allocations = Allocations::watch((&proc, &jvm), &engine, options.collectors)?;
        let now = Instant::now();
        let target = Target { pid: jvm.pid, timed: options.timed };
        let losses = engine.take_loss_log();
        let calibrated = match &stubs {
            Some(stubs) => calibrated.with_stubs(stubs.switches.costs()),
            None => calibrated,
        };
        let traced_jvm = Arc::new(TracedJvm::new(jvm.clone(), known, (reader, stubs), switches));
        if let Some(slow) = slow {
            let thresholds = options.slow.clone().unwrap_or_default();
            let methods = Arc::new(Arc::downgrade(&traced_jvm));
            let counted = (traced_jvm.switches(), tiers.slow_record());
            traced_jvm.set_slow(slow.begin(&jvm, counted, thresholds, methods)?);
        }
        if let Some(programs) = programs {
            traced_jvm.set_programs(programs);
        }
        if let Some(jni) = jni {
            traced_jvm.set_jni(jni);
        }
        traced_jvm.set_tables(Tables::of(&engine));
        traced_jvm.set_open(OpenCalls::of(proc.clone(), jvm.pid, &engine));
        let looker = Looker::new(engine, traced_jvm.reader().clone(), target);
        let overhead =
            Overhead::new(calibrated, options.budget, looker, traced_jvm.start()).with_allocations(allocations);
        let activity = proc.activity(jvm.pid);
        let mut tracer = Self {
            proc,
            jvm,
            vm,
            planner,
            session,
            traced_jvm,
            overhead,
            tiers,
            late: BTreeMap::new(),
            walked: now,
            walk_took: Duration::ZERO,
            mapped: now,
            looked: now,
            activity,
            asked: now,
            rest: Rest::default(),
            age,
            downcalls,
            losses,
        };
        tracer.traced_jvm.set_rules(options.rules);
        tracer.begin_stubs();
        let probes = tracer.planner.probes().to_vec();
        let attached = tracer.attach_probes(&probes);
        let wanted = probes.len();
        tracer.take_in(attached, wanted)?;
        tracer.publish();
        Ok(tracer)
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// What is known of it, to be read at any time.
    #[must_use]
    pub fn traced_jvm(&self) -> &Arc<TracedJvm> {
        &self.traced_jvm
    }

    /// How many methods are traced: more than functions, where methods share one.
    #[must_use]
    pub fn methods(&self) -> usize {
        self.traced_jvm.methods()
    }

    /// Everything measured from the start to now, or to the end if tracing was stopped.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.traced_jvm.snapshot()
    }

    /// Whether it is time for another [`Self::tick`]. What there would be nothing to do for, as the JVM is at rest, is put off
    /// here.
    #[must_use]
    pub fn is_due(&mut self) -> bool {
        if self.are_stubs_due() || self.losses.is_some() {
            return true;
        }
        self.rest_if_possible();
        self.must_look() || self.session.is_sharing_due() || self.overhead.is_due(&self.traced_jvm)
    }

    /// Does what is due: looks for methods that have been bound since, and keeps the cost within its bounds.
    pub fn tick(&mut self) {
        self.serve_stubs();
        self.tell_losses();
        if self.must_look() {
            self.look_for_new();
            self.traced_jvm.learn_jni();
        }
        if self.overhead.is_due(&self.traced_jvm) {
            if let Some(programs) = self.traced_jvm.programs() {
                programs.measure();
            }
            let (libraries, probes) = (self.planner.libraries(), self.planner.probes());
            if self.overhead.govern(&self.traced_jvm, &mut self.session, (libraries, probes)) {
                self.rest.has_governed(self.overhead.is_quiet());
            }
        }
        if self.session.is_sharing_due() {
            let (libraries, probes) = (self.planner.libraries(), self.planner.probes());
            self.session.share(libraries, probes, &HostNeighbours(&self.proc));
        }
    }

    /// Changes which methods are traced. What is no longer selected keeps its counts.
    ///
    /// # Errors
    /// If the target's memory cannot be read any more: usually because it has ended.
    pub fn reselect(&mut self, selection: Selection, max_functions: Option<usize>) -> Result<(), Error> {
        let wanted = (&selection, max_functions, self.traced_jvm.is_timed(), self.traced_jvm.jni().is_some());
        self.session.change_terms(terms(&self.proc, &self.jvm, wanted));
        self.planner.reselect(selection, Limits { functions: max_functions.unwrap_or(MAX_FUNCTIONS) });
        for probe in self.planner.probes() {
            self.session.switches().select(probe.index, self.planner.selects(probe));
        }
        self.session.settle(self.planner.libraries(), self.planner.probes());
        self.select_stubs();
        let found = self.vm.inventory()?;
        let found = self.translate(found);
        self.refresh_by(found)?;
        // What has come into the plan by this may have had a stub before.
        self.select_stubs();
        Ok(())
    }

    /// Changes what tracing may cost.
    pub fn set_budget(&mut self, budget: Option<Budget>) {
        self.overhead.set_budget(budget);
    }

    /// Detaches all probes. The records stay readable; calls that have not returned by now stay in flight.
    pub fn stop(&mut self) {
        // What was bound just now has been counted, and is to have a name; so has what was thrown.
        self.serve_stubs();
        self.traced_jvm.learn_jni();
        self.traced_jvm.end();
        self.overhead.publish(&self.traced_jvm);
        self.session.detach();
        self.end_stubs();
        if let Some(jni) = self.traced_jvm.jni() {
            jni.end();
        }
        self.overhead.stop_allocations();
        self.rest_programs();
        if let Some(slow) = self.traced_jvm.slow() {
            slow.stop();
        }
        self.tell_losses();
    }

    fn tell_losses(&mut self) {
        if let Some(log) = &mut self.losses {
            losses::tell(log, [&*self.traced_jvm].into_iter());
        }
    }

    /// Gives what it had in the kernel to others, when the JVM has ended: the results cannot be read any more.
    pub fn give_back(self) {
        self.session.give_back();
        self.overhead.give_back();
    }

    /// Looks for methods that have been bound since, and says what stands against it.
    fn look_for_new(&mut self) {
        let before = self.vm.pause();
        let refreshed = self.refresh(false);
        if refreshed.is_ok() {
            self.rest.has_looked(self.looked);
        }
        let (pid, main) = (self.jvm.pid, &self.jvm.main);
        match refreshed {
            Ok(()) if before < SLOW && self.vm.pause() >= SLOW => tracing::warn!(
                "process {pid} ({main}): a look for new methods takes so long that there is one in {} s only",
                self.vm.pause().as_secs()
            ),
            Ok(()) => {}
            Err(error) if self.vm.is_left_out() => {
                tracing::warn!("process {pid} ({main}): no method that is bound from now on is traced: {error}");
            }
            // It may be ending; its end is noticed elsewhere.
            Err(error) => tracing::debug!("process {pid}: no look for new methods: {error}"),
        }
    }

    fn rest_programs(&self) {
        if let Some(programs) = self.traced_jvm.programs() {
            programs.rest();
        }
    }

    /// Puts off what is due, where the JVM is at rest.
    fn rest_if_possible(&mut self) {
        // Looks may be further apart than this, if one takes long.
        if self.asked.elapsed() < self.look_every() {
            return;
        }
        let now = Instant::now();
        self.asked = now;
        let may_rest = self.rest.may_rest(self.activity.has_run(now), now);
        if may_rest.look {
            self.looked = now;
        }
        if may_rest.govern {
            self.rest_programs();
            self.overhead.rest(&self.traced_jvm);
        } else {
            self.overhead.wake();
        }
    }

    /// Whether the JVM has just been started.
    fn is_young(&self) -> bool {
        self.age + self.traced_jvm.elapsed() < YOUNG
    }

    fn look_every(&self) -> Duration {
        if self.is_young() { LOOK_EVERY_WHILE_YOUNG } else { LOOK_EVERY }
    }

    fn must_look(&self) -> bool {
        !self.vm.is_left_out() && self.looked.elapsed() >= self.look_every().max(self.vm.pause())
    }

    /// Looks for methods that have been bound since, and attaches their probes. With `are_maps_old`, libraries have been mapped
    /// since the last look at them.
    fn refresh(&mut self, are_maps_old: bool) -> Result<(), Error> {
        let since_look = self.looked.elapsed();
        self.looked = Instant::now();
        let least = self.walk_took * FULL_WALK_PAUSE;
        let found = if self.rest.must_walk(since_look, self.walked.elapsed(), least) {
            self.walked = Instant::now();
            let found = self.vm.inventory()?;
            self.walk_took = self.walked.elapsed();
            found
        } else {
            Inventory { methods: self.vm.refresh()?, complete: false }
        };
        let found = self.translate(found);
        if found.methods.is_empty() && !are_maps_old && self.mapped.elapsed() < MAPS_EVERY {
            return Ok(());
        }
        self.refresh_by(found)
    }

    /// Plans what was found, and attaches what is new in the plan.
    fn refresh_by(&mut self, mut found: Inventory) -> Result<(), Error> {
        self.mapped = Instant::now();
        let libraries = self.proc.libraries(self.jvm.pid)?;
        self.see_through_stubs(&mut found, &libraries);
        let changes = self.planner.changes();
        let had_downcalls = self.downcalls;
        self.downcalls |= downcalls::are_linked(&found.methods);
        let added = if found.complete {
            let (session, reader) = (&self.session, self.traced_jvm.reader());
            let is_counted = |index| session.record(index).is_some_and(|record| reader.begun(record) > 0);
            self.planner.renew(&found.methods, &libraries, is_counted)
        } else {
            self.planner.add(&found.methods, &libraries)
        };
        if !added.is_empty() {
            self.order_stubs();
            let attached = self.attach_probes(&added);
            let now = self.traced_jvm.elapsed();
            self.late.extend(attached.attached.iter().map(|&index| (index, now)));
            self.take_in(attached, usize::MAX)?;
        }
        // Usually nothing is new: then what was published stands, and is not copied again.
        if self.planner.changes() != changes || self.downcalls != had_downcalls {
            self.publish();
        }
        Ok(())
    }

    /// Moves what could not be attached from the plan's probes to what is skipped.
    ///
    /// # Errors
    /// If of `wanted` probes every one failed with its library.
    fn take_in(&mut self, attached: Attached, wanted: usize) -> Result<(), Error> {
        self.planner.refuse(&attached.refused, SkipReason::RefusedByKernel);
        self.planner.refuse(&attached.no_room, SkipReason::OverLimit);
        let failed: usize = attached.failed.iter().map(|(_, indices)| indices.len()).sum();
        for (error, indices) in attached.failed {
            let Jvm { pid, main, .. } = &self.jvm;
            if failed == wanted {
                return Err(Error::Unattached { pid: *pid, main: main.clone(), source: error });
            }
            let (methods, cause) = (indices.len(), in_full(&error));
            tracing::warn!(
                "process {pid} ({}): {cause}: {methods} functions there are not traced",
                main.escape_debug()
            );
            self.planner.refuse(&indices, SkipReason::UnreadableLibrary);
        }
        Ok(())
    }

    /// Lets everybody read what is planned now.
    fn publish(&self) {
        let is_traced = |skipped: &&Skipped| self.is_stubbed(skipped);
        let mut skipped: Vec<Skipped> = self.planner.skipped().filter(|skipped| !is_traced(skipped)).cloned().collect();
        skipped.sort_by(|a, b| name_of(a).cmp(&name_of(b)));
        self.traced_jvm.list(Listed {
            probes: self.planner.shared_probes(),
            libraries: self.planner.libraries().iter().map(Library::name).collect(),
            late: self.late.clone(),
            skipped: skipped.into(),
            stubs: self.listed_stubs(),
            unselected: self.unselected_stubs(),
            beside: HashSet::new(),
            downcalls: self.downcalls,
        });
    }
}

fn name_of(skipped: &Skipped) -> (&str, &str, &str) {
    let method = &skipped.method.method;
    (&method.class, &method.name, &method.signature)
}
