//! From a frame to the one that called it, for each kind of frame (x86-64).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::blob::BlobKind;
use super::code_cache::CodeCache;
use super::layout::CodeLayout;
use super::methods::{Method, Methods};
use super::stack_copy::{StackCopy, slot_address};
use super::witness::{Witness, changed};
use super::{Crossing, CrossingKind, CutReason, FrameKind, JavaFrame, MAX_FRAMES};
use crate::hotspot::{Error, Reader, RemoteMemory, at, is_plausible};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// More physical frames than [`MAX_FRAMES`] Java frames can have, stubs included.
const MAX_STEPS: usize = 4 * MAX_FRAMES;

/// What identifies a place in a frame chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    /// The stack pointer as it is in the frame's own code, arguments of a callee popped.
    pub(super) sp: VirtAddr,
    pub(super) pc: VirtAddr,
    pub(super) fp: VirtAddr,
}

/// Why a walk does not go on.
#[derive(Debug)]
pub(super) enum Stop {
    Cut(CutReason),
    Memory(MemoryError),
}

impl From<CutReason> for Stop {
    fn from(reason: CutReason) -> Self {
        Self::Cut(reason)
    }
}

impl From<MemoryError> for Stop {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

/// Code that stays where it is for the life of the VM.
#[derive(Debug, Clone)]
pub(super) struct Fixed {
    pub(super) interpreter: std::ops::Range<VirtAddr>,
    pub(super) call_stub_return: VirtAddr,
}

impl Fixed {
    pub(super) fn read<M: RemoteMemory>(reader: &mut Reader<M>, layout: &CodeLayout) -> Result<Self, Error> {
        let statics = [(layout.statics.interpreter, 8), (layout.statics.call_stub_return, 8)];
        let [queue, call_stub_return] = reader.numbers(statics)?.ok_or(Error::NotReady)?.map(VirtAddr);
        let limit = layout.heap.stub_limit;
        let wanted = [(at(queue, layout.heap.stub_buffer), 8), (at(queue, limit.offset), limit.width)];
        let [buffer, bytes] = reader.numbers(wanted)?.ok_or(Error::NotReady)?;
        let interpreter = VirtAddr(buffer)..at(VirtAddr(buffer), bytes);
        if !is_plausible(call_stub_return) || !is_plausible(interpreter.start) {
            return Err(Error::NotReady);
        }
        Ok(Self { interpreter, call_stub_return })
    }
}

/// Something that was remembered and that a stack relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Relied {
    Blob(VirtAddr),
    Method(VirtAddr),
}

/// One pass over a stack.
#[derive(Debug)]
pub(super) struct Walk<'a, M> {
    reader: &'a mut Reader<M>,
    layout: &'a CodeLayout,
    fixed: &'a Fixed,
    code: &'a mut CodeCache,
    methods: &'a mut Methods,
    stack: StackCopy<'a>,
    frames: Vec<JavaFrame>,
    crossings: Vec<Crossing>,
    relied: BTreeSet<Relied>,
}

impl<'a, M: RemoteMemory> Walk<'a, M> {
    pub(super) fn new(
        reader: &'a mut Reader<M>,
        layout: &'a CodeLayout,
        fixed: &'a Fixed,
        code: &'a mut CodeCache,
        methods: &'a mut Methods,
        stack: StackCopy<'a>,
    ) -> Self {
        let (frames, crossings, relied) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self { reader, layout, fixed, code, methods, stack, frames, crossings, relied }
    }

    /// What was found.
    pub(super) fn into_frames(self) -> (Vec<JavaFrame>, Vec<Crossing>) {
        (self.frames, self.crossings)
    }

    /// Follows the frames to the thread's first one.
    pub(super) fn run(&mut self, start: Registers) -> Result<(), Stop> {
        let mut here = start;
        for _ in 0..MAX_STEPS {
            let Some(sender) = self.step(here)? else {
                return Ok(());
            };
            if self.frames.len() > MAX_FRAMES {
                self.frames.truncate(MAX_FRAMES);
                break;
            }
            if sender.sp <= here.sp || !sender.sp.0.is_multiple_of(8) {
                return Err(CutReason::BadFrame.into());
            }
            here = sender;
        }
        Err(CutReason::TooDeep.into())
    }

