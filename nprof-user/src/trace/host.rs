//! All JVMs of a host together: those that run, those that start, those that end.
//!
//! Maps and programs are shared; each JVM has its own links. Whatever takes time is done on separate threads, one
//! JVM at a time on each, so that a slow JVM holds up nobody. What goes wrong with one, even a defect of nprof, ends its
//! tracing and that of no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{sleep_until, timeout, timeout_at};

use super::end::{Ending, TargetEnd};
use super::event::Event;
use super::joins::Joins;
use super::losses::{self, HostLosses};
use super::slot::{Slot, Task};
use super::{Calibrated, Error, Options, Pace, Prepared, SlowWatch, TierWanted, Tracer};
use crate::attach::{Engine, ExecEvents, LossLog};
use crate::collect::Reader;
use crate::discover::{JvmFilter, JvmWatch, Proc, Program};
use crate::model::{Jvm, Pid, StartTime};

/// How long after a failed look around the next one comes.
const AGAIN: Duration = Duration::from_millis(100);
/// JVMs that are worked on at the same time.
const WORKERS: usize = 4;
/// JVMs that join at the same time. One that is only starting takes up to some seconds and hardly any work.
const JOINERS: usize = 16;
/// The same of one user: who starts many that never become ready keeps no other user's waiting.
const JOINERS_PER_USER: usize = 12;
/// How long a JVM may take to join. Its memory and files are given up long before; this is for what nobody foresaw.
const JOIN_LIMIT: Duration = Duration::from_secs(30);
/// How long the JVMs that run at the start are waited for. Those that take longer join later.
const START_LIMIT: Duration = Duration::from_secs(10);

/// What names a JVM for good.
type Key = (Pid, StartTime);

/// What has become of a JVM that was to join, by which generation of what was said, and the program that it ran.
type Joined = (u64, Jvm, Option<Program>, Result<Tracer, Error>);

/// What to trace.
#[derive(Debug, Clone)]
pub struct Start {
    /// What to trace of each JVM.
    pub options: Options,
    /// Which JVMs.
    pub jvms: JvmFilter,
    /// Into which of them the shim is loaded; into none if not said. Those that are traced already stay as they are.
    pub stubs_for: Option<JvmFilter>,
    /// Of which of them JNI functions are traced, too; of none if not said. Those that are traced already stay as they are.
    pub jni_for: Option<JvmFilter>,
}

impl Start {
    /// What to trace of one of them.
    fn options_for(&self, jvm: &Jvm) -> Options {
        let is_one_of = |filter: &Option<JvmFilter>| filter.as_ref().is_some_and(|filter| filter.selects(jvm));
        let usual = self.options.tier;
        let tier = if is_one_of(&self.stubs_for) { TierWanted::StubOrProbe } else { usual };
        Options { tier, jni: is_one_of(&self.jni_for), ..self.options.clone() }
    }
}

