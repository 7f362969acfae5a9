//! Of which classes exceptions are: those that are pending when native methods return, and those that native code clears.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::btf_map;
use nprof_common::{JniThrown, Loss};

use crate::{args, atomic, held, losses, vm};

/// How many. The loader says for how many methods and classes there is room.
#[btf_map]
static NPROF_THROWN: HashMap<JniThrown, u64, 1> = HashMap::new();

/// Of which class the exception is that is pending in the thread of a `JNIEnv`: 0 if there is none, [`JniThrown::UNKNOWN`] if its
/// class is not certain.
#[inline(always)]
pub(crate) fn pending(env: u64) -> u64 {
    let from_env = vm::places().map_or(0, |places| places.jni.pending_from_env);
    let place = env.wrapping_add_signed(from_env);
    if from_env == 0 || env == 0 || vm::word(place).unwrap_or(0) == 0 {
        return 0;
    }
    // The thread's word leads to the exception as a handle does.
    let object = held::class_of(place);
    match args::heap().map_or(0, |heap| object & heap.class_mask) {
        0 => JniThrown::UNKNOWN,
        class => class,
    }
}

/// Counts one that is pending when a native method returns, if one is.
#[inline(never)]
pub(crate) fn note_pending(method: u32, env: u64) {
    let class = pending(env);
    if class != 0 {
        note(method, JniThrown::PENDING, class);
    }
}

/// Counts one that a native method clears by this function, or nobody's code.
#[inline(always)]
pub(crate) fn note_cleared(method: u32, by: u32, class: u64) {
    note(method, by, class);
}

#[inline(never)]
fn note(method: u32, by: u32, class: u64) {
    let key = JniThrown { method, by, class };
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
