//! Java stacks from outside: from the registers at a native method's own entry and a copy of the thread's stack to the
//! exact Java frames, without frame pointers, without an agent, and without stopping anything.
//!
//! Threads that were interrupted anywhere in Java code are unwound as well: `interrupted` finds the caller of the innermost
//! frame, by what the instructions around do to the stack (`cfa_offset`, `simulate`, and `not_entrant` for code that the VM has
//! changed). `threads` lists the VM's threads, with what it takes to find the last Java frame of one that is in native code.
//!
//! `sender` knows how each kind of frame leads to its caller, by what `fixed`, `code_cache` and `blob` say of the code that an
//! address lies in; `scopes` and `methods` name the frames. `layout` holds where all of it lies in this VM. Frames of
//! virtual threads that are frozen in the heap are found by `frozen`, with `objects` and `classes`.
//!
//! Objects that native methods were given are described by `arguments`, Java methods that native code has ids of by `method_ids`.
//!
//! Code comes and goes while this runs. What was read is remembered, and everything that a stack relied on is looked at
//! again in one read when the stack is done (`assumption`); if something has changed, the stack is unwound again. This has
//! to happen within milliseconds of the copy: the VM may reuse the memory of code that no thread runs any more. A stack
//! that cannot be followed to its end says so, with the reason ([`End::Cut`]); what it has up to there is right.

mod arguments;
mod assumption;
mod blob;
mod cfa_offset;
mod classes;
mod code_cache;
mod collections_layout;
mod entered;
mod entered_layout;
mod fixed;
mod frame;
mod freshness;
mod frozen;
mod frozen_copy;
mod frozen_layout;
mod frozen_places;
mod interrupted;
#[cfg(test)]
mod interrupted_tests;
mod layout;
mod lines;
mod method_ids;
mod methods;
mod not_entrant;
mod object_layout;
mod objects;
mod scopes;
mod sender;
mod simulate;
mod stack_copy;
mod symbols;
#[cfg(test)]
mod testing;
mod thread_list;
mod threads;
mod unsigned5;

pub use arguments::{Contents, HeapObject};
pub use frame::{Crossing, CrossingKind, End, FrameKind, JavaFrame, JavaStack, MethodName};

pub use stack_copy::FrozenCopy;
pub use threads::{JavaThread, LastJavaFrameOffsets, Threads};

use crate::hotspot::{
    Error, Exports, Pages, Reader, RemoteMemory, Tables, lasting_loaders, read_int_constants, read_long_constants,
};
use crate::model::{CutReason, Library, VirtAddr};
use crate::sys::remote_memory::MemoryError;
use fixed::Fixed;
use layout::CodeLayout;
use sender::{Confirmed, Known, Registers, Stop, Walk};
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
    /// Of a virtual thread, what was copied of the frames that are frozen in the heap. If nothing was, they are looked
    /// for in the live heap.
    pub frozen: Option<FrozenCopy<'a>>,
    /// How many times the VM had begun to collect the heap, if that is known: [`Unwinder::collections_place`].
    pub collections: Option<u64>,
}

impl<'a> Sample<'a> {
    /// The sample at the first instruction of a native method: `rsp` and `rbp` as they are there, and the stack from
    /// `rsp` on, where the return address into Java lies. `None` if the copy does not even hold that.
    #[must_use]
    pub fn at_native_entry(rsp: VirtAddr, rbp: VirtAddr, stack: &'a [u8]) -> Option<Self> {
        let pc = stack.first_chunk::<8>()?;
        let sp = VirtAddr(rsp.0.checked_add(8)?);
        Some(Self {
            pc: VirtAddr(u64::from_le_bytes(*pc)),
            sp,
            fp: rbp,
            stack,
            stack_base: rsp,
            frozen: None,
            collections: None,
        })
    }

    /// The sample of a thread that is in native code or in the VM, at the Java frame that its anchor tells of: the three
    /// words that [`LastJavaFrameOffsets`] lead to. `None` if there is no Java frame (`sp` is zero), or the copy, which begins at
    /// `stack_base`, does not hold what has to be known of it.
    #[must_use]
    pub fn at_anchor(sp: VirtAddr, pc: VirtAddr, fp: VirtAddr, stack: &'a [u8], stack_base: VirtAddr) -> Option<Self> {
        if sp.is_null() || sp < stack_base {
            return None;
        }
        // Without an address in the anchor it is that which the last call has pushed.
        let pc = if pc.is_null() {
            VirtAddr(StackCopy { base: stack_base, bytes: stack, is_chunk: false }.slot(sp, -1).ok()?)
        } else {
            pc
        };
        Some(Self { pc, sp, fp, stack, stack_base, frozen: None, collections: None })
    }
}