/// The JVMs of a host.
pub struct Host {
    proc: Proc,
    start: Start,
    engine: Arc<Engine>,
    calibrated: Calibrated,
    /// Takes slow calls, if these are looked for.
    slow: Option<SlowWatch>,
    losses: Arc<HostLosses>,
    /// Single losses, if they are wanted.
    loss_log: Option<LossLog>,
    /// Not there while it looks.
    watch: Option<JvmWatch>,
    looking: JoinSet<(JvmWatch, Vec<Jvm>)>,
    /// Programs that have started meanwhile, and whether others were missed.
    started: Vec<Pid>,
    missed: bool,
    execs: ExecEvents,
    slots: BTreeMap<u64, Slot>,
    next_slot: u64,
    /// JVMs that are there and not wanted, or not yet.
    passed_over: BTreeMap<Key, Jvm>,
    /// JVMs that are to join when there is a worker for them.
    waiting: VecDeque<(Instant, Jvm)>,
    joining: JoinSet<Joined>,
    /// Whose JVMs are joining.
    joiners: Vec<u32>,
    joins: Arc<Joins>,
    /// How often it was said what to trace: a JVM may join by what was said before.
    generation: u64,
    working: JoinSet<(u64, Result<Tracer, JoinError>)>,
    /// By slot: how it has ended, and what waits for the rest of it.
    ending: JoinSet<(u64, Ending, Option<TargetEnd>)>,
    /// Results of JVMs that have been given out: what they had in the kernel can go to others.
    given_out: Vec<Tracer>,
    pace: Pace,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("jvms", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Host {
    /// Begins to listen for programs that start. `calibrated` is what probes of the engine cost. To be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the kernel does not tell of them.
    pub fn open(proc: Proc, start: Start, engine: Arc<Engine>, calibrated: Calibrated) -> Result<Self, Error> {
        // Before the first look around: what starts from now on is told.
        let execs = ExecEvents::open()?;
        let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
        Ok(Self {
            proc,
            start,
            loss_log: engine.take_loss_log(),
            engine,
            calibrated,
            slow: None,
            losses: Arc::new(HostLosses::new(reader)),
            watch: Some(JvmWatch::new(Instant::now())),
            looking: JoinSet::new(),
            started: Vec::new(),
            missed: false,
            execs,
            slots: BTreeMap::new(),
            next_slot: 0,
            passed_over: BTreeMap::new(),
            waiting: VecDeque::new(),
            joining: JoinSet::new(),
            joiners: Vec::new(),
            joins: Arc::new(Joins::new()),
            generation: 0,
            working: JoinSet::new(),
            ending: JoinSet::new(),
            given_out: Vec::new(),
            pace: Pace::for_many(),
        })
    }

    /// The same, and reads the slow calls of all JVMs.
    #[must_use]
    pub fn with_slow(self, slow: Option<SlowWatch>) -> Self {
        Self { slow, ..self }
    }

    /// Takes in the JVMs that run now. Those that take longer than others to be read join later.
    pub async fn join_all(&mut self) -> Vec<Event> {
        let deadline = tokio::time::Instant::now() + START_LIMIT;
        self.look();
        if let Ok(Some(looked)) = timeout_at(deadline, self.looking.join_next()).await {
            self.looked(looked);
        }
        let mut events = Vec::new();
        while let Ok(Some(joined)) = timeout_at(deadline, self.joining.join_next()).await {
            events.extend(self.joined(joined));
        }
        events
    }

    /// Waits until something happens, and does what there is to do. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// If the kernel's news cannot be waited for.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        for tracer in self.given_out.drain(..) {
            drop(spawn_blocking(|| tracer.give_back()));
        }
        tokio::select! {
            started = self.execs.next() => {
                let started = started.map_err(Error::News)?;
                match &mut self.watch {
                    Some(watch) => watch.candidate(started, Instant::now()),
                    None => self.started.push(started),
                }
                Ok(None)
            }
            () = next_look(self.watch.as_ref()) => { self.look(); Ok(None) }
            Some(looked) = self.looking.join_next() => { self.looked(looked); Ok(None) }
            Some(joined) = self.joining.join_next() => Ok(self.joined(joined)),
            Some(worked) = self.working.join_next() => {
                let event = worked.ok().and_then(|(id, tracer)| self.back(id, tracer));
                self.dispatch();
                Ok(event)
            }
            Some(Ok((id, ending, end))) = self.ending.join_next() => { self.has_ended(id, ending, end); Ok(None) }
            () = self.pace.tick() => {
                self.look_for_missed();
                self.tell_losses();
                self.dispatch();
                Ok(None)
            }
        }
    }

    fn tell_losses(&mut self) {
        if let Some(log) = &mut self.loss_log {
            losses::tell(log, self.slots.values().map(|slot| &*slot.traced_jvm));
        }
    }

    /// Changes what is traced, without losing counts. JVMs that are not wanted any more end, as far as their results are
    /// concerned.
    pub fn restart(&mut self, start: Start) {
        self.start = start;
        self.generation += 1;
        let task = Task::reselect(&self.start.options);
        for slot in self.slots.values_mut().filter(|slot| !slot.is_leaving) {
            let jvm = slot.traced_jvm.jvm();
            if self.start.jvms.selects(jvm) {
                slot.task = Some(task.clone());
            } else {
                self.passed_over.insert((jvm.pid, jvm.start_time), jvm.clone());
                slot.leave();
            }
        }
        let wanted = self.passed_over.extract_if(.., |_, jvm| self.start.jvms.selects(jvm));
        for jvm in wanted.map(|(_, jvm)| jvm).collect::<Vec<Jvm>>() {
            self.join(jvm);
        }
        self.dispatch();
    }

    /// What went wrong in the measurement, of all JVMs together.
    #[must_use]
    pub fn losses(&self) -> &Arc<HostLosses> {
        &self.losses
    }

    /// How the joining of JVMs goes.
    #[must_use]
    pub fn joins(&self) -> &Arc<Joins> {
        &self.joins
    }

