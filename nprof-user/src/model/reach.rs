//! Whom a probe reaches.

/// Whose memory the kernel writes a probe into that is meant for one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// The target's alone.
    Target,
    /// That of every process that has the file mapped: where a probe is wrong, all of them go wrong.
    Everyone,
}
