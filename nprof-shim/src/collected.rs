//! What a call has used besides time: the difference of its thread's row between its beginning and its end.
//!
//! The stub reads the row ([`nprof_common::rows`]) and keeps it in its frame. Only if something is different at the end, or
//! traced calls were nested in this one, it comes here. All that is written is in memory of our own, or in the frame of a call
//! that is just ending: a call that was left in between by `longjmp` does no harm.

#![expect(unsafe_code, reason = "is called by stubs with places in their frames")]

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use nprof_common::args::{STUB_ARGS_BELOW, StubArgs};
use nprof_common::rows::{ThreadRow, Used};
use nprof_common::{Consumed, MethodStats, THREAD_COUNTERS};

use crate::call_bytes::Histograms;
use crate::pool::{self, Row};
use crate::records::TIMES;

/// How many calls have come here.
#[cfg(test)]
pub(crate) static COLLECTED: AtomicU64 = AtomicU64::new(0);

/// What the frame of a call has of which it is collected what it uses.
///
/// When the call has ended and `is_collected` is not 0, [`collected`] has left other things in it, for whoever looks at the call while
/// the frame is there: what it has used in `at_entry`, the part of its own in `before`, and the time of what was nested in it in
/// `before_ns`. If it is 0, all of these are nothing.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Call {
    /// What traced calls of this thread have used.
    pub(crate) nested: *mut Nested,
    /// The thread's row.
    pub(crate) row: *const ThreadRow,
    /// The time that `nested` said at the beginning.
    pub(crate) before_ns: u64,
    /// Whether [`collected`] has been there.
    pub(crate) is_collected: u64,
    /// Whether the row has counters, which are kept then: 0 if it has a time only.
    pub(crate) counts: u64,
    /// Where the rows are, and how many: the stubs' own. At last, how long the thread had not been running by the end of the call, which the
    /// programs read before what it has used.
    pub(crate) rows: u64,
    /// What the row said at the beginning. Without `counts` the counters are anything, here and in `before`.
    pub(crate) at_entry: Used,
    /// What `nested` said then.
    pub(crate) before: Used,
}

const _: () = assert!(size_of::<Call>() == 304);
const _: () = assert!(offset_of!(Call, rows) + size_of::<u64>() == offset_of!(Call, at_entry));

/// What a stub keeps of each timed call, above a [`Call`] in its frame.
#[derive(Debug)]
#[repr(C)]
struct Kept {
    args: StubArgs,
    /// The number of the run in which the call began.
    run: u64,
    /// Where it is recorded.
    record: u64,
    /// When it began, in ticks.
    start: u64,
    /// The stub's line in the table.
    row: *const Row,
}

const _: () = assert!(size_of::<Kept>() == STUB_ARGS_BELOW);

/// What the traced calls of a thread have used, by which each knows what those have that were nested in it: that is by how much more it
/// says at its end. Nothing is put back to zero, and a call that is left by `longjmp` leaves nothing behind. Only this thread uses it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Nested {
    /// Their time, in nanoseconds: of each that has ended, without those in it.
    pub(crate) ns: u64,
    /// What else.
    pub(crate) used: Used,
}

const _: () = assert!(size_of::<Nested>() == size_of::<ThreadRow>());

/// A shard of a record, word by word.
type Shard = [AtomicU64; size_of::<MethodStats>() / 8];
/// What the calls of one have consumed, word by word.
type Consumption = [AtomicU64; size_of::<Consumed>() / 8];

