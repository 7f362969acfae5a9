//! The end of a process as something to wait for.
#![expect(unsafe_code, reason = "tokio takes a descriptor only by a promise")]

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::model::Pid;

/// Waits for the end of one process, also of one whose pid is reused meanwhile.
#[derive(Debug)]
pub struct ProcessEnd(AsyncFd<OwnedFd>);

impl ProcessEnd {
    /// Watches a process. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// `ESRCH` if there is no such process (any more).
    pub fn watch(pid: Pid) -> io::Result<Self> {
        let pid = i32::try_from(pid.0).ok().and_then(rustix::process::Pid::from_raw);
        let pidfd = pidfd_open(pid.ok_or(rustix::io::Errno::SRCH)?, PidfdFlags::NONBLOCK)?;
        // SAFETY: an owned descriptor stays open and the same for as long as its owner, the `AsyncFd`, has it.
        let watched = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::other)?))
    }

    /// Waits until all threads of the process have ended.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for.
    pub async fn wait(&self) -> io::Result<()> {
        self.0.readable().await.map(|_| ())
    }
}
