//! Takes stacks: registers and a copy of the thread's stack into a ring buffer.
//!
//! Where the thread's stack ends is not known here. It is copied page by page from the stack pointer upwards, until enough
//! is there or a page cannot be read: behind a stack lies memory that nobody may read, or pages that do no harm. Of a
//! virtual thread less of the stack is copied, and what is frozen in the heap ([`frozen`]).

use aya_ebpf::bindings::{BPF_RB_NO_WAKEUP, pt_regs};
use aya_ebpf::btf_maps::{Array, HashMap, RingBuf};
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_probe_read_user, bpf_ringbuf_reserve, bpf_ringbuf_submit};
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::macros::btf_map;
use nprof_common::stack::{MAX_PAGES, PAGE};
use nprof_common::{LastJavaFrame, LastJavaFramePlace, MethodStats, Pace, StackHeader, StackKind};

use crate::{atomic, frozen, maps, vm};

/// Stacks on their way out. One page, the least that the kernel makes; whoever reads them asks for more.
#[btf_map]
static NPROF_STACKS: RingBuf<u8, PAGE> = RingBuf::new();

/// How many are taken.
#[btf_map]
static NPROF_PACE: Array<Pace, 1, { aya_ebpf::bindings::BPF_F_MMAPABLE as usize }> = Array::new();

/// Where threads note their last Java frame, by thread.
#[btf_map]
static NPROF_ANCHORS: HashMap<u32, LastJavaFramePlace, 1> = HashMap::new();

/// The reader looks on its own every few milliseconds: to wake it would cost the thread more than to take the stack.
const QUIETLY: u64 = BPF_RB_NO_WAKEUP as u64;

/// A call that has returned.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) index: u32,
    pub(crate) now_ns: u64,
    pub(crate) time_ns: u64,
    pub(crate) child_ns: u64,
    /// How long its thread was not running, without nested calls; 0 if that is not known.
    pub(crate) off_ns: u64,
    pub(crate) is_off_known: bool,
    /// Its first argument.
    pub(crate) env: u64,
}

/// A call that a thread is in.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) index: u32,
    /// The stack pointer at its entry.
    pub(crate) sp: u64,
    /// Its first argument.
    pub(crate) env: u64,
}

/// What the VM knows the current thread by, as far as that is known; zeros for what is not.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    /// Its `JNIEnv`.
    pub(crate) env: u64,
    /// Its `JavaThread`.
    pub(crate) java: u64,
}

/// Takes the stack of a call that has returned.
///
/// # Safety
/// `stats` is of a map and `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn of_call(stats: *const MethodStats, call: Ended, regs: *const pt_regs) {
    let Some(pace) = NPROF_PACE.get_ptr_mut(0) else { return };
    // SAFETY: the caller's promise. Volatile, because user space changes the word at any time.
    let per_call = unsafe { (&raw const (*stats).probability).read_volatile() };
    // SAFETY: as above; the map gave the pointer.
    let period_ns = unsafe { (&raw const (*pace).period_ns).read_volatile() };
    let self_ns = call.time_ns.saturating_sub(call.child_ns);
    let probability = probability_of(per_call, self_ns, period_ns);
    // SAFETY: the helper takes no pointer.
    if probability < Pace::CERTAIN && u64::from(unsafe { bpf_get_prandom_u32() }) >= probability {
        return;
    }
    let Ended { index, now_ns, time_ns, child_ns, off_ns, env, .. } = call;
    let header = StackHeader { index, now_ns, time_ns, child_ns, off_ns, probability, ..header(StackKind::Return) };
    // SAFETY: the caller's promise.
    let header = at(header, unsafe { &*regs });
    // SAFETY: as above.
    unsafe { take(pace, header, Thread { env, java: 0 }) };
}

/// Takes the stack of the caller of a call that a stub has chosen and is about to return from: `edi` has the number of the stub's
/// record, `rsi` the time, `rdx` the chance that it had, `rcx` the time of nested calls, `r9` how long the thread did not run in its own,
/// and the stub's frame tells of the caller. Code of the VM keeps its `JavaThread` in `r15`, which natives preserve.
///
/// # Safety
/// `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn of_stub_call(regs: *const pt_regs) {
    let Some(pace) = NPROF_PACE.get_ptr_mut(0) else { return };
    // SAFETY: the caller's promise.
    let (header, java) = unsafe { stub_call(regs) };
    // SAFETY: the map gave the pointer.
    unsafe { take(pace, header, Thread { env: 0, java }) };
}

/// A call that a stub has chosen, and the `JavaThread`: see [`of_stub_call`].
///
/// # Safety
/// `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn stub_call(regs: *const pt_regs) -> (StackHeader, u64) {
    // SAFETY: the caller's promise.
    let regs = unsafe { &*regs };
    // SAFETY: the helper takes no pointer.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let index = regs.rdi as u32 & !StackHeader::UNASKED;
    let (time_ns, probability) = (regs.rsi, regs.rdx.min(Pace::CERTAIN));
    let (child_ns, off_ns) = (regs.rcx, regs.r9);
    let caller = |offset: u64| vm::word(regs.rbp.wrapping_add(offset)).unwrap_or(0);
    let (fp, pc, sp) = (caller(0), caller(8), regs.rbp.wrapping_add(16));
    let header = StackHeader { index, now_ns, time_ns, child_ns, off_ns, probability, ..header(StackKind::Stub) };
    (StackHeader { fp, pc, sp, ..at(header, regs) }, regs.r15)
}