    /// Stops the tracing of all JVMs. The traced JVMs stay readable.
    pub async fn stop(&mut self) {
        self.waiting.clear();
        self.joining.shutdown().await;
        while let Some(worked) = self.working.join_next().await {
            if let Ok((id, Ok(tracer))) = worked
                && let Some(slot) = self.slots.get_mut(&id)
            {
                slot.tracer = Some(tracer);
            }
        }
        let mut stopping = JoinSet::new();
        for mut tracer in self.slots.values_mut().filter_map(|slot| slot.tracer.take()) {
            stopping.spawn_blocking(move || tracer.stop());
        }
        while stopping.join_next().await.is_some() {}
    }

    /// Looks for JVMs that have appeared, on a separate thread: a process may keep waiting who looks at it. Most
    /// need no look.
    fn look(&mut self) {
        if self.watch.as_mut().is_some_and(|watch| !watch.must_look(&self.proc, Instant::now())) {
            return;
        }
        let (Some(mut watch), proc) = (self.watch.take(), self.proc.clone()) else { return };
        self.looking.spawn_blocking(move || {
            let new = watch.look(&proc, Instant::now());
            (watch, new)
        });
    }

    /// Takes the watch back, tells it what has happened meanwhile, and lets the JVMs join that it has found.
    fn looked(&mut self, looked: Result<(JvmWatch, Vec<Jvm>), JoinError>) {
        let now = Instant::now();
        let (mut watch, new) = looked.unwrap_or_else(|panic| {
            tracing::error!("all JVMs are looked for again: {}", Error::Defect { what: panic.to_string() });
            (JvmWatch::new(now + AGAIN), Vec::new())
        });
        for pid in self.started.drain(..) {
            watch.candidate(pid, now);
        }
        if std::mem::take(&mut self.missed) {
            watch.missed(now);
        }
        self.watch = Some(watch);
        if !new.is_empty() {
            // Now, and not at each look: all of them would be read whenever a program starts.
            self.passed_over.retain(|_, jvm| self.proc.is_same(jvm));
        }
        for jvm in new {
            if self.start.jvms.selects(&jvm) {
                self.join(jvm);
            } else {
                self.passed_over.insert((jvm.pid, jvm.start_time), jvm);
            }
        }
    }

    fn look_for_missed(&mut self) {
        let missed = self.execs.lost();
        if self.losses.set_missed(missed) {
            match &mut self.watch {
                Some(watch) => watch.missed(Instant::now()),
                None => self.missed = true,
            }
        }
    }

    fn join(&mut self, jvm: Jvm) {
        self.waiting.push_back((Instant::now(), jvm));
        self.let_join();
    }

    fn let_join(&mut self) {
        while self.joining.len() < JOINERS
            && let Some(jvm) = self.next_to_join()
        {
            if self.start.jvms.selects(&jvm) {
                self.attach(jvm);
            } else {
                self.passed_over.insert((jvm.pid, jvm.start_time), jvm);
            }
        }
        self.joins.set(self.joining.len() + self.waiting.len(), self.waiting.front().map(|(since, _)| *since));
    }

    /// The JVM that has waited longest, of those whose user may have one more join.
    fn next_to_join(&mut self) -> Option<Jvm> {
        let of_user = |uid: u32| self.joiners.iter().filter(|joiner| **joiner == uid).count();
        let place = self.waiting.iter().position(|(_, jvm)| of_user(jvm.uid) < JOINERS_PER_USER)?;
        self.waiting.remove(place).map(|(_, jvm)| jvm)
    }

    /// Reads a JVM and attaches to it, on a separate thread, which is left behind if that takes too long.
    fn attach(&mut self, jvm: Jvm) {
        let (generation, calibrated, slow) = (self.generation, self.calibrated, self.slow.clone());
        let program = self.proc.program(jvm.pid).ok();
        let (proc, engine, options) = (self.proc.clone(), Arc::clone(&self.engine), self.start.options_for(&jvm));
        let joins = Arc::clone(&self.joins);
        self.joiners.push(jvm.uid);
        self.joining.spawn(async move {
            let (known, pid) = (jvm.clone(), jvm.pid);
            let attach =
                spawn_blocking(move || Prepared::new(proc, known, options)?.attach_to(&engine, calibrated, slow));
            let attached = match timeout(JOIN_LIMIT, attach).await {
                Ok(attached) => attached.unwrap_or_else(|panic| Err(Error::Defect { what: panic.to_string() })),
                Err(_too_slow) => {
                    joins.gave_up();
                    Err(Error::TooSlow { pid, limit: JOIN_LIMIT })
                }
            };
            (generation, jvm, program, attached)
        });
    }

