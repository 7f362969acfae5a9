//! The Java methods that have called native code, by name: of single stacks of one JVM, within milliseconds of their being taken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nprof_common::Referent;

use super::open_vm::{OpenVm, Unread};
use crate::attach::{StackRecord, VmTable};
use crate::discover::Proc;
use crate::model::Pid;
use crate::unwind::{HeapObject, JavaFrame};

/// How long it is until a VM is tried again that could not be read.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Reads stacks of one JVM. It belongs to one thread.
#[derive(Debug)]
pub(super) struct Callers {
    proc: Proc,
    pid: Pid,
    vms: Arc<VmTable>,
    vm: Option<OpenVm>,
    /// When the VM could not be read.
    failed: Option<Instant>,
    /// What is said then.
    lacking: &'static str,
}

impl Callers {
    /// Looks at the VM at once: the programs are to know it before they take the first stack. `lacking` is what is said if it cannot be
    /// read.
    pub(super) fn new(proc: Proc, pid: Pid, vms: Arc<VmTable>, lacking: &'static str) -> Self {
        // One that is still starting is looked at again then.
        let vm = OpenVm::open(&proc, pid, &vms).ok();
        Self { proc, pid, vms, vm, failed: None, lacking }
    }

    /// Who has called, the innermost first; nothing if that is not known. The first frame is the native method itself, which everybody
    /// knows.
    pub(super) fn of(&mut self, taken: &StackRecord<'_>) -> Vec<String> {
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

    /// What the first bytes of an object tell, as [`OpenVm::object`] does.
    pub(super) fn object(&mut self, copied: &Referent, collections: u64) -> Option<HeapObject> {
        let described = self.vm.as_mut()?.object(copied, collections);
        let failed = |error: &_| tracing::debug!("process {}: an object is not read: {error}", self.pid);
        described.inspect_err(failed).ok()?
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
        tracing::warn!("process {}: {}: {error}", self.pid, self.lacking);
        self.failed = Some(Instant::now());
    }
}

fn named(frame: &JavaFrame) -> String {
    let line = frame.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}::{}{line}", frame.method.class, frame.method.name)
}
