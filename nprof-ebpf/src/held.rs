//! What native code has made and not let go: noted when the function that makes it returns, forgotten when one that lets it go is
//! called. Not when that returns: the VM may have given the same value to another thread by then.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::btf_map;
use nprof_common::jni::{LETS_KNOWN_GO, LETS_UNKNOWN_GO};
use nprof_common::stack::{PAGE, collect};
use nprof_common::stats::HOLDS_SHIFT;
use nprof_common::{Frame, JniHandle, JniHeld, JniHolds, Loss, MethodStats};

use crate::{args, atomic, losses, made, maps, threads, vm};

/// What is held. The loader says for how many there is room.
#[btf_map]
static NPROF_HELD: HashMap<JniHandle, JniHeld, 1> = HashMap::new();

/// The lowest bits of a handle: those of local ones have none set, and only these lead straight to the object with every collector
/// that `args::heap` knows.
const TAG_BITS: u64 = 7;
/// What the kernel answers if there is such a key.
const EEXIST: i32 = -17;

const NOTHING: u64 = JniHolds::Nothing as u64;
const GLOBAL: u64 = JniHolds::Global as u64;
const WEAK: u64 = JniHolds::Weak as u64;
const ELEMENTS: u64 = JniHolds::Elements as u64;
const CRITICAL: u64 = JniHolds::Critical as u64;
const LOCAL: u64 = JniHolds::Local as u64;

/// What says of which class the object is that something is made of; 0 if that is not certain, or nobody asks.
#[inline(always)]
pub(crate) fn object(stats: *const MethodStats, handle: u64) -> u64 {
    if matches!(holds(stats), NOTHING | LOCAL) || handle == 0 || handle & TAG_BITS != 0 { 0 } else { class_of(handle) }
}

/// What is read while no collection stops the program, and none has begun since, is what was there. A collector that moves objects
/// meanwhile has the handles lead to the new places.
#[inline(never)]
pub(crate) fn class_of(handle: u64) -> u64 {
    let Some(heap) = args::heap() else { return 0 };
    let Some(before) = args::standstill(heap) else { return 0 };
    let read = |addr: u64| vm::word(addr).unwrap_or(0);
    let addr = read(handle);
    if addr == 0 {
        return 0;
    }
    let object = JniHeld::class_of([read(addr), read(addr.wrapping_add(8))], heap.class_word, heap.class_mask);
    let is_still = args::standstill(heap) == Some(before) && read(handle) == addr;
    if is_still { object } else { 0 }
}

/// A function has returned something that is to be let go. Returns whether the stack is wanted that it was made in.
#[inline(always)]
pub(crate) fn hold(stats: *const MethodStats, caller: u32, frame: &Frame, now_ns: u64, value: u64) -> bool {
    let holds = holds(stats);
    if matches!(holds, NOTHING | LOCAL) {
        return false;
    }
    let handle = handle(stats, value);
    let held = JniHeld { since_ns: now_ns, caller, function: frame.index, object: frame.env, depth: 1 };
    let loss = match NPROF_HELD.insert(handle, held, u64::from(BPF_NOEXIST)) {
        Ok(()) => return made::is_stack_wanted(&held),
        Err(EEXIST) if holds == CRITICAL || may_be_shared(handle) => {
            if let Some(place) = NPROF_HELD.get_ptr_mut(handle) {
                // SAFETY: the map gave the pointer.
                unsafe { hold_again(place, held) };
            }
            return false;
        }
        Err(EEXIST) => {
            _ = NPROF_HELD.insert(handle, held, 0);
            Loss::UnseenRelease
        }
        Err(_) => Loss::NoHeldRoom,
    };
    losses::lose(loss, frame.index, frame.sp);
    false
}

/// What a value is known by that a function has returned in this thread.
#[inline(always)]
pub(crate) fn handle(stats: *const MethodStats, value: u64) -> JniHandle {
    JniHandle::new(value, holds(stats), threads::current_tid())
}

/// A function is called that lets something go: its first argument if that is a reference, or else its second. Returns whether
/// that is known, or a local reference as it is: that is asked when the function has returned ([`crate::locals`]).
#[inline(always)]
pub(crate) fn let_go(stats: *const MethodStats, first: u64, second: u64) -> u64 {
    let holds = holds(stats);
    let value = if matches!(holds, GLOBAL | WEAK) { first } else { second };
    match holds {
        NOTHING => return LETS_KNOWN_GO,
        LOCAL => return first,
        _ => {}
    }
    forget(handle(stats, value))
}

#[inline(never)]
fn forget(handle: JniHandle) -> u64 {
    let Some(held) = NPROF_HELD.get_ptr_mut(handle) else { return LETS_UNKNOWN_GO };
    // SAFETY: the map gave the pointer.
    let place = unsafe { &raw mut (*held).depth };
    // SAFETY: as above. Volatile, because other threads write.
    let depth = unsafe { place.read_volatile() };
    if depth > 1 || may_be_shared(handle) && depth > 0 {
        // SAFETY: as above. One less.
        unsafe { atomic::add(place, u64::MAX) };
        return LETS_KNOWN_GO;
    }
    if depth > 0 && NPROF_HELD.remove(handle).is_ok() { LETS_KNOWN_GO } else { LETS_UNKNOWN_GO }
}

/// Holds once more what is known already: a critical hold within another, or the elements of another array without any.
///
/// # Safety
/// The map gave the pointer.
#[inline(always)]
unsafe fn hold_again(place: *mut JniHeld, held: JniHeld) {
    // SAFETY: the caller's promise. Volatile, because other threads write.
    unsafe {
        let depth = &raw mut (*place).depth;
        if depth.read_volatile() == 0 {
            ((*place).since_ns, (*place).object) = (held.since_ns, held.object);
            ((*place).caller, (*place).function) = (held.caller, held.function);
        }
        atomic::add(depth, 1);
    }
}

/// Whether threads may hold it at the same time: the VM gives the same value for the elements of all arrays without any, the beginning
/// of a page. So what is known of such a value is kept when nobody holds it: to take it away would take away what another thread has just
/// begun.
#[inline(always)]
fn may_be_shared(handle: JniHandle) -> bool {
    handle.of == ELEMENTS && handle.value & (PAGE as u64 - 1) == 0
}

/// Whether a function is about local references, and these are followed.
#[inline(always)]
pub(crate) fn is_local(stats: *const MethodStats) -> bool {
    holds(stats) == LOCAL
}

/// What a function makes or lets go, if that is followed.
#[inline(always)]
fn holds(stats: *const MethodStats) -> u64 {
    if !maps::collects(collect::HELD) {
        return NOTHING;
    }
    // SAFETY: the callers have the record from its map.
    unsafe { (*stats).brief >> HOLDS_SHIFT & 0xff }
}
