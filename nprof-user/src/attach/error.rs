//! What can go wrong while attaching.

use std::io;
use std::path::PathBuf;

use aya::programs::ProgramError;

use crate::sys::bpf::NotLoaded;

/// Why attaching failed as a whole. A single site that the kernel refuses is no error but a skip.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The embedded BPF object is not what this library expects: a defect of the build.
    #[error("the embedded BPF object has no {kind} {name}")]
    Object {
        /// Program, function or map.
        kind: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The BPF object cannot be read.
    #[error("cannot read the embedded BPF object")]
    Parse(#[from] aya_obj::ParseError),
    /// The BPF object cannot be linked.
    #[error("cannot link the embedded BPF object")]
    Relocate(#[from] aya_obj::relocation::EbpfRelocationError),
    /// The maps cannot be made.
    #[error("cannot create the BPF maps")]
    Maps(#[source] Box<aya::EbpfError>),
    /// A map cannot be mapped into memory.
    #[error("cannot map {name} into memory")]
    Map {
        /// The map.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel does not take a program.
    #[error("cannot load the BPF program {name}")]
    Load {
        /// The program.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The hook on the end of threads cannot be attached.
    #[error("cannot hook the end of threads ({name})")]
    Exit {
        /// The program.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<ProgramError>,
    },
    /// The hook on the start of programs cannot be attached.
    #[error("cannot hook the start of programs ({name})")]
    Exec {
        /// The program.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<ProgramError>,
    },
    /// The hook on the switches of threads cannot be attached.
    #[error("cannot hook the switches of threads ({name}), which off-CPU times need")]
    Switches {
        /// The program.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<ProgramError>,
    },
    /// The kernel does not say where it keeps what.
    #[error("cannot read the kernel's type information, which says where it keeps the counters of threads")]
    KernelTypes(#[source] io::Error),
    /// The kernel was built without what keeps a counter.
    #[error("this kernel does not count what is to be collected: its task_struct has no {field}")]
    NotCounted {
        /// The field.
        field: String,
    },
    /// The kernel has no place to count at, or refuses to.
    #[error("cannot count at the kernel's {place}")]
    Counter {
        /// The tracepoint or function.
        place: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<ProgramError>,
    },
    /// The timer that takes stacks cannot be started.
    #[error("cannot start the timer that takes stacks ({name})")]
    Timer {
        /// The program.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<ProgramError>,
    },
    /// A map cannot be waited for.
    #[error("cannot wait for {name}")]
    Wait {
        /// The map.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel has no `uprobe_multi` links.
    #[error("this kernel has no uprobe_multi links; nprof needs Linux 6.6 or newer")]
    NoUprobeMulti,
    /// It cannot be found out whom a probe reaches.
    #[error("cannot try whether this kernel keeps a probe to one process")]
    Reach(#[source] io::Error),
    /// The probe on calls that stubs choose would reach every process that has the file.
    #[error(
        "this kernel puts a probe into every process that has the file mapped, so none is put where the stubs of a JVM \
         say which calls to show"
    )]
    StubSiteReachesOthers,
    /// The kernel's map of what threads use cannot be made one that others only read.
    #[error("cannot have {name} be read by others and not be written")]
    Freeze {
        /// The map.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel makes no map for what the threads of a JVM use.
    #[error("cannot make memory for what threads use")]
    Rows {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// As many JVMs have rows as may.
    #[error(
        "there is no memory left for what its threads use: {jvms} JVMs have all of it; trace fewer by stubs (`--jvm`, `--stubs-for`)"
    )]
    RowsUsedUp {
        /// How many JVMs have some.
        jvms: u32,
    },
    /// Probes on an allocator would be put into other processes.
    #[error(
        "`--collect alloc` is not to be had: this kernel puts a probe into every process that has the file mapped, and those on \
         malloc would slow down all of them"
    )]
    AllocatorReachesOthers,
    /// A library cannot be probed at all, for a reason that is not its code.
    #[error("cannot attach to {}", library.display())]
    Library {
        /// Its path as the target shows it.
        library: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// An error with everything that led to it, for messages in one line.
#[must_use]
pub fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<String>>().join(": ")
}

/// The error of a program of aya's: that of our own programs if the verifier refuses it.
pub(super) fn refusal(
    name: &'static str,
    error: ProgramError,
    other: impl FnOnce(Box<ProgramError>) -> Error,
) -> Error {
    match error {
        ProgramError::LoadError { io_error, verifier_log } if !verifier_log.to_string().trim().is_empty() => {
            Error::Load { name, source: NotLoaded::of(io_error, &verifier_log.to_string()).of_ours() }
        }
        error => other(Box::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a library is named as the target does, and that the cause is in words.
    #[test]
    fn says_which_library_and_why() {
        let source = io::Error::from_raw_os_error(libc::EMFILE);
        let error = Error::Library { library: "/opt/app/libx.so".into(), source };
        let says = in_full(&error);
        assert_eq!(says, "cannot attach to /opt/app/libx.so: Too many open files (os error 24)");
    }
}
