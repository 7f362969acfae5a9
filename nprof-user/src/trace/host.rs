//! All JVMs of a host together: those that run, those that start, those that end.
//!
//! Maps and programs are shared; each JVM has links of its own. Whatever takes time is done on threads of its own, one
//! JVM at a time on each, so that a slow JVM holds up nobody. What goes wrong with one, even a defect of nprof, ends its
//! tracing and that of no other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until};

use super::losses::HostLosses;
use super::slot::{Slot, Task};
use super::{Calibrated, Error, Options, Prepared, Roster, Tracer};
use crate::attach::{Engine, ExecEvents};
use crate::collect::Reader;
use crate::discover::{JvmFilter, JvmWatch, Proc};
use crate::model::{Jvm, Pid, Snapshot, StartTime};
use crate::sys::process_end::ProcessEnd;

/// How often it is asked which JVMs have something due.
const TICK: Duration = Duration::from_millis(100);
/// JVMs that are worked on at the same time.
const WORKERS: usize = 4;
/// JVMs that join at the same time. One that is only starting takes up to some seconds and hardly any work.
const JOINERS: usize = 16;

/// What names a JVM for good.
type Key = (Pid, StartTime);

/// What has become of a JVM that was to join, by which generation of what was said.
type Joined = (u64, Jvm, Result<Tracer, Error>);

/// What to trace.
#[derive(Debug, Clone)]
pub struct Start {
    /// What to trace of each JVM.
    pub options: Options,
    /// Which JVMs.
    pub jvms: JvmFilter,
}

/// Something that the user of a [`Host`] should know of.
#[derive(Debug)]
pub enum Event {
    /// A JVM is traced from now on.
    Joined(Arc<Roster>),
    /// A JVM is not traced any more: these are its last results. Its roster cannot be read after the next call.
    Ended(Arc<Roster>, Box<Snapshot>),
    /// A JVM is not traced.
    Untraced(Box<Jvm>, Error),
}

/// The JVMs of a host.
pub struct Host {
    proc: Proc,
    start: Start,
    engine: Arc<Engine>,
    calibrated: Calibrated,
    losses: Arc<HostLosses>,
    watch: JvmWatch,
    execs: ExecEvents,
    slots: BTreeMap<u64, Slot>,
    next_slot: u64,
    /// JVMs that are there and not wanted, or not yet.
    passed_over: BTreeMap<Key, Jvm>,
    /// JVMs that are to join when there is a worker for them.
    waiting: VecDeque<Jvm>,
    joining: JoinSet<Joined>,
    /// How often it was said what to trace: a JVM may join by what was said before.
    generation: u64,
    working: JoinSet<(u64, Result<Tracer, JoinError>)>,
    ending: JoinSet<u64>,
    /// Results of JVMs that have been given out: what they had in the kernel can go to others.
    given_out: Vec<Tracer>,
    tick: Interval,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("jvms", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Host {
    /// Begins to listen for programs that start. `calibrated` is what probes of the engine cost. To be called inside of a
    /// tokio runtime.
    ///
    /// # Errors
    /// If the kernel does not tell of them.
    pub fn open(proc: Proc, start: Start, engine: Arc<Engine>, calibrated: Calibrated) -> Result<Self, Error> {
        // Before the first look around: what starts from now on is told.
        let execs = ExecEvents::open()?;
        let reader = Reader::new(engine.stats(), engine.losses()?, engine.shards());
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            proc,
            start,
            engine,
            calibrated,
            losses: Arc::new(HostLosses::new(reader)),
            watch: JvmWatch::new(Instant::now()),
            execs,
            slots: BTreeMap::new(),
            next_slot: 0,
            passed_over: BTreeMap::new(),
            waiting: VecDeque::new(),
            joining: JoinSet::new(),
            generation: 0,
            working: JoinSet::new(),
            ending: JoinSet::new(),
            given_out: Vec::new(),
            tick,
        })
    }

