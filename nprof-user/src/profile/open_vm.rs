//! A VM whose stacks can be read: its code and threads are known, and the programs are told where things lie in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nprof_common::Referent;

use super::frames::Frames;
use super::mounted::Mounted;
use super::naming::Names;
use super::stacks::Stacks;
use crate::attach::{StackRecord, VmTable};
use crate::discover::{self, Proc, libjvm};
use crate::hotspot;
use crate::model::{Library, Pid};
use crate::sys::remote_memory::{MemoryError, ProcessMemory};
use crate::unwind::{HeapObject, Threads, Unwinder};

/// How often it is looked for new libraries, while there are stacks.
const LIBRARIES_EVERY: Duration = Duration::from_secs(10);

/// The VM of one process. It belongs to one thread.
#[derive(Debug)]
pub(super) struct OpenVm {
    proc: Proc,
    pid: Pid,
    stacks: Stacks,
    /// Names what is read.
    pub names: Names,
    mounted: Mounted,
    /// When its libraries were looked at.
    mapped: Instant,
}

/// Why no stack of a JVM can be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("it has no libjvm any more")]
    NoVm,
    #[error(transparent)]
    Vm(#[from] hotspot::Error),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Discover(#[from] discover::Error),
}

impl OpenVm {
    /// Looks at the VM.
    pub(super) fn open(proc: &Proc, pid: Pid, vms: &Arc<VmTable>) -> Result<Self, Unread> {
        let libraries = proc.libraries(pid)?;
        let libjvm = libjvm(&libraries).ok_or(Unread::NoVm)?;
        let memory = ProcessMemory::new(pid);
        let mut unwinder = Unwinder::open(memory.clone(), libjvm)?;
        let mounted = Mounted::find(vms, pid, &mut unwinder, &mut Threads::open(memory, libjvm)?)?;
        let (stacks, names) = (Stacks::new(pid, unwinder), Names::new(pid));
        let mut vm = Self { proc: proc.clone(), pid, stacks, names, mounted, mapped: Instant::now() };
        vm.set_libraries(&libraries);
        Ok(vm)
    }

    /// Reads a stack.
    pub(super) fn read(&mut self, taken: &StackRecord<'_>) -> Result<Frames, Unread> {
        self.mounted.note(taken);
        Ok(self.stacks.read(taken)?)
    }

    /// What the first bytes of an object tell.
    pub(super) fn object(&mut self, copied: &Referent, collections: u64) -> Result<Option<HeapObject>, MemoryError> {
        self.stacks.object(copied, collections)
    }

    /// Does what can wait until a stack is read: learns from it, and looks for new libraries now and then.
    pub(super) fn learn(&mut self) -> Result<(), Unread> {
        self.mounted.learn(&mut self.stacks)?;
        if self.mapped.elapsed() >= LIBRARIES_EVERY {
            self.mapped = Instant::now();
            self.set_libraries(&self.proc.libraries(self.pid)?);
        }
        Ok(())
    }

    fn set_libraries(&mut self, libraries: &[Library]) {
        self.stacks.set_libraries(libraries);
        self.names.set_libraries(libraries);
    }
}