    /// Looks again at all that was relied on, and forgets what has changed.
    pub(super) fn confirm(&mut self) -> Result<bool, MemoryError> {
        let mut witnesses: Vec<(Relied, Witness)> = Vec::new();
        for &relied in &self.relied {
            let of_it = match relied {
                Relied::Blob(begin) => self.code.get(begin).map(|blob| &blob.witnesses[..]),
                Relied::Method(addr) => self.methods.known(addr).map(|method| &method.witnesses[..]),
            };
            witnesses.extend(of_it.unwrap_or_default().iter().map(|witness| (relied, *witness)));
        }
        if changed(self.reader, &witnesses)?.is_empty() {
            return Ok(true);
        }
        for &relied in &self.relied {
            match relied {
                Relied::Blob(begin) => self.code.forget(begin),
                Relied::Method(addr) => self.methods.forget(addr),
            }
        }
        Ok(false)
    }

    /// Adds the frames at a place and finds the caller; `None` behind the thread's first frame.
    fn step(&mut self, here: Registers) -> Result<Option<Registers>, Stop> {
        if here.pc == self.fixed.call_stub_return {
            return self.entry(here);
        }
        if self.fixed.interpreter.contains(&here.pc) {
            return self.interpreted(here).map(Some);
        }
        let found = self.code.find(self.reader, self.layout, here.pc)?;
        let begin = found.ok_or(CutReason::UnknownCode)?;
        self.relied.insert(Relied::Blob(begin));
        let blob = self.code.get(begin).ok_or(CutReason::UnknownCode)?;
        let frame_bytes = blob.frame_bytes;
        match blob.kind {
            BlobKind::Compiled | BlobKind::NativeWrapper => {
                self.compiled(begin, here)?;
                self.above(here, frame_bytes).map(Some)
            }
            BlobKind::Upcall { frame_data } => {
                self.cross(CrossingKind::Upcall);
                // The anchor is the first thing in the frame's data.
                self.anchored(at(here.sp, frame_data))
            }
            BlobKind::Continuation => Err(CutReason::FrozenFrames.into()),
            BlobKind::Stub => {
                self.cross(CrossingKind::Stub);
                if frame_bytes > 0 { self.above(here, frame_bytes) } else { self.linked(here) }.map(Some)
            }
        }
    }

    fn cross(&mut self, kind: CrossingKind) {
        self.crossings.push(Crossing { after: self.frames.len(), kind });
    }

    /// The caller of a frame of fixed size.
    fn above(&self, here: Registers, frame_bytes: u64) -> Result<Registers, Stop> {
        let sp = at(here.sp, frame_bytes);
        let (pc, fp) = (self.stack.slot(sp, -1)?, self.stack.slot(sp, -2)?);
        Ok(Registers { sp, pc: VirtAddr(pc), fp: VirtAddr(fp) })
    }

    /// The caller of a frame that has only a frame pointer.
    fn linked(&self, here: Registers) -> Result<Registers, Stop> {
        let (pc, fp) = (self.stack.slot(here.fp, 1)?, self.stack.slot(here.fp, 0)?);
        Ok(Registers { sp: slot_address(here.fp, 2), pc: VirtAddr(pc), fp: VirtAddr(fp) })
    }

    /// Native code called Java here; the Java frame that called the native code is in the wrapper's anchor.
    fn entry(&mut self, here: Registers) -> Result<Option<Registers>, Stop> {
        self.cross(CrossingKind::CalledFromNative);
        let wrapper = VirtAddr(self.stack.slot(here.fp, self.layout.entry.wrapper_slot)?);
        self.anchored(at(wrapper, self.layout.entry.anchor))
    }

    /// The frame that an anchor on the stack means; none if the thread had no Java frame then.
    fn anchored(&self, anchor: VirtAddr) -> Result<Option<Registers>, Stop> {
        let entry = &self.layout.entry;
        let [sp, pc, fp] = [entry.last_sp, entry.last_pc, entry.last_fp].map(|field| at(anchor, field));
        let sp = VirtAddr(self.stack.word(sp)?);
        if sp.is_null() {
            return Ok(None);
        }
        // Without an address in the anchor it is that which the last call has pushed.
        let pc = match self.stack.word(pc)? {
            0 => self.stack.slot(sp, -1)?,
            pc => pc,
        };
        Ok(Some(Registers { sp, pc: VirtAddr(pc), fp: VirtAddr(self.stack.word(fp)?) }))
    }

