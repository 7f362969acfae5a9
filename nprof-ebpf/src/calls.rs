//! The life of a call: begun by an entry, ended by its return, by the end of its thread, or given up.
//!
//! Frames are matched by stack pointer. The stack grows down, so a frame that lies below the stack pointer of an
//! event has been left: its return was lost and it is given up, which cannot shift the frames above it.

use core::ffi::c_void;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_loop;
use nprof_common::histogram::{BUCKETS, bucket_of};
use nprof_common::jni::NO_CALLER;
use nprof_common::stack::collect;
use nprof_common::stats::BRIEF;
use nprof_common::{Frame, Frames, Loss, MAX_FRAMES, MethodStats, ThreadCalls};

use crate::off_cpu::Total;
use crate::stacks::{Ended, Open};
use crate::{
    args, atomic, by_thread, counters, held, jni, locals, losses, made, maps, off_cpu, slow, stacks, threads, thrown,
    timeline,
};

/// Counts a call of which nothing else is wanted.
#[inline(always)]
pub(crate) fn count(stats: *mut MethodStats) {
    // SAFETY: the map gave the pointer.
    unsafe { atomic::add(&raw mut (*stats).counted, 1) };
}

/// Begins a timed call.
///
/// # Safety
/// `regs` are those of the current thread in user space, at the call's first instruction.
#[inline(always)]
pub(crate) unsafe fn begin(stats: *mut MethodStats, index: u32, sp: u64, regs: *const pt_regs) {
    // SAFETY: the map gave the pointer.
    unsafe { atomic::add(&raw mut (*stats).entered, 1) };
    let Some(frames) = threads::frames_or_new() else { return give_up(index, sp, Loss::NoFrame) };
    // SAFETY: the map gave the pointer, and no other thread has this one's frames.
    let frames = unsafe { &mut *frames };
    off_cpu::settle(frames);
    drop_left(frames, index, sp);
    let Total { ns: off_ns, missed } = off_cpu_at_entry(frames);
    let (depth, owner) = (frames.depth, frames.owner);
    let Some(frame) = frames.frames.get_mut(depth as usize) else { return give_up(index, sp, Loss::TooDeep) };
    frames.depth = depth + 1;
    if counters::are_wanted() {
        counters::begin(depth, index, sp);
    }
    if maps::collects(collect::ARGS) {
        // SAFETY: the caller's promise.
        unsafe { args::note(owner, depth, index, regs) };
    }
    // SAFETY: as above.
    let env = unsafe { if maps::collects(collect::JNI) { jni::subject(stats, regs) } else { (*regs).rdi } };
    let is_caller = maps::collects(collect::JNI) && !jni::is_function(stats);
    let caller_and_lost = if is_caller { Frame::CALLER } else { 0 };
    // Last of all, so that our own work is not part of the call's time.
    // SAFETY: the helper takes no pointer.
    let start_ns = unsafe { bpf_ktime_get_ns() };
    *frame = Frame { start_ns, sp, child_ns: 0, off_ns, child_off_ns: 0, env, index, missed, caller_and_lost };
}

/// Ends the innermost call that was entered with this stack pointer. There may be none: the call began before its probe
/// was attached, or while its method was switched off.
///
/// Several calls have the same stack pointer if one jumped to the next as its last act. They return together, and the
/// kernel reports the innermost first, as they are kept here.
///
/// # Safety
/// `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn end(sp: u64, now: u64, regs: *const pt_regs) {
    // SAFETY: the caller's promise. Before anything else: whoever reads it in several places reads it from an address that the
    // verifier does not know any more.
    let returned = unsafe { (&raw const (*regs).rax).read_volatile() };
    let Some(frames) = threads::frames() else { return };
    // SAFETY: as in `begin`.
    let frames = unsafe { &mut *frames };
    off_cpu::settle(frames);
    for _ in 0..MAX_FRAMES {
        let Some(frame) = top(frames) else { return };
        if frame.sp > sp {
            return;
        }
        frames.depth -= 1;
        if frame.sp == sp {
            let Some((stats, ended)) = record(frames, frame, now) else { return };
            if maps::collects(collect::JNI) && jni::is_function(stats) {
                // SAFETY: `record` has the record from its map.
                let is_wanted = unsafe { jni::end(stats, frames, ended.time_ns, ended.off_ns, returned) };
                if maps::collects(collect::HELD) && is_wanted != 0 {
                    let caller = top(frames).map_or(0, |caller| caller.env);
                    // SAFETY: as above; the registers are the caller's promise.
                    unsafe { made::tell(stats, (ended.index, ended.now_ns, returned), caller, regs) };
                } else if held::is_local(stats) {
                    // No stack is wanted of these.
                    // SAFETY: as above.
                    unsafe { locals::note(stats, frames, frame.env, returned) };
                }
                return;
            }
            if maps::collects(collect::JNI) {
                if frame.caller_and_lost & Frame::HOLDS != 0 {
                    jni::forget_hold();
                }
                end_locals(frames, &frame);
                thrown::note_pending(frame.index, frame.env);
            }
            if counters::are_results_wanted() {
                // SAFETY: `record` has the record from its map; the registers are the caller's promise.
                unsafe { counters::result(stats, frame.index, frame.env, regs) };
            }
            if maps::collects(collect::SLOW) && slow::is_told(ended.index, ended.time_ns) {
                // SAFETY: the caller's promise.
                unsafe { slow::tell(&slow_call(frames, frame, ended), frames, regs) };
            }
            if timeline::has_args() {
                timeline::tell_made(frames, &frame, ended.time_ns, Some(returned));
            }
            if maps::collects(collect::RETURNS) {
                // SAFETY: `record` has the record from its map; the registers are the caller's promise.
                unsafe { stacks::of_call(stats, ended, regs) };
            }
            return;
        }
        give_up(frame.index, frame.sp, Loss::Unreturned);
    }
}

