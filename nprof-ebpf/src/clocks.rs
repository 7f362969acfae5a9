//! When a thread began to run that was not seen to.
//!
//! The kernels of some sandboxes hide the switches of their own processes from BPF programs, and with them the switch to the thread
//! that runs next. The kernel itself notes when it lets a thread run, by the scheduler's clock. How far the monotonic clock is ahead
//! of that is found at the switches that are seen.

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::btf_map;

use crate::{maps, threads};

/// How far the monotonic clock is ahead, as found last with any thread; 0 before that. For threads that were never seen to run again.
#[btf_map]
static NPROF_AHEAD: Array<i64, 1, 0> = Array::new();

/// The thread that a CPU was last seen to switch to, and when.
#[repr(C)]
#[derive(Clone, Copy)]
struct First {
    task: u64,
    back_ns: u64,
}

/// By CPU. On CPUs without a place nothing is learned.
#[btf_map]
static NPROF_FIRST: Array<First, 256, 0> = Array::new();

/// By how much what is known of any thread may be behind what was found last, in nanoseconds.
const NEAR_NS: u64 = 10_000;

/// How far the monotonic clock is ahead, in nanoseconds, after a thread was seen to run again at `back_ns`; `known` is what was
/// believed of this thread, 0 if nothing.
///
/// Between both readings the kernel may be interrupted, and the CPU of a guest be taken away for many milliseconds, so the least difference
/// is the best. The clocks also drift, but never by much in the time between two switches.
///
/// # Safety
/// `task` is the thread, and has run since.
#[inline(always)]
pub(crate) unsafe fn compare(task: *mut task_struct, back_ns: u64, known: i64) -> i64 {
    if maps::task_arrival() == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let ahead_ns = back_ns.wrapping_sub(unsafe { threads::arrival_ns(task) }) as i64;
    // The first that is found may be the one that was interrupted.
    let known = if known == 0 { of_any().unwrap_or(0) } else { known };
    let more_ns = ahead_ns.wrapping_sub(known);
    let found = if known == 0 || more_ns < 0 { ahead_ns } else { known + (more_ns >> 3).min(NEAR_NS as i64) };
    if let Some(of_any) = NPROF_AHEAD.get_ptr_mut(0) {
        // All CPUs read it; written at each switch it would be passed between them.
        // SAFETY: the map gave the pointer; whoever writes it writes nearly the same.
        unsafe {
            if of_any.read_volatile().abs_diff(found) > NEAR_NS {
                of_any.write_volatile(found);
            }
        }
    }
    found
}

/// How long a thread was not running that runs, and had stopped at `since_ns`. `None` if that cannot be told.
///
/// # Safety
/// `task` is the thread.
#[inline(always)]
pub(crate) unsafe fn away_ns(task: *mut task_struct, since_ns: u64, ahead_ns: i64) -> Option<u64> {
    // SAFETY: the caller's promise.
    let arrival_ns = unsafe { threads::arrival_ns(task) };
    let ahead_ns = if ahead_ns == 0 { of_any()? } else { ahead_ns };
    if arrival_ns == 0 || ahead_ns == 0 {
        return None;
    }
    // What is known may be behind, as the least difference was taken; then a short wait seems to end before it began.
    let back_ns = arrival_ns.wrapping_add_signed(ahead_ns);
    if back_ns < since_ns && since_ns - back_ns <= NEAR_NS { Some(0) } else { back_ns.checked_sub(since_ns) }
}

/// A switch on this CPU, as long as nothing is known of the clocks: any thread of the host shows how far they are apart, and what
/// the first traced threads wait may be hidden.
///
/// # Safety
/// Both tasks are live, `prev` is the current one, and `next` runs from now on.
#[inline(always)]
pub(crate) unsafe fn learn(prev: *mut task_struct, next: *mut task_struct) {
    if maps::task_arrival() == 0 || of_any() != Some(0) {
        return;
    }
    // SAFETY: the helper takes no pointer.
    let Some(first) = NPROF_FIRST.get_ptr_mut(unsafe { bpf_get_smp_processor_id() }) else { return };
    // SAFETY: the map gave the pointer, and only this CPU comes here.
    unsafe {
        if (*first).task == prev as u64 {
            compare(prev, (*first).back_ns, 0);
        }
        *first = First { task: next as u64, back_ns: bpf_ktime_get_ns() };
    }
}

#[inline(always)]
fn of_any() -> Option<i64> {
    // SAFETY: the map gave the pointer. Volatile, because others write.
    Some(unsafe { NPROF_AHEAD.get_ptr(0)?.read_volatile() })
}
