//! What can go wrong while looking at processes.

use std::io;
use std::path::PathBuf;

use crate::model::Pid;

/// Why a process could not be looked at, or is not what was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No process has this id, or it ended while it was looked at.
    #[error("there is no process {pid}")]
    NoSuchProcess {
        /// The id that was asked for.
        pid: Pid,
    },
    /// The process has ended; only its entry is left (a zombie).
    #[error("process {pid} ({comm}) has ended and waits for its parent to collect it")]
    Ended {
        /// The process.
        pid: Pid,
        /// Its name.
        comm: String,
    },
    /// The id belongs to a thread, not to a process.
    #[error("{tid} is a thread of process {tgid}, not a process")]
    IsThread {
        /// The id that was asked for.
        tid: Pid,
        /// The process that the thread belongs to.
        tgid: Pid,
    },
    /// The process runs no Java virtual machine that nprof knows.
    #[error("process {pid} ({comm}) is not a JVM")]
    NotAJvm {
        /// The process.
        pid: Pid,
        /// Its name.
        comm: String,
    },
    /// The kernel does not let nprof look into the process.
    #[error("no permission to read {}", path.display())]
    PermissionDenied {
        /// The process.
        pid: Pid,
        /// The file that could not be read.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file could not be read for another reason.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file of `/proc` is not in the format that the kernel documents.
    #[error("{} holds something unexpected: {what:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The part that makes no sense.
        what: String,
    },
}

impl Error {
    /// Whether the process ended before or while it was looked at: no news when all processes are listed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::NoSuchProcess { .. } | Self::Ended { .. })
    }
}
