//! Where a thread's open calls are kept.
//!
//! Task storage is the kernel's own answer: it belongs to the thread and goes with it. But a look into it costs as much
//! as all else that is done at a hit, the clock aside. So most threads have a slot of an array instead, found by their
//! number; those whose slot is taken by another use task storage. A thread never changes the place while it has open
//! calls.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::btf_map;
use nprof_common::{Frames, OffCpu, SLOTS};

use crate::task_storage::TaskStorage;
use crate::{maps, switches};

/// The frames of the threads that got the slot of their number.
#[btf_map]
static NPROF_SLOTS: Array<Frames, { SLOTS as usize }, 0> = Array::new();

/// The frames of the others. The kernel frees them with the thread.
#[btf_map]
static NPROF_FRAMES: TaskStorage<Frames> = TaskStorage::new();

/// The frames of the current thread, which gets a place for them if it has none. `None` if there is no memory.
#[inline(always)]
pub(crate) fn frames_or_new() -> Option<*mut Frames> {
    let tid = current_tid();
    let slot = slot(tid)?;
    if owner(slot) == tid || take(slot, tid) {
        return Some(slot);
    }
    NPROF_FRAMES.of_current_or_new()
}

/// The frames of the current thread, if it has any.
#[inline(always)]
pub(crate) fn frames() -> Option<*mut Frames> {
    let tid = current_tid();
    let slot = slot(tid)?;
    if owner(slot) == tid { Some(slot) } else { NPROF_FRAMES.of_current() }
}

/// The slot of a thread, if it has one and it is known how to find it.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn slot_of(task: *mut task_struct) -> Option<*mut Frames> {
    // SAFETY: the caller's promise.
    let tid = unsafe { tid_of(task) };
    let slot = slot(tid)?;
    // The thread that idles a CPU has no number, as a slot without an owner.
    (tid != 0 && owner(slot) == tid).then_some(slot)
}

/// The number of a thread; 0 of one that idles a CPU, and where it is not known how to find it.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn tid_of(task: *mut task_struct) -> u32 {
    let offset = maps::task_pid();
    if offset == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; the loader has read from the kernel's types that the number lies there, and the verifier
    // looks whether that is so.
    unsafe { task.cast::<u8>().add(offset as usize).cast::<u32>().read_volatile() }
}

/// The number of a thread's process; `None` where it is not known how to find it.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn tgid_of(task: *mut task_struct) -> Option<u32> {
    let offset = maps::task_tgid();
    // SAFETY: as in `tid_of`.
    (offset != 0).then(|| unsafe { task.cast::<u8>().add(offset as usize).cast::<u32>().read_volatile() })
}

/// When the kernel last let a thread run, in nanoseconds of the scheduler's clock; 0 if it does not say.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn arrival_ns(task: *mut task_struct) -> u64 {
    let offset = maps::task_arrival();
    if offset == 0 {
        return 0;
    }
    // SAFETY: as in `tid_of`.
    unsafe { task.cast::<u8>().add(offset as usize).cast::<u64>().read_volatile() }
}

/// Whether a thread's frames are in its slot, where [`slot_of`] finds them.
#[inline(always)]
pub(crate) fn is_slot(frames: &Frames) -> bool {
    maps::task_pid() != 0 && frames.owner != 0
}

/// Gives the current thread's slot to the next that wants it.
#[inline(always)]
pub(crate) fn leave() {
    let tid = current_tid();
    if let Some(slot) = slot(tid)
        && owner(slot) == tid
    {
        // SAFETY: the map gave the pointer, and nobody but the owner writes while there is one.
        unsafe { (&raw mut (*slot).depth).write(0) };
        // SAFETY: as above.
        unsafe { (&raw mut (*slot).mark_sp).write(0) };
        // SAFETY: as above. Last, for whoever takes it.
        unsafe { (&raw mut (*slot).owner).write_volatile(0) };
    }
}

#[inline(always)]
pub(crate) fn current_tid() -> u32 {
    bpf_get_current_pid_tgid() as u32
}

#[inline(always)]
fn slot(tid: u32) -> Option<*mut Frames> {
    NPROF_SLOTS.get_ptr_mut(tid & (SLOTS - 1))
}

#[inline(always)]
fn owner(slot: *mut Frames) -> u32 {
    // SAFETY: the map gave the pointer. Volatile, because other threads take and leave slots.
    unsafe { (&raw const (*slot).owner).read_volatile() }
}

/// Takes a free slot, unless the thread has open calls in task storage: its slot was another's when they began.
#[inline(always)]
fn take(slot: *mut Frames, tid: u32) -> bool {
    if owner(slot) != 0 {
        return false;
    }
    // SAFETY: the map gave the pointer.
    if NPROF_FRAMES.of_current().is_some_and(|frames| unsafe { (*frames).depth } != 0) {
        return false;
    }
    // SAFETY: the map gave the pointer.
    let owner = unsafe { &raw mut (*slot).owner };
    // SAFETY: as above; two threads of the same slot may both try.
    let (_, taken) =
        unsafe { atomic_cxchg::<u32, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(owner, 0, tid) };
    if taken {
        let off_cpu = OffCpu { since_ns: 0, total_ns: 0, back_ns: 0, ahead_ns: 0, tid, is_taken: 0, missed: 0 };
        // SAFETY: as above; nobody but the new owner has it.
        unsafe { (&raw mut (*slot).off_cpu).write(off_cpu) };
        switches::watch_current();
    }
    taken
}