/// Takes the stack of the current thread, wherever it is.
///
/// # Safety
/// `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn of_thread(kind: StackKind, call: Option<Open>, probability: u64, regs: *const pt_regs) -> bool {
    let Some(pace) = NPROF_PACE.get_ptr_mut(0) else { return false };
    // SAFETY: the helper takes no pointer.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let Open { index, sp, env } = call.unwrap_or(Open { index: StackHeader::NO_CALL, sp: 0, env: 0 });
    let header = StackHeader { index, now_ns, probability, call_sp: sp, ..header(kind) };
    // SAFETY: the caller's promise.
    let header = at(header, unsafe { &*regs });
    // SAFETY: as above.
    unsafe { take(pace, header, Thread { env, java: 0 }) }
}

/// Decides whether the stack of a thread that stops is taken: returns the chance that it had, or 0.
#[inline(always)]
pub(crate) fn stop_probability() -> u64 {
    let Some(pace) = NPROF_PACE.get_ptr_mut(0) else { return 0 };
    // SAFETY: the map gave the pointer. Volatile, because user space changes the word at any time.
    let probability = unsafe { (&raw const (*pace).stop_probability).read_volatile() };
    // SAFETY: the helper takes no pointer.
    if probability < Pace::CERTAIN && u64::from(unsafe { bpf_get_prandom_u32() }) >= probability {
        0
    } else {
        probability
    }
}

/// Tells how long a thread has not been running whose stack was taken when it stopped.
#[inline(always)]
pub(crate) fn resumed(tid: u32, now_ns: u64, time_ns: u64) {
    let map = (&raw const NPROF_STACKS).cast_mut().cast();
    // SAFETY: the map is a ring buffer.
    let record = unsafe { bpf_ringbuf_reserve(map, size_of::<StackHeader>() as u64, 0) }.cast::<StackHeader>();
    if record.is_null() {
        if let Some(pace) = NPROF_PACE.get_ptr_mut(0) {
            // SAFETY: the map gave the pointer.
            unsafe { atomic::add(&raw mut (*pace).no_room, 1) };
        }
        return;
    }
    let header = StackHeader { tid, now_ns, time_ns, ..header(StackKind::Resume) };
    // SAFETY: the record is of that size.
    unsafe { record.write(header) };
    // SAFETY: the record was reserved above.
    unsafe { bpf_ringbuf_submit(record.cast(), QUIETLY) };
}

/// Counts a call for whose event there was no room.
#[inline(always)]
pub(crate) fn lose_call() {
    if let Some(pace) = NPROF_PACE.get_ptr_mut(0) {
        // SAFETY: the map gave the pointer.
        unsafe { atomic::add(&raw mut (*pace).calls_lost, 1) };
    }
}

/// What is the same in all headers.
#[inline(always)]
pub(crate) fn header(kind: StackKind) -> StackHeader {
    let thread = bpf_get_current_pid_tgid();
    let (tgid, tid) = ((thread >> 32) as u32, thread as u32);
    StackHeader {
        kind: kind as u32,
        index: StackHeader::NO_CALL,
        tgid,
        tid,
        now_ns: 0,
        time_ns: 0,
        child_ns: 0,
        off_ns: 0,
        probability: 0,
        pc: 0,
        sp: 0,
        fp: 0,
        bcp: 0,
        rax: 0,
        rbx: 0,
        call_sp: 0,
        anchor: LastJavaFrame { sp: 0, pc: 0, fp: 0 },
        stack_bytes: 0,
        entry_sp: 0,
        frozen_bytes: 0,
        frozen_more: 0,
        collections: 0,
    }
}

/// The same with registers.
#[inline(always)]
pub(crate) fn at(header: StackHeader, regs: &pt_regs) -> StackHeader {
    StackHeader { pc: regs.rip, sp: regs.rsp, fp: regs.rbp, bcp: regs.r13, rax: regs.rax, rbx: regs.rbx, ..header }
}

/// A chance for the call as such, and one for each nanosecond that it took.
#[inline(always)]
fn probability_of(per_call: u64, self_ns: u64, period_ns: u64) -> u64 {
    if period_ns == 0 {
        return per_call;
    }
    if self_ns >= period_ns {
        return Pace::CERTAIN;
    }
    // Neither is above 2^32 here, or the shift below would lose bits: such periods are over four seconds.
    let (time, period) = if period_ns >> 32 == 0 { (self_ns, period_ns) } else { (self_ns >> 16, period_ns >> 16) };
    // Without a checked division there would be a way to panic, which the verifier refuses.
    (per_call + (time << 32).checked_div(period).unwrap_or(0)).min(Pace::CERTAIN)
}

