//! Each single loss as the BPF programs report it, if somebody listens: what, at which function's record, in which thread.
//!
//! Whether somebody listens is decided when the programs are loaded, by nprof's own log level: otherwise the kernel's verifier
//! removes the code that reports, and only the counters are left.
//!
//! The programs write by the macros of `aya-log-ebpf`. Its counterpart `aya-log` reads until the ring is empty, which a target
//! that loses calls as fast as they are read can put off forever. So the ring is read here, for a limited time.

use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use aya_log_common::{ArgumentKind, Level, LogValueLength};
use nprof_common::Loss;

use crate::sys::mapped_array::MappedArray;

/// The ring that the messages come through, and its size if nobody listens: the smallest that the kernel makes.
pub(super) const MAP: &str = "AYA_LOGS";
pub(super) const UNUSED_BYTES: u32 = 4096;
/// The global of the programs that holds their log level.
pub(super) const LEVEL: &str = "AYA_LOG_LEVEL";

/// The most losses that are reported one by one at a time.
const MOST_SINGLE: usize = 100;
/// How long the ring is read at a time. A full one takes about a millisecond.
const LONGEST: Duration = Duration::from_millis(10);
/// The fields of a message before its arguments: target, level, module, file, line, number of arguments.
const HEADER_FIELDS: usize = 6;

/// The level that the programs are loaded with.
pub(super) fn level() -> u8 {
    if is_wanted() { Level::Debug as u8 } else { 0 }
}

/// Whether each loss is to be reported: where everything is (`-vv`).
pub(super) fn is_wanted() -> bool {
    tracing::enabled!(tracing::Level::TRACE)
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

/// Losses since the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The first of them, at most 100.
    pub single: Vec<Lost>,
    /// How many others there were.
    pub others: u64,
}

/// Reads losses. There is one reader for all programs of an engine.
pub struct LossLog {
    ring: RingBuf<MapData>,
    /// The counters of losses, which miss none.
    counters: MappedArray,
    balance: Balance,
}

impl fmt::Debug for LossLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LossLog").finish_non_exhaustive()
    }
}

impl LossLog {
    /// A reader of the ring [`MAP`], and of the counters of the same programs.
    pub(super) fn new(ring: RingBuf<MapData>, counters: MappedArray) -> Self {
        Self { ring, counters, balance: Balance::default() }
    }

    /// What has been lost since the last time. This takes 10 ms at most, however much that is.
    pub fn read(&mut self) -> Heard {
        let (single, is_all) = hear(&mut self.ring, Instant::now() + LONGEST);
        let counted = (0..Loss::ALL.len()).filter_map(|loss| self.counters.load(loss)).sum();
        let others = self.balance.others(single.len(), is_all, counted);
        Heard { single, others }
    }
}

/// How many losses have been reported since the beginning.
#[derive(Debug, Default)]
struct Balance {
    single: u64,
    /// Those that were only reported as a number.
    others: u64,
}

impl Balance {
    /// How many losses there are besides these, of the `counted` since the beginning. None if these were all in the ring: one
    /// that overflowed has more than can be told.
    fn others(&mut self, single: usize, is_all: bool, counted: u64) -> u64 {
        self.single += single as u64;
        if is_all {
            return 0;
        }
        let others = counted.saturating_sub(self.single + self.others);
        self.others += others;
        others
    }
}

/// Where messages come from.
trait Messages {
    /// Takes out the next one.
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>>;
}

impl Messages for RingBuf<MapData> {
    fn next(&mut self) -> Option<impl Deref<Target = [u8]>> {
        RingBuf::next(self)
    }
}

/// Empties the ring, unless that takes too long. Returns its first losses, and whether these were all.
fn hear(ring: &mut impl Messages, until: Instant) -> (Vec<Lost>, bool) {
    let (mut single, mut is_all) = (Vec::new(), true);
    while let Some(message) = ring.next() {
        if single.len() == MOST_SINGLE {
            is_all = false;
        } else if let Some(lost) = understood(&message) {
            single.push(lost);
        } else {
            tracing::debug!(
                "the BPF programs report a loss that nprof does not understand, in {} bytes",
                message.len()
            );
        }
        if Instant::now() >= until {
            return (single, false);
        }
    }
    (single, is_all)
}

/// A message of `nprof-ebpf/src/losses.rs`: four numbers.
fn understood(message: &[u8]) -> Option<Lost> {
    let [loss, record, tid, sp] = numbers(message)?[..] else { return None };
    let loss = Loss::ALL.get(usize::try_from(loss).ok()?)?.as_str();
    Some(Lost { loss, record: u32::try_from(record).ok()?, tid: u32::try_from(tid).ok()?, sp })
}

