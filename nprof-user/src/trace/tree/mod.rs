//! Follows chosen methods of one JVM, invocation by invocation: has them enhanced, and reads what they tell.
//!
//! `session` talks with the shim, `classes` is what it lists, `reading` shows that to the search for calls, `enhancing` has methods enhanced; `rings`, `order`, `clock` and `threads` make events
//! of what they tell, and `thread_rows` has the kernel say how long they do not run, and what they consume. `collector` makes invocations of events, and `recorder` keeps those for a recording.

mod budget;
mod classes;
mod clock;
mod collector;
mod enhancing;
mod order;
mod reading;
mod recorder;
mod rings;
mod session;
mod thread_rows;
mod threads;

pub use self::collector::TreeCollector;
pub use self::recorder::TreeRecorder;

use std::time::{Duration, Instant};

use nprof_common::tree::{Event, EventKind, TASKS, UNKNOWN_EXCEPTION, UNKNOWN_WAIT, VIRTUAL, consumed_of};

use self::budget::Budget;
use self::classes::ClassList;
use self::clock::TickClock;
use self::order::Order;
use self::reading::LoadedClasses;
use self::rings::Rings;
use self::session::Session;
use self::thread_rows::ThreadRows;
use self::threads::Tids;
use super::stubs::connect;
use super::vm::{ended_or, wait_until_ready};
use super::{Error, TierWanted};
use crate::calls::{self, Planned, Question};
use crate::discover::Proc;
use crate::model::{Collectors, Jvm, TreeEvent, TreeEventKind, TreeLosses, TreePlan, TreeThread, VirtAddr};
use crate::resolve::nearest::{nearest, nearest_classes};
use crate::shim::{self, TreesEnded};
use crate::sys::ticks::Moment;

/// Since this release the VM always notes which methods code is compiled of (JDK-8324241). Before, it begins with that when an agent may change classes.
const RECORDS_DEPENDENCIES: u32 = 23;

/// How following a JVM has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeEnd {
    /// So many classes are as they were before.
    pub restored: u32,
    /// So many could not be restored. Their methods tell nobody anything.
    pub behind: u32,
}

/// A JVM of which chosen methods tell what they do. They are as before when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct TreeTracer {
    proc: Proc,
    jvm: Jvm,
    planned: Planned,
    list: ClassList,
    session: Session,
    rows: Option<ThreadRows>,
    rings: Rings,
    order: Order,
    clock: TickClock,
    first: Moment,
    tids: Tids,
    budget: Option<Budget>,
    silenced: Vec<u32>,
    wants: TreeWants,
    /// Whether tasks are told of.
    has_tasks: bool,
    /// Whether classes are to be restored.
    is_enhanced: bool,
    recorded: Recorded,
}

/// Since when threads have told, and until when.
#[derive(Debug, Clone, Copy, Default)]
struct Recorded {
    since: Option<Instant>,
    until: Option<Instant>,
}

/// What threads are to tell besides the methods that they enter and leave, where that can be known.
#[derive(Debug, Clone, Copy, Default)]
pub struct TreeWants {
    /// How long they do not run.
    pub off_cpu: bool,
    /// What they consume.
    pub collectors: Collectors,
}

impl TreeTracer {
    /// Loads the shim, if it is not there, and finds out what to enhance. Nothing is enhanced yet. Where no packages are named, those of the
    /// entry methods are meant, and those below.
    ///
    /// # Errors
    /// If the shim cannot be had, or is gone.
    pub fn open(proc: &Proc, jvm: Jvm, question: &Question, wants: TreeWants) -> Result<Self, Error> {
        let mut tracer = Self::connected(proc, jvm, wants)?;
        let classes = &mut LoadedClasses::new(&mut tracer.session, &tracer.list);
        let planned = planned(classes, question).map_err(|error| ended_or(error.into(), proc, &tracer.jvm));
        tracer.planned = planned?;
        tracer.has_tasks = tracer.planned.hands_over;
        // One of unknown version is not taken for a better one.
        let records = tracer.jvm.feature_release().is_some_and(|feature| feature >= RECORDS_DEPENDENCIES);
        tracer.planned.plan.drops_code = tracer.session.is_first && !records;
        Ok(tracer)
    }

