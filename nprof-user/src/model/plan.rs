//! What will be probed, what will not, and why.

use std::fmt;

use super::{FileOffset, Library, Method};

/// How nprof knows the code of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// Bound to the function that the library exports under the method's JNI name.
    Export,
    /// Bound by `RegisterNatives`, or by the VM itself, to a function of another name.
    Registered,
    /// Not bound yet; a mapped library exports its JNI name, which the VM will find on the first call.
    Predicted,
    /// Not bound, and nothing mapped carries its JNI name.
    Unbound,
    /// The *critical* function of a method that is bound to another one: compiled code of JDKs before 18 calls it instead
    /// (`-XX:+CriticalJNINatives`).
    Critical,
    /// No method: a JNI function, from the VM's table of them.
    JniFunction,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Export => "export",
            Self::Registered => "registered",
            Self::Predicted => "predicted",
            Self::Unbound => "unbound",
            Self::Critical => "critical",
            Self::JniFunction => "jni-function",
        })
    }
}

/// What one hit costs at a site, apart from the program that runs. Measured figures: `docs/overhead.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProbeCost {
    /// The kernel emulates the instruction under the probe: one trap.
    Emulated,
    /// The kernel single-steps the instruction out of line: a second trap, about ten times the price in a VM.
    SingleStepped,
}

impl fmt::Display for ProbeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Emulated => "emulated",
            Self::SingleStepped => "single-stepped",
        })
    }
}

/// The place of a library in the list that it travels with ([`Plan::libraries`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LibraryId(pub usize);

/// A place in a library that can carry a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The library.
    pub library: LibraryId,
    /// Where the probe sits: the function's entry, or an instruction after it that is reached by every call and
    /// only by calls.
    pub offset: FileOffset,
    /// Where the function begins.
    pub entry: FileOffset,
    /// What a hit costs there.
    pub cost: ProbeCost,
}

impl Site {
    /// How far behind the entry the probe sits, in bytes.
    #[must_use]
    pub fn distance(&self) -> u32 {
        u32::try_from(self.offset.0.saturating_sub(self.entry.0)).unwrap_or(u32::MAX)
    }
}

/// A method together with how its code is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMethod {
    /// The method.
    pub method: Method,
    /// How its code is known.
    pub bound: Bound,
}

/// One function to be probed, under one dense index. Several methods may be bound to one function: what is
/// counted there cannot be told apart and is reported under all their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The dense method index: attach cookie and array index.
    pub index: u32,
    /// The place.
    pub site: Site,
    /// The methods that share the function; never empty.
    pub methods: Vec<PlannedMethod>,
}

impl PlannedMethod {
    /// Whether it is no method, but a JNI function.
    #[must_use]
    pub fn is_jni_function(&self) -> bool {
        self.bound == Bound::JniFunction
    }
}

impl Probe {
    /// Whether a method is bound to the function, so that calls may come there: otherwise one will be, if the names say so.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.methods.iter().any(|known| known.bound != Bound::Predicted)
    }

    /// Whether it is a JNI function's.
    #[must_use]
    pub fn is_of_jni_function(&self) -> bool {
        self.methods.first().is_some_and(PlannedMethod::is_jni_function)
    }
}

/// Why a native method is not probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// Not bound yet and its JNI name is in no mapped library; it is picked up when it is bound.
    Unbound,
    /// A method-handle intrinsic: there is no function to probe.
    Intrinsic,
    /// Bound to memory that no file backs (generated code): a uprobe needs a file.
    NoFile,
    /// The library's file could not be opened or is no ELF file that nprof can read.
    UnreadableLibrary,
    /// The kernel refuses a probe on the instruction at the entry.
    RefusedByKernel,
    /// Where a probe reaches every process that has the file mapped: nothing proves that a function begins there.
    UnprovenStart,
    /// Where a probe reaches every process that has the file mapped: the target's user may have written the file.
    UntrustedFile,
    /// More functions than `--max-methods` or the maps' headroom allow.
    OverLimit,
}

impl SkipReason {
    /// Every reason, for counters that start at zero.
    pub const ALL: [Self; 8] = [
        Self::Unbound,
        Self::Intrinsic,
        Self::NoFile,
        Self::UnreadableLibrary,
        Self::RefusedByKernel,
        Self::UnprovenStart,
        Self::UntrustedFile,
        Self::OverLimit,
    ];

    /// Whether it is there only because a probe would reach other processes.
    #[must_use]
    pub fn keeps_from_others(self) -> bool {
        matches!(self, Self::UnprovenStart | Self::UntrustedFile)
    }

    /// The word for JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Intrinsic => "intrinsic",
            Self::NoFile => "no-file",
            Self::UnreadableLibrary => "unreadable-library",
            Self::RefusedByKernel => "refused-by-kernel",
            Self::UnprovenStart => "unproven-start",
            Self::UntrustedFile => "untrusted-file",
            Self::OverLimit => "over-limit",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A method that is not probed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The method.
    pub method: PlannedMethod,
    /// The reason.
    pub reason: SkipReason,
}

/// What will be probed and what will not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The libraries that [`Site::library`] points into.
    pub libraries: Vec<Library>,
    /// The functions to probe, in the order of their index.
    pub probes: Vec<Probe>,
    /// The selected methods that will not be probed.
    pub skipped: Vec<Skipped>,
}
