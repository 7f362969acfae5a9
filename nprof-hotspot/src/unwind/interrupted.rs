//! The innermost frame of a thread that was interrupted anywhere in Java code: not at a call, perhaps while the frame was
//! made or taken away, or in a stub that has none.
//!
//! Each rule proposes where the caller stands. A proposal counts only if it can be right: the address lies behind a call
//! or in the interpreter, and from there on frame after frame leads to the thread's first one. If no proposal holds, the
//! stack is cut there ([`CutReason::MidFrame`]).

use std::ops::Range;
use std::sync::Arc;

use iced_x86::Register;

use super::blob::BlobKind;
use super::cfa_offset::{CfaOffset, CfaOffsets};
use super::sender::{Registers, Stop, Walk};
use super::simulate::{Exit, MAX_CALL, Machine, Text, WayOut, WaysOut, above, ends_with_call};
use super::stack_copy::slot_address;
use super::{FrameKind, Interrupted, Sample, not_entrant};
use crate::hotspot::{RemoteMemory, at};
use crate::model::{CutReason, VirtAddr};

/// More ways out of a stub are not tried.
const MAX_WAYS_OUT: usize = 12;
/// The way from a method's entry in the interpreter to its frame is shorter.
const TO_FRAME: usize = 160;
/// The code that calls Java from native code is shorter, before and behind the call.
const CALL_STUB: u64 = 0x400;
/// Arguments of a method take no more (255 words, and the return address).
const MAX_ARGUMENTS: u64 = 8 * 257;
/// A stack pointer that is kept on the stack itself is not further away.
const MAX_SAVED_SP: u64 = 1 << 16;
/// A frame of the interpreter is not larger: 65,535 words on its operand stack, and as many monitors' words.
const MAX_INTERPRETED: u64 = 16 * 65_536;
/// Words from the frame pointer of an interpreted frame to the stack pointer of the caller, and to its own one at its
/// last call.
const SENDER_SP: i64 = -1;
const LAST_SP: i64 = -2;