/// Adds what a call has used to a shard of its method's record, and to what is nested in the call that made it.
///
/// # Safety
/// Called by stubs only: `call` is in the frame of one that ends, `shard` in the record in which it began.
pub(crate) unsafe extern "C" fn collected(call: *mut Call, shard: *const Shard, time_ns: u64) {
    #[cfg(test)]
    COLLECTED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the stub's frame, in which this is next.
    let kept = unsafe { &*call.wrapping_add(1).cast::<Kept>() };
    // SAFETY: the stub's frame, which nobody else uses.
    let call = unsafe { &mut *call };
    // SAFETY: the stub's record, which stays mapped.
    let words = unsafe { &*shard };
    // SAFETY: rows stay mapped.
    let since_ns = unsafe { &raw const (*call.row).since_ns };
    // SAFETY: as above.
    let used = unsafe { &raw const (*call.row).used };
    // SAFETY: as above. Volatile, because the kernel writes to it; but not while this thread runs here.
    let mut now = unsafe { used.read_volatile() };
    // SAFETY: as above.
    if unsafe { since_ns.read_volatile() } != 0 {
        // The kernel has not told that this thread runs, and so not how long it did not. What asking uses, such as a fault of the page to
        // which the kernel leads a probe's hits, is not the call's.
        pool::ask();
        // SAFETY: as above.
        now.off_ns = unsafe { used.read_volatile() }.off_ns;
    }
    let known = |used: &Used| if call.counts == 0 { time_of(used) } else { *used };
    // SAFETY: memory of the shim's own, which no other thread uses.
    let nested = unsafe { &mut *call.nested };
    let before = known(&call.before);
    let mut total = difference(&known(&now), &known(&call.at_entry));
    // A thread may lose its CPU between the readings of the row and of the clock: then it has waited, and not in the call.
    total.off_ns = total.off_ns.min(time_ns);
    let own = difference(&total, &difference(&known(&nested.used), &before));
    let child_ns = nested.ns.wrapping_sub(call.before_ns);
    add(&words[offset_of!(MethodStats, child_ns) / 8], child_ns);
    add(&words[offset_of!(MethodStats, off_ns) / 8], own.off_ns);
    let (distance, bytes) = pool::places_of_run(kept.run);
    if let Some(histograms) = Histograms::at(bytes) {
        // SAFETY: the stub has it from its template.
        let index = unsafe { pool::index_in(kept.row) };
        // Before the sum: whoever reads that finds them there.
        // SAFETY: the run is not over, so this is the memory of its records, which stays mapped, and the index one of theirs.
        unsafe { histograms.add(shard, index, &total.counters) };
    }
    if distance != 0 {
        // SAFETY: what is consumed is mapped with the records, in a fixed part of their size.
        let consumed =
            unsafe { &*shard.with_addr((shard.addr() / TIMES).wrapping_add(distance)).cast::<Consumption>() };
        consume(consumed, &total, &own);
    }
    (nested.ns, nested.used) = (call.before_ns.wrapping_add(time_ns), sum(&before, &total));
    (call.at_entry, call.before, call.before_ns, call.is_collected) = (total, own, child_ns, 1);
    call.rows = now.off_ns;
}

/// The time in which a thread did not run, without counters.
fn time_of(used: &Used) -> Used {
    Used { off_ns: used.off_ns, ..Used::default() }
}

/// Adds what a call has used to what its method has consumed.
fn consume(consumed: &Consumption, total: &Used, own: &Used) {
    let [of_total, of_own] = [offset_of!(Consumed, total) / 8, offset_of!(Consumed, own) / 8];
    for counter in 0..THREAD_COUNTERS {
        add(&consumed[of_total + counter], total.counters[counter]);
        add(&consumed[of_own + counter], own.counters[counter]);
    }
}

/// Adds to a word of a record, as other threads do.
fn add(sum: &AtomicU64, more: u64) {
    if more != 0 {
        sum.fetch_add(more, Ordering::Relaxed);
    }
}

fn difference(more: &Used, less: &Used) -> Used {
    let counters = std::array::from_fn(|at| more.counters[at].saturating_sub(less.counters[at]));
    Used { off_ns: more.off_ns.saturating_sub(less.off_ns), counters }
}

fn sum(one: &Used, other: &Used) -> Used {
    let counters = std::array::from_fn(|at| one.counters[at].wrapping_add(other.counters[at]));
    Used { off_ns: one.off_ns.wrapping_add(other.off_ns), counters }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Frame {
        call: Call,
        kept: Kept,
    }

    /// What a call that takes `time_ns` has waited by its record, where its thread has waited for `off_ns` meanwhile.
    fn off_ns(off_ns: u64, time_ns: u64) -> (u64, u64) {
        let used = Used { off_ns, ..Used::default() };
        let row = ThreadRow { key: 1, since_ns: 0, used, back_ns: 0, ahead_ns: 0 };
        let mut nested = Nested { ns: 0, used: Used::default() };
        let (call, shard): (Call, Shard) = (
            Call {
                nested: &raw mut nested,
                row: &raw const row,
                before_ns: 0,
                is_collected: 0,
                counts: 0,
                rows: 0,
                at_entry: Used::default(),
                before: Used::default(),
            },
            std::array::from_fn(|_| AtomicU64::new(0)),
        );
        // No run has this number.
        // SAFETY: numbers, and a pointer that is not followed in a run that is over.
        let kept = Kept { run: u64::MAX, ..unsafe { std::mem::zeroed() } };
        let mut frame = Frame { call, kept };
        // SAFETY: a frame as that of a stub, and a shard.
        unsafe { collected(&raw mut frame.call, &raw const shard, time_ns) };
        (shard[offset_of!(MethodStats, off_ns) / 8].load(Ordering::Relaxed), nested.used.off_ns)
    }

    /// Check that a call has not waited longer than it took, by its record and for who called it.
    #[test]
    fn waits_no_longer_than_it_takes() {
        assert_eq!(off_ns(40, 70), (40, 40));
        assert_eq!(off_ns(500_000, 70), (70, 70));
    }
}
