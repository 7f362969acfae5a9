//! The thread that reads stacks out of the ring, within milliseconds of their being taken.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nprof_common::StackKind;

use super::last_java_frames::LastJavaFrames;
use super::mounted::Mounted;
use super::namer::{Named, Namer, Read};
use super::off_cpu_samples::StopRate;
use super::pacing::Pacing;
use super::rate_controller::UNKNOWN;
use super::stacks::Stacks;
use super::timeline::{Target, Timeline};
use super::{Flow, OpenCall, Paces, RateController, Sums, open};
use crate::attach::{Collect, Feeds, Taken};
use crate::discover::Proc;
use crate::hotspot;
use crate::model::{Library, Pid};
use crate::sys::priority;
use crate::sys::remote_memory::{MemoryError, ProcessMemory};
use crate::unwind::{Threads, Unwinder};

/// How often the pace is adapted.
const PACE_EVERY: Duration = Duration::from_millis(20);
/// The same where more calls are chosen than may be taken.
const PACE_IN_A_HURRY: Duration = Duration::from_millis(5);
/// How often the ring is looked into. To be woken for each stack would cost more, the thread that was sampled too.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// So many stacks are read before it is looked again whether something else is to be done: the first ones take milliseconds, and meanwhile
/// more calls may be chosen than are taken.
const AT_ONCE: usize = 16;
/// How often libraries and threads are looked for that are new.
const REFRESH_EVERY: Duration = Duration::from_millis(500);
/// The same where a thread is seen that was not there.
const REFRESH_FOR_NEW: Duration = Duration::from_millis(40);

/// The functions whose calls are sampled.
pub trait Functions: Send {
    /// What each has done, to be asked at any time.
    fn flows(&self) -> Vec<Flow>;
    /// Has the stacks of calls taken with these chances from now on.
    fn pace(&mut self, paces: &Paces);
    /// How likely the stack of a call is taken of a function that has not been called yet.
    fn first_chance(&self) -> f64 {
        UNKNOWN
    }
}

/// What a sampler needs.
pub struct Setup {
    /// Where processes are read.
    pub proc: Proc,
    /// The JVM.
    pub pid: Pid,
    /// Its `libjvm`.
    pub libjvm: Library,
    /// What comes out of the kernel.
    pub feeds: Feeds,
    /// What was asked of it.
    pub collect: Collect,
    /// What the calls are of.
    pub functions: Box<dyn Functions>,
}

/// A thread that samples.
#[derive(Debug)]
pub struct Sampler {
    thread: JoinHandle<io::Result<Finished>>,
    shared: Arc<Shared>,
}

/// What came out in the end.
#[derive(Debug, Default)]
pub struct Finished {
    /// The samples.
    pub sums: Sums,
    /// The calls of a timeline.
    pub timeline: Timeline,
    /// The stacks of sampled calls, by thread and the time that the call began; only for a timeline.
    pub sampled: HashMap<(u32, u64), u32>,
    /// The names of threads, by number.
    pub threads: Vec<(u32, String)>,
    /// The calls that had not returned.
    pub open: Vec<OpenCall>,
    /// What became of the stacks that were chosen.
    pub taken: Taken,
    /// Stacks that were read after the JVM had ended, when nothing could name them any more.
    pub too_late: u64,
    /// Stacks that were not read because others of the JVM took too long.
    pub too_slow: u64,
    /// Why it ended before it was told to, usually because the JVM did.
    pub error: Option<MemoryError>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    stacks: AtomicU64,
}

/// The thread's own.
struct Worker {
    proc: Proc,
    pid: Pid,
    feeds: Feeds,
    collect: Collect,
    functions: Box<dyn Functions>,
    rate_controller: RateController,
    stacks: Stacks,
    last_java_frames: LastJavaFrames,
    mounted: Mounted,
    /// A stack came from a thread that was not there at the last look.
    has_new_threads: bool,
    stop_rate: StopRate,
    namer: Namer,
    finished: Finished,
    shared: Arc<Shared>,
}

impl Sampler {
    /// Begins to take stacks: they are taken when this returns.
    ///
    /// # Errors
    /// If the VM's tables cannot be read.
    pub fn start(setup: Setup) -> Result<Self, hotspot::Error> {
        let Setup { proc, pid, libjvm, feeds, collect, functions } = setup;
        let memory = ProcessMemory::new(pid);
        let mut unwinder = Unwinder::open(memory.clone(), &libjvm)?;
        let mut threads = Threads::open(memory, &libjvm)?;
        let mounted = Mounted::find(feeds.vms(), pid, &mut unwinder, &mut threads)?;
        let last_java_frames = LastJavaFrames::new(proc.clone(), pid, threads);
        let shared = Arc::new(Shared::default());
        // Half of the stacks are taken inside calls, where that is wanted.
        let of_calls = match collect {
            Collect { everywhere: true, .. } => 0,
            Collect { inside: true, .. } => collect.max_stacks / 2,
            _ => collect.max_stacks,
        };
        let rate_controller = RateController::new(collect.max_stacks, of_calls).with_unknown(functions.first_chance());
        let stop_rate = StopRate::new(collect.max_stacks / 4);
        let known = Arc::clone(&shared);
        let (ready, is_ready) = mpsc::channel();
        let namer = Namer::start(pid, collect);
        let thread = thread::spawn(move || {
            let stacks = Stacks::new(pid, unwinder);
            let finished = Finished::default();
            let worker = Worker {
                proc,
                pid,
                feeds,
                collect,
                functions,
                rate_controller,
                stacks,
                last_java_frames,
                mounted,
                has_new_threads: false,
                stop_rate,
                namer,
                finished,
                shared,
            };
            worker.run(&ready)
        });
        // Whoever is told that it is recorded may begin at once. A thread that has failed says so in the end.
        let _ready = is_ready.recv();
        Ok(Self { thread, shared: known })
    }

