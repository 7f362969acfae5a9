//! What leaves the unwinder: the frames of a Java stack and how it ended.

use std::fmt;
use std::sync::Arc;

use crate::model::CutReason;

/// A Java method, as its class file names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MethodName {
    /// What `Class.getName()` says, such as `java.util.zip.Deflater`.
    pub class: Arc<str>,
    /// Such as `deflate` or `<init>`.
    pub name: Arc<str>,
    /// Its descriptor, such as `([BII)I`.
    pub signature: Arc<str>,
    /// Whether it is declared `native`.
    pub is_native: bool,
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.class, self.name)
    }
}

/// How a frame was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// By the interpreter.
    Interpreted,
    /// Compiled by C1.
    C1,
    /// Compiled by C2.
    C2,
    /// Inlined into the frame that follows it.
    Inlined,
    /// A native method, called through its compiled wrapper.
    NativeWrapper,
}

/// One frame of Java code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaFrame {
    /// The method that runs.
    pub method: Arc<MethodName>,
    /// The line in its source file; `None` in a native method and where the class file has no lines.
    pub line: Option<u32>,
    /// How it is executed.
    pub kind: FrameKind,
    /// Whether the VM leaves it out of its own stack traces: lambda forms, reflection, the entry of a virtual thread.
    pub hidden: bool,
}

/// What lies between two Java frames, or ends them: after how many Java frames (counted from the innermost) it was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// The number of Java frames that are further in.
    pub after: usize,
    /// What it is.
    pub kind: CrossingKind,
}

/// What a stack passes through that is no Java method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrossingKind {
    /// Native code or the VM called Java here, by the call stub.
    CalledFromNative,
    /// The same through an upcall of the foreign function interface.
    Upcall,
    /// A stub of the VM with its own frame.
    Stub,
    /// The VM has given up the compiled code of the next frame, which will go on in the interpreter.
    Deoptimised,
}

/// How a stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With the first frame of its thread.
    Complete,
    /// Before. What was found is right, but frames are missing after it.
    Cut(CutReason),
}

impl End {
    /// Whether the stack may be good, and what was read to follow it is not.
    pub(super) fn is_for_what_was_read(self) -> bool {
        use CutReason::{BadFrame, BadMethod, BadScope, InvalidPcDesc, UnknownCode};
        matches!(self, Self::Cut(BadFrame | BadMethod | BadScope | InvalidPcDesc | UnknownCode))
    }
}

/// The Java frames of one thread, the innermost first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JavaStack {
    /// The frames of Java methods.
    pub frames: Vec<JavaFrame>,
    /// What lies between them.
    pub crossings: Vec<Crossing>,
    /// How it ended.
    pub end: End,
}