/// The numbers among the arguments of a message. It begins with its length; each field has its kind, its length and its value.
fn numbers(message: &[u8]) -> Option<Vec<u64>> {
    let (length, _) = message.split_first_chunk()?;
    let length = usize::from(LogValueLength::from_ne_bytes(*length));
    let mut rest = message.get(size_of::<LogValueLength>()..length)?;
    let (mut numbers, mut fields) = (Vec::new(), 0);
    while let Some((&kind, after)) = rest.split_first() {
        let (length, after) = after.split_first_chunk()?;
        let (value, after) = after.split_at_checked(usize::from(LogValueLength::from_ne_bytes(*length)))?;
        if fields >= HEADER_FIELDS {
            if kind == ArgumentKind::U32 as u8 {
                numbers.push(u64::from(u32::from_ne_bytes(value.try_into().ok()?)));
            } else if kind == ArgumentKind::U64 as u8 {
                numbers.push(u64::from_ne_bytes(value.try_into().ok()?));
            }
        }
        (rest, fields) = (after, fields + 1);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use aya_log_common::{Argument, Field, Header};

    use super::*;

    const LOST: Lost = Lost { loss: "too-deep", record: 7, tid: 4711, sp: 0x7fff_0000_1000 };

    /// A message as `debug!((), "{} {} {} {}", …)` writes it, in a place of the ring that is larger.
    fn message(loss: u32, record: u32, tid: u32, sp: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut write = |bytes: &[u8]| {
            out.extend(bytes);
            Some(())
        };
        write(&[0; 2]);
        let header = Header::new("nprof", Level::Debug, "nprof::losses", "src/losses.rs", 27, 7).unwrap();
        header.with_bytes(&mut write).unwrap();
        argument(&loss, &mut write);
        for number in [&record, &tid] {
            argument(&" ", &mut write);
            argument(number, &mut write);
        }
        argument(&" ", &mut write);
        argument(&sp, &mut write);
        let length = LogValueLength::try_from(out.len()).unwrap();
        out[..2].copy_from_slice(&length.to_ne_bytes());
        out.resize(256, 0xee);
        out
    }

    fn argument(value: &impl Argument, write: &mut impl FnMut(&[u8]) -> Option<()>) {
        let (kind, value) = value.as_argument();
        Field::new(kind, value).unwrap().with_bytes(write).unwrap();
    }

    struct Ring<I>(I);

    impl<I: Iterator<Item = Vec<u8>>> Messages for Ring<I> {
        fn next(&mut self) -> Option<impl Deref<Target = [u8]>> {
            self.0.next()
        }
    }

    /// Check that what the programs write is understood, and nothing else, whatever is cut off.
    #[test]
    fn understands_four_numbers() {
        let whole = message(1, 7, 4711, LOST.sp);
        assert_eq!(understood(&whole), Some(LOST));
        assert_eq!(understood(&message(99, 7, 4711, 0)), None);
        let length = usize::from(LogValueLength::from_ne_bytes([whole[0], whole[1]]));
        for cut in 0..length {
            assert_eq!(understood(&whole[..cut]), None, "{cut} bytes");
            let mut shorter = whole.clone();
            shorter[..2].copy_from_slice(&LogValueLength::try_from(cut).unwrap().to_ne_bytes());
            assert_eq!(understood(&shorter), None, "{cut} bytes are said to be there");
        }
    }

    /// Check that a target that loses calls as fast as they are read holds nprof up for a limited time, and fills a limited
    /// list.
    #[test]
    fn an_endless_ring_is_left() {
        let began = Instant::now();
        let mut ring = Ring(iter::repeat_with(|| message(1, 7, 4711, LOST.sp)));
        let (single, is_all) = hear(&mut ring, began + LONGEST);
        assert_eq!((single, is_all), (vec![LOST; MOST_SINGLE], false));
        assert!(began.elapsed() >= LONGEST);
    }

    /// Check that a ring is emptied, that messages beyond the limit are passed over, and that none are up to it.
    #[test]
    fn the_ring_is_emptied() {
        let until = Instant::now() + Duration::from_secs(600);
        for (messages, is_all) in [(0, true), (MOST_SINGLE, true), (MOST_SINGLE + 1, false), (3 * MOST_SINGLE, false)] {
            let mut ring = Ring(iter::repeat_n(message(1, 7, 4711, LOST.sp), messages));
            assert_eq!(hear(&mut ring, until), (vec![LOST; messages.min(MOST_SINGLE)], is_all), "{messages} messages");
            assert_eq!(ring.0.len(), 0);
        }
    }

    /// Check that every loss is reported once, by itself or as one of a number: those that found no room in the ring, and
    /// those that are read only later.
    #[test]
    fn others_are_numbered() {
        let mut balance = Balance::default();
        assert_eq!(balance.others(3, true, 3), 0);
        assert_eq!(balance.others(100, false, 5_003), 4_900);
        // Fifty of these were in the ring still.
        assert_eq!(balance.others(50, true, 5_003), 0);
        assert_eq!(balance.others(100, false, 6_003), 850);
        assert_eq!(balance.single + balance.others, 6_003);
    }
}
