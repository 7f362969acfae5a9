//! What stands against loading the shim, and what the user should know before: each with what to do about it.

use std::fmt;
use std::path::PathBuf;

use super::remedy::Remedy;
use crate::discover::{self, Halted, OnQuit};
use crate::hotspot;
use crate::model::{JvmKind, Pid};

/// The oldest JDK that the shim works with.
pub(super) const OLDEST: u32 = 11;
/// The newest JDK that the shim has been tried in. What it reads of the VM it finds by the VM's own tables, and checks; what it
/// relies on besides is how the VM binds methods.
pub(super) const NEWEST: u32 = 28;
/// From this JDK on the VM keeps the code of a native's call for as long as the class is loaded, also when it has made that
/// again because the method was bound again.
pub(super) const KEEPS_CODE: u32 = 20;

/// Why the shim is not loaded. Nothing has been done to the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not a VM that can load an agent of this kind.
    #[error("process {pid} does not run HotSpot's server VM ({}), and the shim is made for that", kind.as_str())]
    Kind {
        /// The target.
        pid: Pid,
        /// What it runs.
        kind: JvmKind,
    },
    /// A VM of before the shim's time.
    #[error("the JVM in process {pid} ({jdk}) is older than JDK {OLDEST}, the oldest that the shim works with")]
    TooOld {
        /// The target.
        pid: Pid,
        /// Its JDK and version.
        jdk: String,
    },
    /// A VM of after the shim's time.
    #[error("the JVM in process {pid} ({jdk}) is newer than JDK {NEWEST}, the newest that the shim knows its way in")]
    TooNew {
        /// The target.
        pid: Pid,
        /// Its JDK and version.
        jdk: String,
    },
    /// The JVM was told not to be asked for anything.
    #[error("the JVM in process {pid} was started with -XX:+DisableAttachMechanism, so it loads nothing while it runs")]
    AttachDisabled {
        /// The target.
        pid: Pid,
    },
    /// The JVM was told not to load agents while it runs.
    #[error(
        "the JVM in process {pid} was started with -XX:-EnableDynamicAgentLoading, so it loads no agent while it runs"
    )]
    AgentsDisabled {
        /// The target.
        pid: Pid,
    },
    /// The JVM was told to leave signals alone. It listens from its start on instead, but its socket is not there any more.
    #[error(
        "the JVM in process {pid} was started with -Xrs, so SIGQUIT would end it, and the socket in /tmp is gone at which it \
         listened"
    )]
    ReducedSignals {
        /// The target.
        pid: Pid,
    },
    /// SIGQUIT would not reach the JVM, or would end it.
    #[error("SIGQUIT, which asks the JVM in process {pid} to listen, {}", fate(*quit))]
    Quit {
        /// The target.
        pid: Pid,
        /// What the signal would do.
        quit: OnQuit,
    },
    /// The target does not run, so it would not answer.
    #[error("process {pid} {}, so it cannot answer", state(*halted))]
    Halted {
        /// The target.
        pid: Pid,
        /// Why it does not run.
        halted: Halted,
    },
    /// The JVM listens only to its own user and to root, and nprof is neither and may not become it.
    #[error("process {pid} belongs to user {uid}, and nprof may not stand in for that user")]
    OtherUser {
        /// The target.
        pid: Pid,
        /// Its effective user, as the host sees it.
        uid: u32,
    },
    /// Stubs would take room for compiled code that the VM does not get back, and there is little left.
    #[error(
        "the JVM in process {pid} has used {taken} of {reserved} MB for compiled code, and each time that stubs come and go it \
         uses up some more"
    )]
    CodeCacheFull {
        /// The target.
        pid: Pid,
        /// What has been taken into use, in MB.
        taken: u64,
        /// All that there is, in MB.
        reserved: u64,
    },
    /// A shim is loaded whose file cannot be found any more, so that it cannot be called again.
    #[error("process {pid} has a shim loaded that it has no file of any more, so it cannot be called again")]
    FileLost {
        /// The target.
        pid: Pid,
    },
    /// A library that passes for a shim is not the one that this nprof brings: that of another version, or somebody's.
    #[error("{} in process {pid} is not the shim of this nprof", path.display())]
    OtherShim {
        /// The target.
        pid: Pid,
        /// What the target calls it.
        path: PathBuf,
    },
    /// The VM has not filled its tables yet.
    #[error("the JVM in process {pid} is still starting")]
    Starting {
        /// The target.
        pid: Pid,
    },
    /// The VM's flags cannot be read, so what asking does is not known.
    #[error("the VM's flags in process {pid} cannot be read")]
    Unreadable {
        /// The target.
        pid: Pid,
        /// Why not.
        source: hotspot::Error,
    },
    /// The target cannot be looked at.
    #[error(transparent)]
    Process(#[from] discover::Error),
}

