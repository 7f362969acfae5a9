//! Calls of JNI functions: counted for the native method that makes them, and looked at as their kind says
//! ([`nprof_common::jni`]).
//!
//! A function's caller is the innermost open call, if that is a native method's. If it is a JNI function's, the VM itself calls,
//! or native code that is not traced: both are nobody's calls.

use core::ptr;

use aya_ebpf::bindings::{BPF_NOEXIST, BPF_RB_NO_WAKEUP, pt_regs};
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::generated::{bpf_ringbuf_reserve, bpf_ringbuf_submit};
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::btf_map;
use nprof_common::jni::{
    BUFFERS_MADE, COLLECTION_WAITS, CRITICAL_SECTIONS, JNI_SHARDS, LETS_UNKNOWN_GO, NO_CALLER, of_pair, pair,
};
use nprof_common::stats::{CALLEE_SHIFT, KIND_SHIFT};
use nprof_common::{
    CallEvent, Frame, Frames, JniCalled, JniCallee, JniCalls, JniEvent, JniHold, JniKind, JniShards, Loss, MethodStats,
};

use crate::{atomic, calls, collections, held, locals, look_ups, losses, stacks, threads, thrown, timeline};

/// The calls by native method and function. The loader says for how many pairs there is room, and of the next for how many
/// Java methods and threads.
#[btf_map]
static NPROF_JNI: HashMap<u64, JniShards, 1> = HashMap::new();

/// Of functions that call Java, the calls by Java method besides. Those for which there is no room are in [`NPROF_JNI`].
#[btf_map]
static NPROF_CALLED: HashMap<JniCalled, JniShards, 1> = HashMap::new();

/// The threads that are in critical sections.
#[btf_map]
static NPROF_HOLDS: HashMap<u32, JniHold, 1> = HashMap::new();

/// No calls.
static NONE: JniShards = [JniCalls::NONE; JNI_SHARDS];

/// The mode of `Release…ArrayElements` that copies elements back and does not let them go.
const JNI_COMMIT: u32 = 1;
/// Lost calls are counted up to about twice as many.
const MOST_LOST: u16 = 0xffe;
/// What [`Frame::caller_and_lost`] has besides their number.
const FLAGS: u16 = Frame::CALLER | Frame::HOLDS | Frame::LOCALS;

pub(crate) const MEMBER: u64 = JniKind::Member as u64;
pub(crate) const CLASS: u64 = JniKind::Class as u64;
const MAKES: u64 = JniKind::Makes as u64;
pub(crate) const LETS_GO: u64 = JniKind::LetsGo as u64;
const LETS_ELEMENTS_GO: u64 = JniKind::LetsElementsGo as u64;
const CLEARS: u64 = JniKind::Clears as u64;
const ENTERS: u64 = JniKind::Enters as u64;
const LEAVES: u64 = JniKind::Leaves as u64;
const MAKES_BUFFER: u64 = JniKind::MakesBuffer as u64;
pub(crate) const PUSHES_FRAME: u64 = JniKind::PushesFrame as u64;
pub(crate) const POPS_FRAME: u64 = JniKind::PopsFrame as u64;
pub(crate) const MAKES_ROOM: u64 = JniKind::MakesRoom as u64;

const NO_CALLEE: u64 = JniCallee::Nothing as u64;
const THIRD: u64 = JniCallee::Third as u64;
const FOURTH: u64 = JniCallee::Fourth as u64;

/// Whether a record is of a JNI function.
#[inline(always)]
pub(crate) fn is_function(stats: *const MethodStats) -> bool {
    kind(stats) != JniKind::Method as u64
}

/// Whom JNI functions are counted for that are called within a call: the record of its native method, or nobody.
#[inline(always)]
pub(crate) fn caller_in(call: &Frame) -> u32 {
    if call.caller_and_lost & Frame::CALLER == 0 { NO_CALLER } else { call.index }
}

