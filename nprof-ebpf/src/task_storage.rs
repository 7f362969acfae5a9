//! Maps of type task storage, described in BTF as the loader reads it. aya-ebpf has none.

use core::ptr;

use aya_ebpf::bindings::{BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, bpf_map_type, task_struct};
use aya_ebpf::helpers::{bpf_get_current_task_btf, generated::bpf_task_storage_get};

/// A value for each thread that has one. The kernel frees it with the thread.
#[repr(C)]
pub(crate) struct TaskStorage<T> {
    r#type: *const [i32; bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: the fields describe types and are never dereferenced; the kernel synchronises the map.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    pub(crate) const fn new() -> Self {
        Self {
            r#type: ptr::null(),
            key: ptr::null(),
            value: ptr::null(),
            max_entries: ptr::null(),
            map_flags: ptr::null(),
        }
    }

    /// The value of the current thread, if it has one.
    #[inline(always)]
    pub(crate) fn of_current(&self) -> Option<*mut T> {
        // SAFETY: the helper takes no pointer, and the current task is alive.
        unsafe { self.of(bpf_get_current_task_btf().cast(), 0) }
    }

    /// The value of the current thread, zeros if it had none. `None` if there is no memory.
    #[inline(always)]
    pub(crate) fn of_current_or_new(&self) -> Option<*mut T> {
        // SAFETY: as above.
        unsafe { self.of(bpf_get_current_task_btf().cast(), u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE)) }
    }

    /// The value of a thread, with `flags` as the helper takes them.
    ///
    /// # Safety
    /// `task` is a live task that the kernel has given.
    #[inline(always)]
    pub(crate) unsafe fn of(&self, task: *mut task_struct, flags: u64) -> Option<*mut T> {
        let map = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the map is of this type, and the caller's promise.
        let value = unsafe { bpf_task_storage_get(map, task, ptr::null_mut(), flags) };
        (!value.is_null()).then_some(value.cast())
    }
}
