//! Signals are for the application: a thread of ours takes none.

#![expect(unsafe_code, reason = "changes the signal mask")]

use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Does something with all signals blocked. A thread that is started meanwhile has them blocked for good.
pub(super) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: reads the one set, which is filled, and fills the other.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) } == 0;
    let result = work();
    if blocked {
        // SAFETY: the set has been filled by the call that succeeded.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    }
    result
}
