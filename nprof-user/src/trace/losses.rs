//! What goes wrong in the measurement: of all JVMs of a host together, and one by one for the log.

use std::sync::atomic::{AtomicU64, Ordering};

use nprof_common::Loss;

use super::TracedJvm;
use crate::attach::{Heard, LossLog, Lost};
use crate::collect::Reader;
use crate::model::Losses;

/// What went wrong in the measurement of all JVMs together, to be read at any time.
#[derive(Debug)]
pub struct HostLosses {
    reader: Reader,
    /// Starts of programs that the kernel could not tell.
    missed: AtomicU64,
}

impl HostLosses {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, missed: AtomicU64::new(0) }
    }

    /// Takes note of how many starts could not be told, all in all. Returns whether there are new ones.
    pub(super) fn set_missed(&self, missed: u64) -> bool {
        missed > self.missed.swap(missed, Ordering::Relaxed)
    }

    /// The losses so far.
    #[must_use]
    pub fn read(&self) -> Losses {
        let mut losses = self.reader.losses();
        let missed = losses.counts.iter_mut().find(|(reason, _)| *reason == Loss::MissedExec.as_str());
        if let Some((_, count)) = missed {
            *count += self.missed();
        }
        losses
    }

    /// Starts of programs that the kernel could not tell.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// Reports the losses since the last time, each with the method that was called. A target can make as many as it likes: at some
/// point they are only numbered.
pub(super) fn tell<'a>(log: &mut LossLog, traced_jvms: impl Iterator<Item = &'a TracedJvm> + Clone) {
    let Heard { single, others } = log.read();
    for Lost { loss, record, tid, sp } in single {
        let name = traced_jvms.clone().find_map(|traced_jvm| traced_jvm.name_of_record(record));
        let name = name.unwrap_or_else(|| format!("record {record}"));
        tracing::debug!("{loss}: a call of {name} by thread {tid}, stack pointer {sp:#x}");
    }
    if others > 0 {
        tracing::debug!("and {others} more losses");
    }
}
