//! What can end the tracing of a JVM.

use std::fmt;

use crate::model::{Jvm, JvmKind, Pid};
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
    /// The VM is of a kind or version that cannot be read.
    #[error("{what} cannot be read in process {pid}: {cause} ({jdk})")]
    Unreadable {
        /// The process.
        pid: Pid,
        /// `native methods` or `stacks`.
        what: Part,
        /// Its JDK and version.
        jdk: String,
        /// What is in the way. Not a source: the message has it.
        cause: hotspot::Error,
    },
    /// The shim cannot be used.
    #[error(transparent)]
    Shim(#[from] shim::Error),
    /// Stubs can be had, but not the stacks of calls that they choose.
    #[error("no stacks of calls that stubs see in process {pid}, though there can be stubs")]
    ChosenCalls {
        /// The process.
        pid: Pid,
        /// Why not.
        #[source]
        source: Box<Error>,
    },
    /// Stubs can be had, but not what threads use at their calls.
    #[error(
        "`--collect` needs probes here: this kernel puts a probe into every process that has the file mapped, so none is put \
         where the stubs of process {pid} find what a thread uses"
    )]
    NoRows {
        /// The process.
        pid: Pid,
    },
    /// It cannot be counted what threads ask allocators for.
    #[error(
        "`--collect alloc` finds no allocator in process {pid}: none of its libraries exports malloc, which may be part of its \
         program, or nprof cannot read them"
    )]
    NoAllocator {
        /// The process.
        pid: Pid,
    },
    /// The probes cannot be attached.
    #[error(transparent)]
    Attach(#[from] attach::Error),
    /// Programs of the user's cannot be loaded.
    #[error(transparent)]
    Program(#[from] attach::ProgramError),
    /// The functions that native code calls are not known.
    #[error(
        "the table of JNI functions of process {pid} cannot be found: its VM is of a kind or version that nprof does not know"
    )]
    NoJni {
        /// The process.
        pid: Pid,
    },
    /// Stubs of JNI functions need what threads use, to know which calls are part of which.
    #[error(
        "JNI functions of process {pid} need probes here (`--tier kernel`): this kernel puts a probe into every process that has the file \
         mapped, so none is put where stubs find what a thread uses"
    )]
    NoRowsForFunctions {
        /// The process.
        pid: Pid,
    },
    /// The shim is another nprof's.
    #[error("another nprof uses the shim in process {pid}; end that one first")]
    ShimInUse {
        /// The process.
        pid: Pid,
    },
    /// Ids are not kept in a JVM. Nothing has been done to it.
    #[error("no ids are kept in process {pid}: {why}")]
    IdCache {
        /// The process.
        pid: Pid,
        /// Why not.
        why: &'static str,
    },
    /// No trees are followed in a JVM. Nothing has been done to it.
    #[error("no trees are followed in process {pid}: {why}")]
    Trees {
        /// The process.
        pid: Pid,
        /// Why not.
        why: &'static str,
    },
    /// No probe can be put into a JVM.
    #[error("no probe can be attached to process {pid} ({})", main.escape_debug())]
    Unattached {
        /// The process.
        pid: Pid,
        /// Its main class or jar.
        main: String,
        /// What is in the way, at one of its libraries.
        #[source]
        source: attach::Error,
    },
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
    /// It took too long to read and attach to.
    #[error("process {pid} was not read and attached to within {} s, and is left alone", limit.as_secs())]
    TooSlow {
        /// The process.
        pid: Pid,
        /// How long it was tried.
        limit: std::time::Duration,
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

/// What nprof reads of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The native methods, which everything needs.
    Natives,
    /// The stacks of threads.
    Stacks,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Natives => "native methods",
            Self::Stacks => "stacks",
        })
    }
}

impl Error {
    /// The error of reading a part of a JVM, with the JDK's version where that is what is in the way.
    pub(super) fn reading(what: Part, jvm: &Jvm, cause: hotspot::Error) -> Self {
        if cause.is_unsupported() {
            return Self::Unreadable { pid: jvm.pid, what, jdk: jvm.jdk(), cause };
        }
        cause.into()
    }

    /// What works instead, where the VM is in the way.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::Unreadable { what: Part::Natives, .. } => {
                Some("nprof reads 64-bit HotSpot VMs of JDK 11 and later: run the program with one".to_owned())
            }
            Self::Unreadable { what: Part::Stacks, pid, .. } => {
                Some(format!("counts and times work: `nprof trace --pid {pid}`"))
            }
            _ => None,
        }
    }

    /// Whether it is the VM's kind or version that cannot be traced, which no second try will change.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::Unsupported { .. } | Self::Unreadable { what: Part::Natives, .. } => true,
            Self::Inventory(error) => error.is_unsupported(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use object::read::elf::FileHeader as _;

    use super::*;

    /// Check that a JVM that nothing can be attached to is named, with the library and the cause in words.
    #[test]
    fn says_which_jvm_which_library_and_why() {
        let cause = io::Error::from_raw_os_error(libc::EPERM);
        let source = attach::Error::Library { library: "/opt/app/libx.so".into(), source: cause };
        let error = Error::Unattached { pid: Pid(42), main: "com.acme.\u{1b}Main".to_owned(), source };
        assert_eq!(
            attach::in_full(&error),
            "no probe can be attached to process 42 (com.acme.\\u{1b}Main): cannot attach to /opt/app/libx.so: \
             Operation not permitted (os error 1)"
        );
    }

    /// Check that a refusal names process and version, what works instead, and nothing private of the VM.
    #[test]
    fn refuses_in_words_for_people() {
        let entry = || hotspot::TableEntry { type_name: "Klass".into(), field: "_next_link".into() };
        let error = |what| {
            let (jdk, cause) = ("JDK 8u432".to_owned(), hotspot::Error::MissingEntry { missing: vec![entry()] });
            Error::Unreadable { pid: Pid(123), what, jdk, cause }
        };
        let stacks = error(Part::Stacks);
        assert_eq!(
            attach::in_full(&stacks),
            "stacks cannot be read in process 123: the VM does not publish what is needed (JDK 8u432)"
        );
        assert_eq!(stacks.advice().unwrap(), "counts and times work: `nprof trace --pid 123`");
        assert!(!stacks.is_unsupported());
        let natives = error(Part::Natives);
        assert!(natives.is_unsupported() && natives.advice().unwrap().contains("JDK 11"));
    }

    /// Check that old and 32-bit VMs are told from those that only cannot be read now.
    #[test]
    fn tells_what_can_never_be_read() {
        let old = hotspot::Error::MissingEntry { missing: Vec::new() };
        assert!(Error::from(old).is_unsupported());
        let elf32 = [&b"\x7fELF\x01\x01\x01"[..], &[0; 64]].concat();
        let source = object::elf::FileHeader64::<object::LittleEndian>::parse(&*elf32).unwrap_err();
        let narrow = hotspot::Error::BadLibrary { path: "/jdk/libjvm.so".into(), source: source.into() };
        let narrow = Error::from(narrow);
        assert!(narrow.is_unsupported());
        assert_eq!(narrow.to_string(), "/jdk/libjvm.so is not a 64-bit little-endian ELF library");
        assert!(Error::Unsupported { pid: Pid(1), kind: JvmKind::OpenJ9 }.is_unsupported());
        assert!(!Error::from(hotspot::Error::NotReady).is_unsupported());
        assert!(!Error::Ended { pid: Pid(1) }.is_unsupported());
    }
}