impl Refusal {
    /// Whether it may be otherwise as soon as the JVM has started.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Quit { .. } | Self::Starting { .. })
    }

    /// What to do about it; `None` where its source says.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        self.remedy().with_other_tier()
    }

    /// The same, also for what probes cannot do instead.
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Kind { .. } | Self::TooOld { .. } | Self::TooNew { .. } => Remedy::other_tier(),
            Self::AttachDisabled { .. } => Remedy::or_other_tier("restart it without that option"),
            Self::AgentsDisabled { .. } => Remedy::or_other_tier("restart it with -XX:+EnableDynamicAgentLoading"),
            Self::ReducedSignals { .. } => {
                Remedy::or_other_tier("restart it, and keep what cleans /tmp away from .java_pid files")
            }
            Self::Quit { quit: OnQuit::Ends, .. } | Self::Starting { .. } => {
                Remedy::just("try again when it has started")
            }
            Self::Quit { .. } => {
                Remedy::or_other_tier("restart it with -XX:+StartAttachListener, so that no signal is needed")
            }
            Self::Halted { halted: Halted::Stopped, pid } => Remedy::just(format!("continue it (kill -CONT {pid})")),
            Self::Halted { halted: Halted::Traced, .. } => Remedy::just("let its debugger continue or leave it"),
            Self::Halted { halted: Halted::Frozen, .. } => Remedy::just("thaw its container (docker unpause)"),
            Self::FileLost { .. } => Remedy::or_other_tier("restart it"),
            Self::OtherShim { .. } => Remedy::or_other_tier("use the nprof that loaded it, or restart the JVM"),
            Self::CodeCacheFull { .. } => {
                Remedy::or_other_tier("restart it, with a larger -XX:ReservedCodeCacheSize if it needs that much")
            }
            Self::OtherUser { .. } => Remedy::just("run nprof as root (sudo), or as that user"),
            Self::Unreadable { .. } | Self::Process(_) => Remedy::default(),
        }
    }
}

fn fate(quit: OnQuit) -> &'static str {
    match quit {
        OnQuit::Ends => "would end it: it is still starting, or something took its signal handler away",
        OnQuit::Ignored => "is ignored by it",
        OnQuit::HeldOff => "is blocked in all of its threads",
        OnQuit::Caught => "is expected",
    }
}

fn state(halted: Halted) -> &'static str {
    match halted {
        Halted::Stopped => "is stopped by a signal",
        Halted::Traced => "is stopped by a debugger",
        Halted::Frozen => "is frozen with its container",
    }
}

/// What the user should know before the shim is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The JVM will print three lines to its own standard error.
    Prints {
        /// The target.
        pid: Pid,
    },
}

impl Warning {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Prints { .. } => {
                "start it with -XX:+EnableDynamicAgentLoading and it prints nothing; later loadings print nothing either way"
            }
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prints { pid } => write!(
                f,
                "the JVM in process {pid} will print three lines on its standard error, the first \"WARNING: A JVM TI agent \
                 has been loaded dynamically\": JDK 21 and later do so for every agent that is loaded while they run"
            ),
        }
    }
}