    fn interpreted(&mut self, here: Registers) -> Result<Registers, Stop> {
        if here.fp < here.sp {
            return Err(CutReason::BadFrame.into());
        }
        let slot = |words| self.stack.slot(here.fp, words);
        // All of the frame's words first: a frame that is cut is not there.
        let sender = Registers { sp: VirtAddr(slot(-1)?), pc: VirtAddr(slot(1)?), fp: VirtAddr(slot(0)?) };
        let versioned = self.layout.versioned;
        let addr = VirtAddr(slot(versioned.interpreted_method)?);
        let bytecode = VirtAddr(slot(versioned.interpreted_bytecode)?);
        let method = self.method(addr)?;
        let frame = frame(&method, method.bci(bytecode), FrameKind::Interpreted);
        self.frames.push(frame);
        Ok(sender)
    }

    fn method(&mut self, addr: VirtAddr) -> Result<Arc<Method>, Stop> {
        self.relied.insert(Relied::Method(addr));
        let method = self.methods.get(self.reader, self.layout, addr)?;
        Ok(method.ok_or(CutReason::BadMethod)?)
    }

    /// Adds the frames of compiled code: the method itself, last, and before it what is inlined at this place.
    fn compiled(&mut self, begin: VirtAddr, here: Registers) -> Result<(), Stop> {
        let pc_offset = self.pc_offset(begin, here)?;
        let known = self.code.get(begin).and_then(|blob| blob.nmethod.as_ref()?.frames.get(&pc_offset));
        if let Some(frames) = known {
            self.frames.extend_from_slice(frames);
            return Ok(());
        }
        let frames: Arc<[JavaFrame]> = self.name_compiled(begin, pc_offset)?.into();
        self.frames.extend_from_slice(&frames);
        if let Some(nmethod) = self.code.get_mut(begin).and_then(|blob| blob.nmethod.as_mut()) {
            nmethod.frames.insert(pc_offset, frames);
        }
        Ok(())
    }

    /// How many bytes into the code a frame stands; for a deoptimised frame, where it stood before.
    fn pc_offset(&mut self, begin: VirtAddr, here: Registers) -> Result<i32, Stop> {
        let blob = self.code.get(begin).ok_or(CutReason::UnknownCode)?;
        let nmethod = blob.nmethod.as_ref().ok_or(CutReason::UnknownCode)?;
        let code = blob.code.clone();
        let mut pc = here.pc;
        if nmethod.deopt_handlers.contains(&pc) {
            pc = VirtAddr(self.stack.word(at(here.sp, nmethod.orig_pc_offset))?);
            self.cross(CrossingKind::Deoptimised);
        }
        if !code.contains(&pc) {
            return Err(CutReason::InvalidPcDesc.into());
        }
        Ok(i32::try_from(pc.0 - code.start.0).map_err(|_error| CutReason::InvalidPcDesc)?)
    }

    fn name_compiled(&mut self, begin: VirtAddr, pc_offset: i32) -> Result<Vec<JavaFrame>, Stop> {
        let Some(nmethod) = self.code.get(begin).and_then(|blob| blob.nmethod.as_ref()) else {
            return Err(CutReason::UnknownCode.into());
        };
        let (own_method, own_kind) = (nmethod.method, nmethod.kind);
        if own_kind == FrameKind::NativeWrapper {
            return Ok(vec![frame(&*self.method(own_method)?, 0, own_kind)]);
        }
        let pc_desc = nmethod.scopes.pc_desc(pc_offset).ok_or(CutReason::InvalidPcDesc)?;
        let scopes = nmethod.scopes.at(pc_desc).ok_or(CutReason::BadScope)?;
        let method_of = |number: u32| nmethod.metadata.get(usize::try_from(number).ok()?.checked_sub(1)?).copied();
        let placed: Option<Vec<(VirtAddr, u16)>> =
            scopes.iter().map(|scope| Some((method_of(scope.method)?, scope.bci))).collect();
        let placed = placed.ok_or(CutReason::BadScope)?;
        if placed.last().is_none_or(|(outermost, _)| *outermost != own_method) {
            return Err(CutReason::BadScope.into());
        }
        let mut frames = Vec::with_capacity(placed.len());
        for (index, (addr, bci)) in placed.iter().enumerate() {
            let kind = if index + 1 == placed.len() { own_kind } else { FrameKind::Inlined };
            frames.push(frame(&*self.method(*addr)?, *bci, kind));
        }
        Ok(frames)
    }
}

fn frame(method: &Method, bci: u16, kind: FrameKind) -> JavaFrame {
    JavaFrame { method: Arc::clone(&method.name), line: method.line(bci), kind }
}
