//! Each single loss as the BPF programs tell it, where somebody listens: what, at which function's record, in which thread.
//!
//! Listening is decided when the programs are loaded, by nprof's own level of logging: otherwise the kernel's verifier has
//! taken out what tells, and all that is left are the counters.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aya::Ebpf;
use aya_log::{EbpfLogger, Level};
use log::{Log, Metadata, Record};
use nprof_common::Loss;

/// The map that the messages come by, and what it needs where nobody listens: the least that the kernel makes.
pub(super) const MAP: &str = "AYA_LOGS";
pub(super) const UNUSED_BYTES: u32 = 4096;

/// The level that the programs are loaded with.
pub(super) fn level() -> u8 {
    if is_wanted() { Level::Debug as u8 } else { 0 }
}

/// Whether each loss is to be told.
pub(super) fn is_wanted() -> bool {
    tracing::enabled!(tracing::Level::DEBUG)
}

/// A loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// What was lost, in the word of reports.
    pub loss: &'static str,
    /// The record of the function that was called.
    pub record: u32,
    /// The thread, as the host numbers it.
    pub tid: u32,
    /// The stack pointer at the call's entry.
    pub sp: u64,
}

/// Reads losses. There is one reader for all programs of an engine.
pub struct LossLog {
    logger: EbpfLogger<Kept>,
    kept: Kept,
}

impl fmt::Debug for LossLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossLog").finish_non_exhaustive()
    }
}

impl LossLog {
    /// Takes the reader's end out of loaded programs; `None` if nobody listens.
    pub(super) fn take(ebpf: &mut Ebpf) -> Option<Self> {
        if !is_wanted() {
            return None;
        }
        let kept = Kept::default();
        let logger = EbpfLogger::init_with_logger(ebpf, kept.clone());
        logger
            .map_err(|error| tracing::debug!("single losses are not told: {error}"))
            .ok()
            .map(|logger| Self { logger, kept })
    }

    /// What has been lost since the last time. What finds no room in between is counted all the same.
    pub fn read(&mut self) -> Vec<Lost> {
        self.logger.flush();
        std::mem::take(&mut *self.kept.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Messages that have been read and understood.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<Lost>>>);

impl Log for Kept {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let message = record.args().to_string();
        match understood(&message) {
            Some(lost) => self.0.lock().unwrap_or_else(PoisonError::into_inner).push(lost),
            None => tracing::debug!("the BPF programs say: {message}"),
        }
    }

    fn flush(&self) {}
}

/// A message of `nprof-ebpf/src/losses.rs`: four numbers.
fn understood(message: &str) -> Option<Lost> {
    let numbers: Vec<u64> = message.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [loss, record, tid, sp] = numbers[..] else { return None };
    let loss = Loss::ALL.get(usize::try_from(loss).ok()?)?.as_str();
    Some(Lost { loss, record: u32::try_from(record).ok()?, tid: u32::try_from(tid).ok()?, sp })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what the programs write is understood, and nothing else.
    #[test]
    fn understands_four_numbers() {
        let lost = Lost { loss: "too-deep", record: 7, tid: 4711, sp: 0x7fff_0000_1000 };
        assert_eq!(understood("1 7 4711 140733193392128"), Some(lost));
        for wrong in ["", "1 7 4711", "1 7 4711 0 0", "99 7 4711 0", "1 4294967296 4711 0", "1 7 4711 sp"] {
            assert_eq!(understood(wrong), None, "{wrong}");
        }
    }
}