/// Tells of a call that has just been taken off `frames`, with how deep it was and how it has ended. What cannot be told is noted in
/// the call that it was in.
///
/// # Safety
/// `stats` is of a map, and `frames` are the current thread's, of a map.
#[inline(never)]
pub(crate) unsafe fn tell(stats: *const MethodStats, frames: *mut Frames, time_ns: u64) {
    // SAFETY: the caller's promise.
    let Frames { depth, frames, .. } = unsafe { &mut *frames };
    let depth = *depth;
    let Some(&call) = frames.get(depth as usize) else { return };
    let parent = frames.get_mut((depth as usize).wrapping_sub(1));
    let is_caller = |call: &Frame| call.caller_and_lost & Frame::CALLER != 0;
    let of_parent = parent.as_ref().filter(|parent| is_caller(parent)).map_or(0, |parent| parent.env);
    let env = if is_caller(&call) { call.env } else { of_parent };
    let told = CallEvent { start_ns: call.start_ns, time_ns, index: call.index, tid: threads::current_tid() };
    let lost = call.caller_and_lost >> Frame::LOST_SHIFT;
    let callee = if callee(stats) == NO_CALLEE { 0 } else { call.env };
    let event = JniEvent { call: told, depth, lost: lost.into(), exception: thrown::pending(env), callee };
    // SAFETY: the map is a ring buffer.
    let record = unsafe { bpf_ringbuf_reserve(timeline::ring(), size_of::<JniEvent>() as u64, 0) }.cast::<JniEvent>();
    if record.is_null() {
        if let Some(parent) = parent {
            let before = parent.caller_and_lost >> Frame::LOST_SHIFT;
            let lost = u16::min(before, MOST_LOST) + u16::min(lost, MOST_LOST) + 1;
            parent.caller_and_lost = lost << Frame::LOST_SHIFT | parent.caller_and_lost & FLAGS;
        }
        return stacks::lose_call();
    }
    // SAFETY: the record is of that size, and was reserved above.
    unsafe {
        record.write(event);
        bpf_ringbuf_submit(record.cast(), u64::from(BPF_RB_NO_WAKEUP));
    }
}

/// What a call is about that begins: what [`Frame::env`] keeps of it.
///
/// # Safety
/// `stats` is of a map and `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn subject(stats: *const MethodStats, regs: *const pt_regs) -> u64 {
    // SAFETY: the caller's promise.
    let (env, first, second, third) = unsafe { ((*regs).rdi, (*regs).rsi, (*regs).rdx, (*regs).rcx) };
    match kind(stats) {
        _ if callee(stats) != NO_CALLEE => id(stats, second, third),
        // SAFETY: the caller's promise.
        kind @ (MEMBER | CLASS) => look_ups::begin(kind, [first, second, third], unsafe { (*regs).rsp }),
        LETS_GO if first == 0 => 0,
        LETS_GO => held::let_go(stats, first, second),
        LETS_ELEMENTS_GO if third as u32 == JNI_COMMIT => 0,
        LETS_ELEMENTS_GO => held::let_go(stats, first, second),
        CLEARS => thrown::pending(env),
        LEAVES => {
            leave();
            held::let_go(stats, first, second)
        }
        MAKES | ENTERS => held::object(stats, first),
        MAKES_BUFFER => second,
        PUSHES_FRAME | MAKES_ROOM => first,
        _ => env,
    }
}

/// Counts a call of which nothing else is wanted, if it is of a JNI function.
///
/// # Safety
/// As [`subject`].
#[inline(always)]
pub(crate) unsafe fn count(stats: *const MethodStats, index: u32, regs: *const pt_regs) {
    let kind = kind(stats);
    if kind == JniKind::Method as u64 {
        return;
    }
    // SAFETY: the caller's promise.
    let id = unsafe { id(stats, (*regs).rdx, (*regs).rcx) };
    let Some(calls) = calls_of(calls::caller(), index, id) else { return };
    // SAFETY: the map gave the pointer.
    add(unsafe { &raw mut (*calls).calls }, 1);
    let is_known_at_entry = matches!(kind, LETS_GO | LETS_ELEMENTS_GO | CLEARS | LEAVES);
    // SAFETY: the caller's promise.
    let about = if is_known_at_entry { unsafe { subject(stats, regs) } } else { 1 };
    // SAFETY: as above.
    let (vain, unknown) = unsafe { (&raw mut (*calls).vain, &raw mut (*calls).unknown) };
    add(vain, u64::from(about == 0));
    add(unknown, u64::from(kind != CLEARS && about == LETS_UNKNOWN_GO));
    if kind == CLEARS && about != 0 {
        thrown::note_cleared(calls::caller(), index, about);
    }
    if held::is_local(stats)
        && let Some(frames) = threads::frames()
    {
        // SAFETY: the maps gave both, and the caller's promise.
        unsafe { locals::note(stats, frames, (*regs).rsi, 0) };
    }
}

