//! The thread that reads the stacks of slow calls: each is unwound and named within milliseconds, and the last are kept.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nprof_common::{StackHeader, StackKind};

use super::stacks::interrupted;
use crate::attach::{Feeds, StackRecord};
use crate::discover::Proc;
use crate::hotspot;
use crate::model::{Library, Pid};
use crate::sys::remote_memory::{MemoryError, ProcessMemory};
use crate::unwind::{JavaFrame, Unwinder};

/// How many calls are kept.
const KEPT: usize = 50;
/// How often the ring is looked into.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How many stacks are taken in this time at most.
const PERIOD: Duration = Duration::from_millis(100);

/// A call that a stub has found to be slow.
#[derive(Debug, Clone)]
pub struct SlowSample {
    /// When it ended.
    pub ended: Timestamp,
    /// The thread, on the host.
    pub tid: u32,
    /// The thread's name; empty if it was gone.
    pub thread: String,
    /// The number of the stub's record.
    pub record: u32,
    /// How long it took, in nanoseconds.
    pub time_ns: u64,
    /// Who called, the innermost first: `java.util.zip.Deflater::deflate:420`.
    pub callers: Vec<String>,
}

/// A thread that reads slow calls until it is dropped, or the JVM ends.
#[derive(Debug)]
pub struct SlowCalls {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    last: VecDeque<SlowSample>,
    /// Slow calls in all: those kept, those before them, and those of which there was no stack.
    total: u64,
}

struct Worker {
    proc: Proc,
    pid: Pid,
    feeds: Feeds,
    unwinder: Unwinder<ProcessMemory>,
    per_period: u64,
    shared: Arc<Shared>,
}

impl SlowCalls {
    /// Begins to read, `per_second` stacks at most.
    ///
    /// # Errors
    /// If the VM's tables cannot be read.
    pub fn start(
        proc: Proc,
        pid: Pid,
        libjvm: &Library,
        feeds: Feeds,
        per_second: u32,
    ) -> Result<Self, hotspot::Error> {
        let unwinder = Unwinder::open(ProcessMemory::new(pid), libjvm)?;
        let shared = Arc::new(Shared::default());
        let per_period = u64::from(per_second / 10).max(1);
        let mut worker = Worker { proc, pid, feeds, unwinder, per_period, shared: Arc::clone(&shared) };
        worker.feeds.allow(per_period);
        Ok(Self { shared, thread: Mutex::new(Some(thread::spawn(move || worker.run()))) })
    }

    /// The last calls, the latest first, and how many there were in all.
    #[must_use]
    pub fn last(&self) -> (Vec<SlowSample>, u64) {
        let seen = self.shared.seen();
        (seen.last.iter().rev().cloned().collect(), seen.total)
    }

    /// Reads what is left and ends.
    ///
    /// # Errors
    /// If the thread has failed, which is a defect.
    pub fn stop(&self) -> io::Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(thread) => {
                thread.join().map_err(|_panic| io::Error::other("the thread that reads slow calls has failed"))
            }
            None => Ok(()),
        }
    }
}

impl Drop for SlowCalls {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Whoever panicked here has added a call or not.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    fn run(&mut self) {
        let mut allowed = Instant::now();
        loop {
            let is_last = self.shared.stop.load(Ordering::Relaxed);
            if let Err(error) = self.read() {
                tracing::debug!("process {}: no more stacks of slow calls: {error}", self.pid);
                return;
            }
            if is_last {
                return;
            }
            if allowed.elapsed() >= PERIOD {
                self.feeds.allow(self.per_period);
                allowed = Instant::now();
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn read(&mut self) -> Result<(), MemoryError> {
        let Self { proc, pid, feeds, unwinder, shared, .. } = self;
        let mut ended = Ok(());
        feeds.read_stacks(|taken| {
            let header = taken.header;
            if header.kind == StackKind::Stub as u32 && ended.is_ok() {
                match callers(unwinder, taken) {
                    Ok(callers) => shared.add(sample(proc, *pid, header, callers)),
                    Err(error) => ended = Err(error),
                }
            }
        });
        let taken = feeds.taken();
        self.shared.seen().total = taken.taken + taken.over_pace + taken.no_room;
        ended
    }
}

impl Shared {
    fn add(&self, call: SlowSample) {
        let mut seen = self.seen();
        if seen.last.len() == KEPT {
            seen.last.pop_front();
        }
        seen.last.push_back(call);
    }
}

fn sample(proc: &Proc, pid: Pid, header: &StackHeader, callers: Vec<String>) -> SlowSample {
    SlowSample {
        // It was read within milliseconds.
        ended: Timestamp::now(),
        tid: header.tid,
        thread: proc.thread(pid, header.tid).map(|thread| thread.name).unwrap_or_default(),
        record: header.index,
        time_ns: header.time_ns,
        callers,
    }
}

/// Who made the call, the innermost first. The first frame is the native method itself, which everybody knows.
fn callers(unwinder: &mut Unwinder<ProcessMemory>, taken: &StackRecord<'_>) -> Result<Vec<String>, MemoryError> {
    let java = unwinder.unwind(&interrupted(taken))?;
    Ok(java.frames.iter().filter(|frame| !frame.hidden && !frame.method.is_native).map(named).collect())
}

fn named(frame: &JavaFrame) -> String {
    let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}::{}{line}", frame.method.class, frame.method.name)
}
