//! Tells the programs what to read of the VM besides stacks: how often it has collected the heap, how references into it
//! are followed, and how the frames of virtual threads are found that are frozen there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nprof_common::{HeapPlaces, VmPlaces};

use super::stacks::Stacks;
use crate::attach::{StackRecord, VmTable};
use crate::hotspot;
use crate::model::Pid;
use crate::sys::remote_memory::{MemoryError, ProcessMemory};
use crate::unwind::{Threads, Unwinder};

/// How long it is until the VM is asked again for what it did not say.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// More words than what the VM keeps where a continuation was entered.
const ENTRY_WORDS: usize = 8;

/// What the programs know, and what is still to be found out. They forget it when this is dropped.
#[derive(Debug)]
pub(super) struct Mounted {
    /// Where they are told.
    vms: Arc<VmTable>,
    /// Of which process.
    pid: Pid,
    /// What they were told.
    places: VmPlaces,
    /// Where in a thread its `JNIEnv` is, if that is known.
    env: Option<u64>,
    /// When the VM was asked last where frozen frames lie.
    asked: Instant,
    /// The words at which a continuation was entered, to be looked at.
    entry: Option<[u64; ENTRY_WORDS]>,
}

impl Mounted {
    /// Tells them what the VM's tables say.
    ///
    /// # Errors
    /// If the VM cannot be read.
    pub(super) fn find(
        vms: &Arc<VmTable>,
        pid: Pid,
        unwinder: &mut Unwinder<ProcessMemory>,
        threads: &mut Threads<ProcessMemory>,
    ) -> Result<Self, hotspot::Error> {
        let env = threads.jni_env_offset()?;
        let (vms, places) = (Arc::clone(vms), VmPlaces::default());
        let mut mounted = Self { vms, pid, places, env, asked: Instant::now(), entry: None };
        if let Some(env) = env {
            mounted.places.frozen = unwinder.frozen_places(env)?.unwrap_or_default();
        }
        mounted.places.heap = unwinder.heap_places()?.unwrap_or_default();
        mounted.places.collections = unwinder.collections_place().map_or(0, |place| place.0);
        mounted.tell();
        Ok(mounted)
    }

    /// Takes note of the first sample of a thread that runs a continuation.
    pub(super) fn note(&mut self, taken: &StackRecord<'_>) {
        if self.entry.is_some() || self.places.frozen.entered != 0 || taken.header.entry_sp == 0 {
            return;
        }
        let start = usize::try_from(taken.header.entry_sp.wrapping_sub(taken.header.base())).unwrap_or(usize::MAX);
        let bytes = taken.stack.get(start..).unwrap_or_default();
        let mut words = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        self.entry = Some(std::array::from_fn(|_| words.next().unwrap_or_default()));
    }

    /// Finds out, by what was noted, what the tables do not say.
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn learn(&mut self, stacks: &mut Stacks) -> Result<(), MemoryError> {
        self.ask_again(stacks)?;
        self.ask_for_strings(stacks)?;
        if let Some(words) = self.entry.take()
            && let Some(entered) = stacks.entered(&words)?
        {
            self.places.frozen.entered = entered;
            self.tell();
        }
        Ok(())
    }

    /// A VM says where frozen frames lie only once it has had a virtual thread.
    fn ask_again(&mut self, stacks: &mut Stacks) -> Result<(), MemoryError> {
        if self.places.frozen.thread_from_env == 0
            && let Some(env) = self.env
            && self.asked.elapsed() >= ASK_AGAIN
        {
            self.asked = Instant::now();
            if let Some(frozen) = stacks.missed_frozen_places(env)? {
                self.places.frozen = frozen;
                self.tell();
            }
        }
        Ok(())
    }

    /// A VM that has only just been started may not have loaded the class of strings.
    fn ask_for_strings(&mut self, stacks: &mut Stacks) -> Result<(), MemoryError> {
        let HeapPlaces { stopped, string_class, .. } = self.places.heap;
        if stopped != 0 && string_class == 0 {
            self.places.heap = stacks.heap_places()?.unwrap_or_default();
            self.tell();
        }
        Ok(())
    }

    fn tell(&self) {
        if let Err(error) = self.vms.set(self.pid, &self.places) {
            tracing::warn!("the frames of virtual threads in the heap are not copied: {error}");
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.vms.forget(self.pid);
    }
}
