//! From a record of the ring to a slow call with names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nprof_common::{COUNTERS, CallArgs, Counters, Referent, SlowDetails, StackHeader, StackKind, ThreadCounts, Wait};

use super::{Arguments, SlowSample, SlowWait};
use crate::attach::{StackRecord, VmTable};
use crate::discover::Proc;
use crate::model::Pid;
use crate::native::KernelSymbols;
use crate::profile::open::monotonic_ns;
use crate::profile::open_vm::{OpenVm, Unread};
use crate::unwind::JavaFrame;

/// How long it is until a VM is tried again that could not be read.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Reads the slow calls of one JVM. It belongs to one thread.
pub(super) struct Reader {
    proc: Proc,
    pid: Pid,
    vms: Arc<VmTable>,
    vm: Option<OpenVm>,
    /// When the VM could not be read.
    failed: Option<Instant>,
}

impl Reader {
    /// Looks at the VM at once: the programs are to know it before the first call is slow.
    pub(super) fn new(proc: Proc, pid: Pid, vms: Arc<VmTable>) -> Self {
        // One that is still starting is looked at again then.
        let vm = OpenVm::open(&proc, pid, &vms).ok();
        Self { proc, pid, vms, vm, failed: None }
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
            StackRecord::read(record, |taken| callers = self.callers(taken));
        }
        Some(SlowSample {
            ended: ended(header.now_ns),
            tid: header.tid,
            thread: self.proc.thread(self.pid, header.tid).map(|thread| thread.name).unwrap_or_default(),
            record: header.index,
            by_stub: header.kind == StackKind::SlowStub as u32,
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
        let Self { proc, pid, vm, .. } = self;
        let object = |referent: &Referent| {
            let described = vm.as_mut()?.object(referent, header.collections.checked_sub(1)?);
            described.inspect_err(|error| tracing::debug!("process {pid}: an object is not read: {error}")).ok()?
        };
        Arguments::read(args, object, |fd| proc.file(*pid, fd))
    }

    /// Who made the call, the innermost first. The first frame is the native method itself, which everybody knows.
    fn callers(&mut self, taken: &StackRecord<'_>) -> Vec<String> {
        self.open();
        let Some(vm) = &mut self.vm else { return Vec::new() };
        let read = vm.read(taken).and_then(|frames| vm.learn().map(|()| frames));
        match read {
            Ok(frames) => {
                frames.java().iter().filter(|frame| !frame.hidden && !frame.method.is_native).map(named).collect()
            }
            Err(error) => {
                tracing::debug!("process {}: a stack is not read: {error}", self.pid);
                Vec::new()
            }
        }
    }

    /// Looks at the VM, unless that has been done or has failed not long ago.
    fn open(&mut self) {
        if self.vm.is_some() || self.failed.is_some_and(|failed| failed.elapsed() < AGAIN_AFTER) {
            return;
        }
        match OpenVm::open(&self.proc, self.pid, &self.vms) {
            Ok(vm) => self.vm = Some(vm),
            Err(error) => self.has_failed(&error),
        }
    }

    fn has_failed(&mut self, error: &Unread) {
        tracing::warn!("process {}: slow calls have no stacks: {error}", self.pid);
        self.failed = Some(Instant::now());
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
    let is_slow = [StackKind::Slow, StackKind::SlowStub].iter().any(|kind| header.kind == *kind as u32);
    is_slow.then_some(header)
}

/// The wall-clock time of a moment of the monotonic clock, not long ago.
fn ended(then_ns: u64) -> Timestamp {
    let (now, ago) = (Timestamp::now(), Duration::from_nanos(monotonic_ns().saturating_sub(then_ns)));
    now.checked_sub(ago).unwrap_or(now)
}

fn named(frame: &JavaFrame) -> String {
    let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}::{}{line}", frame.method.class, frame.method.name)
}
