//! `--tier`: who counts calls.

use clap::ValueEnum;

use crate::trace::TierWanted;

/// Who counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum TierArg {
    /// Stubs if nprof's library is loaded already, else the kernel
    #[default]
    Auto,
    /// Probes of the kernel; the JVM is only read
    Kernel,
    /// Stubs; the kernel for methods that cannot have one
    Stub,
}

impl From<TierArg> for TierWanted {
    fn from(tier: TierArg) -> Self {
        match tier {
            TierArg::Auto => Self::Auto,
            TierArg::Kernel => Self::Kernel,
            TierArg::Stub => Self::Stub,
        }
    }
}
