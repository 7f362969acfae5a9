//! Atomic operations on map values. The programs are preempted and run on all CPUs at once: a plain `+= 1` loses
//! counts even in a per-CPU map.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_or, atomic_xadd};

/// How often a new maximum is tried before it is given up. Each failed try means that another CPU has stored a larger
/// maximum in between.
const MAX_TRIES: u32 = 16;

/// Adds to a counter.
///
/// # Safety
/// `counter` points into a map value.
#[inline(always)]
pub(crate) unsafe fn add(counter: *mut u64, value: u64) {
    // SAFETY: the caller's promise. The result is not used: a locked add without a fetch.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, value) };
}

/// Sets bits of a word.
///
/// # Safety
/// `word` points into a map value.
#[inline(always)]
pub(crate) unsafe fn set(word: *mut u64, bits: u64) {
    // SAFETY: the caller's promise. As above.
    unsafe { atomic_or::<u64, u64, { AtomicOrdering::Relaxed }>(word, bits) };
}

/// Raises a maximum. Returns whether it is no less than `value` now.
///
/// # Safety
/// `maximum` points into a map value.
#[inline(always)]
pub(crate) unsafe fn raise(maximum: *mut u64, value: u64) -> bool {
    for _ in 0..MAX_TRIES {
        // SAFETY: the caller's promise. An aligned load is one instruction; volatile, so that it is not reused.
        let old = unsafe { maximum.read_volatile() };
        if value <= old {
            return true;
        }
        // SAFETY: the caller's promise.
        let (_, stored) =
            unsafe { atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(maximum, old, value) };
        if stored {
            return true;
        }
    }
    false
}
