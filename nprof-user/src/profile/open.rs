//! The calls that have not returned when a recording ends: how long they have lasted, and their stacks as they are.

use nprof_common::stack::PAGE;
use nprof_common::{Frame, OffCpu, StackHeader};

use super::last_java_frames::LastJavaFrames;
use super::namer::Named;
use super::stacks::Stacks;
use crate::attach::{Feeds, OpenFrames};
use crate::model::VirtAddr;
use crate::sys::remote_memory::{MemoryError, ProcessMemory};

/// A call that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// The thread on the host.
    pub tid: u32,
    /// The number of the function's record.
    pub record: u32,
    /// How long it has lasted, in nanoseconds.
    pub time_ns: u64,
    /// The same without the traced calls that it made, ended or not.
    pub self_ns: u64,
    /// The part of `self_ns` that the thread was not running; `None` where that is not known.
    pub off_cpu_ns: Option<u64>,
    /// The parts of the thread's stack that begin with a native method, the innermost first: the call's own is one of them.
    pub stacks: Vec<u32>,
}

/// Finds the open calls of all threads.
///
/// # Errors
/// What makes all reads of the target fail: it has ended.
pub(super) fn find(
    memory: &ProcessMemory,
    feeds: &Feeds,
    last_java_frames: &mut LastJavaFrames,
    stacks: &mut Stacks,
    named: &mut Named,
    stack_bytes: u32,
) -> Result<Vec<OpenCall>, MemoryError> {
    let mut open = Vec::new();
    for tid in last_java_frames.tids() {
        let calls = feeds.open().open_calls(tid);
        let Some(innermost) = calls.last() else { continue };
        let now = Moment::of(tid, feeds.open(), || last_java_frames.is_on_cpu(tid));
        let mut parts = Vec::new();
        if let Some(anchor) = last_java_frames.read(memory, tid)?
            // It may have called back into Java: then its stack is moving.
            && anchor.sp == innermost.sp.wrapping_add(8)
        {
            let copy = copy(memory, anchor.sp, stack_bytes);
            let header =
                StackHeader { tid, sp: anchor.sp, pc: anchor.pc, fp: anchor.fp, anchor, ..StackHeader::default() };
            let is_there = || feeds.open().open_calls(tid) == calls;
            let java = stacks.at_anchor(&header, &copy, &is_there)?;
            parts = java.map(|java| named.java.parts(&java, &mut named.sums)).unwrap_or_default();
            if !is_there() {
                parts.clear();
            }
        }
        open.extend(open_times(&calls, now).map(|call| OpenCall { tid, stacks: parts.clone(), ..call }));
    }
    Ok(open)
}

/// How long a thread has not been running, as far as it is known. One that runs and was not seen to may have waited for less: nobody
/// knows.
fn off_cpu(read: impl Fn() -> Option<OffCpu>, is_on_cpu: impl Fn() -> bool) -> Option<OffCpu> {
    let known = read()?;
    // It may have been let run just now, and seen to.
    let is_missed = |known: &OffCpu| {
        known.since_ns != 0 && is_on_cpu() && read().is_some_and(|later| later.since_ns == known.since_ns)
    };
    Some(known).filter(|known| !is_missed(known))
}

/// What the open calls of a thread are measured by.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The monotonic clock.
    ns: u64,
    /// How long the thread has not been running; `None` if that is not known.
    off_cpu: Option<OffCpu>,
}

impl Moment {
    /// This moment, of a thread of the host.
    #[must_use]
    pub fn of(tid: u32, open: &OpenFrames, is_on_cpu: impl Fn() -> bool) -> Self {
        let ns = monotonic_ns();
        Self { ns, off_cpu: off_cpu(|| open.off_cpu(tid, ns), is_on_cpu) }
    }
}