/// A thread that was interrupted in Java code itself, at any of its instructions.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted<'a> {
    /// Registers and stack as they are at the next instruction, for whose address [`Unwinder::contains_code`] holds.
    pub at: Sample<'a>,
    /// `r13`: in the interpreter mostly the address of the current bytecode.
    pub bcp: u64,
    /// `rax`, if it is known: it holds the return address while the interpreter enters a method.
    pub rax: Option<u64>,
    /// `rbx`, if it is known: it holds the caller's stack pointer while the interpreter leaves a method.
    pub rbx: Option<u64>,
}

/// The registers of native code that has called Java.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NativeCaller {
    /// Where the call returns to.
    pub pc: VirtAddr,
    /// The stack pointer after that return.
    pub sp: VirtAddr,
    /// The frame pointer there.
    pub fp: VirtAddr,
}

/// Unwinds the stacks of one JVM. It remembers code and names, within limits.
#[derive(Debug)]
pub struct Unwinder<M> {
    reader: Reader<Pages<M>>,
    layout: CodeLayout,
    fixed: Fixed,
    known: Known,
    /// Where collections of the heap are counted.
    counter: Option<VirtAddr>,
    /// Whether a stack was cut where frozen frames begin.
    misses_frozen: bool,
}

/// What was copied of a thread, and when.
#[derive(Debug, Clone, Copy)]
struct Copies<'a> {
    stack: StackCopy<'a>,
    frozen: Option<FrozenCopy<'a>>,
    collections: Option<u64>,
}

impl<M: RemoteMemory> Unwinder<M> {
    /// Reads the tables of the VM whose memory is `memory` and whose `libjvm` is mapped where that says.
    ///
    /// # Errors
    /// As [`crate::hotspot::Vm::open`]; [`Error::NotReady`] also until the VM has made its interpreter.
    pub fn open(memory: M, libjvm: &Library) -> Result<Self, Error> {
        let exports = Exports::of(libjvm)?;
        let mut reader = Reader::new(Pages::of(memory));
        let tables = Tables::read(&mut reader, &exports)?;
        let mut constants = read_int_constants(&mut reader, &exports)?;
        constants.extend(read_long_constants(&mut reader, &exports)?);
        let layout = CodeLayout::of(&tables, &constants, |variable| {
            let version = reader.numbers([(variable, 4)])?;
            // 0 until the VM has looked at its own version.
            let version = version.and_then(|[version]| u32::try_from(version).ok()).filter(|version| *version > 0);
            version.ok_or(Error::NotReady)
        })?;
        let fixed = Fixed::read(&mut reader, &layout)?;
        let counter = freshness::counter(&mut reader, &layout)?;
        let known = Known { lasting: lasting_loaders(&mut reader, &layout.names)?, ..Known::default() };
        Ok(Self { reader, layout, fixed, known, counter, misses_frozen: false })
    }

    /// Whether a stack was cut where frozen frames begin, since this was asked last.
    pub fn take_misses_frozen(&mut self) -> bool {
        std::mem::take(&mut self.misses_frozen)
    }

    /// Where the VM counts, in 32 bits, how many times it has begun to collect the heap; `None` if it does not say. Read at
    /// the moment of a sample, the number tells what was there then from what has taken its place since.
    #[must_use]
    pub fn collections_place(&self) -> Option<VirtAddr> {
        self.counter
    }

    /// Whether an address lies where the VM puts code, so that a thread there is in Java code and not in native code.
    /// Nothing is read for it.
    #[must_use]
    pub fn contains_code(&self, pc: VirtAddr) -> bool {
        self.fixed.contains_code(pc)
    }

    /// The Java frames of a sample of a thread that has not gone on since, as far as is known.
    ///
    /// # Errors
    /// What makes all reads fail: the process has ended, or may not be read.
    pub fn unwind(&mut self, sample: &Sample<'_>) -> Result<JavaStack, MemoryError> {
        self.unwind_while(sample, || true)
    }

