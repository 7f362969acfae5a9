//! What became of what was pushed.

/// How a push ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// The receiver has taken all of it.
    Delivered,
    /// The receiver has taken it and rejected a part.
    Partial,
    /// It did not arrive, or was refused.
    Failed,
    /// It was not sent, because the receiver had asked for a pause.
    Deferred,
}

impl PushOutcome {
    /// Every outcome, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Delivered, Self::Partial, Self::Failed, Self::Deferred];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Deferred => "deferred",
        }
    }
}

/// What became of the pushes to one target, since the start of nprof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushes {
    /// What is pushed in which way.
    pub target: &'static str,
    /// How many ended in which way, in the order of [`PushOutcome::ALL`].
    pub outcomes: [u64; PushOutcome::ALL.len()],
    /// Attempts after a first one that failed.
    pub retries: u64,
    /// Points or profiles that the receiver has rejected from pushes that it took.
    pub rejected: u64,
}
