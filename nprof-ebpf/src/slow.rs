//! Calls that took long: each is counted, and told with its stack, with what it consumed and with where it waited longest.
//!
//! Whether a call is slow is decided at its return by one look at its function's threshold. What a thread waits for is only
//! looked at when it runs again after a while: its kernel stack is then still the one that it left the CPU with.

use core::mem::offset_of;

use aya_ebpf::bindings::{BPF_F_MMAPABLE, BPF_RB_NO_WAKEUP, pt_regs, task_struct};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::bpf_get_smp_processor_id;
use aya_ebpf::helpers::generated::{
    bpf_get_current_comm, bpf_get_task_stack, bpf_probe_read_user, bpf_ringbuf_reserve, bpf_ringbuf_submit,
};
use aya_ebpf::macros::btf_map;
use nprof_common::rows::Used;
use nprof_common::slow::{ABOVE, THREAD_NAME, WAIT_FRAMES};
use nprof_common::stack::{PAGE, collect};
use nprof_common::{
    CallArgs, Frame, Frames, SLOTS, SlowDetails, SlowPace, SlowStats, StackHeader, StackKind, THREAD_COUNTERS,
    ThreadCounts, WAITS, Wait, Waits,
};

use crate::args::Made;
use crate::stacks::{self, Thread};
use crate::{args, atomic, counters, maps, row_waits, threads, vm};

/// What is told of each function's slow calls, sharded like the records.
#[btf_map]
static NPROF_SLOW: Array<SlowStats, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// How many stacks are taken, of slow calls and of what is made ([`crate::made`]).
#[btf_map]
static NPROF_SLOW_PACE: Array<SlowPace, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// The longest waits of the threads that have a slot.
#[btf_map]
static NPROF_WAITS: Array<Waits, 1, 0> = Array::new();

/// What a thread waits for is not looked at if it was shorter, in nanoseconds: to look takes about a microsecond, and is to cost two
/// percent of the wait at most.
pub(crate) const WAIT_FROM_NS: u64 = 50_000;

/// The reader looks on its own every few milliseconds.
const QUIETLY: u64 = BPF_RB_NO_WAKEUP as u64;

/// A call that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) frame: Frame,
    /// How many calls of its thread it was in.
    pub(crate) depth: u32,
    pub(crate) now_ns: u64,
    pub(crate) time_ns: u64,
    /// How long the thread was not running, in nested calls too.
    pub(crate) off_ns: u64,
}

/// Who knows what a call has used.
#[derive(Clone, Copy)]
enum Known<'a> {
    /// The programs, by the frames of its thread.
    Frames(&'a Ended, &'a Frames),
    /// Its stub.
    Stub(OfStub),
}

/// What a stub says of its call.
#[derive(Clone, Copy)]
struct OfStub {
    /// Where a [`Used`] is, after a word that says what the thread's row said at the end; nowhere if it is 0.
    used: u64,
    /// The base pointer of its frame.
    base: u64,
    /// What the native has returned.
    result: u64,
}

/// Counts a call that has ended if it was slow, and says whether it is to be told. That is all that there is to do for others.
#[inline(always)]
pub(crate) fn is_told(index: u32, time_ns: u64) -> bool {
    let Some(stats) = stats(index) else { return false };
    // SAFETY: the map gave the pointer. Volatile, because user space changes the word at any time.
    let threshold_ns = unsafe { (&raw const (*stats).threshold_ns).read_volatile() };
    if time_ns < threshold_ns || threshold_ns == 0 {
        return false;
    }
    // SAFETY: as above.
    unsafe { atomic::add(&raw mut (*stats).calls, 1) };
    // SAFETY: as above.
    let (told_from_ns, may_be_from_ns) = unsafe {
        ((&raw const (*stats).told_from_ns).read_volatile(), (&raw const (*stats).may_be_from_ns).read_volatile())
    };
    if time_ns >= told_from_ns && time_ns >= may_be_from_ns {
        return true;
    }
    // SAFETY: as above.
    unsafe { atomic::add(&raw mut (*stats).kept_back, 1) };
    false
}

/// Tells of a call that has returned, with the stack of its caller.
///
/// # Safety
/// `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn tell(call: &Ended, frames: &Frames, regs: *const pt_regs) {
    // SAFETY: the caller's promise.
    let header = stacks::at(header(call), unsafe { &*regs });
    // SAFETY: as above.
    unsafe {
        tell_with_stack(header, Thread { env: call.frame.env, java: 0 }, call.frame.index, Known::Frames(call, frames))
    };
}

