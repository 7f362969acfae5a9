//! What can go wrong while the shim gets into a JVM, and while nprof talks to it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nprof_common::wire;

use super::Refusal;
use super::remedy::Remedy;
use crate::discover;
use crate::model::Pid;

/// Why the shim is not there, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Loading would fail or do harm. Nothing has been done to the target.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The target cannot be looked at.
    #[error(transparent)]
    Process(#[from] discover::Error),
    /// The target ended meanwhile.
    #[error("process {pid} has ended")]
    Ended {
        /// The target.
        pid: Pid,
    },
    /// The JVM listens only to its own user, and nprof may not become that user.
    #[error("process {pid} listens only to user {uid}, whom nprof may not stand in for")]
    OtherUser {
        /// The target.
        pid: Pid,
        /// Its effective user, as the host sees it.
        uid: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A directory of the target cannot be opened.
    #[error("cannot open {} of process {pid}", directory.display())]
    Directory {
        /// The target.
        pid: Pid,
        /// The directory, as the target sees it.
        directory: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is no place for the library.
    #[error("no directory of process {pid} can take the shim's library ({})", tried.join("; "))]
    NoPlace {
        /// The target.
        pid: Pid,
        /// What was tried, and why not.
        tried: Vec<String>,
    },
    /// There is no memory for what stubs record.
    #[error("no memory for the records of stubs in process {pid}")]
    Memory {
        /// The target.
        pid: Pid,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file that asks the JVM to listen cannot be made.
    #[error("no directory of process {pid} can take the file that asks the JVM to listen ({})", tried.join("; "))]
    NoRequest {
        /// The target.
        pid: Pid,
        /// What was tried, and why not.
        tried: Vec<String>,
    },
    /// The signal could not be sent that asks the JVM to listen.
    #[error("cannot send SIGQUIT to process {pid}")]
    Signal {
        /// The target.
        pid: Pid,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The JVM did not make its socket.
    #[error("the JVM in process {pid} has not begun to listen for {} s (it may print a dump of its threads later)", waited.as_secs())]
    NotListening {
        /// The target.
        pid: Pid,
        /// How long nprof waited.
        waited: Duration,
    },
    /// The JVM's socket could not be used.
    #[error("cannot talk to the JVM in process {pid} over {}", socket.display())]
    Attach {
        /// The target.
        pid: Pid,
        /// The socket, as the target sees it.
        socket: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The JVM did not answer.
    #[error("the JVM in process {pid} has not answered for {} s", waited.as_secs())]
    NoAnswer {
        /// The target.
        pid: Pid,
        /// How long nprof waited.
        waited: Duration,
    },
    /// The JVM would not load the shim.
    #[error("the JVM in process {pid} does not load the shim: {said}")]
    NotLoaded {
        /// The target.
        pid: Pid,
        /// What the JVM said.
        said: String,
    },
    /// The shim was loaded and did not come.
    #[error("the shim in process {pid} was loaded, but has not connected for {} s", waited.as_secs())]
    NotConnected {
        /// The target.
        pid: Pid,
        /// How long nprof waited.
        waited: Duration,
    },
    /// The shim connected and said nothing.
    #[error("the shim in process {pid} has connected, but says nothing")]
    Silent {
        /// The target.
        pid: Pid,
    },
    /// The shim is of another version of nprof.
    #[error(
        "the shim in process {pid} speaks version {shim} of the protocol, this nprof {}: restart the JVM, or use the \
         nprof that loaded it",
        wire::VERSION
    )]
    Version {
        /// The target.
        pid: Pid,
        /// What the shim speaks.
        shim: u32,
    },
    /// The shim said something that is no message.
    #[error("the shim in process {pid} is not understood")]
    NoMessage {
        /// The target.
        pid: Pid,
        /// What is wrong with it.
        source: wire::Error,
    },
    /// The shim said something that does not belong there.
    #[error("the shim in process {pid} spoke out of turn")]
    Unexpected {
        /// The target.
        pid: Pid,
    },
    /// The shim says more than one ever has to.
    #[error("the shim in process {pid} says more than any real one, and is not listened to any more")]
    Flood {
        /// The target.
        pid: Pid,
    },
    /// The shim tells of more methods than are kept.
    #[error("the shim in process {pid} tells of more than {methods} methods, or of longer names than are kept")]
    TooMany {
        /// The target.
        pid: Pid,
        /// So many have been taken in.
        methods: usize,
    },
    /// The shim ended the conversation.
    #[error("the shim in process {pid} ended the conversation: {reason}")]
    Bye {
        /// The target.
        pid: Pid,
        /// What it said.
        reason: String,
    },
    /// The shim is gone, usually with its process.
    #[error("the shim in process {pid} is gone")]
    Gone {
        /// The target.
        pid: Pid,
    },
    /// The shim does not read: its process is stopped.
    #[error("the shim in process {pid} has not taken a message for {} s, as if the process were stopped", waited.as_secs())]
    Stuck {
        /// The target.
        pid: Pid,
        /// How long nprof waited.
        waited: Duration,
    },
    /// A socket of nprof's own failed.
    #[error("the connection to the shim in process {pid} fails")]
    Socket {
        /// The target.
        pid: Pid,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// What to do about it; `None` where the message says it, or nothing is known to help.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        self.remedy().with_other_tier()
    }

    /// The same, where probes cannot do what the shim was to do.
    #[must_use]
    pub fn advice_without_tiers(&self) -> Option<String> {
        self.remedy().without_other_tier()
    }

    fn remedy(&self) -> Remedy {
        match self {
            Self::Refused(refusal) => refusal.remedy(),
            Self::OtherUser { .. } => Remedy::just("run nprof as root (sudo), or as that user"),
            Self::NoPlace { .. } => Remedy::or_other_tier(
                "run nprof as root, which can mount one, or give it a directory that it may write to and run programs \
                 from, such as a volume at /var/tmp",
            ),
            Self::Directory { .. } | Self::NoRequest { .. } => {
                Remedy::or_other_tier("give it a /tmp that it may write to: JVMs are asked for something there")
            }
            Self::NotListening { .. } | Self::NoAnswer { .. } => Remedy::just(
                "try again when it is less busy; a JVM in a long garbage collection, or one that hangs, does not answer",
            ),
            Self::NotLoaded { .. } => Remedy::other_tier(),
            Self::Stuck { pid, .. } => Remedy::just(format!("continue it (kill -CONT {pid})")),
            _ => Remedy::default(),
        }
    }
}
