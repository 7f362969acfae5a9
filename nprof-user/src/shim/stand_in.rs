//! Work done as another user, on a separate thread: a JVM answers only its own user, or root of its own user namespace.
//!
//! What is made in the target's directories belongs to the target's user then, as if its own tools had made it. That also
//! works where root of the host is nobody: in user namespaces and on file systems that distrust root.

use std::io;
use std::panic::resume_unwind;
use std::thread;

use rustix::process::{DumpableBehavior, Gid, Uid, dumpable_behavior, getegid, geteuid, set_dumpable_behavior};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Does `work` with this effective user and group, and without other groups. Who is that user already does it as he is.
///
/// # Errors
/// If nprof may not take that user on. Nothing of the work is done then.
pub(super) fn as_user<T: Send>(uid: u32, gid: u32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    if geteuid().as_raw() == uid && getegid().as_raw() == gid {
        return Ok(work());
    }
    // A thread that changes its user makes the kernel guard the whole process as a set-uid program's. That is right
    // while it lasts: the other user must not look into this process.
    let before = dumpable_behavior()?;
    let done = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            take_on(uid, gid)?;
            Ok(work())
        });
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    if before == DumpableBehavior::Dumpable {
        set_dumpable_behavior(before)?;
    }
    done
}

/// Changes the effective user of this thread. The real and the saved one stay, so that the other user cannot send it
/// signals.
fn take_on(uid: u32, gid: u32) -> io::Result<()> {
    const KEPT: (Option<Uid>, Option<Gid>) = (None, None);
    set_thread_groups(&[])?;
    set_thread_res_gid(KEPT.1, Gid::from_raw(gid), KEPT.1)?;
    set_thread_res_uid(KEPT.0, Uid::from_raw(uid), KEPT.0)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rustix::process::getgroups;

    use super::*;

    const OTHER: u32 = 54_321;

    /// Check that what is made in another user's name is that user's, without root's rights and groups, and that nothing
    /// of it stays with the process.
    #[test]
    fn another_user_for_a_while() {
        if !geteuid().is_root() {
            assert!(as_user(OTHER, OTHER, || ()).is_err());
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let file = directory.path().join("file");
        let (shadow, groups) = as_user(OTHER, OTHER + 1, || {
            std::fs::write(&file, "").unwrap();
            (std::fs::read("/etc/shadow").is_ok(), getgroups().unwrap())
        })
        .unwrap();
        let made = std::fs::metadata(&file).unwrap();
        assert_eq!((made.uid(), made.gid()), (OTHER, OTHER + 1));
        assert!(!shadow && groups.is_empty());
        assert!(geteuid().is_root() && dumpable_behavior().unwrap() == DumpableBehavior::Dumpable);
    }

    /// Check that work as oneself is just done.
    #[test]
    fn oneself() {
        let this = thread::current().id();
        let on = as_user(geteuid().as_raw(), getegid().as_raw(), || thread::current().id()).unwrap();
        assert_eq!(on, this);
    }
}