    /// Takes in a JVM that is attached, and waits for its end.
    fn joined(&mut self, joined: Result<Joined, JoinError>) -> Option<Event> {
        let joined = joined.ok();
        if let Some((_, jvm, ..)) = &joined
            && let Some(place) = self.joiners.iter().position(|uid| *uid == jvm.uid)
        {
            self.joiners.swap_remove(place);
        }
        self.let_join();
        let (generation, jvm, program, tracer) = joined?;
        let tracer = match tracer {
            Ok(tracer) => tracer,
            // It was too short-lived to be read.
            Err(Error::Ended { .. }) => return None,
            Err(error) => return Some(Event::Untraced(Box::new(jvm), error)),
        };
        // The same process may have run another JVM before, in whose place this one is.
        let same = |slot: &&mut Slot| {
            slot.traced_jvm.jvm().pid == jvm.pid && slot.traced_jvm.jvm().start_time == jvm.start_time
        };
        self.slots.values_mut().filter(same).for_each(Slot::leave);
        let (id, traced_jvm) = (self.next_slot, Arc::clone(tracer.traced_jvm()));
        self.next_slot += 1;
        self.pace.quicken();
        let slot = self.slots.entry(id).or_insert(Slot::new(tracer));
        if generation != self.generation && self.start.jvms.selects(&jvm) {
            slot.task = Some(Task::reselect(&self.start.options));
        } else if generation != self.generation {
            self.passed_over.insert((jvm.pid, jvm.start_time), jvm.clone());
            slot.leave();
        }
        self.wait_for_end(id, &jvm, program);
        Some(Event::Joined(traced_jvm))
    }

    /// Waits for the end of a JVM that ran `program` when it was read.
    fn wait_for_end(&mut self, id: u64, jvm: &Jvm, program: Option<Program>) {
        // A pid that is another's by now had its own end before.
        let end = TargetEnd::watch(&self.proc, jvm.pid, program).ok().filter(|_| self.proc.is_same(jvm));
        self.wait_on(id, end);
    }

    fn wait_on(&mut self, id: u64, end: Option<TargetEnd>) {
        self.ending.spawn(async move {
            let Some(mut end) = end else { return (id, Ending::Process, None) };
            match end.wait().await {
                Ok(ending) => (id, ending, Some(end)),
                Err(error) => {
                    tracing::warn!("the end of a process cannot be waited for: {error}");
                    (id, Ending::Process, None)
                }
            }
        });
    }

    fn has_ended(&mut self, id: u64, ending: Ending, end: Option<TargetEnd>) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.is_gone |= ending == Ending::Process;
            if ending == Ending::Program && !slot.is_leaving {
                let jvm = slot.traced_jvm.jvm();
                tracing::info!("process {} ({}) has become another program", jvm.pid, jvm.main.escape_debug());
            }
            slot.leave();
        }
        if ending == Ending::Program {
            // A thread of it lives on, perhaps with open calls: what it had in the kernel is given to others later.
            self.wait_on(id, end);
        }
        self.dispatch();
    }

    /// Puts JVMs to work that have something to do, as far as there are workers.
    fn dispatch(&mut self) {
        for (&id, slot) in &mut self.slots {
            if self.working.len() >= WORKERS {
                return;
            }
            if let Some((mut tracer, task)) = slot.take_up() {
                self.working.spawn(async move {
                    let worked = spawn_blocking(move || {
                        task.run(&mut tracer);
                        tracer
                    });
                    (id, worked.await)
                });
            }
        }
    }

    /// Takes back a JVM that was worked on.
    fn back(&mut self, id: u64, tracer: Result<Tracer, JoinError>) -> Option<Event> {
        let slot = self.slots.get_mut(&id)?;
        match tracer {
            Ok(tracer) => slot.tracer = Some(tracer),
            Err(panic) => {
                // Its probes went with it. What it has in the kernel is not given to others: nobody knows its state.
                tracing::error!(
                    "process {} is not traced any more: {}",
                    slot.traced_jvm.jvm().pid,
                    Error::Defect { what: panic.to_string() }
                );
                slot.is_leaving = true;
            }
        }
        let event = slot.last_results();
        if slot.is_told && (slot.is_gone || slot.tracer.is_none()) {
            let slot = self.slots.remove(&id)?;
            self.given_out.extend(slot.tracer);
        }
        event
    }
}

async fn next_look(watch: Option<&JvmWatch>) {
    match watch {
        Some(watch) => sleep_until(watch.next_look().into()).await,
        None => std::future::pending().await,
    }
}