/// Copies registers and stack into the ring. Returns whether there was room.
///
/// # Safety
/// `pace` is of a map.
#[inline(always)]
unsafe fn take(pace: *mut Pace, mut header: StackHeader, mut thread: Thread) -> bool {
    // SAFETY: the map gave the pointer. Volatile, because others write.
    let (taken, allowed) =
        unsafe { ((&raw const (*pace).taken).read_volatile(), (&raw const (*pace).allowed).read_volatile()) };
    if taken >= allowed {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*pace).over_pace, 1) };
        return false;
    }
    let pages = maps::stack_pages();
    let size = size_of::<StackHeader>() + pages * PAGE;
    // SAFETY: the map is a ring buffer, and the verifier knows the size: it is made of a constant.
    let record = unsafe { bpf_ringbuf_reserve(ring(), size as u64, 0) }.cast::<u8>();
    if record.is_null() {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*pace).no_room, 1) };
        return false;
    }
    // A call that has returned is left for Java: there the registers tell all.
    if header.kind != StackKind::Return as u32 && header.kind != StackKind::Stub as u32 {
        (header.anchor, thread.java) = anchor(header.tid, thread.env);
    }
    // SAFETY: the record has room for the header, and for so many pages.
    unsafe { fill(record, header, thread) };
    // SAFETY: the map gave the pointer.
    unsafe { atomic::add(&raw mut (*pace).taken, 1) };
    // SAFETY: the record was reserved above.
    unsafe { bpf_ringbuf_submit(record.cast(), QUIETLY) };
    true
}

/// The ring that stacks go out by.
#[inline(always)]
pub(crate) fn ring() -> *mut core::ffi::c_void {
    (&raw const NPROF_STACKS).cast_mut().cast()
}

/// Writes a header and the stack behind it.
///
/// # Safety
/// `record` has room for the header and [`maps::stack_pages`] pages.
#[inline(always)]
pub(crate) unsafe fn fill(record: *mut u8, mut header: StackHeader, thread: Thread) {
    header.collections = vm::collections();
    // Before the stack: the verifier then forgets in how many ways a header can have come about.
    // SAFETY: the caller's promise.
    unsafe { record.cast::<StackHeader>().write(header) };
    // SAFETY: as above.
    unsafe { copy_stack(record.cast(), maps::stack_pages(), header.sp, thread) };
}

/// Copies the stack and, of a thread that runs a continuation, what is frozen of it.
///
/// # Safety
/// There is room for `pages` pages behind the header.
#[inline(always)]
unsafe fn copy_stack(header: *mut StackHeader, pages: usize, sp: u64, thread: Thread) {
    // SAFETY: the caller's promise.
    unsafe {
        let into = header.add(1).cast::<u8>();
        if let Some(copied) = frozen::copy(into, pages, sp, thread) {
            (*header).stack_bytes = copied.stack_bytes;
            (*header).entry_sp = copied.entry_sp;
            (*header).frozen_bytes = copied.frozen_bytes;
            (*header).frozen_more = copied.frozen_more;
        } else {
            (*header).stack_bytes = copy_pages(into, sp & !(PAGE as u64 - 1), pages) * PAGE as u64;
        }
    }
}

/// Copies pages until one cannot be read. Returns how many there are.
///
/// # Safety
/// There is room for `pages` of them at `into`.
#[inline(always)]
unsafe fn copy_pages(into: *mut u8, base: u64, pages: usize) -> u64 {
    for page in 0..MAX_PAGES {
        if page >= pages {
            return pages as u64;
        }
        let from = base.wrapping_add((page * PAGE) as u64) as *const _;
        // SAFETY: the caller's promise; the helper takes any address.
        if unsafe { bpf_probe_read_user(into.add(page * PAGE).cast(), PAGE as u32, from) } != 0 {
            return page as u64;
        }
    }
    pages as u64
}

/// The last Java frame of a thread as it notes it now, and its `JavaThread`; zeros if it is in Java or not known. Threads
/// that user space has not met yet are known by the first argument of the call that they are in.
#[inline(always)]
pub(crate) fn anchor(tid: u32, env: u64) -> (LastJavaFrame, u64) {
    let mut anchor = LastJavaFrame { sp: 0, pc: 0, fp: 0 };
    // SAFETY: nobody deletes while programs run: user space only adds.
    let place = unsafe { NPROF_ANCHORS.get(tid) }.copied().or_else(|| maps::anchor_place(env));
    let Some(place) = place else { return (anchor, 0) };
    let words = [(&raw mut anchor.sp, place.sp), (&raw mut anchor.pc, place.pc), (&raw mut anchor.fp, place.fp)];
    for (word, from) in words {
        // SAFETY: the word is one of ours; the helper takes any address, and writes zeros if it cannot be read.
        unsafe { bpf_probe_read_user(word.cast(), size_of::<u64>() as u32, from as *const _) };
    }
    (anchor, place.thread)
}