    /// The same for methods that are known. Entry methods come first.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with_plan(proc: &Proc, jvm: Jvm, plan: TreePlan, wants: TreeWants) -> Result<Self, Error> {
        let mut tracer = Self::connected(proc, jvm, wants)?;
        tracer.planned = enhancing::planned(plan, &tracer.list);
        Ok(tracer)
    }

    fn connected(proc: &Proc, mut jvm: Jvm, wants: TreeWants) -> Result<Self, Error> {
        wait_until_ready(proc, &mut jvm)?;
        let first = Moment::now();
        let begun = begin(proc, &jvm, wants).map_err(|error| ended_or(error, proc, &jvm));
        let (mut session, rows) = begun?;
        let list = session.classes()?;
        Ok(Self {
            proc: proc.clone(),
            tids: Tids::new(proc, jvm.pid),
            jvm,
            planned: Planned::default(),
            list,
            session,
            rows,
            rings: Rings::new(),
            order: Order::new(0),
            clock: TickClock::new(first, Moment::now()),
            first,
            budget: None,
            silenced: Vec::new(),
            wants,
            has_tasks: false,
            is_enhanced: false,
            recorded: Recorded::default(),
        })
    }

    /// Bounds what telling may cost, as a share of the JVM's CPU time, from [`Self::begin`] on. Without that there is no bound.
    pub fn limit(&mut self, share: Option<f64>) {
        let (pid, methods) = (self.jvm.pid, self.planned.plan.methods.len());
        self.budget = share.map(|share| Budget::new(pid, share, methods));
    }

    /// Whether platform threads tell how long they do not run.
    #[must_use]
    pub fn knows_off(&self) -> bool {
        self.rows.is_some() && self.wants.off_cpu
    }

    /// What they tell that they consume.
    #[must_use]
    pub fn collectors(&self) -> Collectors {
        self.wants.collectors
    }

    /// The methods that tell no more, since they were called too often for the budget, in the order in which that was found.
    #[must_use]
    pub fn silenced(&self) -> &[u32] {
        &self.silenced
    }

    /// The names of methods that an entry pattern may have meant which selects none, the most likely first.
    #[must_use]
    pub fn nearest(&mut self, pattern: &str) -> Vec<String> {
        let classes = nearest_classes(pattern, self.list.classes.iter().map(|class| &*class.name));
        let classes: Vec<u32> = classes.into_iter().filter_map(|class| u32::try_from(class).ok()).collect();
        // Without an answer there is nothing to suggest.
        let methods = self.session.methods(&classes).unwrap_or_default();
        nearest(pattern, &self.list.methods(&classes, &methods))
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// What is or will be enhanced. After [`Self::begin`] also what could not be.
    #[must_use]
    pub fn plan(&self) -> &TreePlan {
        &self.planned.plan
    }

    /// Has the methods of the plan enhanced, and from then on tell what they do. Returns how many classes are enhanced.
    ///
    /// # Errors
    /// If the shim is gone.
    pub fn begin(&mut self) -> Result<usize, Error> {
        let classes = self.enhance()?;
        self.record()?;
        Ok(classes)
    }

    /// Has the methods of the plan enhanced. They tell nothing before [`Self::record`]. Returns how many classes are enhanced.
    ///
    /// # Errors
    /// If the shim is gone.
    pub fn enhance(&mut self) -> Result<usize, Error> {
        self.is_enhanced = true;
        let classes = enhancing::enhance_all(&mut self.session, &self.list, &mut self.planned);
        classes.map_err(|error| self.ended(error))
    }

    /// Has enhanced methods tell what they do from now on.
    ///
    /// # Errors
    /// If the shim is gone.
    pub fn record(&mut self) -> Result<(), Error> {
        let entries = self.planned.plan.methods.iter().take_while(|method| method.is_entry).count();
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        self.order = Order::new(entries);
        self.clock = TickClock::new(self.first, Moment::now());
        self.session.record(entries).map_err(|error| self.ended(error))?;
        self.recorded.since = Some(Instant::now());
        Ok(())
    }

    /// How long threads have told what they do: from [`Self::record`] on until now, or until that was ended.
    #[must_use]
    pub fn recorded_for(&self) -> Duration {
        let Recorded { since, until } = self.recorded;
        since.map_or(Duration::ZERO, |since| until.unwrap_or_else(Instant::now).saturating_duration_since(since))
    }

    /// Passes on what threads have told since the last time. To be called every few milliseconds: what finds no room meanwhile is lost.
    ///
    /// # Errors
    /// If the shim is gone. What was told until then has been passed on.
    pub fn tick(&mut self, consume: &mut dyn FnMut(TreeEvent)) -> Result<(), Error> {
        let heard = self.session.listen();
        if heard.is_err() {
            self.recorded.until.get_or_insert_with(Instant::now);
        }
        self.clock.refine(Moment::now());
        self.drain(heard.is_err(), consume)?;
        heard.and_then(|()| self.govern()).map_err(|error| self.ended(error))
    }

    /// Has methods tell no more that cost too much.
    fn govern(&mut self) -> Result<(), shim::Error> {
        let Some(budget) = &mut self.budget else { return Ok(()) };
        let memory = &self.session.memory;
        budget.untold(memory.untold(), |method| memory.untold_of(method));
        let tasks = if self.has_tasks { None } else { Some(TASKS) };
        let silenced: Vec<u32> = self.silenced.iter().copied().chain(tasks).collect();
        let too_expensive = budget.too_expensive(&self.planned.plan.methods, &silenced);
        if too_expensive.is_empty() {
            return Ok(());
        }
        enhancing::silence(&mut self.session, &self.list, &mut self.planned, &too_expensive)?;
        if too_expensive.contains(&TASKS) {
            tracing::warn!(
                "process {}: tasks are not linked any more with who submits them, as there are too many for the budget \
                 (--max-overhead)",
                self.jvm.pid
            );
        }
        self.has_tasks = self.has_tasks && !too_expensive.contains(&TASKS);
        self.silenced.extend(too_expensive.into_iter().filter(|&method| method != TASKS));
        Ok(())
    }

    /// The class of an exception, dotted, by the number that events have.
    #[must_use]
    pub fn exception_name(&self, exception: u32) -> Option<&str> {
        self.session.exception(exception)
    }

    /// What a thread is called; `None` if it has ended, or has no name.
    #[must_use]
    pub fn thread_name(&self, thread: TreeThread) -> Option<String> {
        match thread {
            TreeThread::Platform(tid) => self.tids.name(tid),
            TreeThread::Contained(_) | TreeThread::Virtual(_) => None,
        }
    }

    /// Whether a thread has ended, as far as that can be known: not of virtual ones.
    #[must_use]
    pub fn is_gone(&self, thread: TreeThread) -> bool {
        match thread {
            TreeThread::Platform(tid) => self.proc.thread(self.jvm.pid, tid).is_none(),
            TreeThread::Contained(_) => true,
            TreeThread::Virtual(_) => false,
        }
    }

    /// The files of the loaded classes with this name, as the VM has them now: with what it was enhanced by, if it is.
    ///
    /// # Errors
    /// If the shim is gone.
    pub fn class_files(&mut self, class: &str) -> Result<Vec<Vec<u8>>, Error> {
        let mut files = Vec::new();
        for &number in self.list.named(class) {
            let file =
                self.session.class_file(number).map_err(|error| ended_or(error.into(), &self.proc, &self.jvm))?;
            files.extend(file.ok());
        }
        Ok(files)
    }

    /// What is missing until now.
    #[must_use]
    pub fn losses(&self) -> TreeLosses {
        let rings::RingLosses { events, invocations, without_ring } = self.rings.losses(&self.session.memory);
        TreeLosses { events, invocations, without_ring, waits: self.rows.as_ref().map_or(0, ThreadRows::lost) }
    }

    /// Has nothing recorded any more, which takes no time, and passes on what threads have told until then. Classes are restored by [`Self::stop`].
    ///
    /// # Errors
    /// As [`Self::tick`].
    pub fn pause(&mut self, consume: &mut dyn FnMut(TreeEvent)) -> Result<(), Error> {
        self.tick(consume)?;
        self.recorded.until.get_or_insert_with(Instant::now);
        let paused = self.session.record(0);
        self.drain(true, consume)?;
        paused.map_err(|error| self.ended(error))
    }

    /// Restores all classes, and passes on what threads have told until then.
    ///
    /// # Errors
    /// As [`Self::tick`].
    pub fn stop(&mut self, consume: &mut dyn FnMut(TreeEvent)) -> Result<TreeEnd, Error> {
        // Restoring takes longer than a ring may be left alone.
        self.tick(consume)?;
        let ended = self.restore();
        self.drain(true, consume)?;
        let ended = ended.map_err(|error| self.ended(error))?;
        Ok(TreeEnd { restored: ended.restored, behind: ended.behind })
    }

    /// Has nothing recorded any more, which takes no time, and then all classes restored, which does.
    fn restore(&mut self) -> Result<TreesEnded, shim::Error> {
        self.is_enhanced = false;
        self.recorded.until.get_or_insert_with(Instant::now);
        self.session.end()
    }

    /// Passes on what is in the rings. At the end nothing waits for what may come.
    fn drain(&mut self, is_end: bool, consume: &mut dyn FnMut(TreeEvent)) -> Result<(), Error> {
        let (rings, order, memory) = (&mut self.rings, &mut self.order, &self.session.memory);
        let mut events: Vec<Event> = Vec::new();
        let mut budget = self.budget.as_mut();
        rings.drain(memory, |event| {
            // Of virtual threads also what is in no entry method.
            budget.iter_mut().for_each(|budget| budget.add(&event));
            order.take(event, &mut |event| events.push(event));
        });
        if is_end {
            order.end(&mut |event| events.push(event));
        } else {
            order.end_round(&mut |event| events.push(event));
        }
        let is_unknown =
            |event: &Event| exception(event).is_some_and(|number| self.session.exception(number).is_none());
        if !is_end && events.iter().any(is_unknown) {
            self.session.name_exceptions().map_err(|error| self.ended(error))?;
        }
        for event in &events {
            consume(self.event(event));
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> TreeEvent {
        let thread = match event.thread & VIRTUAL {
            0 => self.tids.on_host(u32::try_from(event.thread).unwrap_or(u32::MAX)),
            _ => TreeThread::Virtual(event.thread & !VIRTUAL),
        };
        let kind = match event.kind {
            EventKind::Enter => TreeEventKind::Enter,
            EventKind::Leave => TreeEventKind::Return,
            EventKind::Threw => TreeEventKind::Throw { exception: exception(event).unwrap_or(UNKNOWN_EXCEPTION) },
            EventKind::Lost => TreeEventKind::Lost(event.detail),
            EventKind::Handed => TreeEventKind::Hands(event.detail),
            // Those that begin and end tasks are not passed on.
            EventKind::Came | EventKind::Begins | EventKind::Ends => TreeEventKind::Comes(event.detail),
            EventKind::Consumed => consumption(event.detail),
            EventKind::Waited => TreeEventKind::Waited(Some(event.detail).filter(|&off_ns| off_ns != UNKNOWN_WAIT)),
        };
        TreeEvent { thread, at_ns: self.clock.ns(event.ticks), method: event.method, kind }
    }

    fn ended(&self, error: shim::Error) -> Error {
        ended_or(error.into(), &self.proc, &self.jvm)
    }
}

impl Drop for TreeTracer {
    /// Whoever follows nothing after all leaves nothing, either.
    fn drop(&mut self) {
        if self.is_enhanced {
            // Without the shim there is nobody to ask.
            drop(self.restore());
        }
    }
}

/// What has been consumed; what a target tells of no counter is nothing.
fn consumption(detail: u64) -> TreeEventKind {
    let (counter, amount) = consumed_of(detail).unwrap_or_default();
    TreeEventKind::Consumed { counter: u32::try_from(counter).unwrap_or(0), amount }
}

/// The number of an exception's class, if an event tells one.
fn exception(event: &Event) -> Option<u32> {
    let number = u32::try_from(event.detail).ok().filter(|&number| number != UNKNOWN_EXCEPTION);
    number.filter(|_| event.kind == EventKind::Threw)
}

/// What is to be done, tasks that are handed over included.
fn planned(classes: &mut LoadedClasses<'_>, question: &Question) -> Result<Planned, shim::Error> {
    let mut planned = calls::plan(classes, question)?;
    if planned.hands_over {
        enhancing::add_tasks(&mut planned, classes)?;
    }
    Ok(planned)
}

fn begin(proc: &Proc, jvm: &Jvm, wants: TreeWants) -> Result<(Session, Option<ThreadRows>), Error> {
    let pid = jvm.pid;
    if shim::is_in_use(pid) {
        return Err(Error::Trees { pid, why: "another nprof uses the shim in it; end that one first" });
    }
    let connection = connect(proc, jvm, TierWanted::Stub, false)?;
    let connection = connection.ok_or(Error::Trees { pid, why: "there is no shim in it" })?;
    let site = VirtAddr(connection.hello().rowless_site);
    let rows = ThreadRows::begin(proc, jvm, site, wants)?;
    let session = Session::begin(pid, connection, rows.as_ref().map(ThreadRows::map), wants.collectors.counters())?;
    Ok((session, rows))
}
