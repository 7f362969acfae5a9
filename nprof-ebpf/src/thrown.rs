//! Of which classes exceptions are: those that are pending when native methods return, and those that native code clears.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::btf_map;
use nprof_common::{JniThrown, Loss};

use crate::{args, atomic, counters, held, losses};

/// How many. The loader says for how many methods and classes there is room.
#[btf_map]
static NPROF_THROWN: HashMap<JniThrown, u64, 1> = HashMap::new();

/// Of which class the exception is that is pending in the thread of a `JNIEnv`: 0 if there is none, [`JniThrown::UNKNOWN`] if its
/// class is not certain.
#[inline(always)]
pub(crate) fn pending(env: u64) -> u64 {
    if !counters::is_pending(env) {
        return 0;
    }
    // The thread's word leads to the exception as a handle does.
    let object = held::class_of(counters::pending_place(env));
    match args::heap().map_or(0, |heap| object & heap.class_mask) {
        0 => JniThrown::UNKNOWN,
        class => class,
    }
}

/// Counts one that is pending when a native method returns.
#[inline(always)]
pub(crate) fn note_pending(method: u32, env: u64) {
    note(method, JniThrown::PENDING, pending(env));
}

/// Counts one that a native method clears, or nobody's code.
#[inline(always)]
pub(crate) fn note_cleared(method: u32, class: u64) {
    note(method, JniThrown::CLEARED, class);
}

#[inline(never)]
fn note(method: u32, how: u32, class: u64) {
    let key = JniThrown { method, how, class };
    let known = NPROF_THROWN.get_ptr_mut(key).or_else(|| {
        // Another CPU may have been faster, which is as good; or there is no room, which shows next.
        _ = NPROF_THROWN.insert(key, 0, u64::from(BPF_NOEXIST));
        NPROF_THROWN.get_ptr_mut(key)
    });
    match known {
        // SAFETY: the map gave the pointer.
        Some(counter) => unsafe { atomic::add(counter, 1) },
        None => losses::lose(Loss::NoJniRoom, method, 0),
    }
}
