//! The slow calls of one JVM: a thread reads each of them within milliseconds, and the slowest are kept.
//!
//! ```text
//! ring ─> StackRing ─> queue ─> reader: unwind, name ─> Slowest
//!                        ↑ from how many nanoseconds on calls are told
//! ```
//!
//! A call that a stub has chosen before it is known whether its method is wanted is [`held`] until then.

mod held;
mod reader;
mod slowest;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use jiff::Timestamp;
use nprof_common::slow::SLOWEST;
use nprof_common::{Counters, StackHeader, StackKind};

use self::held::{Held, HeldCall, OfRecord};
use self::reader::Reader;
use self::slowest::Slowest;
use super::arguments::Arguments;
use super::slow_queue::{PassedOver, SlowQueue};
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
/// How often it is asked whether calls that are held are wanted.
const ASK_EVERY: Duration = Duration::from_millis(20);

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

    /// Whether a call that a stub has timed is slow and of a method that is wanted, by the number of its record and its nanoseconds; `None`
    /// if that is not known yet.
    fn wants(&mut self, _record: u32, _time_ns: u64) -> Option<bool> {
        Some(true)
    }

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
    tally: Mutex<Tally>,
}

/// What the kernel's counts of slow calls lack, or have too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Slow calls of wanted methods that it has not counted.
    pub more: u64,
    /// Calls that it has counted and that are not slow, or of no wanted method.
    pub fewer: u64,
    /// Calls that nobody had room for until it was known whose they are.
    pub unread: u64,
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
        let shared = Arc::new(Shared { slowest: Mutex::new(Slowest::new(KEPT)), tally: Mutex::default() });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("nprof-slow".to_owned()).spawn(move || {
            // Names of native code are looked up by what cannot leave its thread.
            let reader = Reader::new(proc, pid, vms);
            let now = Instant::now();
            Worker { queue, reader, user, shared: own, held: Held::new(KEPT), asked: now, told: (0, now) }.run();
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// The slowest calls so far, the slowest first.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowSample> {
        self.shared.slowest().iter().cloned().collect()
    }

    /// What the kernel's counts lack, or have too much.
    #[must_use]
    pub fn tally(&self) -> Tally {
        *self.shared.tally()
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

    fn tally(&self) -> MutexGuard<'_, Tally> {
        // Its numbers are set one by one.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own.
struct Worker {
    queue: SlowQueue,
    reader: Reader,
    user: Box<dyn SlowUser>,
    shared: Arc<Shared>,
    /// Calls of which it is not known whether they are wanted, and when that was asked last.
    held: Held<SlowSample>,
    asked: Instant,
    /// From how many nanoseconds on calls are told, and since when.
    told: (u64, Instant),
}

impl Worker {
    fn run(mut self) {
        priority::raise(None);
        loop {
            match self.queue.next(if self.held.is_empty() { TELL_AGAIN } else { ASK_EVERY }) {
                Ok(record) => self.take(&record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.note_passed_over();
            if !self.held.is_empty() && self.asked.elapsed() >= ASK_EVERY {
                self.release();
            }
            self.tell_from();
        }
        self.note_passed_over();
        self.release();
        self.forget_held();
        self.user.end();
    }

    fn take(&mut self, record: &[u8]) {
        let Some(header) = reader::header_of(record) else { return };
        if header.kind == StackKind::Slow as u32 {
            return self.take_wanted(&header, record);
        }
        let call = HeldCall { time_ns: header.time_ns, is_counted: header.kind == StackKind::SlowStub as u32 };
        match self.user.wants(header.index, header.time_ns) {
            None => self.hold(header.index, call, record),
            Some(wanted) => {
                self.note(call, wanted);
                if wanted {
                    self.take_wanted(&header, record);
                }
            }
        }
    }

    fn take_wanted(&mut self, header: &StackHeader, record: &[u8]) {
        let is_wanted = self.shared.slowest().wants(header.time_ns);
        if !is_wanted && !self.user.wants_all() {
            return self.user.pass_over(1);
        }
        if let Some(sample) = self.reader.read(record) {
            self.keep(sample);
        }
    }

    fn keep(&mut self, sample: SlowSample) {
        self.user.hear(&sample);
        self.shared.slowest().add(sample.time_ns, sample);
    }

    /// Keeps a call until it is known whether it is wanted.
    fn hold(&mut self, index: u32, call: HeldCall, record: &[u8]) {
        let Self { held, reader, shared, .. } = self;
        if !held.add(index, call, || reader.read(record)) {
            let mut tally = shared.tally();
            tally.unread += 1;
            tally.more += u64::from(!call.is_counted);
        }
    }

    /// Takes out what is held of methods that it is known of by now whether they are wanted.
    fn release(&mut self) {
        self.asked = Instant::now();
        for record in self.held.records() {
            if self.user.wants(record, u64::MAX).is_none() {
                continue;
            }
            let Some(OfRecord { calls, slowest }) = self.held.take(record) else { continue };
            let is_slow = |user: &mut dyn SlowUser, time_ns| user.wants(record, time_ns) == Some(true);
            let (mut slow, mut kept) = (0, 0);
            for call in calls {
                let wanted = is_slow(&mut *self.user, call.time_ns);
                slow += u64::from(wanted);
                self.note(call, wanted);
            }
            for sample in slowest.iter() {
                if is_slow(&mut *self.user, sample.time_ns) {
                    kept += 1;
                    self.keep(sample.clone());
                }
            }
            self.user.pass_over(slow.saturating_sub(kept));
        }
    }

    /// Nobody will know any more whose these are.
    fn forget_held(&mut self) {
        for record in self.held.records() {
            let calls = self.held.take(record).map(|of| of.calls).unwrap_or_default();
            calls.into_iter().for_each(|call| self.note(call, false));
        }
    }

    /// Puts right what the kernel has counted.
    fn note(&self, call: HeldCall, wanted: bool) {
        match (call.is_counted, wanted) {
            (false, true) => self.shared.tally().more += 1,
            (true, false) => self.shared.tally().fewer += 1,
            _ => {}
        }
    }

    fn note_passed_over(&mut self) {
        let PassedOver { wanted, unasked } = self.queue.take_passed_over();
        if wanted > 0 {
            self.user.pass_over(wanted);
        }
        if unasked > 0 {
            let mut tally = self.shared.tally();
            tally.unread += unasked;
            tally.more += unasked;
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
