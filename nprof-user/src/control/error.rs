//! Why there is no control socket.

use std::io;
use std::path::PathBuf;

/// What stands in the way of a control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Somebody answers there.
    #[error("another nprof serves at {}: stop it, or choose another path with --control", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has the name.
    #[error("{} is there and is no socket: remove it, or choose another path with --control", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The group is not known on this host.
    #[error(
        "there is no group `{group}` in /etc/group: create it (groupadd {group}), or choose another --control-group"
    )]
    NoGroup {
        /// The group's name.
        group: String,
    },
    /// The socket cannot be given to the group.
    #[error(
        "the control socket cannot be given to the group `{group}`: nprof must be a member of it or have CAP_CHOWN"
    )]
    Chown {
        /// The group's name.
        group: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Anything else.
    #[error("there can be no control socket because of {}", path.display())]
    Io {
        /// The socket, its directory, or the file of groups.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}