impl<M: RemoteMemory> Walk<'_, M> {
    /// Follows the frames from where a thread was interrupted to the thread's first one.
    pub(super) fn run_interrupted(&mut self, thread: &Interrupted<'_>) -> Result<(), Stop> {
        if self.fixed.interpreter.contains(&thread.at.pc) {
            return self.in_interpreter(thread);
        }
        let begin = self.rely_on_blob(thread.at.pc)?;
        let blob = self.code.get(begin).ok_or(CutReason::UnknownCode)?;
        let (kind, frame_bytes, code) = (blob.kind, blob.frame_bytes, blob.code.clone());
        match kind {
            BlobKind::Compiled | BlobKind::NativeWrapper => self.in_compiled(thread, begin, frame_bytes, &code),
            BlobKind::Upcall { .. } | BlobKind::Continuation | BlobKind::Deoptimisation => {
                Err(CutReason::MidFrame.into())
            }
            BlobKind::Adapter | BlobKind::Stub => self.in_stub(thread, begin, kind, &code),
        }
    }

    /// In compiled code, the depth of its frame at the instruction leads to the caller.
    fn in_compiled(
        &mut self,
        thread: &Interrupted<'_>,
        begin: VirtAddr,
        frame_bytes: u64,
        code: &Range<VirtAddr>,
    ) -> Result<(), Stop> {
        let offset =
            thread.at.pc.0.checked_sub(code.start.0).filter(|_| thread.at.pc < code.end).ok_or(CutReason::MidFrame)?;
        let whole = i64::try_from(frame_bytes).unwrap_or(0) - 8;
        let depth = self.depths(begin, code, whole)?.at(offset);
        let Some(depth) = depth else {
            self.add_nearest(begin, offset, false)?;
            return Err(CutReason::MidFrame.into());
        };
        if depth.in_call_stub {
            let pc = VirtAddr(self.stack.slot(thread.at.sp, 0)?);
            return self.propose(thread, Registers { sp: slot_address(thread.at.sp, 1), pc, fp: thread.at.fp });
        }
        let nmethod = self.code.get(begin).and_then(|blob| blob.nmethod.as_ref()).ok_or(CutReason::UnknownCode)?;
        // Before, it is not even certain that this is the method that was meant.
        if nmethod.verified_entry.is_none_or(|entry| thread.at.pc >= entry) {
            self.add_nearest(begin, offset, depth.bytes < whole)?;
        }
        let caller = self.caller_at(thread, depth)?;
        self.propose(thread, caller)
    }

    fn caller_at(&self, thread: &Interrupted<'_>, depth: CfaOffset) -> Result<Registers, Stop> {
        let bytes = u64::try_from(depth.bytes).map_err(|_error| CutReason::MidFrame)?;
        let base = if depth.from_top { VirtAddr(self.stack.word(thread.at.sp)?) } else { thread.at.sp };
        if base < thread.at.sp || base.0 - thread.at.sp.0 > MAX_SAVED_SP {
            return Err(CutReason::MidFrame.into());
        }
        let return_slot = at(base, bytes);
        let pc = VirtAddr(self.stack.word(return_slot)?);
        let fp = if depth.saved { VirtAddr(self.stack.slot(return_slot, -1)?) } else { thread.at.fp };
        Ok(Registers { sp: slot_address(return_slot, 1), pc, fp })
    }

    /// The depths of a blob's code, from its instructions or from memory.
    fn depths(&mut self, begin: VirtAddr, code: &Range<VirtAddr>, whole: i64) -> Result<Arc<CfaOffsets>, Stop> {
        if let Some(known) = self.code.get(begin).and_then(|blob| blob.depths.clone()) {
            return Ok(known);
        }
        let nmethod = self.code.get(begin).and_then(|blob| blob.nmethod.as_ref());
        let entry = nmethod.and_then(|nmethod| nmethod.verified_entry?.0.checked_sub(code.start.0));
        let mut bytes = self.read_code(code)?;
        if let Some(entry) = entry.and_then(|entry| usize::try_from(entry).ok()) {
            not_entrant::restore(&mut bytes, entry, whole);
        }
        let depths = Arc::new(CfaOffsets::of(&bytes, whole));
        if let Some(blob) = self.code.get_mut(begin) {
            blob.depths = Some(Arc::clone(&depths));
        }
        Ok(depths)
    }

    /// In a stub, the place where it is left tells the caller.
    fn in_stub(
        &mut self,
        thread: &Interrupted<'_>,
        begin: VirtAddr,
        kind: BlobKind,
        code: &Range<VirtAddr>,
    ) -> Result<(), Stop> {
        let bytes = self.text(begin, code)?;
        let machine = Machine::new(thread, self.stack);
        let text = Text { start: code.start, bytes: &bytes };
        for way in WaysOut::new(text, thread.at.pc, machine).take(MAX_WAYS_OUT) {
            let Some(caller) = self.caller_beyond(&way, kind)? else { continue };
            match self.propose(thread, caller) {
                Err(Stop::Cut(CutReason::MidFrame)) => {}
                result => return result,
            }
        }
        self.in_call_stub(thread)
    }

    /// The caller's registers behind a way out, if it is one that stubs are left by.
    fn caller_beyond(&mut self, way: &WayOut<'_>, kind: BlobKind) -> Result<Option<Registers>, Stop> {
        let machine = &way.machine;
        let [sp, fp] = [Register::RSP, Register::RBP].map(|register| machine.get(register).map(VirtAddr));
        // In compiled callers the frame pointer does not matter.
        let fp = fp.unwrap_or_default();
        if let (Exit::ToRegister(Some(target)), Some(sp)) = (way.exit, sp)
            && self.is_return_address(VirtAddr(target))?
        {
            return Ok(Some(Registers { sp, pc: VirtAddr(target), fp }));
        }
        let (Some(pc), Some(top)) = (machine.top(), above(machine, 1)) else {
            return Ok(None);
        };
        let pc = VirtAddr(pc);
        if kind != BlobKind::Adapter {
            return Ok(Some(Registers { sp: top, pc, fp }));
        }
        if matches!(way.exit, Exit::Elsewhere(_)) {
            return Ok(None);
        }
        // From compiled code into the interpreter: the arguments were copied below the caller's stack pointer.
        let below = at(top, MAX_ARGUMENTS);
        let moved = machine.get(Register::R13).map(VirtAddr).filter(|sender| (top..=below).contains(sender));
        let from_interpreter = self.fixed.interpreter.contains(&pc) || pc == self.fixed.call_stub_return;
        Ok(if from_interpreter { Some(top) } else { moved }.map(|sp| Registers { sp, pc, fp }))
    }

    /// In the code that calls Java from native code there is a frame pointer, but for its first and last instructions.
    fn in_call_stub(&mut self, thread: &Interrupted<'_>) -> Result<(), Stop> {
        let pc = self.fixed.call_stub_return;
        let near = thread.at.pc.0.abs_diff(pc.0) < CALL_STUB && thread.at.fp >= thread.at.sp;
        if !near {
            return Err(CutReason::MidFrame.into());
        }
        self.propose(thread, Registers { sp: thread.at.sp, pc, fp: thread.at.fp })
    }

    /// Where the native code goes on that has called Java by the stub that the thread is in; `None` if it is in no stub of
    /// the foreign function interface.
    pub(super) fn caller_of_upcall(&mut self, thread: &Interrupted<'_>) -> Result<Option<Registers>, Stop> {
        let Some(begin) = self.code.find(self.reader, self.layout, thread.at.pc)? else { return Ok(None) };
        let upcall = self.code.get(begin).filter(|blob| matches!(blob.kind, BlobKind::Upcall { .. }));
        let Some(code) = upcall.map(|blob| blob.code.clone()) else { return Ok(None) };
        let bytes = self.text(begin, &code)?;
        let machine = Machine::new(thread, self.stack);
        let text = Text { start: code.start, bytes: &bytes };
        let caller = |way: &WayOut<'_>| {
            let [pc, fp] = [way.machine.top()?, way.machine.get(Register::RBP)?].map(VirtAddr);
            Some(Registers { sp: above(&way.machine, 1)?, pc, fp })
        };
        let mut ways = WaysOut::new(text, thread.at.pc, machine).filter(|way| way.exit == Exit::Return);
        Ok(ways.find_map(|way| caller(&way)).filter(|caller| caller.sp > thread.at.sp))
    }

    /// In the interpreter there is a frame with a frame pointer, or one that is being made or has just gone.
    fn in_interpreter(&mut self, thread: &Interrupted<'_>) -> Result<(), Stop> {
        let begin = self.rely_on_blob(thread.at.pc)?;
        let code = self.fixed.interpreter.clone();
        let bytes = self.text(begin, &code)?;
        let machine = Machine::new(thread, self.stack);
        let text = Text { start: code.start, bytes: &bytes };
        let ways: Vec<WayOut<'_>> = WaysOut::to_frames(text, thread.at.pc, machine, TO_FRAME).collect();
        if let Some(way) = ways.iter().find(|way| way.exit == Exit::Enter) {
            return self.before_frame(thread, &way.machine);
        }
        let back = |way: &&WayOut<'_>| matches!(way.exit, Exit::ToRegister(target) if way.straight || target.is_some());
        if let Some(way) = ways.iter().find(back) {
            return self.without_frame(thread, way);
        }
        self.in_frame(thread)
    }

    /// The method has been called, and its frame not been begun.
    fn before_frame(&mut self, thread: &Interrupted<'_>, machine: &Machine<'_>) -> Result<(), Stop> {
        if let (Some(pc), Some(sender)) = (machine.top(), machine.get(Register::R13)) {
            let caller = Registers { sp: VirtAddr(sender), pc: VirtAddr(pc), fp: thread.at.fp };
            return self.propose(thread, caller);
        }
        // The return address is in a register that is not known.
        self.called_by_interpreted(thread, thread.bcp)
    }

    /// The frame has gone, or there never was one; the way leads back to the caller.
    fn without_frame(&mut self, thread: &Interrupted<'_>, way: &WayOut<'_>) -> Result<(), Stop> {
        let Exit::ToRegister(Some(target)) = way.exit else {
            return self.called_by_interpreted(thread, thread.at.sp.0);
        };
        let pc = VirtAddr(target);
        let sp = match way.machine.get(Register::RSP) {
            Some(sp) => VirtAddr(sp),
            // In the interpreter the frame pointer is enough.
            None if self.fixed.interpreter.contains(&pc) || pc == self.fixed.call_stub_return => thread.at.sp,
            None => return Err(CutReason::MidFrame.into()),
        };
        self.propose(thread, Registers { sp, pc, fp: thread.at.fp })
    }

    /// The caller is interpreted, and its frame pointer the current one, if it has noted just this stack pointer at its
    /// last call. JDK 21 and later note words from the frame pointer on.
    fn called_by_interpreted(&mut self, thread: &Interrupted<'_>, sender_sp: u64) -> Result<(), Stop> {
        // The frame pointer may be anything.
        let noted = self.stack.slot(thread.at.fp, LAST_SP).map_err(|_reason| CutReason::MidFrame)?;
        let relative = slot_address(thread.at.fp, noted.cast_signed()).0;
        if noted == 0 || (noted != sender_sp && relative != sender_sp) {
            return Err(CutReason::MidFrame.into());
        }
        self.propose(thread, Registers { sp: thread.at.sp, pc: self.fixed.interpreter.start, fp: thread.at.fp })
    }

    /// The frame is there, or its first words are.
    fn in_frame(&mut self, thread: &Interrupted<'_>) -> Result<(), Stop> {
        let Sample { sp, fp, .. } = thread.at;
        if fp < sp || fp.0 - sp.0 > MAX_INTERPRETED {
            return Err(CutReason::MidFrame.into());
        }
        let sender_sp = if sp <= slot_address(fp, SENDER_SP) { self.stack.slot(fp, SENDER_SP)? } else { thread.bcp };
        let caller = Registers {
            sp: VirtAddr(sender_sp),
            pc: VirtAddr(self.stack.slot(fp, 1)?),
            fp: VirtAddr(self.stack.slot(fp, 0)?),
        };
        let versioned = self.layout.versioned;
        if sp <= slot_address(fp, versioned.interpreted_method) {
            let method = self.method(VirtAddr(self.stack.slot(fp, versioned.interpreted_method)?))?;
            let saved = slot_address(fp, versioned.interpreted_bytecode);
            let saved = if sp <= saved { self.stack.word(saved)? } else { 0 };
            // What is saved may be older than the register, which may be the callee's.
            let bytecode = [thread.bcp, saved].map(VirtAddr).into_iter().find(|bcp| method.has_bytecode(*bcp));
            let bci = bytecode.and_then(|bcp| method.bci(bcp)).unwrap_or(0);
            self.add_frame(&method, bci, FrameKind::Interpreted);
        }
        self.propose(thread, caller)
    }

    /// Follows the frames from a proposed caller on. Takes everything back if they do not lead to the thread's first one,
    /// or as far as the copy of the stack reaches.
    fn propose(&mut self, thread: &Interrupted<'_>, caller: Registers) -> Result<(), Stop> {
        let (frames, crossings) = (self.frames.len(), self.crossings.len());
        let result = if self.is_return_address(caller.pc)? {
            self.follow_proposed(thread, caller)
        } else {
            Err(CutReason::MidFrame.into())
        };
        match result {
            Ok(()) | Err(Stop::Memory(_)) => result,
            Err(Stop::Cut(CutReason::StackTooShort | CutReason::TooDeep | CutReason::FrozenFrames))
                if self.frames.len() > frames =>
            {
                result
            }
            Err(Stop::Cut(_)) => {
                self.frames.truncate(frames);
                self.crossings.truncate(crossings);
                Err(CutReason::MidFrame.into())
            }
        }
    }

    /// Goes on at a caller. One that is compiled may have called a stub from a place that is not described, where its
    /// frame is not whole or more than whole.
    fn follow_proposed(&mut self, thread: &Interrupted<'_>, caller: Registers) -> Result<(), Stop> {
        let Some(begin) = self.code.find(self.reader, self.layout, caller.pc)? else {
            return self.run(caller);
        };
        let Some(blob) = self.code.get(begin).filter(|blob| blob.kind == BlobKind::Compiled && self.frames.is_empty())
        else {
            return self.run(caller);
        };
        let Some(nmethod) = blob.nmethod.as_ref() else {
            return self.run(caller);
        };
        let offset = i32::try_from(caller.pc.0.saturating_sub(blob.code.start.0)).ok();
        let is_described = offset.is_some_and(|offset| nmethod.scopes.pc_desc(offset).is_some());
        if is_described || nmethod.deopt_handlers.contains(&caller.pc) {
            return self.run(caller);
        }
        let (frame_bytes, code) = (blob.frame_bytes, blob.code.clone());
        self.rely_on_blob(caller.pc)?;
        let at = Sample { pc: caller.pc, sp: caller.sp, fp: caller.fp, ..thread.at };
        let caller = Interrupted { at, rax: None, rbx: None, ..*thread };
        self.in_compiled(&caller, begin, frame_bytes, &code)
    }

    /// Whether code of the VM can have been called from there.
    fn is_return_address(&mut self, pc: VirtAddr) -> Result<bool, Stop> {
        if pc == self.fixed.call_stub_return || self.fixed.interpreter.contains(&pc) {
            return Ok(true);
        }
        if !self.fixed.contains_code(pc) {
            return Ok(false);
        }
        let Some(begin) = self.code.find(self.reader, self.layout, pc)? else {
            return Ok(false);
        };
        let blob = self.code.get(begin);
        // A deoptimised frame returns to a handler, which no call stands before.
        if blob.and_then(|blob| blob.nmethod.as_ref()).is_some_and(|nmethod| nmethod.deopt_handlers.contains(&pc)) {
            return Ok(true);
        }
        if blob.is_some_and(|blob| blob.kind == BlobKind::Continuation) {
            return Ok(true);
        }
        let start = VirtAddr(pc.0.saturating_sub(MAX_CALL));
        let bytes = self.reader.numbers([(start, 8)])?;
        Ok(bytes.is_some_and(|[bytes]| ends_with_call(&bytes.to_le_bytes())))
    }

    /// The code of a stub or of the interpreter, from the target or from memory.
    fn text(&mut self, begin: VirtAddr, code: &Range<VirtAddr>) -> Result<Arc<[u8]>, Stop> {
        if let Some(known) = self.code.get(begin).and_then(|blob| blob.text.clone()) {
            return Ok(known);
        }
        let bytes: Arc<[u8]> = self.read_code(code)?.into();
        if let Some(blob) = self.code.get_mut(begin) {
            blob.text = Some(Arc::clone(&bytes));
        }
        Ok(bytes)
    }

    fn read_code(&mut self, code: &Range<VirtAddr>) -> Result<Vec<u8>, Stop> {
        let length = usize::try_from(code.end.0.saturating_sub(code.start.0)).unwrap_or_default();
        let run = [(code.start, length)];
        let mut read = None;
        self.reader.runs_of(&run, |run| *run, |_, bytes| read = bytes.map(<[u8]>::to_vec))?;
        Ok(read.ok_or(CutReason::Unreadable)?)
    }
}
