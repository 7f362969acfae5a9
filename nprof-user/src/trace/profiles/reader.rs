//! The thread of one JVM: reads its stacks as they come, and closes its windows.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Store;
use crate::aggregate::Since;
use crate::attach::VmTable;
use crate::discover::Proc;
use crate::model::{About, Jvm, Snapshot};
use crate::profile::{JvmStacks, StackQueue};
use crate::trace::TracedJvm;
use crate::trace::assemble::assemble;
use crate::trace::sampled::rows_by_record;
use crate::trace::sampling::about_jvm;

/// A JVM whose stacks are read.
#[derive(Debug)]
pub(super) struct Reader {
    traced_jvm: Arc<TracedJvm>,
    about: About,
    /// What it is known by to the ring.
    number: u64,
    /// Its last results, once it is not traced any more: what it had in the kernel may be another's by then.
    last: Mutex<Option<Snapshot>>,
}

impl Reader {
    pub(super) fn new(traced_jvm: Arc<TracedJvm>, number: u64, max_stacks: u32) -> Self {
        let about = About { max_stacks, off_cpu: traced_jvm.measures_off_cpu(), ..about_jvm(traced_jvm.jvm()) };
        Self { traced_jvm, about, number, last: Mutex::default() }
    }

    /// Begins to read.
    pub(super) fn start(
        self,
        queue: StackQueue,
        (proc, vms): (Proc, Arc<VmTable>),
        store: Arc<Store>,
    ) -> io::Result<Arc<Self>> {
        let reader = Arc::new(self);
        let own = Arc::clone(&reader);
        thread::Builder::new().name("nprof-profile".to_owned()).spawn(move || {
            // Names of native code are looked up by what cannot leave its thread.
            let pid = own.jvm().pid;
            let stacks = JvmStacks::new(proc, pid, vms);
            let read = catch_unwind(AssertUnwindSafe(|| own.run(&queue, stacks, &store)));
            if read.is_err() {
                tracing::error!("process {pid} has no profile any more: a part of nprof has failed, which is a defect");
            }
        })?;
        Ok(reader)
    }

    pub(super) fn jvm(&self) -> &Jvm {
        self.traced_jvm.jvm()
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_of(&self, traced_jvm: &Arc<TracedJvm>) -> bool {
        Arc::ptr_eq(&self.traced_jvm, traced_jvm)
    }

    /// It is not traced any more. Nothing that it had is looked at when this returns.
    pub(super) fn end(&self, last: Snapshot) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    /// Reads until the queue ends.
    fn run(&self, queue: &StackQueue, mut stacks: JvmStacks, store: &Store) {
        let mut since = Since::default();
        let mut closes = Instant::now() + store.window;
        loop {
            match queue.next(closes.saturating_duration_since(Instant::now())) {
                Ok(record) => stacks.add(&record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return self.close(queue, &mut stacks, &mut since, store);
                }
            }
            if Instant::now() >= closes {
                self.close(queue, &mut stacks, &mut since, store);
                closes = next_close(closes, store.window, Instant::now());
            }
        }
    }

    /// Keeps what the JVM did since the last time.
    fn close(&self, queue: &StackQueue, stacks: &mut JvmStacks, since: &mut Since, store: &Store) {
        let mut finished = stacks.take();
        finished.too_slow += queue.take_refused();
        let snapshot = since.next(self.snapshot());
        let rows = rows_by_record(&self.traced_jvm, &snapshot);
        store.unread.fetch_add(finished.too_slow + finished.too_late, Ordering::Relaxed);
        store.add(self.jvm(), assemble(self.about.clone(), &snapshot, finished, &rows));
    }

    fn snapshot(&self) -> Snapshot {
        // Whoever ends it waits meanwhile.
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone().unwrap_or_else(|| self.traced_jvm.snapshot_of_methods())
    }
}

/// When the next window closes: as if none had been late.
fn next_close(closed: Instant, window: Duration, now: Instant) -> Instant {
    let mut next = closed + window;
    if next <= now {
        next = now + window;
    }
    next
}
