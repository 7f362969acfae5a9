//! Tells the programs what to read of the VM besides stacks: how often it has collected the heap, and how the frames of
//! virtual threads are found that are frozen there.

use std::time::{Duration, Instant};

use nprof_common::VmPlaces;

use super::stacks::Stacks;
use crate::attach::{Feeds, StackRecord};
use crate::hotspot;
use crate::sys::remote_memory::{MemoryError, ProcessMemory};
use crate::unwind::{Threads, Unwinder};

/// How long it is until the VM is asked again for what it did not say.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// More words than what the VM keeps where a continuation was entered.
const ENTRY_WORDS: usize = 8;

/// What the programs know, and what is still to be found out.
#[derive(Debug)]
pub(super) struct Mounted {
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
        feeds: &mut Feeds,
        unwinder: &mut Unwinder<ProcessMemory>,
        threads: &mut Threads<ProcessMemory>,
    ) -> Result<Self, hotspot::Error> {
        let env = threads.jni_env_offset()?;
        let mut mounted = Self { places: VmPlaces::default(), env, asked: Instant::now(), entry: None };
        if let Some(env) = env {
            mounted.places.frozen = unwinder.frozen_places(env)?.unwrap_or_default();
        }
        mounted.places.collections = unwinder.collections_place().map_or(0, |place| place.0);
        mounted.tell(feeds);
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
    pub(super) fn learn(&mut self, feeds: &mut Feeds, stacks: &mut Stacks) -> Result<(), MemoryError> {
        self.ask_again(feeds, stacks)?;
        if let Some(words) = self.entry.take()
            && let Some(entered) = stacks.entered(&words)?
        {
            self.places.frozen.entered = entered;
            self.tell(feeds);
        }
        Ok(())
    }

    /// A VM says where frozen frames lie only once it has had a virtual thread.
    fn ask_again(&mut self, feeds: &mut Feeds, stacks: &mut Stacks) -> Result<(), MemoryError> {
        if self.places.frozen.thread_from_env == 0
            && let Some(env) = self.env
            && self.asked.elapsed() >= ASK_AGAIN
        {
            self.asked = Instant::now();
            if let Some(frozen) = stacks.missed_frozen_places(env)? {
                self.places.frozen = frozen;
                self.tell(feeds);
            }
        }
        Ok(())
    }

    fn tell(&self, feeds: &mut Feeds) {
        if let Err(error) = feeds.set_vm(&self.places) {
            tracing::warn!("the frames of virtual threads in the heap are not copied: {error}");
        }
    }
}
