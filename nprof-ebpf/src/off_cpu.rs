//! How long a thread that makes traced calls is not running.

use core::ptr;

use aya_ebpf::bindings::task_struct;
use aya_ebpf::macros::btf_map;
use nprof_common::OffCpu;

use crate::task_storage::TaskStorage;

/// What is known of a thread. The kernel frees it with the thread.
#[btf_map]
static NPROF_OFF_CPU: TaskStorage<OffCpu> = TaskStorage::new();

/// A thread that runs again.
pub(crate) struct Back {
    pub(crate) tid: u32,
    pub(crate) away_ns: u64,
    /// Whether its stack was taken when it stopped.
    pub(crate) was_taken: bool,
}

/// How long the current thread was not running; measured from its first call of this on. `None` if the kernel has no place
/// to note it.
#[inline(always)]
pub(crate) fn total_ns(tid: u32) -> Option<u64> {
    let away = NPROF_OFF_CPU.of_current_or_new()?;
    // SAFETY: the map gave the pointer, and only this thread's own entry writes this.
    unsafe { (&raw mut (*away).tid).write_volatile(tid) };
    // SAFETY: the map gave the pointer.
    Some(unsafe { (&raw const (*away).total_ns).read_volatile() })
}

/// What is known of a thread; `None` of one that has made no traced call: of nearly all threads of a host.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn of(task: *mut task_struct) -> Option<*mut OffCpu> {
    // SAFETY: the caller's promise.
    unsafe { NPROF_OFF_CPU.of(task, 0) }
}

/// A thread stops running.
#[inline(always)]
pub(crate) fn stop(away: *mut OffCpu, now_ns: u64) {
    // SAFETY: the map gave the pointer; the thread is switched by one CPU at a time.
    unsafe { (&raw mut (*away).since_ns).write_volatile(now_ns) };
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
    away.since_ns = 0;
    away.is_taken = 0;
    // SAFETY: as above. Volatile, because the thread reads it elsewhere.
    unsafe { ptr::write_volatile(&raw mut away.total_ns, away.total_ns + away_ns) };
    Some(back)
}
