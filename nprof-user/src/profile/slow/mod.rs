//! The slow calls of one JVM: a thread reads each of them within milliseconds, and the slowest are kept.
//!
//! ```text
//! ring ─> StackRing ─> queue ─> reader: unwind, name ─> Slowest
//!                        ↑ from how many nanoseconds on calls are told
//! ```

mod arguments;
mod reader;
mod slowest;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use jiff::Timestamp;
use nprof_common::Counters;
use nprof_common::slow::SLOWEST;

pub use self::arguments::Arguments;
use self::reader::Reader;
use self::slowest::Slowest;
use super::slow_queue::SlowQueue;
use crate::attach::VmTable;
use crate::discover::Proc;
use crate::model::Pid;
use crate::sys::priority;

/// How many calls are kept.
const KEPT: usize = SLOWEST;
/// How often it is said which calls are to be told, if that has changed.
const TELL_EVERY: Duration = Duration::from_millis(20);
/// The same if it has not: there may be functions that are new.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// A call that was slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowSample {
    /// When it ended.
    pub ended: Timestamp,
    /// The same in nanoseconds of the kernel's monotonic clock.
    pub ended_ns: u64,
    /// The thread, on the host.
    pub tid: u32,
    /// The thread's name; empty if it was gone.
    pub thread: String,
    /// The number of its record.
    pub record: u32,
    /// Whether that is a stub's.
    pub by_stub: bool,
    /// How long it took, in nanoseconds, as it was measured.
    pub time_ns: u64,
    /// Of this, how long the thread was not running; `None` where that is not known.
    pub off_ns: Option<u64>,
    /// What it consumed, with nested calls; `None` where that is not known.
    pub consumed: Option<Box<Counters>>,
    /// What it was made with, where that is wanted.
    pub args: Option<Box<Arguments>>,
    /// The longest time that the thread was not running; `None` if there was none worth a look, or it is not known.
    pub wait: Option<SlowWait>,
    /// Who called, the innermost first: `java.util.zip.Deflater::deflate:420`.
    pub callers: Vec<String>,
}

/// A time that a thread was not running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowWait {
    /// How long it was, in nanoseconds.
    pub ns: u64,
    /// The functions of the kernel where the thread left the CPU, the innermost first.
    pub frames: Vec<String>,
}

/// What the reader of slow calls is used by.
pub trait SlowUser: Send {
    /// Has slow calls told that take this long; those that take less are only counted.
    fn tell_from(&mut self, ns: u64);

    /// Takes note of a call, whether it is among the slowest or not.
    fn hear(&mut self, _call: &SlowSample) {}

    /// So many calls were not looked at, which are none of the slowest.
    fn pass_over(&mut self, _calls: u64) {}

    /// Whether all slow calls are of interest for now, and not only the slowest.
    fn wants_all(&mut self) -> bool {
        false
    }

    /// There will be no more calls.
    fn end(&mut self) {}
}

/// A thread that reads slow calls until their queue ends.
pub struct SlowCalls {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    slowest: Mutex<Slowest<SlowSample>>,
}

impl SlowCalls {
    /// Begins to read what comes by `queue`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(
        (proc, pid): (Proc, Pid),
        queue: SlowQueue,
        vms: Arc<VmTable>,
        user: Box<dyn SlowUser>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { slowest: Mutex::new(Slowest::new(KEPT)) });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("nprof-slow".to_owned()).spawn(move || {
            // Names of native code are looked up by what cannot leave its thread.
            let reader = Reader::new(proc, pid, vms);
            Worker { queue, reader, user, shared: own, told: (0, Instant::now()) }.run();
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// The slowest calls so far, the slowest first.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowSample> {
        self.shared.slowest().iter().cloned().collect()
    }

    /// Waits until everything is read: its queue has been ended.
    pub fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that reads slow calls has failed, which is a defect");
        }
    }
}

impl Shared {
    fn slowest(&self) -> MutexGuard<'_, Slowest<SlowSample>> {
        // Whoever panicked here has added a call or not.
        self.slowest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own.
struct Worker {
    queue: SlowQueue,
    reader: Reader,
    user: Box<dyn SlowUser>,
    shared: Arc<Shared>,
    /// From how many nanoseconds on calls are told, and since when.
    told: (u64, Instant),
}

impl Worker {
    fn run(mut self) {
        priority::raise(None);
        loop {
            match self.queue.next(TELL_AGAIN) {
                Ok(record) => self.take(&record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.note_passed_over();
            self.tell_from();
        }
        self.note_passed_over();
        self.user.end();
    }

    fn take(&mut self, record: &[u8]) {
        let Some(call) = reader::header_of(record) else { return };
        let is_wanted = self.shared.slowest().wants(call.time_ns);
        if !is_wanted && !self.user.wants_all() {
            return self.user.pass_over(1);
        }
        let Some(sample) = self.reader.read(record) else { return };
        self.user.hear(&sample);
        if is_wanted {
            self.shared.slowest().add(sample.time_ns, sample);
        }
    }

    fn note_passed_over(&mut self) {
        match self.queue.take_passed_over() {
            0 => {}
            calls => self.user.pass_over(calls),
        }
    }

    /// Has only calls told that are of interest. Each change is a write for each function and CPU.
    fn tell_from(&mut self) {
        let wanted = if self.user.wants_all() { 0 } else { self.shared.slowest().least() };
        let (told, since) = self.told;
        let due = if wanted == told { TELL_AGAIN } else { TELL_EVERY };
        if since.elapsed() >= due {
            self.told = (wanted, Instant::now());
            self.user.tell_from(wanted);
        }
    }
}

impl fmt::Debug for SlowCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowCalls").finish_non_exhaustive()
    }
}
