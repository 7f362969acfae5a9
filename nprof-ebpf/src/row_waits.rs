//! Where threads waited that make calls with stubs: of these the programs hear only when they have ended.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use nprof_common::stack::collect;
use nprof_common::{RowWaits, SLOTS, Wait};

use crate::slow::{self, WAIT_FROM_NS};
use crate::{maps, threads};

/// By the lower bits of the thread's number. Of a thread whose place is another one's nothing is kept.
#[btf_map]
static NPROF_ROW_WAITS: Array<RowWaits, 1, 0> = Array::new();

/// A thread was away for so long, and until its row said this. `is_there` says that it is about to run again: afterwards nobody knows where
/// it was.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn note(task: *mut task_struct, until_ns: u64, away_ns: u64, is_there: bool) {
    if !maps::collects(collect::SLOW) || away_ns < WAIT_FROM_NS {
        return;
    }
    // SAFETY: the caller's promise.
    let Some(waits) = own_or_free(unsafe { threads::tid_of(task) }) else { return };
    // SAFETY: the map gave the pointer, and the thread's own programs do not run meanwhile.
    let waits = unsafe { &mut *waits };
    waits.keep(until_ns.wrapping_sub(away_ns), away_ns);
    if is_there {
        // SAFETY: the caller's promise.
        let bytes = unsafe { slow::take_stack(task, waits.next_stack()) };
        waits.keep_stack(bytes);
    }
}

/// Writes the longest wait of the current thread in a call at whose end its row said this, and by so much less at its beginning, if that is
/// known.
///
/// # Safety
/// `into` is what is to be written.
#[inline(always)]
pub(crate) unsafe fn tell_longest(into: *mut Wait, end_ns: u64, off_ns: u64) {
    let tid = threads::current_tid();
    let Some(waits) = place(tid) else { return };
    // SAFETY: the map gave the pointer. Volatile, because other threads take and leave places.
    if unsafe { (&raw const (*waits).owner).read_volatile() } != tid {
        return;
    }
    // SAFETY: as above, and nobody else writes to it while its thread is here.
    let waits = unsafe { &*waits };
    let Some(wait) = waits.longest_between(end_ns.wrapping_sub(off_ns), end_ns) else { return };
    // SAFETY: the caller's promise.
    unsafe {
        (*into).ns = wait.ns;
        if let Some(stack) = waits.stack_of(wait) {
            ((*into).bytes, (*into).frames) = (stack.bytes, stack.frames);
        }
    }
}

/// A thread ends: its place is the next one's.
#[inline(always)]
pub(crate) fn leave(tid: u32) {
    if maps::collects(collect::SLOW)
        && let Some(waits) = place(tid)
    {
        // SAFETY: the map gave the pointer.
        let owner = unsafe { &raw mut (*waits).owner };
        // SAFETY: as above; only the thread itself comes here.
        unsafe {
            if owner.read_volatile() == tid {
                owner.write_volatile(0);
            }
        }
    }
}

/// The place of a thread, which it takes if nobody has it.
#[inline(always)]
fn own_or_free(tid: u32) -> Option<*mut RowWaits> {
    let waits = place(tid)?;
    // SAFETY: the map gave the pointer.
    let owner = unsafe { &raw mut (*waits).owner };
    // SAFETY: as above. Volatile, because others take and leave places.
    let found = unsafe { owner.read_volatile() };
    if found == tid {
        return Some(waits);
    }
    if tid == 0 || found != 0 {
        return None;
    }
    // SAFETY: as above; two threads of the same place may both try.
    let (_, is_taken) =
        unsafe { atomic_cxchg::<u32, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(owner, 0, tid) };
    if !is_taken {
        return None;
    }
    // SAFETY: as above; nobody but the new owner has it.
    unsafe { (*waits).clear() };
    Some(waits)
}

#[inline(always)]
fn place(tid: u32) -> Option<*mut RowWaits> {
    NPROF_ROW_WAITS.get_ptr_mut(tid & (SLOTS - 1))
}