/// Ends all calls of a thread that ends. They lasted until now.
#[inline(always)]
pub(crate) fn end_all(mut now: u64) {
    let Some(frames) = threads::frames() else { return };
    // It may have been woken up only to end, without having been seen to.
    // SAFETY: as in `begin`.
    off_cpu::settle(unsafe { &mut *frames });
    let step: unsafe extern "C" fn(u64, *mut u64) -> i64 = end_innermost;
    // A loop helper, because the verifier would otherwise walk through each of the rounds.
    // SAFETY: the callback takes what is passed here, which outlives the call.
    unsafe { bpf_loop(MAX_FRAMES as u32, step as *mut c_void, (&raw mut now).cast(), 0) };
    if maps::collects(collect::JNI) {
        jni::forget_hold();
    }
    threads::leave();
}

/// Ends the innermost call of a thread that ends. Returns whether there was none, which ends the loop.
unsafe extern "C" fn end_innermost(_round: u64, now: *mut u64) -> i64 {
    let Some(frames) = threads::frames() else { return 1 };
    // SAFETY: as in `begin`.
    let frames = unsafe { &mut *frames };
    let Some(frame) = top(frames) else { return 1 };
    frames.depth -= 1;
    // SAFETY: `end_all` passes its own variable.
    let Some((_, ended)) = record(frames, frame, unsafe { *now }) else { return 0 };
    end_locals(frames, &frame);
    if maps::collects(collect::SLOW) && slow::is_told(ended.index, ended.time_ns) {
        slow::tell_end(&slow_call(frames, frame, ended), frames);
    }
    if timeline::has_args() {
        timeline::tell_made(frames, &frame, ended.time_ns, None);
    }
    0
}

/// Gives up the frames that have been left when a call begins at `sp`: those below it, and one of the same method
/// at the same place. Another method's frame at the same place is alive: it has jumped here as its last act.
#[inline(always)]
fn drop_left(frames: &mut Frames, index: u32, sp: u64) {
    for _ in 0..MAX_FRAMES {
        let Some(frame) = top(frames) else { return };
        if frame.sp > sp || (frame.sp == sp && frame.index != index) {
            return;
        }
        frames.depth -= 1;
        give_up(frame.index, frame.sp, Loss::Unreturned);
    }
}

/// The innermost open call.
#[inline(always)]
fn top(frames: &Frames) -> Option<Frame> {
    frames.frames.get((frames.depth as usize).wrapping_sub(1)).copied()
}

/// Counts a call whose end was not or will not be seen.
#[inline(always)]
fn give_up(index: u32, sp: u64, loss: Loss) {
    if let Some(stats) = maps::stats(index) {
        // SAFETY: the map gave the pointer.
        unsafe { atomic::add(&raw mut (*stats).untimed, 1) };
        by_thread::add(index, ThreadCalls { untimed: 1, ..ThreadCalls::NONE });
        // SAFETY: as above.
        if unsafe { (*stats).brief } & BRIEF != 0 {
            return;
        }
    }
    losses::lose(loss, index, sp);
}

