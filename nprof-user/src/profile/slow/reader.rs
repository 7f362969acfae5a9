//! From a record of the ring to a slow call with names.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nprof_common::{COUNTERS, CallArgs, Counters, Referent, SlowDetails, StackHeader, StackKind, ThreadCounts, Wait};

use super::{Arguments, SlowSample, SlowWait};
use crate::attach::{StackRecord, VmTable};
use crate::discover::Proc;
use crate::model::Pid;
use crate::native::KernelSymbols;
use crate::profile::callers::Callers;
use crate::profile::open::monotonic_ns;

/// Reads the slow calls of one JVM. It belongs to one thread.
pub(super) struct Reader {
    proc: Proc,
    pid: Pid,
    callers: Callers,
}

impl Reader {
    /// Looks at the VM at once: the programs are to know it before the first call is slow.
    pub(super) fn new(proc: Proc, pid: Pid, vms: Arc<VmTable>) -> Self {
        let callers = Callers::new(proc.clone(), pid, vms, "slow calls have no stacks");
        Self { proc, pid, callers }
    }

    /// A call as the programs have laid it out; `None` if it is none. What is not known of it is left out.
    pub(super) fn read(&mut self, record: &[u8]) -> Option<SlowSample> {
        let (header, details) = (header_of(record)?, SlowDetails::at_end_of(record)?);
        // First of all: what they refer to may be gone a moment later.
        let args =
            (details.has_args != 0).then(|| CallArgs::before_details(record, size_of::<SlowDetails>())).flatten();
        let args = args.map(|args| Box::new(self.arguments(&header, &args)));
        let mut callers = Vec::new();
        if header.stack_bytes > 0 {
            StackRecord::read(record, |taken| callers = self.callers.of(taken));
        }
        Some(SlowSample {
            ended: ended(header.now_ns),
            ended_ns: header.now_ns,
            tid: header.tid,
            thread: String::from_utf8_lossy(details.thread()).into_owned(),
            record: header.index,
            by_stub: header.kind != StackKind::Slow as u32,
            time_ns: header.time_ns,
            off_ns: Some(details.off_ns).filter(|off_ns| *off_ns != SlowDetails::UNKNOWN),
            consumed: (details.has_consumed != 0).then(|| Box::new(of_threads(details.consumed))),
            args,
            wait: wait(&details.wait),
            callers,
        })
    }

    /// What a call was made with.
    fn arguments(&mut self, header: &StackHeader, args: &CallArgs) -> Arguments {
        let Self { proc, pid, callers } = self;
        let object = |referent: &Referent| callers.object(referent, header.collections.checked_sub(1)?);
        Arguments::read(args, object, |fd| proc.file(*pid, fd))
    }
}

/// The counters of threads among all. How one call ended is not counted.
fn of_threads(counts: ThreadCounts) -> Counters {
    let mut counters = [0; COUNTERS];
    counters[..counts.len()].copy_from_slice(&counts);
    counters
}

fn wait(wait: &Wait) -> Option<SlowWait> {
    (wait.ns > 0).then(|| SlowWait { ns: wait.ns, frames: KernelSymbols::shared().names(wait.frames()) })
}

/// What is said of a slow call first of all.
pub(super) fn header_of(record: &[u8]) -> Option<StackHeader> {
    let (header, ..) = StackHeader::take_apart(record)?;
    let kinds = [StackKind::Slow, StackKind::SlowStub, StackKind::SlowUnasked];
    let is_slow = kinds.iter().any(|kind| header.kind == *kind as u32);
    is_slow.then_some(header)
}

/// The wall-clock time of a moment of the monotonic clock, not long ago.
fn ended(then_ns: u64) -> Timestamp {
    let (now, ago) = (Timestamp::now(), Duration::from_nanos(monotonic_ns().saturating_sub(then_ns)));
    now.checked_sub(ago).unwrap_or(now)
}
