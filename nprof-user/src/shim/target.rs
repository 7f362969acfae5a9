//! What is needed of the target to ask it for something, opened before nprof takes its user on: afterwards `/proc` would
//! refuse it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, PROC_SUPER_MAGIC, fstatfs, unlinkat};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{Error, Wanted};
use crate::discover::{Proc, Standing};
use crate::model::{Jvm, Pid};

/// Where files can be left for a moment, the best place first. Many containers mount the last one without the right to
/// execute.
const DIRECTORIES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// The target's working directory as it sees it, whatever its name.
const WORKING_DIRECTORY: &str = "/proc/self/cwd";

/// A directory of the target.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) fd: OwnedFd,
    /// Its path as the target sees it.
    pub(super) inside: PathBuf,
}

/// A JVM that is to be asked for something.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) proc: &'a Proc,
    pub(super) jvm: &'a Jvm,
    pub(super) standing: Standing,
    pub(super) patience: Duration,
    /// Whether the target can open a file by the number of a descriptor of its own.
    pub(super) has_proc: bool,
    /// The process: this one, whoever has its number later.
    pub(super) process: OwnedFd,
    /// Where JVMs listen.
    pub(super) tmp: Directory,
    others: Vec<Directory>,
    working: Option<Directory>,
}

impl<'a> Target<'a> {
    /// Opens what is needed.
    pub(super) fn open(wanted: &Wanted<'a>, standing: Standing) -> Result<Self, Error> {
        let Wanted { proc, jvm, patience, .. } = *wanted;
        let pid = jvm.pid;
        let process = raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).ok_or(Error::Ended { pid })?;
        // The descriptor is of whoever had the number when it was opened.
        if !proc.is_same(jvm) {
            return Err(Error::Ended { pid });
        }
        let open = |path: &str| {
            let inside = PathBuf::from(path);
            proc.directory_inside(pid, &inside).map(|fd| Directory { fd, inside })
        };
        let [tmp, others @ ..] = DIRECTORIES;
        let directory = PathBuf::from(tmp);
        let tmp = open(tmp).map_err(|source| Error::Directory { pid, directory, source })?;
        let others = others.into_iter().filter_map(|path| open(path).ok()).collect();
        let working = proc.working_directory(pid).ok().map(|fd| Directory { fd, inside: WORKING_DIRECTORY.into() });
        let is_proc = |fd: OwnedFd| fstatfs(fd).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC);
        let has_proc = proc.directory_inside(pid, Path::new("/proc")).is_ok_and(is_proc);
        Ok(Self { proc, jvm, standing, patience, has_proc, process, tmp, others, working })
    }

    pub(super) fn pid(&self) -> Pid {
        self.jvm.pid
    }

    /// The directories for what lies there for a moment, the best first.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Directory> {
        std::iter::once(&self.tmp).chain(&self.others).chain(&self.working)
    }

    /// The directories in which a JVM looks for the file that asks it to listen.
    pub(super) fn asked_in(&self) -> impl Iterator<Item = &Directory> {
        std::iter::once(&self.tmp).chain(&self.working)
    }

    /// Sends the signal by which JVMs are asked to listen.
    pub(super) fn quit(&self) -> Result<(), Error> {
        let pid = self.pid();
        pidfd_send_signal(&self.process, Signal::QUIT).map_err(|source| Error::Signal { pid, source: source.into() })
    }

    /// Waits for `time`, or for the target's end, which is an error.
    pub(super) fn pass(&self, time: Duration) -> Result<(), Error> {
        match is_readable(self.process.as_fd(), time) {
            Ok(true) => Err(Error::Ended { pid: self.pid() }),
            Ok(false) => Ok(()),
            Err(source) => Err(Error::Socket { pid: self.pid(), source: source.into() }),
        }
    }
}

fn raw(pid: Pid) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(pid.0).ok()?)
}

/// Removes a file or directory that nprof has made, if it is (still) there.
pub(super) fn remove(directory: BorrowedFd<'_>, name: &str, flags: AtFlags) {
    match unlinkat(directory, name, flags) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => tracing::warn!("{name} stays behind in a directory of the target: {error}"),
    }
}

/// Whether something can be read, at once or within `timeout`; an end counts.
pub(super) fn is_readable(fd: BorrowedFd<'_>, timeout: Duration) -> Result<bool, Errno> {
    let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}
