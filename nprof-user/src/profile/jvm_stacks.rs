//! Reads the stacks of one JVM among several: whoever has them unwound and named here may have to wait for the JVM.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nprof_common::StackKind;

use super::open_vm::{OpenVm, Unread};
use super::sums::{Of, Share};
use super::{Finished, Flow};
use crate::attach::{StackRecord, VmTable};
use crate::discover::Proc;
use crate::model::Pid;
use crate::sys::remote_memory::MemoryError;

/// How long it is until a VM is tried again that could not be read.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The stacks of one JVM, added up. It belongs to one thread.
#[derive(Debug)]
pub struct JvmStacks {
    proc: Proc,
    pid: Pid,
    vms: Arc<VmTable>,
    vm: Option<OpenVm>,
    /// When the VM could not be read.
    failed: Option<Instant>,
    finished: Finished,
}

impl JvmStacks {
    /// No stacks of a JVM. It is looked at when the first one comes.
    #[must_use]
    pub fn new(proc: Proc, pid: Pid, vms: Arc<VmTable>) -> Self {
        Self { proc, pid, vms, vm: None, failed: None, finished: Finished::default() }
    }

    /// Adds the stack of a call, as the programs have laid it out.
    pub fn add(&mut self, record: &[u8]) {
        let mut read = Ok(());
        StackRecord::read(record, |taken| read = self.read(taken));
        if let Err(error) = read {
            tracing::debug!("process {}: a stack is not read: {error}", self.pid);
            match error {
                Unread::Memory(MemoryError::TargetGone { .. }) => self.finished.too_late += 1,
                _ => self.finished.too_slow += 1,
            }
        }
    }

    /// What has come since the last time that somebody asked.
    pub fn take(&mut self) -> Finished {
        // Frames have other numbers from now on.
        if let Some(vm) = &mut self.vm {
            vm.names.forget();
        }
        std::mem::take(&mut self.finished)
    }

    fn read(&mut self, taken: &StackRecord<'_>) -> Result<(), Unread> {
        self.open()?;
        let Some(vm) = &mut self.vm else { return Err(Unread::NoVm) };
        let header = taken.header;
        let record = match header.kind {
            kind if kind == StackKind::Stub as u32 => Flow::of_stub(header.index),
            _ => header.index,
        };
        let frames = vm.read(taken)?;
        let number = vm.names.number(&frames, &mut self.finished.sums);
        // A window that told threads apart would not stay small: they come and go.
        self.finished.sums.add_call(Of { record: Some(record), stack: number, tid: None }, Share::of(header));
        vm.learn()
    }

    /// Looks at the VM, unless that has been done or has failed not long ago.
    fn open(&mut self) -> Result<(), Unread> {
        if self.vm.is_some() {
            return Ok(());
        }
        if self.failed.is_some_and(|failed| failed.elapsed() < AGAIN_AFTER) {
            return Err(Unread::NoVm);
        }
        match OpenVm::open(&self.proc, self.pid, &self.vms) {
            Ok(vm) => self.vm = Some(vm),
            Err(error) => {
                tracing::warn!("process {}: no stacks for its profile: {error}", self.pid);
                self.failed = Some(Instant::now());
                return Err(error);
            }
        }
        Ok(())
    }
}