    /// How many stacks were read so far.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.shared.stacks.load(Ordering::Relaxed)
    }

    /// Takes no more stacks, and reads what there is.
    ///
    /// # Errors
    /// If the thread has failed, which is a defect.
    pub fn finish(self) -> io::Result<Finished> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_panic| io::Error::other("the thread that reads stacks has failed"))?
    }
}

impl Worker {
    fn run(mut self, ready: &mpsc::Sender<()>) -> io::Result<Finished> {
        priority::raise(None);
        // The first stacks should find everything in its place.
        self.refresh();
        let mut refreshed = Instant::now();
        let mut pacing = Pacing::new(PACE_EVERY, PACE_IN_A_HURRY);
        self.pace(&mut pacing);
        // Nobody waits any more if starting has failed.
        let _sent = ready.send(());
        while !self.shared.stop.load(Ordering::Relaxed) && self.finished.error.is_none() {
            if self.read() < AT_ONCE {
                thread::sleep(LOOK_EVERY);
            }
            if pacing.is_due(&self.feeds.taken()) {
                self.pace(&mut pacing);
            }
            let every = if self.has_new_threads { REFRESH_FOR_NEW } else { REFRESH_EVERY };
            if refreshed.elapsed() >= every {
                self.has_new_threads = false;
                self.refresh();
                refreshed = Instant::now();
            }
        }
        self.feeds.allow(0);
        while self.read() == AT_ONCE {}
        self.refresh();
        self.end()
    }

    /// Waits for the names, and notes the calls that have not returned.
    fn end(self) -> io::Result<Finished> {
        let Self { pid, collect, feeds, mut last_java_frames, mut stacks, namer, mut finished, .. } = self;
        let mut named = namer.finish()?;
        if finished.error.is_none() {
            let (memory, bytes) = (ProcessMemory::new(pid), collect.stack_bytes);
            match open::find(&memory, &feeds, &mut last_java_frames, &mut stacks, &mut named, bytes) {
                Ok(open) => finished.open = open,
                Err(error) => finished.error = Some(error),
            }
        }
        let Named { sums, sampled, .. } = named;
        let (taken, threads) = (feeds.taken(), last_java_frames.into_names());
        Ok(Finished { sums, sampled, taken, threads, ..finished })
    }

    /// Looks for what is new in the target: libraries and threads.
    fn refresh(&mut self) {
        // It may be ending; its end is noticed elsewhere.
        if let Ok(libraries) = self.proc.libraries(self.pid) {
            self.stacks.set_libraries(&libraries);
            self.namer.tell(Read::Libraries(libraries));
        }
        let in_native = self.collect.inside || self.collect.everywhere;
        if let Err(error) = self.last_java_frames.refresh(&mut self.feeds, in_native) {
            tracing::debug!("process {}: no look for new threads: {error}", self.pid);
        }
    }

    fn pace(&mut self, pacing: &mut Pacing) {
        let flows = self.functions.flows();
        let (passed, taken) = pacing.step(self.feeds.taken());
        let paces = self.rate_controller.step(&flows, passed, taken);
        self.functions.pace(&paces);
        self.stacks.forget_classes();
        self.feeds.set_period(Some(paces.period));
        self.feeds.allow(paces.allow);
        self.feeds.set_stop_probability(self.stop_rate.probability(passed));
    }

    /// Reads some of the stacks that there are. Returns how many.
    fn read(&mut self) -> usize {
        let Self {
            proc,
            pid,
            feeds,
            stacks,
            stop_rate,
            namer,
            finished,
            shared,
            collect,
            last_java_frames,
            mounted,
            has_new_threads,
            ..
        } = self;
        let in_native = collect.inside || collect.everywhere;
        let read = feeds.read_stacks(AT_ONCE, |record| {
            let header = record.header;
            // Its name is asked for at once: the thread may not live to see the next look for new ones.
            last_java_frames.note_name(header.tid);
            *has_new_threads |= in_native && !last_java_frames.has_seen(header.tid);
            if finished.error.is_some() {
                finished.too_late += 1;
                return;
            }
            if header.kind == StackKind::Resume as u32 {
                namer.tell(Read::Resumed(*header));
                return;
            }
            mounted.note(record);
            match stacks.read(record) {
                Ok(frames) => {
                    if header.kind == StackKind::Stop as u32 {
                        stop_rate.note(header);
                    }
                    shared.stacks.fetch_add(1, Ordering::Relaxed);
                    namer.tell(Read::Stack(*header, frames));
                }
                Err(error) => {
                    finished.error = Some(error);
                    finished.too_late += 1;
                }
            }
        });
        if let Err(error) = mounted.learn(stacks) {
            finished.error.get_or_insert(error);
        }
        finished.timeline.read(feeds, collect, Target { proc, pid: *pid, stacks });
        read
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("rate_controller", &self.rate_controller).finish_non_exhaustive()
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("pid", &self.pid).field("collect", &self.collect).finish_non_exhaustive()
    }
}