/// Records a call of a JNI function that has returned and was just taken off `frames`, with how long its thread was not running in it
/// and in no nested one. Returns whether the stack is wanted in which something was made: 1, or 0.
///
/// A function that is called: its variables have no room beside those of what calls it.
///
/// # Safety
/// `stats` and `frames` are of maps.
#[inline(never)]
pub(crate) unsafe fn end(
    stats: *const MethodStats,
    frames: *mut Frames,
    time_ns: u64,
    off_ns: u64,
    returned: u64,
) -> u64 {
    // SAFETY: the caller's promise; the frames are the current thread's.
    let Frames { depth, frames, .. } = unsafe { &mut *frames };
    let (depth, kind, is_null) = (*depth as usize, kind(stats), returned == 0);
    if kind == ENTERS
        && !is_null
        && let Some(caller) = frames.get_mut(depth.wrapping_sub(1))
    {
        caller.caller_and_lost |= Frame::HOLDS;
    }
    let Some(frame) = frames.get(depth) else { return 0 };
    let caller = frames.get(depth.wrapping_sub(1)).map_or(NO_CALLER, caller_in);
    let id = if callee(stats) == NO_CALLEE { 0 } else { frame.env };
    let Some(calls) = calls_of(caller, frame.index, id) else { return 0 };
    // SAFETY: the map gave the pointer.
    let calls = unsafe { &mut *calls };
    let times = [
        (&raw mut calls.total_ns, time_ns),
        (&raw mut calls.child_ns, frame.child_ns),
        (&raw mut calls.off_ns, off_ns),
    ];
    for (counter, more) in [(&raw mut calls.calls, 1), (&raw mut calls.timed, 1)].into_iter().chain(times) {
        add(counter, more);
    }
    // SAFETY: as above.
    if !unsafe { atomic::raise(&raw mut calls.max_ns, time_ns) } {
        losses::lose(Loss::MaxContended, frame.index, frame.sp);
    }
    let is_vain = match kind {
        MEMBER | CLASS | MAKES | MAKES_BUFFER | POPS_FRAME | ENTERS => is_null,
        LETS_GO | LETS_ELEMENTS_GO | CLEARS => frame.env == 0,
        _ => false,
    };
    if is_vain {
        add(&raw mut calls.vain, 1);
    } else if kind == MEMBER || kind == CLASS {
        look_ups::end(kind, caller, frame, time_ns.saturating_sub(frame.child_ns + off_ns));
    } else if kind == CLEARS {
        thrown::note_cleared(caller, frame.index, frame.env);
    } else if kind == MAKES_BUFFER {
        sum(caller, BUFFERS_MADE, frame.env);
    } else if kind == ENTERS {
        enter(caller, frame, frame.start_ns + time_ns);
    }
    let is_unknown = frame.env == LETS_UNKNOWN_GO && matches!(kind, LETS_GO | LETS_ELEMENTS_GO | LEAVES);
    add(&raw mut calls.unknown, u64::from(is_unknown));
    let makes = !is_null && (kind == MAKES || kind == ENTERS);
    u64::from(makes && held::hold(stats, caller, frame, frame.start_ns + time_ns, returned))
}

/// The current thread begins a critical section.
#[inline(always)]
fn enter(caller: u32, frame: &Frame, now_ns: u64) {
    let tid = threads::current_tid();
    if let Some(hold) = NPROF_HOLDS.get_ptr_mut(tid) {
        // SAFETY: the map gave the pointer, and only the thread itself comes here.
        unsafe { (*hold).depth += 1 };
        return;
    }
    let pair = pair(caller, frame.index | CRITICAL_SECTIONS);
    let hold = JniHold { depth: 1, since_ns: now_ns, pair };
    if NPROF_HOLDS.insert(tid, hold, u64::from(BPF_NOEXIST)).is_err() {
        losses::lose(Loss::NoJniRoom, frame.index, frame.sp);
    }
}

/// The current thread ends a critical section. There is none if it began before its function was traced, or was only counted.
#[inline(always)]
fn leave() {
    let tid = threads::current_tid();
    // SAFETY: the helper takes no pointer.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let Some(hold) = NPROF_HOLDS.get_ptr_mut(tid) else { return collections::section_ends(NO_CALLER, now_ns) };
    // SAFETY: as above.
    let JniHold { depth, since_ns, pair } = unsafe { &mut *hold };
    if *depth > 1 {
        *depth -= 1;
        return;
    }
    let time_ns = now_ns.saturating_sub(*since_ns);
    let (caller, function) = of_pair(*pair);
    collections::section_ends(caller, now_ns);
    let sections = calls_of(caller, function, 0);
    // It was there a moment ago, and nobody else takes it away.
    _ = NPROF_HOLDS.remove(tid);
    let Some(sections) = sections else { return };
    lasted(sections, function & !CRITICAL_SECTIONS, time_ns);
}

/// A collection has waited for the end of critical sections, the last of which the native method with this record had held.
#[inline(always)]
pub(crate) fn waited(caller: u32, time_ns: u64) {
    sum(caller, COLLECTION_WAITS, time_ns);
}

