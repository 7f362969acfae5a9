//! Java stacks from outside: from the registers at a native method's own entry and a copy of the thread's stack to the
//! exact Java frames, without frame pointers, without an agent, and without stopping anything.
//!
//! `sender` knows how each kind of frame leads to its caller, by what `code_cache` and `blob` say of the code that an
//! address lies in; `scopes` and `methods` name the frames. `layout` holds where all of it lies in this VM.
//!
//! Code comes and goes while this runs. What was read is remembered, and everything that a stack relied on is looked at
//! again in one read when the stack is done (`witness`); if something has changed, the stack is unwound anew. This has
//! to happen within milliseconds of the copy: the VM may reuse the memory of code that no thread runs any more. A stack
//! that cannot be followed to its end says so, with the reason ([`End::Cut`]); what it has up to there is right.

mod blob;
mod code_cache;
mod frame;
mod layout;
mod lines;
mod methods;
mod scopes;
mod sender;
mod stack_copy;
#[cfg(test)]
mod testing;
mod unsigned5;
mod witness;

pub use frame::{Crossing, CrossingKind, CutReason, End, FrameKind, JavaFrame, JavaStack, MethodName};

use crate::hotspot::{Error, Exports, Reader, RemoteMemory, Tables, read_int_constants};
use crate::model::{Library, VirtAddr};
use crate::sys::remote_memory::MemoryError;
use code_cache::CodeCache;
use layout::CodeLayout;
use methods::Methods;
use sender::{Fixed, Registers, Stop, Walk};
use stack_copy::StackCopy;

/// A stack with more frames is cut, visibly.
pub const MAX_FRAMES: usize = 1_000;
/// How often a stack is unwound when the VM's code changes meanwhile.
const ATTEMPTS: usize = 4;

/// A thread at one moment: where it was, and a copy of its stack.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// An address in Java code or in a stub of the VM.
    pub pc: VirtAddr,
    /// The stack pointer there.
    pub sp: VirtAddr,
    /// The frame pointer there; in compiled code it may hold anything.
    pub fp: VirtAddr,
    /// The stack from `stack_base` on, as much as there is.
    pub stack: &'a [u8],
    /// The address that the copy begins at, not above `sp`.
    pub stack_base: VirtAddr,
}

impl<'a> Sample<'a> {
    /// The sample at the first instruction of a native method: `rsp` and `rbp` as they are there, and the stack from
    /// `rsp` on, where the return address into Java lies. `None` if the copy does not even hold that.
    #[must_use]
    pub fn at_native_entry(rsp: VirtAddr, rbp: VirtAddr, stack: &'a [u8]) -> Option<Self> {
        let pc = stack.first_chunk::<8>()?;
        let sp = VirtAddr(rsp.0.checked_add(8)?);
        Some(Self { pc: VirtAddr(u64::from_le_bytes(*pc)), sp, fp: rbp, stack, stack_base: rsp })
    }
}

/// Unwinds the stacks of one JVM. It remembers code and names, within limits.
#[derive(Debug)]
pub struct Unwinder<M> {
    reader: Reader<M>,
    layout: CodeLayout,
    fixed: Fixed,
    code: CodeCache,
    methods: Methods,
}

impl<M: RemoteMemory> Unwinder<M> {
    /// Reads the tables of the VM whose memory is `memory` and whose `libjvm` is mapped where that says.
    ///
    /// # Errors
    /// As [`crate::hotspot::Vm::open`]; [`Error::NotReady`] also until the VM has made its interpreter.
    pub fn open(memory: M, libjvm: &Library) -> Result<Self, Error> {
        let exports = Exports::of(libjvm)?;
        let mut reader = Reader::new(memory);
        let tables = Tables::read(&mut reader, &exports)?;
        let constants = read_int_constants(&mut reader, &exports)?;
        let layout = CodeLayout::of(&tables, &constants, |variable| {
            let version = reader.numbers([(variable, 4)])?;
            // 0 until the VM has looked at its own version.
            let version = version.and_then(|[version]| u32::try_from(version).ok()).filter(|version| *version > 0);
            version.ok_or(Error::NotReady)
        })?;
        let fixed = Fixed::read(&mut reader, &layout)?;
        Ok(Self { reader, layout, fixed, code: CodeCache::default(), methods: Methods::default() })
    }

    /// The Java frames of a sample.
    ///
    /// # Errors
    /// What makes all reads fail: the process has ended, or may not be read.
    pub fn unwind(&mut self, sample: &Sample<'_>) -> Result<JavaStack, MemoryError> {
        for _ in 0..ATTEMPTS {
            let (stack, holds) = self.attempt(sample)?;
            if holds {
                return Ok(stack);
            }
        }
        // Nothing could be confirmed, so nothing is said.
        Ok(JavaStack { frames: Vec::new(), crossings: Vec::new(), end: End::Cut(CutReason::Changing) })
    }

    /// Unwinds once. Returns also whether all that it relied on is still so.
    fn attempt(&mut self, sample: &Sample<'_>) -> Result<(JavaStack, bool), MemoryError> {
        let Self { reader, layout, fixed, code, methods } = self;
        let stack = StackCopy { base: sample.stack_base, bytes: sample.stack };
        let mut walk = Walk::new(reader, layout, fixed, code, methods, stack);
        let end = match walk.run(Registers { sp: sample.sp, pc: sample.pc, fp: sample.fp }) {
            Ok(()) => End::Complete,
            Err(Stop::Cut(reason)) => End::Cut(reason),
            Err(Stop::Memory(error)) => return Err(error),
        };
        let holds = walk.confirm()?;
        let (frames, crossings) = walk.into_frames();
        Ok((JavaStack { frames, crossings, end }, holds))
    }
}