/// Records a call that has just been taken off `frames`, and charges its time to the call that made it.
#[inline(always)]
fn record(frames: &mut Frames, call: Frame, now: u64) -> Option<(*const MethodStats, Ended)> {
    let time_ns = now.saturating_sub(call.start_ns);
    if counters::are_wanted() {
        counters::end(frames.depth, call);
    }
    let off_ns = if maps::collects(collect::OFF_CPU) { off_ns_since(frames, call) } else { Some(0) };
    let (is_off_known, off_ns) = (off_ns.is_some(), off_ns.unwrap_or(0).min(time_ns));
    if let Some(parent) = frames.frames.get_mut((frames.depth as usize).wrapping_sub(1)) {
        parent.child_ns += time_ns;
        if maps::collects(collect::OFF_CPU) {
            parent.child_off_ns += off_ns;
        }
    }
    let Some(stats) = maps::stats(call.index) else {
        losses::lose(Loss::BadIndex, call.index, call.sp);
        return None;
    };
    let bucket = bucket_of(time_ns) as usize;
    if bucket >= BUCKETS {
        return None;
    }
    // SAFETY: the map gave the pointer.
    unsafe { atomic::add(&raw mut (*stats).total_ns, time_ns) };
    // SAFETY: as above, and the bucket is one of the record's.
    unsafe { atomic::add((&raw mut (*stats).histogram).cast::<u64>().add(bucket), 1) };
    if call.child_ns != 0 {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*stats).child_ns, call.child_ns) };
    }
    let self_off_ns = off_ns.saturating_sub(call.child_off_ns);
    if self_off_ns != 0 {
        // SAFETY: as above.
        unsafe { atomic::add(&raw mut (*stats).off_ns, self_off_ns) };
    }
    let of_thread = ThreadCalls { timed: 1, total_ns: time_ns, child_ns: call.child_ns, ..ThreadCalls::NONE };
    by_thread::add(call.index, ThreadCalls { off_ns: self_off_ns, ..of_thread });
    // SAFETY: as above.
    if !unsafe { atomic::raise(&raw mut (*stats).max_ns, time_ns) } {
        losses::lose(Loss::MaxContended, call.index, call.sp);
    }
    if maps::collects(collect::CALLS) && maps::collects(collect::JNI) {
        // SAFETY: the map gave the record, and the frames are the current thread's.
        unsafe { jni::tell(stats, frames, time_ns) };
    } else if maps::collects(collect::CALLS) && !timeline::has_args() {
        timeline::tell(call.index, call.start_ns, time_ns);
    }
    if maps::collects(collect::SLOW) {
        slow::hand_up_wait(frames, &call);
    }
    let Frame { index, child_ns, env, .. } = call;
    let ended = Ended { index, now_ns: now, time_ns, child_ns, off_ns: self_off_ns, is_off_known, env };
    Some((stats.cast_const(), ended))
}

/// Forgets the local references of a call that has been taken off `frames`.
#[inline(always)]
fn end_locals(frames: &Frames, call: &Frame) {
    if maps::collects(collect::HELD) && call.caller_and_lost & Frame::LOCALS != 0 {
        locals::end(frames.depth);
    }
}

/// A call that has been taken off `frames` and recorded, as a slow one is told.
#[inline(always)]
fn slow_call(frames: &Frames, frame: Frame, ended: Ended) -> slow::Ended {
    let Ended { now_ns, time_ns, off_ns, is_off_known, .. } = ended;
    let off_ns = if is_off_known { off_ns + frame.child_off_ns } else { Frame::UNKNOWN };
    slow::Ended { frame, depth: frames.depth, now_ns, time_ns, off_ns }
}

/// What a call begins with, where it is measured.
#[inline(always)]
fn off_cpu_at_entry(frames: &Frames) -> Total {
    const NOT_KNOWN: Total = Total { ns: Frame::UNKNOWN, missed: 0 };
    if maps::collects(collect::OFF_CPU) {
        off_cpu::total(frames).unwrap_or(NOT_KNOWN)
    } else {
        Total { ns: 0, missed: 0 }
    }
}

/// How long the current thread was not running since the call began. That is not known of a call at whose beginning there was no
/// place to note it, even if there is one now, nor if a switch was missed meanwhile; then it is a loss.
#[inline(always)]
fn off_ns_since(frames: &Frames, call: Frame) -> Option<u64> {
    match off_cpu::total(frames) {
        Some(total) if call.off_ns != Frame::UNKNOWN && call.missed == total.missed => {
            Some(total.ns.saturating_sub(call.off_ns))
        }
        _ => {
            losses::lose(Loss::NoOffCpu, call.index, call.sp);
            None
        }
    }
}

/// The native method that the current thread is in, where JNI functions are traced: its record.
#[inline(always)]
pub(crate) fn caller() -> u32 {
    // SAFETY: the map gave the pointer, and no other thread has this one's frames.
    threads::frames().and_then(|frames| top(unsafe { &*frames })).map_or(NO_CALLER, |frame| jni::caller_in(&frame))
}

/// The innermost open call of the current thread.
#[inline(always)]
pub(crate) fn innermost() -> Option<Open> {
    let frames = threads::frames()?;
    // SAFETY: the map gave the pointer, and no other thread has this one's frames.
    top(unsafe { &*frames }).map(|frame| Open { index: frame.index, sp: frame.sp, env: frame.env })
}
