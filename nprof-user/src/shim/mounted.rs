//! A file system over a directory of the target's, for a moment: where the target may write, but nothing there may be executed.
//! That is so in hardened containers, with a read-only root and a `/tmp` in memory that is mounted `noexec`.
//!
//! It is mounted in the target's mount namespace, over a directory that nprof has just made there, and belongs to the target's
//! user. What is mapped from it, or open, outlives it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, move_mount, unmount,
};
use rustix::process::fchdir;

use crate::sys::mount_namespace::within;

/// The most that it holds: the library is a tenth of that.
const SIZE: &str = "16m";

/// The file system, which is taken away when this is dropped.
#[derive(Debug)]
pub(super) struct Mounted<'a> {
    process: BorrowedFd<'a>,
    root: OwnedFd,
}

impl<'a> Mounted<'a> {
    /// Mounts one for a user over a directory in the namespace of the process behind a `pidfd`.
    pub(super) fn over(directory: &OwnedFd, process: BorrowedFd<'a>, (uid, gid): (u32, u32)) -> io::Result<Self> {
        let system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let (uid, gid) = (uid.to_string(), gid.to_string());
        for (key, value) in [("size", SIZE), ("mode", "0700"), ("uid", &uid), ("gid", &gid)] {
            fsconfig_set_string(&system, key, value)?;
        }
        fsconfig_create(&system)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let root = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let both_open = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        within(process, || Ok(move_mount(&root, "", directory, "", both_open)?))?;
        Ok(Self { process, root })
    }
}

impl AsFd for Mounted<'_> {
    /// Its root.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let undo = || {
            fchdir(&self.root)?;
            Ok(unmount(".", UnmountFlags::DETACH)?)
        };
        if let Err(error) = within(self.process, undo) {
            tracing::warn!("a file system stays mounted in a directory of the target: {error}");
        }
    }
}
