//! The frames of a stack, as they were read and not named yet.

use crate::model::CutReason;
use crate::native::CodeAddress;
use crate::unwind::{End, JavaFrame, JavaStack};

/// A stack as it was read: native frames, then Java frames, the innermost first.
#[derive(Debug, Default)]
pub(super) struct Frames {
    native: Vec<CodeAddress>,
    java: Vec<JavaFrame>,
    cut: Option<CutReason>,
    /// Whether what has called some native code is a guess.
    is_guess: bool,
}

impl Frames {
    /// Those of native code.
    pub(super) fn of_native(native: Vec<CodeAddress>, is_guess: bool) -> Self {
        Self { native, is_guess, ..Self::default() }
    }

    /// The same with the Java frames that come next.
    pub(super) fn called_by(self, java: JavaStack) -> Self {
        Self { cut: cut(java.end), java: java.frames, ..self }
    }

    /// The same without those that come next, for a reason.
    pub(super) fn cut_by(self, reason: CutReason) -> Self {
        Self { cut: Some(reason), ..self }
    }

    /// The frames of native code, the innermost first. They come before those of Java.
    pub(super) fn native(&self) -> &[CodeAddress] {
        &self.native
    }

    /// The frames of Java, the innermost first.
    pub(super) fn java(&self) -> &[JavaFrame] {
        &self.java
    }

    /// Why there are no more.
    pub(super) fn cut(&self) -> Option<CutReason> {
        self.cut
    }

    /// Whether what has called some native code is a guess.
    pub(super) fn is_guess(&self) -> bool {
        self.is_guess
    }
}

/// Why a Java stack is not complete.
pub(super) fn cut(end: End) -> Option<CutReason> {
    match end {
        End::Complete => None,
        End::Cut(reason) => Some(reason),
    }
}
