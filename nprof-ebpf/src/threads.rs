//! Where a thread's open calls are kept.
//!
//! Task storage is the kernel's own answer: it belongs to the thread and goes with it. But a look into it costs as much
//! as all else that is done at a hit, the clock aside. So most threads have a slot of an array instead, found by their
//! number; those whose slot is taken by another use task storage. A thread never changes the place while it has open
//! calls.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};
use core::ptr;

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, bpf_map_type};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_current_task_btf, generated::bpf_task_storage_get};
use aya_ebpf::macros::btf_map;
use nprof_common::{Frames, SLOTS};

/// The frames of the threads that got the slot of their number.
#[btf_map]
static NPROF_SLOTS: Array<Frames, { SLOTS as usize }, 0> = Array::new();

/// The frames of the others. The kernel frees them with the thread.
#[btf_map]
static NPROF_FRAMES: TaskStorage<Frames> = TaskStorage::new();

/// A map of type task storage, described in BTF as the loader reads it. aya-ebpf has none.
#[repr(C)]
struct TaskStorage<T> {
    r#type: *const [i32; bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: the fields describe types and are never dereferenced; the kernel synchronises the map.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    const fn new() -> Self {
        Self {
            r#type: ptr::null(),
            key: ptr::null(),
            value: ptr::null(),
            max_entries: ptr::null(),
            map_flags: ptr::null(),
        }
    }

    /// The value of the current thread, with `flags` as the helper takes them.
    #[inline(always)]
    fn of_current(&self, flags: u64) -> Option<*mut T> {
        // SAFETY: the helper takes no pointer.
        let task = unsafe { bpf_get_current_task_btf() };
        let map = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the map is of this type, and the task is the current one, which is alive.
        let value = unsafe { bpf_task_storage_get(map, task.cast(), ptr::null_mut(), flags) };
        (!value.is_null()).then_some(value.cast())
    }
}

/// The frames of the current thread, which gets a place for them if it has none. `None` if there is no memory.
#[inline(always)]
pub(crate) fn frames_or_new() -> Option<*mut Frames> {
    let tid = current_tid();
    let slot = slot(tid)?;
    if owner(slot) == tid || take(slot, tid) {
        return Some(slot);
    }
    NPROF_FRAMES.of_current(u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE))
}

/// The frames of the current thread, if it has any.
#[inline(always)]
pub(crate) fn frames() -> Option<*mut Frames> {
    let tid = current_tid();
    let slot = slot(tid)?;
    if owner(slot) == tid { Some(slot) } else { NPROF_FRAMES.of_current(0) }
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
fn current_tid() -> u32 {
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
    if NPROF_FRAMES.of_current(0).is_some_and(|frames| unsafe { (*frames).depth } != 0) {
        return false;
    }
    // SAFETY: the map gave the pointer.
    let owner = unsafe { &raw mut (*slot).owner };
    // SAFETY: as above; two threads of the same slot may both try.
    let (_, taken) =
        unsafe { atomic_cxchg::<u32, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(owner, 0, tid) };
    taken
}