/// Counts and tells a call that a stub has timed, if it was slow: see [`stacks::of_stub_call`]. `index` is the record of all of the
/// process's stubs. A call of a method that is perhaps not wanted is only told: it must not keep back any that is.
///
/// # Safety
/// `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn of_stub_call(index: u32, regs: *const pt_regs) {
    // SAFETY: the caller's promise.
    let is_asked = unsafe { (*regs).rdi } as u32 & StackHeader::UNASKED == 0;
    // SAFETY: as above.
    if is_asked && !is_told(index, unsafe { (*regs).rsi }) {
        return;
    }
    // SAFETY: as above.
    let (header, java) = unsafe { stacks::stub_call(regs) };
    let kind = if is_asked { StackKind::SlowStub } else { StackKind::SlowUnasked };
    let header = StackHeader { kind: kind as u32, ..header };
    // SAFETY: as above.
    let of_stub = unsafe { OfStub { used: (*regs).r10, base: (*regs).rbp, result: (*regs).r8 } };
    // SAFETY: registers and stack are those of the current thread.
    unsafe { tell_with_stack(header, Thread { env: 0, java }, index, Known::Stub(of_stub)) };
}

/// Tells of a call that has ended with its thread: there is no stack any more.
#[inline(always)]
pub(crate) fn tell_end(call: &Ended, frames: &Frames) {
    tell_without_stack(header(call), call.frame.index, Known::Frames(call, frames));
}

/// A thread was away for so long: notes where it was, if that was the longest time of the call that it is in. `is_there` says that
/// it is about to run again: afterwards nobody knows where it was.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn note_wait(task: *mut task_struct, away_ns: u64, is_there: bool) {
    if away_ns < WAIT_FROM_NS {
        return;
    }
    // SAFETY: the caller's promise.
    let Some(frames) = (unsafe { threads::slot_of(task) }) else { return };
    // SAFETY: the map gave the pointer, and the thread's own programs do not run meanwhile.
    let frames = unsafe { &*frames };
    let level = (frames.depth as usize).wrapping_sub(1).min(WAITS - 1);
    if frames.depth == 0 {
        return;
    }
    let Some(open) = frames.frames.get(level) else { return };
    let Some(wait) = wait(frames.owner, level) else { return };
    // SAFETY: as above.
    let wait = unsafe { &mut *wait };
    if wait.start_ns == open.start_ns && away_ns <= wait.ns {
        return;
    }
    (wait.start_ns, wait.ns, wait.bytes) = (open.start_ns, away_ns, 0);
    if is_there {
        // SAFETY: the caller's promise.
        wait.bytes = unsafe { take_stack(task, &mut wait.frames) };
    }
}

/// Takes where a thread is that waits. Returns how many bytes of it are known.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn take_stack(task: *mut task_struct, into: &mut [u64; WAIT_FRAMES]) -> u64 {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bpf_get_task_stack(task, into.as_mut_ptr().cast(), size_of_val(into) as u32, 0) };
    if bytes < 0 { 0 } else { bytes as u64 }
}

/// What a call that has been taken off `frames` waited for was also within the call that made it.
#[inline(always)]
pub(crate) fn hand_up_wait(frames: &Frames, call: &Frame) {
    let level = frames.depth as usize;
    if level == 0 || level >= WAITS {
        return;
    }
    let (Some(own), Some(parent)) = (wait(frames.owner, level), frames.frames.get(level - 1)) else { return };
    let Some(of_parent) = wait(frames.owner, level - 1) else { return };
    // SAFETY: the map gave the pointers, and the thread is the current one.
    let (own, of_parent) = unsafe { (&*own, &mut *of_parent) };
    let is_longer = of_parent.start_ns != parent.start_ns || own.ns > of_parent.ns;
    if own.start_ns == call.start_ns && is_longer {
        *of_parent = *own;
        of_parent.start_ns = parent.start_ns;
    }
}

/// Takes the stack, unless there were too many, and tells of the call with or without it. `index` is where it is counted.
///
/// # Safety
/// The stack pointer in `header` is the current thread's.
#[inline(always)]
unsafe fn tell_with_stack(header: StackHeader, thread: Thread, index: u32, known: Known<'_>) {
    let details = size_of::<StackHeader>() + maps::stack_pages() * PAGE;
    let room = if may_take() { reserve(details + details_bytes()) } else { None };
    // Without its stack it may have room still.
    let Some(record) = room else { return tell_without_stack(header, index, known) };
    note_told(index, &header);
    // SAFETY: the record has room for the header, so many pages, and the details.
    unsafe {
        stacks::fill(record, header, thread);
        detail(record.add(details), result(&header), known);
        bpf_ringbuf_submit(record.cast(), QUIETLY);
    }
}