/// Nested open calls of a thread, the outermost first, without their thread and stacks.
pub fn open_times(calls: &[Frame], now: Moment) -> impl Iterator<Item = OpenCall> {
    let lasted = move |call: &Frame| now.ns.saturating_sub(call.start_ns);
    let waited = move |call: &Frame| {
        let is_known = |off_cpu: &OffCpu| call.off_ns != Frame::UNKNOWN && call.missed == off_cpu.missed;
        now.off_cpu.filter(is_known).map(|off_cpu| off_cpu.total_ns.saturating_sub(call.off_ns))
    };
    calls.iter().enumerate().map(move |(at, call)| {
        let nested = calls.get(at + 1);
        let self_ns = lasted(call).saturating_sub(call.child_ns).saturating_sub(nested.map_or(0, lasted));
        let off_cpu_ns = waited(call)
            .zip(nested.map_or(Some(0), waited))
            .map(|(waited, nested)| waited.saturating_sub(call.child_off_ns).saturating_sub(nested).min(self_ns));
        OpenCall { tid: 0, record: call.index, time_ns: lasted(call), self_ns, off_cpu_ns, stacks: Vec::new() }
    })
}

/// The stack from the page of `sp` on, page by page until one cannot be read.
fn copy(memory: &ProcessMemory, sp: u64, stack_bytes: u32) -> Vec<u8> {
    let base = sp & !(PAGE as u64 - 1);
    let pages = (stack_bytes as usize).div_ceil(PAGE) + 1;
    let mut copy = vec![0; pages * PAGE];
    for (page, bytes) in copy.chunks_exact_mut(PAGE).enumerate() {
        if memory.read_exact(VirtAddr(base + (page * PAGE) as u64), bytes).is_err() {
            copy.truncate(page * PAGE);
            break;
        }
    }
    copy
}

pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    fn call(index: u32, start_ns: u64, child_ns: u64, off_ns: u64) -> Frame {
        Frame {
            start_ns,
            sp: 0,
            child_ns,
            off_ns,
            child_off_ns: child_ns / 2,
            env: 0,
            index,
            missed: 0,
            caller_and_lost: 0,
        }
    }

    fn own(calls: &[Frame], off_cpu_ns: Option<u64>) -> Vec<(u32, u64, u64, Option<u64>)> {
        let off_cpu = off_cpu_ns.map(|total_ns| OffCpu { total_ns, ..OffCpu::new_zeroed() });
        let now = Moment { ns: 1_000, off_cpu };
        open_times(calls, now).map(|call| (call.record, call.time_ns, call.self_ns, call.off_cpu_ns)).collect()
    }

    /// Check that an outer call's own time, and the part that it waited, is less that of the calls which it made and of the
    /// one that it is in.
    #[test]
    fn own_times() {
        let calls = [call(1, 100, 50, 10), call(2, 400, 0, 100), call(3, 900, 10, 200)];
        let expected = [(1, 900, 250, Some(65)), (2, 600, 500, Some(100)), (3, 100, 90, Some(45))];
        assert_eq!(own(&calls, Some(250)), expected);
        assert_eq!(own(&calls, None), expected.map(|(record, time, own, _)| (record, time, own, None)));
    }

    /// Check that it is not known how long a thread waited that runs without having been seen to, and known of one that waits, that was
    /// seen, or that is seen just now.
    #[test]
    fn unseen_runs() {
        use std::cell::Cell;
        let waiting = |since_ns| OffCpu { since_ns, total_ns: 5, ..OffCpu::new_zeroed() };
        let told = |reads: [u64; 2], is_on_cpu| {
            let next = Cell::new(0);
            let read = || Some(waiting(reads[next.replace(1)]));
            off_cpu(read, || is_on_cpu).map(|known| known.total_ns)
        };
        assert_eq!(told([7, 7], true), None);
        assert_eq!([told([7, 7], false), told([0, 0], true), told([7, 0], true), told([7, 9], true)], [Some(5); 4]);
    }

    /// Check that a call of which it was not noted how long its thread had waited before is not known to have waited, nor
    /// the one around it; the same of one in which the thread was not seen to run again.
    #[test]
    fn unknown_waits() {
        let missed = Frame { missed: 7, ..call(2, 400, 0, 100) };
        for unknown in [call(2, 400, 0, Frame::UNKNOWN), missed] {
            let calls = [call(1, 100, 0, 10), unknown];
            assert_eq!(own(&calls, Some(250)).iter().filter(|call| call.3.is_none()).count(), 2);
        }
    }
}
