//! Calls of native methods that held more local references than there was room for.

/// Calls of a native method in which a local frame held more references at once than its capacity allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalsBeyond {
    /// As in [`super::JniUse`].
    pub method: Option<usize>,
    /// How many, those that have not ended included.
    pub calls: u64,
    /// The most references that one frame held.
    pub most: u64,
}

/// Those of all native methods, and how well they are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JniLocalsSnapshot {
    /// The most references first.
    pub beyond: Vec<LocalsBeyond>,
    /// How well that is known.
    pub known: LocalsKnown,
}

/// How well it is known which calls held too many local references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LocalsKnown {
    /// Not at all: what was let go, or was another native method's, may be among what seems to be held.
    Not,
    /// Not of all calls, or not all that they held.
    Partly,
    /// All calls, and the most of each.
    #[default]
    Exactly,
}
