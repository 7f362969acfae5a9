//! What goes into the unwinder and what comes out of it.

use crate::model::{CutReason, VirtAddr};

/// A thread at one moment: where it was, and a copy of its stack.
#[derive(Debug, Clone, Copy)]
pub struct NativeSample<'a> {
    /// The instruction that it was about to execute.
    pub pc: VirtAddr,
    /// The stack pointer there.
    pub sp: VirtAddr,
    /// The frame pointer there, if it is known. Most code does without; what cannot is cut.
    pub fp: Option<VirtAddr>,
    /// The stack from `stack_base` on, as much as there is.
    pub stack: &'a [u8],
    /// The address that the copy begins at, not above `sp`.
    pub stack_base: VirtAddr,
    /// The return addresses that return probes have put their own in place of.
    pub probed: &'a [ProbedReturn],
}

/// A return address that a return probe has replaced on the stack.
///
/// The kernel makes a probed function return into a trampoline. Who knows what stood there before has to say it, or the
/// frames beyond are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbedReturn {
    /// Where on the stack it stood.
    pub slot: VirtAddr,
    /// The return address itself.
    pub pc: VirtAddr,
}

/// The registers from which unwinding goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// The return address into the frame.
    pub pc: VirtAddr,
    /// The stack pointer after that return.
    pub sp: VirtAddr,
    /// The frame pointer there, unless nothing says what it was.
    pub fp: Option<VirtAddr>,
}

/// A place in code, as a frame has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeAddress {
    /// The instruction that is executed next in that frame.
    pub address: VirtAddr,
    /// Whether that is where a call returns to, which may already belong to another line or even function.
    pub is_return: bool,
}

impl CodeAddress {
    /// An address inside the instruction that the frame is in: for a return address, inside the call.
    #[must_use]
    pub fn lookup(self) -> VirtAddr {
        VirtAddr(self.address.0.saturating_sub(u64::from(self.is_return)))
    }
}

/// The native frames of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeStack {
    /// The frames, the innermost first.
    pub frames: Vec<CodeAddress>,
    /// How many frames lead to their caller by a frame pointer or by a return address on top of the stack, because
    /// their code has no unwind information. What follows them is probable, not certain.
    pub guessed: usize,
    /// How it ended.
    pub end: NativeEnd,
}

/// How the native part of a stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeEnd {
    /// With the first frame of its thread.
    Complete,
    /// At Java code, which called the outermost native frame and has these registers.
    Java(Registers),
    /// Before. What was found is right, but frames are missing after it.
    Cut(CutReason),
}
