//! Work in the mount namespace of another process, on a thread that ends with it.

#![expect(unsafe_code, reason = "gives a thread a root of its own")]

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::thread;

use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, unshare_unsafe};

/// Does something where the mounts are those of the process behind a `pidfd`.
///
/// # Errors
/// If nprof may not get there, or what the work returns.
pub fn within<T: Send>(process: BorrowedFd<'_>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let enter = || {
        // SAFETY: only the root and the working directory become this thread's own. No descriptors do.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT)
    };
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            enter()?;
            work()
        });
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