#[inline(always)]
fn tell_without_stack(header: StackHeader, index: u32, known: Known<'_>) {
    let Some(record) = reserve(size_of::<StackHeader>() + details_bytes()) else {
        return note_no_room(index, &header);
    };
    note_told(index, &header);
    // SAFETY: there is room for both.
    unsafe {
        record.cast::<StackHeader>().write(header);
        detail(record.add(size_of::<StackHeader>()), result(&header), known);
        bpf_ringbuf_submit(record.cast(), QUIETLY);
    }
}

/// Whether one more stack may be taken, which it then is.
#[inline(always)]
pub(crate) fn may_take() -> bool {
    let Some(pace) = NPROF_SLOW_PACE.get_ptr_mut(0) else { return false };
    // SAFETY: the map gave the pointer. Volatile, because others write.
    let (taken, allowed) =
        unsafe { ((&raw const (*pace).taken).read_volatile(), (&raw const (*pace).allowed).read_volatile()) };
    if taken >= allowed {
        return false;
    }
    // SAFETY: as above.
    unsafe { atomic::add(&raw mut (*pace).taken, 1) };
    true
}

/// Room in the ring; `None` if there is none.
#[inline(always)]
pub(crate) fn reserve(size: usize) -> Option<*mut u8> {
    // SAFETY: the map is a ring buffer, and the verifier knows the size: it is made of constants.
    let record = unsafe { bpf_ringbuf_reserve(stacks::ring(), size as u64, 0) }.cast::<u8>();
    if record.is_null() { None } else { Some(record) }
}

/// The ring had no room for a call. One that is perhaps not wanted is counted as one that is: nobody will know.
#[inline(always)]
fn note_no_room(index: u32, header: &StackHeader) {
    if let Some(stats) = stats(index) {
        // SAFETY: the map gave the pointer.
        unsafe { atomic::add(&raw mut (*stats).no_room, 1) };
        if header.kind == StackKind::SlowUnasked as u32 {
            // SAFETY: as above.
            unsafe { atomic::add(&raw mut (*stats).calls, 1) };
        }
    }
}

/// Once [`ABOVE`] calls have been told that took as long as the time in question, a shorter one cannot be among the slowest, and is
/// kept back from then on. The next time in question is longer: see [`SlowStats::next_after`].
///
/// Each program judges by the time in question as it has read it. If one interrupts another here, a call is counted that took less, or
/// one is not.
#[inline(always)]
fn note_told(index: u32, header: &StackHeader) {
    let time_ns = header.time_ns;
    if header.kind == StackKind::SlowUnasked as u32 {
        return;
    }
    let Some(stats) = stats(index) else { return };
    // SAFETY: the map gave the pointer. Volatile, because others write.
    unsafe {
        let next_ns = (&raw const (*stats).next_ns).read_volatile();
        if (&raw const (*stats).only_slowest).read_volatile() == 0 || time_ns < next_ns {
            return;
        }
        atomic::add(&raw mut (*stats).above, 1);
        atomic::add(&raw mut (*stats).above_ns, SlowStats::clipped(next_ns, time_ns));
        if (&raw const (*stats).above).read_volatile() < ABOVE {
            return;
        }
        let above_ns = (&raw const (*stats).above_ns).read_volatile();
        (&raw mut (*stats).above).write_volatile(0);
        (&raw mut (*stats).above_ns).write_volatile(0);
        (&raw mut (*stats).next_ns).write_volatile(SlowStats::next_after(next_ns, above_ns));
        (&raw mut (*stats).may_be_from_ns).write_volatile(next_ns.wrapping_add(1));
    }
}

#[inline(always)]
fn header(call: &Ended) -> StackHeader {
    let &Ended { frame, now_ns, time_ns, .. } = call;
    let Frame { index, child_ns, .. } = frame;
    StackHeader { index, now_ns, time_ns, child_ns, ..stacks::header(StackKind::Slow) }
}

/// How much is said of a call besides its stack.
#[inline(always)]
fn details_bytes() -> usize {
    let args = if maps::collects(collect::ARGS) { size_of::<CallArgs>() } else { 0 };
    args + size_of::<SlowDetails>()
}

/// What a call has returned, unless it has ended with its thread.
#[inline(always)]
fn result(header: &StackHeader) -> Option<u64> {
    (header.sp != 0).then_some(header.rax)
}

