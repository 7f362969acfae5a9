//! Why the frames of a stack end too early.

use serde::{Deserialize, Serialize};

/// Why a stack does not reach the first frame of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CutReason {
    /// The copy of the stack ends before the stack does.
    #[error("the copy of the stack is too short")]
    StackTooShort,
    /// More frames than the unwinder follows.
    #[error("the stack is too deep")]
    TooDeep,
    /// The address lies in no code that the VM has made.
    #[error("an address lies in no known code")]
    UnknownCode,
    /// The address is not where a compiled method can call something.
    #[error("an address is no call of its compiled method")]
    InvalidPcDesc,
    /// The compiler's description of the inlined methods makes no sense.
    #[error("the scopes of a compiled method are damaged")]
    BadScope,
    /// What should be a method is none.
    #[error("a method cannot be read")]
    BadMethod,
    /// A frame does not lie above the one that it called.
    #[error("the frames are not in order")]
    BadFrame,
    /// The VM's memory cannot be read there.
    #[error("the VM's memory cannot be read")]
    Unreadable,
    /// The rest of a virtual thread is frozen in the heap.
    #[error("the rest of a virtual thread is frozen in the heap")]
    FrozenFrames,
    /// The VM changed its code during every attempt.
    #[error("the VM's code changed meanwhile")]
    Changing,
    /// Native code without unwind information, or with wrong one.
    #[error("native code has no unwind information")]
    NoUnwindInfo,
    /// The thread was interrupted where its frame is not whole, and nothing says where the caller is.
    #[error("the thread was interrupted within a call or return")]
    MidFrame,
}

impl CutReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::StackTooShort,
        Self::TooDeep,
        Self::UnknownCode,
        Self::InvalidPcDesc,
        Self::BadScope,
        Self::BadMethod,
        Self::BadFrame,
        Self::Unreadable,
        Self::FrozenFrames,
        Self::Changing,
        Self::NoUnwindInfo,
        Self::MidFrame,
    ];
}
