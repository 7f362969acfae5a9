//! What can end the tracing of a JVM.

use crate::model::{JvmKind, Pid};
use crate::{attach, discover, hotspot, shim};

/// Why a JVM cannot be traced, or not any longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A stage before the inventory failed.
    #[error(transparent)]
    Discover(discover::Error),
    /// The VM's own tables cannot be read.
    #[error(transparent)]
    Inventory(#[from] hotspot::Error),
    /// The shim cannot be used.
    #[error(transparent)]
    Shim(#[from] shim::Error),
    /// The probes cannot be attached.
    #[error(transparent)]
    Attach(#[from] attach::Error),
    /// A VM whose tables nprof does not know.
    #[error("process {pid} runs {}, whose native methods nprof cannot read; it reads HotSpot's", kind.as_str())]
    Unsupported {
        /// The process.
        pid: Pid,
        /// Its VM.
        kind: JvmKind,
    },
    /// The process has ended, or its pid belongs to another by now.
    #[error("process {pid} has ended")]
    Ended {
        /// The process.
        pid: Pid,
    },
    /// Tracing returns would kill the target.
    #[error(
        "process {pid} runs under a seccomp filter, and this kernel ends return probes with a system call that such a \
         filter answers by killing the process; count its calls with --count-only, or use a kernel that has the fix"
    )]
    ReturnProbesKill {
        /// The process.
        pid: Pid,
    },
    /// More functions than there are indices.
    #[error("{functions} functions are more than nprof can number")]
    TooMany {
        /// How many.
        functions: usize,
    },
    /// The kernel's news of programs that start cannot be waited for.
    #[error("programs that start are not noticed any more")]
    News(#[source] std::io::Error),
    /// A part of nprof has failed on this JVM in a way that was not foreseen.
    #[error("nprof has a defect: {what}; please report it")]
    Defect {
        /// What is known of it.
        what: String,
    },
}