/// What the arguments of a function are.
#[inline(always)]
pub(crate) fn kinds(index: u32) -> u64 {
    // SAFETY: the map gave the pointer. Volatile, because user space writes the word.
    stats(index).map_or(0, |stats| unsafe { (&raw const (*stats).kinds).read_volatile() })
}

/// Writes what is known of a call besides its stack.
///
/// # Safety
/// There is room for [`details_bytes`] at `into`.
#[inline(always)]
unsafe fn detail(mut into: *mut u8, result: Option<u64>, known: Known<'_>) {
    let has_args = maps::collects(collect::ARGS);
    if has_args {
        let (made, kinds, result) = match known {
            Known::Frames(call, frames) => {
                (Made::Noted(&call.frame, call.depth, frames), kinds(call.frame.index), result)
            }
            // It says itself what they are.
            Known::Stub(OfStub { base, result, .. }) => (Made::Kept(base), 0, Some(result)),
        };
        // SAFETY: the caller's promise.
        unsafe { args::tell(into.cast(), made, kinds, result) };
        // SAFETY: as above.
        into = unsafe { into.add(size_of::<CallArgs>()) };
    }
    let into = into.cast::<SlowDetails>();
    // SAFETY: the caller's promise.
    unsafe {
        (*into).has_args = has_args as u64;
        // Read later, it is that of nobody any more: many threads end right after their call.
        bpf_get_current_comm((&raw mut (*into).thread).cast(), THREAD_NAME as u32);
        (*into).off_ns = SlowDetails::UNKNOWN;
        (*into).has_consumed = 0;
        (*into).consumed = [0; THREAD_COUNTERS];
        (*into).wait.ns = 0;
        (*into).wait.bytes = 0;
        let (call, frames) = match known {
            Known::Frames(call, frames) => (call, frames),
            Known::Stub(of_stub) => return detail_of_stub(into, &of_stub),
        };
        if maps::collects(collect::OFF_CPU) {
            (*into).off_ns = call.off_ns;
            // Of a call with a wait that was missed it is not known which was the longest.
            if call.off_ns != Frame::UNKNOWN
                && let Some(wait) = wait(frames.owner, call.depth as usize)
                && (*wait).start_ns == call.frame.start_ns
            {
                (*into).wait = *wait;
            }
        }
        if counters::are_wanted() && counters::since_begin(call.depth, call.frame.sp, &raw mut (*into).consumed) {
            (*into).has_consumed = 1;
        }
    }
}

/// Writes what a stub knows of its call, which is what the thread has used, and where the thread waited meanwhile.
///
/// # Safety
/// `into` is what is to be written.
#[inline(always)]
unsafe fn detail_of_stub(into: *mut SlowDetails, &OfStub { used, .. }: &OfStub) {
    if used == 0 {
        return;
    }
    let counters = used.wrapping_add(offset_of!(Used, counters) as u64);
    // SAFETY: the caller's promise; `vm::word` and the helper take any address.
    unsafe {
        if maps::collects(collect::OFF_CPU) {
            let off_ns = vm::word(used).unwrap_or(SlowDetails::UNKNOWN);
            (*into).off_ns = off_ns;
            if off_ns != SlowDetails::UNKNOWN
                && let Some(end_ns) = vm::word(used.wrapping_sub(size_of::<u64>() as u64))
            {
                row_waits::tell_longest(&raw mut (*into).wait, end_ns, off_ns);
            }
        }
        if counters::are_wanted() {
            let bytes = size_of::<ThreadCounts>() as u32;
            let failed = bpf_probe_read_user((&raw mut (*into).consumed).cast(), bytes, counters as *const _);
            (*into).has_consumed = (failed == 0) as u64;
        }
    }
}

/// The longest wait of a thread's open call at this depth; `None` if it is not known: the thread has no slot, or the call is nested too
/// deep.
#[inline(always)]
fn wait(owner: u32, level: usize) -> Option<*mut Wait> {
    if owner == 0 || level >= WAITS {
        return None;
    }
    let waits = NPROF_WAITS.get_ptr_mut(owner & (SLOTS - 1))?;
    // SAFETY: the map gave the pointer, and the level is one of its.
    Some(unsafe { (&raw mut (*waits).of).cast::<Wait>().add(level) })
}

/// The shard of a function's slow calls that this CPU writes to.
#[inline(always)]
fn stats(index: u32) -> Option<*mut SlowStats> {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    NPROF_SLOW.get_ptr_mut(maps::shard(index, cpu))
}