    /// Takes in the JVMs that run now.
    pub async fn join_all(&mut self) -> Vec<Event> {
        self.look();
        let mut events = Vec::new();
        while let Some(joined) = self.joining.join_next().await {
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
                self.watch.candidate(started.map_err(Error::News)?, Instant::now());
                Ok(None)
            }
            () = sleep_until(self.watch.next_look().into()) => { self.look(); Ok(None) }
            Some(joined) = self.joining.join_next() => Ok(self.joined(joined)),
            Some(worked) = self.working.join_next() => {
                let event = worked.ok().and_then(|(id, tracer)| self.back(id, tracer));
                self.dispatch();
                Ok(event)
            }
            Some(Ok(id)) = self.ending.join_next() => { self.process_ended(id); Ok(None) }
            _ = self.tick.tick() => {
                self.look_for_missed();
                self.dispatch();
                Ok(None)
            }
        }
    }

    /// Changes what is traced, without losing counts. JVMs that are not wanted any more end, as far as their results are
    /// concerned.
    pub fn restart(&mut self, start: Start) {
        self.start = start;
        self.generation += 1;
        let task = Task::reselect(&self.start.options);
        for slot in self.slots.values_mut().filter(|slot| !slot.is_leaving) {
            let jvm = slot.roster.jvm();
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

    /// Stops the tracing of all JVMs. The rosters stay readable.
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

    /// Looks for JVMs that have appeared, and lets them join.
    fn look(&mut self) {
        for jvm in self.watch.look(&self.proc, Instant::now()) {
            if self.start.jvms.selects(&jvm) {
                self.join(jvm);
            } else {
                self.passed_over.insert((jvm.pid, jvm.start_time), jvm);
            }
        }
        self.passed_over.retain(|_, jvm| self.proc.is_same(jvm));
    }

    fn look_for_missed(&mut self) {
        let missed = self.execs.lost();
        if self.losses.set_missed(missed) {
            self.watch.missed(Instant::now());
        }
    }

    fn join(&mut self, jvm: Jvm) {
        self.waiting.push_back(jvm);
        self.let_join();
    }

    fn let_join(&mut self) {
        while self.joining.len() < JOINERS
            && let Some(jvm) = self.waiting.pop_front()
        {
            if self.start.jvms.selects(&jvm) {
                self.attach(jvm);
            } else {
                self.passed_over.insert((jvm.pid, jvm.start_time), jvm);
            }
        }
    }

    /// Reads a JVM and attaches to it, on a thread of its own.
    fn attach(&mut self, jvm: Jvm) {
        let (generation, calibrated) = (self.generation, self.calibrated);
        let (proc, engine, options) = (self.proc.clone(), Arc::clone(&self.engine), self.start.options.clone());
        self.joining.spawn(async move {
            let known = jvm.clone();
            let attached =
                spawn_blocking(move || Prepared::new(proc, known, options)?.attach_to(&engine, calibrated)).await;
            (generation, jvm, attached.unwrap_or_else(|panic| Err(Error::Defect { what: panic.to_string() })))
        });
    }

    /// Takes in a JVM that is attached, and waits for its end.
    fn joined(&mut self, joined: Result<Joined, JoinError>) -> Option<Event> {
        self.let_join();
        let (generation, jvm, tracer) = joined.ok()?;
        let tracer = match tracer {
            Ok(tracer) => tracer,
            // It was too short-lived to be read.
            Err(Error::Ended { .. }) => return None,
            Err(error) => return Some(Event::Untraced(Box::new(jvm), error)),
        };
        // The same process may have run another JVM before, in whose place this one is.
        let same =
            |slot: &&mut Slot| slot.roster.jvm().pid == jvm.pid && slot.roster.jvm().start_time == jvm.start_time;
        self.slots.values_mut().filter(same).for_each(Slot::leave);
        let (id, roster) = (self.next_slot, Arc::clone(tracer.roster()));
        self.next_slot += 1;
        let slot = self.slots.entry(id).or_insert(Slot::new(tracer));
        if generation != self.generation && self.start.jvms.selects(&jvm) {
            slot.task = Some(Task::reselect(&self.start.options));
        } else if generation != self.generation {
            self.passed_over.insert((jvm.pid, jvm.start_time), jvm.clone());
            slot.leave();
        }
        self.wait_for_end(id, jvm);
        Some(Event::Joined(roster))
    }

    fn wait_for_end(&mut self, id: u64, jvm: Jvm) {
        let end = ProcessEnd::watch(jvm.pid);
        // A pid that is another's by now had its own end before.
        let waits = self.proc.is_same(&jvm);
        self.ending.spawn(async move {
            if let Ok(end) = end
                && waits
                && let Err(error) = end.wait().await
            {
                tracing::warn!("process {}: its end cannot be waited for: {error}", jvm.pid);
            }
            id
        });
    }

    fn process_ended(&mut self, id: u64) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.is_gone = true;
            slot.leave();
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
                    slot.roster.jvm().pid,
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