    /// The same for a thread that may have gone on: `is_there` says, after everything was read, whether it is still in
    /// the call in which it was copied. If not, frames that are not in the copy but in the heap are left out.
    ///
    /// # Errors
    /// As [`Self::unwind`].
    pub fn unwind_while(&mut self, sample: &Sample<'_>, is_there: impl Fn() -> bool) -> Result<JavaStack, MemoryError> {
        let stack = StackCopy { base: sample.stack_base, bytes: sample.stack, is_chunk: false };
        let start = Registers { sp: sample.sp, pc: sample.pc, fp: sample.fp };
        let copies = Copies { stack, frozen: sample.frozen, collections: sample.collections };
        self.confirmed(copies, |walk| walk.run(start), is_there)
    }

    /// The Java frames of a thread that was interrupted in Java code. All methods are right; the line of the innermost
    /// frame is near in compiled code, and so are the methods that are inlined there: the compiler describes calls only.
    /// Where the frame is not whole and its caller not certain, the stack is cut ([`CutReason::MidFrame`]).
    ///
    /// # Errors
    /// As [`Self::unwind`].
    pub fn unwind_interrupted(&mut self, thread: &Interrupted<'_>) -> Result<JavaStack, MemoryError> {
        let stack = StackCopy { base: thread.at.stack_base, bytes: thread.at.stack, is_chunk: false };
        let copies = Copies { stack, frozen: thread.at.frozen, collections: thread.at.collections };
        self.confirmed(copies, |walk| walk.run_interrupted(thread), || true)
    }

    /// The registers of the native code that has called Java by a stub of the foreign function interface, for a thread that
    /// is in the stub itself or has called native code from there; `None` for one that is elsewhere.
    ///
    /// # Errors
    /// As [`Self::unwind`].
    pub fn caller_of_upcall(&mut self, thread: &Interrupted<'_>) -> Result<Option<NativeCaller>, MemoryError> {
        let stack = StackCopy { base: thread.at.stack_base, bytes: thread.at.stack, is_chunk: false };
        let Self { reader, layout, fixed, known, .. } = self;
        match Walk::new(reader, layout, fixed, known, (stack, None)).caller_of_upcall(thread) {
            Ok(caller) => Ok(caller.map(|Registers { pc, sp, fp }| NativeCaller { pc, sp, fp })),
            Err(Stop::Cut(_)) => Ok(None),
            Err(Stop::Memory(error)) => Err(error),
        }
    }

    /// Walks over a stack until all that the walk relied on is still so afterwards.
    fn confirmed(
        &mut self,
        copies: Copies<'_>,
        go: impl Fn(&mut Walk<'_, Pages<M>>) -> Result<(), Stop>,
        is_there: impl Fn() -> bool,
    ) -> Result<JavaStack, MemoryError> {
        let mut doubted = false;
        for _ in 0..ATTEMPTS {
            let Self { reader, layout, fixed, known, counter, .. } = self;
            let mut walk = Walk::new(reader, layout, fixed, known, (copies.stack, copies.frozen));
            let mut end = match go(&mut walk) {
                Ok(()) => End::Complete,
                Err(Stop::Cut(reason)) => End::Cut(reason),
                Err(Stop::Memory(error)) => return Err(error),
            };
            let confirmed = walk.confirm(*counter)?;
            if walk.before_frozen.is_some() && !is_there() && walk.refreeze() {
                end = End::Cut(CutReason::FrozenFrames);
            }
            if let Confirmed::Holds { collections } = confirmed {
                if walk.may_be_of_later(copies.collections, collections) {
                    walk.forget_frames();
                    break;
                }
                if end.is_for_what_was_read() {
                    walk.forget_last();
                    if !std::mem::replace(&mut doubted, true) {
                        continue;
                    }
                    // Most likely it was all right, of a class or of code that has gone.
                    if freshness::has_begun(copies.collections, collections) {
                        end = End::Cut(CutReason::Changing);
                    }
                }
                let (frames, crossings, _) = walk.into_parts();
                self.misses_frozen |= end == End::Cut(CutReason::FrozenFrames);
                return Ok(JavaStack { frames, crossings, end });
            }
        }
        // Nothing could be confirmed, or not of the moment when the stack was taken. So nothing is said.
        Ok(JavaStack { frames: Vec::new(), crossings: Vec::new(), end: End::Cut(CutReason::Changing) })
    }
}