/// Adds to what is summed up of a native method in place of a function.
#[inline(always)]
fn sum(caller: u32, of: u32, amount: u64) {
    if let Some(sums) = calls_of(caller, of, 0) {
        lasted(sums, 0, amount);
    }
}

/// The same of what goes on: whether something more has begun to be counted, and the most that was reached so far.
#[inline(always)]
pub(crate) fn reached(caller: u32, of: u32, more: u64, most: u64) {
    let Some(sums) = calls_of(caller, of, 0) else { return };
    // SAFETY: the map gave the pointer.
    let JniCalls { calls, max_ns, .. } = unsafe { &mut *sums };
    add(calls, more);
    // SAFETY: as above.
    if !unsafe { atomic::raise(max_ns, most) } {
        losses::lose(Loss::MaxContended, caller, 0);
    }
}

/// Adds something that lasted so long. It is kept for `function`.
#[inline(always)]
fn lasted(of: *mut JniCalls, function: u32, time_ns: u64) {
    // SAFETY: the callers have it from a map.
    let JniCalls { calls, timed, total_ns, max_ns, .. } = unsafe { &mut *of };
    for (counter, more) in [(calls, 1), (timed, 1), (total_ns, time_ns)] {
        add(counter, more);
    }
    // SAFETY: as above.
    if !unsafe { atomic::raise(max_ns, time_ns) } {
        losses::lose(Loss::MaxContended, function, 0);
    }
}

/// A native method returns that has begun a critical section, or its thread ends: what that holds is not told any longer. The section's end
/// was not seen, or may not be.
#[inline(never)]
pub(crate) fn forget_hold() {
    _ = NPROF_HOLDS.remove(threads::current_tid());
}

/// The calls of a function by a native method, the shard of this CPU; `None`, which is a loss, if there is no room for more. Those of one
/// Java method, if its `id` is given and there is room for them.
#[inline(always)]
pub(crate) fn calls_of(caller: u32, function: u32, id: u64) -> Option<*mut JniCalls> {
    let calls = calls_or_null(caller, function, id);
    (!calls.is_null()).then_some(calls)
}

/// The same as one word, all that a function can return.
#[inline(never)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "the value is too large for the stack")]
fn calls_or_null(caller: u32, function: u32, id: u64) -> *mut JniCalls {
    let key = pair(caller, function);
    let known = if id == 0 { None } else { called(&JniCalled { pair: key, id }) };
    // Another CPU may be faster in making a place, which is as good; or there is no room, which shows next.
    let known = known.or_else(|| NPROF_JNI.get_ptr_mut(key)).or_else(|| {
        _ = NPROF_JNI.insert(key, &NONE, u64::from(BPF_NOEXIST));
        NPROF_JNI.get_ptr_mut(key)
    });
    let Some(shards) = known else {
        let index = if function & COLLECTION_WAITS == 0 { function & !CRITICAL_SECTIONS } else { 0 };
        losses::lose(Loss::NoJniRoom, index, 0);
        return ptr::null_mut();
    };
    // SAFETY: the helper takes no pointer.
    let shard = unsafe { bpf_get_smp_processor_id() } as usize % JNI_SHARDS;
    // SAFETY: the shard is one of the value's.
    unsafe { shards.cast::<JniCalls>().add(shard) }
}

/// The calls of one Java method.
#[inline(always)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "the value is too large for the stack")]
fn called(key: &JniCalled) -> Option<*mut JniShards> {
    NPROF_CALLED.get_ptr_mut(key).or_else(|| {
        _ = NPROF_CALLED.insert(key, &NONE, u64::from(BPF_NOEXIST));
        NPROF_CALLED.get_ptr_mut(key)
    })
}

/// The id of the Java method that a function calls, which is its third or fourth argument; 0 if it calls none.
#[inline(always)]
fn id(stats: *const MethodStats, third: u64, fourth: u64) -> u64 {
    match callee(stats) {
        THIRD => third,
        FOURTH => fourth,
        _ => 0,
    }
}

/// Which argument is the id of the Java method that a function calls.
#[inline(always)]
fn callee(stats: *const MethodStats) -> u64 {
    // SAFETY: as in [`kind`].
    unsafe { (*stats).brief >> CALLEE_SHIFT & 0xff }
}

/// What is looked at of a function.
#[inline(always)]
pub(crate) fn kind(stats: *const MethodStats) -> u64 {
    // SAFETY: the callers have the record from its map.
    unsafe { (*stats).brief >> KIND_SHIFT & 0xff }
}

#[inline(always)]
pub(crate) fn add(counter: *mut u64, value: u64) {
    if value != 0 {
        // SAFETY: the callers pass places in a map value.
        unsafe { atomic::add(counter, value) };
    }
}
