//! How long a thread that makes traced calls is not running.
//!
//! That stands with its frames, if they are in a slot: a look into task storage costs as much as all else at a hit.

use core::ptr;

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns};
use aya_ebpf::macros::btf_map;
use nprof_common::stack::collect;
use nprof_common::{Frames, OffCpu};

use crate::task_storage::TaskStorage;
use crate::{clocks, maps, slow, stacks, switches, threads};

/// What is known of a thread without a slot. The kernel frees it with the thread.
#[btf_map]
static NPROF_OFF_CPU: TaskStorage<OffCpu> = TaskStorage::new();

/// Whether there has ever been such a thread: nearly never, and then nobody's storage has to be looked into at a switch.
#[btf_map]
static NPROF_STORED: Array<u32, 1, 0> = Array::new();

/// A thread that runs again.
pub(crate) struct Back {
    pub(crate) tid: u32,
    pub(crate) away_ns: u64,
    /// Whether its stack was taken when it stopped.
    pub(crate) was_taken: bool,
}

/// How long a thread was not running until now.
#[derive(Clone, Copy)]
pub(crate) struct Total {
    pub(crate) ns: u64,
    /// [`OffCpu::missed`].
    pub(crate) missed: u16,
}

/// Makes up for a switch back to the current thread, which has these frames, that was not seen.
#[inline(always)]
pub(crate) fn settle(frames: &mut Frames) {
    if maps::collects(collect::OFF_CPU) && threads::is_slot(frames) {
        settle_at(&raw mut frames.off_cpu);
    }
}

/// How long the current thread, which has these frames, was not running; measured from its first call of this on, or since it
/// has its slot. `None` if the kernel has no place to note it.
#[inline(always)]
pub(crate) fn total(frames: &Frames) -> Option<Total> {
    if threads::is_slot(frames) {
        return Some(total_of(&raw const frames.off_cpu));
    }
    if let Some(stored) = NPROF_STORED.get_ptr_mut(0) {
        // SAFETY: the map gave the pointer; whoever writes writes the same.
        unsafe { stored.write_volatile(1) };
    }
    let tid = threads::current_tid();
    switches::watch_current();
    let away = NPROF_OFF_CPU.of_current_or_new()?;
    // SAFETY: the map gave the pointer, and only this thread's own entry writes this.
    unsafe { (&raw mut (*away).tid).write_volatile(tid) };
    settle_at(away);
    Some(total_of(away))
}

#[inline(always)]
fn settle_at(away: *mut OffCpu) {
    // SAFETY: callers pass what a map gave. Volatile, because the program at switches writes it.
    if unsafe { (&raw const (*away).since_ns).read_volatile() } != 0 {
        // SAFETY: as above; it is the current thread's, and the current task is alive.
        unsafe { catch_up(away, bpf_get_current_task_btf().cast()) };
    }
}

#[inline(always)]
fn total_of(away: *const OffCpu) -> Total {
    // SAFETY: as in `settle_at`.
    unsafe { Total { ns: (&raw const (*away).total_ns).read_volatile(), missed: (*away).missed } }
}

/// A thread that runs was not seen to run again ([`clocks`]). If it cannot be told when that was, the wait is missed.
///
/// # Safety
/// `away` is in a map, and `task` its thread, which runs.
#[inline(always)]
unsafe fn catch_up(away: *mut OffCpu, task: *mut task_struct) {
    // SAFETY: the caller's promise.
    let away = unsafe { &mut *away };
    // SAFETY: as above.
    match unsafe { clocks::away_ns(task, away.since_ns, away.ahead_ns) } {
        Some(away_ns) => {
            away.total_ns += away_ns;
            if maps::collects(collect::INSIDE) && away.is_taken != 0 {
                // SAFETY: the helper takes no pointer.
                stacks::resumed(away.tid, unsafe { bpf_ktime_get_ns() }, away_ns);
            }
            if maps::collects(collect::SLOW) {
                // SAFETY: as above.
                unsafe { slow::note_wait(task, away_ns, false) };
            }
        }
        None => away.missed = away.missed.wrapping_add(1),
    }
    (away.since_ns, away.back_ns, away.is_taken) = (0, 0, 0);
}

/// What is known of a thread; `None` of one that has made no traced call: of nearly all threads of a host.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn of(task: *mut task_struct) -> Option<*mut OffCpu> {
    // SAFETY: the caller's promise.
    if let Some(slot) = unsafe { threads::slot_of(task) } {
        // SAFETY: the map gave the pointer.
        return Some(unsafe { &raw mut (*slot).off_cpu });
    }
    // SAFETY: the map gave the pointer.
    if unsafe { NPROF_STORED.get_ptr_mut(0)?.read_volatile() } == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { NPROF_OFF_CPU.of(task, 0) }
}

/// A thread stops running.
///
/// # Safety
/// `away` is in a map, and `task` its thread, which is the current one.
#[inline(always)]
pub(crate) unsafe fn stop(away: *mut OffCpu, task: *mut task_struct, now_ns: u64) {
    // SAFETY: the caller's promise; the thread is switched by one CPU at a time.
    unsafe {
        if (&raw const (*away).since_ns).read_volatile() != 0 {
            catch_up(away, task);
        } else if (*away).back_ns != 0 {
            (*away).ahead_ns = clocks::compare(task, (*away).back_ns, (*away).ahead_ns);
        }
        (&raw mut (*away).since_ns).write_volatile(now_ns);
    }
}

/// Notes that the stack of a thread that stops was taken.
#[inline(always)]
pub(crate) fn mark_taken(away: *mut OffCpu) {
    // SAFETY: as above.
    unsafe { (&raw mut (*away).is_taken).write_volatile(1) };
}

/// A thread runs again.
#[inline(always)]
pub(crate) fn resume(away: *mut OffCpu, now_ns: u64) -> Option<Back> {
    // SAFETY: as in `stop`.
    let away = unsafe { &mut *away };
    if away.since_ns == 0 {
        return None;
    }
    let away_ns = now_ns.saturating_sub(away.since_ns);
    let back = Back { tid: away.tid, away_ns, was_taken: away.is_taken != 0 };
    (away.since_ns, away.back_ns, away.is_taken) = (0, now_ns, 0);
    // SAFETY: as above. Volatile, because the thread reads it elsewhere.
    unsafe { ptr::write_volatile(&raw mut away.total_ns, away.total_ns + away_ns) };
    Some(back)
}
