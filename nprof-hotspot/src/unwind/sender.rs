//! From a frame to the one that called it, for each kind of frame (x86-64).

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::arguments::{RecentClasses, ToldClasses};
use super::assumption::{Assumption, changed};
use super::blob::BlobKind;
use super::code_cache::CodeCache;
use super::entered::Entered;
use super::fixed::Fixed;
use super::layout::CodeLayout;
use super::methods::{Method, Methods};
use super::objects::Objects;
use super::stack_copy::{FrozenCopy, StackCopy, slot_address};
use super::{Crossing, CrossingKind, FrameKind, JavaFrame, MAX_FRAMES};
use crate::hotspot::{Reader, RemoteMemory, at};
use crate::model::{CutReason, VirtAddr};
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

/// What is remembered from stack to stack.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) code: CodeCache,
    pub(super) methods: Methods,
    /// How Java objects lie, once a stack needs it.
    pub(super) objects: Option<Objects>,
    /// Where threads note that they run a continuation, once a stack needs it.
    pub(super) entered: Option<Entered>,
    /// The loaders whose classes last.
    pub(super) lasting: HashSet<VirtAddr>,
    /// Classes of which more is told than their names, once an object is asked for.
    pub(super) told: Option<ToldClasses>,
    /// What was read of the classes of objects a moment ago.
    pub(super) classes: RecentClasses,
}

/// Something that was remembered and that a stack relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Relied {
    Blob(VirtAddr),
    Method(VirtAddr),
}

/// What came of a second look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// All is as it was read, after so many collections, if they are counted.
    Holds { collections: Option<u64> },
    /// Something is not.
    Changed,
}

/// One pass over a stack.
#[derive(Debug)]
pub(super) struct Walk<'a, M> {
    pub(super) reader: &'a mut Reader<M>,
    pub(super) layout: &'a CodeLayout,
    pub(super) fixed: &'a Fixed,
    pub(super) code: &'a mut CodeCache,
    methods: &'a mut Methods,
    /// How objects lie, once it was asked for.
    pub(super) objects: &'a mut Option<Objects>,
    pub(super) entered: &'a mut Option<Entered>,
    lasting: &'a HashSet<VirtAddr>,
    pub(super) stack: StackCopy<'a>,
    /// What was copied of the frames in the heap.
    pub(super) copied: Option<FrozenCopy<'a>>,
    pub(super) frames: Vec<JavaFrame>,
    pub(super) crossings: Vec<Crossing>,
    pub(super) relied: BTreeSet<Relied>,
    /// The code and the method that were relied on last: where a walk ends too early, it may be for them.
    last: [Option<Relied>; 2],
    /// The words of the thread's stack that led here.
    pub(super) words: Vec<Assumption>,
    /// How many frames and crossings there were before the first that came from the heap.
    pub(super) before_frozen: Option<(usize, usize)>,
}

impl<'a, M: RemoteMemory> Walk<'a, M> {
    pub(super) fn new(
        reader: &'a mut Reader<M>,
        layout: &'a CodeLayout,
        fixed: &'a Fixed,
        known: &'a mut Known,
        (stack, copied): (StackCopy<'a>, Option<FrozenCopy<'a>>),
    ) -> Self {
        reader.forget();
        let Known { code, methods, objects, entered, lasting, .. } = known;
        let (frames, crossings, relied, words) = (Vec::new(), Vec::new(), BTreeSet::new(), Vec::new());
        Self {
            reader,
            layout,
            fixed,
            code,
            methods,
            objects,
            entered,
            lasting,
            stack,
            copied,
            frames,
            crossings,
            relied,
            last: [None; 2],
            words,
            before_frozen: None,
        }
    }

    /// What was found, and what of the VM it relies on.
    pub(super) fn into_parts(self) -> (Vec<JavaFrame>, Vec<Crossing>, BTreeSet<Relied>) {
        (self.frames, self.crossings, self.relied)
    }

    /// Takes back what came from the heap and all that followed. Returns whether there was any.
    pub(super) fn refreeze(&mut self) -> bool {
        let Some((frames, crossings)) = self.before_frozen.take() else {
            return false;
        };
        self.frames.truncate(frames);
        self.crossings.truncate(crossings);
        true
    }

    /// The same walk on other frames. What it finds has to be put back.
    pub(super) fn on_another<'b>(&'b mut self, stack: StackCopy<'b>) -> Walk<'b, M> {
        Walk {
            reader: self.reader,
            layout: self.layout,
            fixed: self.fixed,
            code: self.code,
            methods: self.methods,
            objects: self.objects,
            entered: self.entered,
            lasting: self.lasting,
            stack,
            copied: None,
            frames: std::mem::take(&mut self.frames),
            crossings: std::mem::take(&mut self.crossings),
            relied: std::mem::take(&mut self.relied),
            last: self.last,
            words: Vec::new(),
            before_frozen: None,
        }
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

    /// Looks again at all that was relied on, and forgets what has changed. If all holds, says how many collections of the
    /// heap had begun by then, as `counter` counts them.
    pub(super) fn confirm(&mut self, counter: Option<VirtAddr>) -> Result<Confirmed, MemoryError> {
        let mut assumptions: Vec<(Relied, Assumption)> = Vec::new();
        for &relied in &self.relied {
            let of_it = match relied {
                Relied::Blob(begin) => self.code.get(begin).map(|blob| &blob.assumptions[..]),
                Relied::Method(addr) => self.methods.known(addr).map(|method| &method.assumptions[..]),
            };
            assumptions.extend(of_it.unwrap_or_default().iter().map(|assumption| (relied, *assumption)));
        }
        // The counter at the same time: what was read before a collection began is right, and so is what it is compared with.
        let (changed, collections) = changed(self.reader, &assumptions, counter.map(|counter| (counter, 4)))?;
        if changed.is_empty() {
            return Ok(Confirmed::Holds { collections });
        }
        for relied in std::mem::take(&mut self.relied) {
            self.forget(relied);
        }
        Ok(Confirmed::Changed)
    }

    /// Forgets the names of the frames of all code that was relied on: whoever takes them from there relies on no method, and they may
    /// be of later than the stack.
    pub(super) fn forget_frames(&mut self) {
        for relied in &self.relied {
            if let Relied::Blob(begin) = relied
                && let Some(nmethod) = self.code.get_mut(*begin).and_then(|blob| blob.nmethod.as_mut())
            {
                nmethod.frames.clear();
            }
        }
    }

    /// Forgets the code and the method that were relied on last. The VM may have been making them when they were read: what was
    /// there before is looked for by its address, too.
    pub(super) fn forget_last(&mut self) {
        for relied in std::mem::take(&mut self.last).into_iter().flatten() {
            self.forget(relied);
        }
    }

    fn forget(&mut self, relied: Relied) {
        match relied {
            Relied::Blob(begin) => self.code.forget(begin),
            Relied::Method(addr) => self.methods.forget(addr),
        }
    }

    fn rely_on(&mut self, relied: Relied) {
        self.last[usize::from(matches!(relied, Relied::Method(_)))] = Some(relied);
        self.relied.insert(relied);
    }

    /// Whether a method that was relied on may be of later than the stack, which was taken after so many collections of the
    /// heap had begun. Now so many have.
    pub(super) fn may_be_of_later(&self, taken_at: Option<u64>, now: Option<u64>) -> bool {
        let Some((taken_at, now)) = taken_at.zip(now) else {
            return false;
        };
        let passing = self.relied.iter().filter_map(|relied| match relied {
            Relied::Blob(_) => None,
            Relied::Method(addr) => self.methods.known(*addr).filter(|method| !self.lasting.contains(&method.loader)),
        });
        // Each, not any: those that are new have to be numbered.
        passing.filter(|method| method.read_at.is_after(taken_at, now)).count() > 0
    }

    /// Adds the frames at a place and finds the caller; `None` behind the thread's first frame.
    pub(super) fn step(&mut self, here: Registers) -> Result<Option<Registers>, Stop> {
        if here.pc == self.fixed.call_stub_return {
            return self.entry(here);
        }
        if self.fixed.interpreter.contains(&here.pc) {
            return self.interpreted(here).map(Some);
        }
        let begin = self.rely_on_blob(here.pc)?;
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
            BlobKind::Continuation if self.stack.is_chunk => Err(CutReason::FrozenFrames.into()),
            BlobKind::Continuation => {
                // The place has no frame of its own: go on with the one that the thread was entered from.
                let entry = self.frozen(here)?;
                self.step(entry)
            }
            // Frames are half made while a thread itself stands there; when it has called on from there, they are whole.
            // A thread in a native method never stands there.
            BlobKind::Deoptimisation if self.frames.is_empty() && self.crossings.is_empty() => {
                Err(CutReason::MidFrame.into())
            }
            BlobKind::Adapter | BlobKind::Stub | BlobKind::Deoptimisation => {
                self.cross(CrossingKind::Stub);
                if frame_bytes > 0 { self.above(here, frame_bytes) } else { self.linked(here) }.map(Some)
            }
        }
    }

    /// The blob that an address lies in, which the stack relies on from then on.
    pub(super) fn rely_on_blob(&mut self, pc: VirtAddr) -> Result<VirtAddr, Stop> {
        let found = self.code.find(self.reader, self.layout, pc)?;
        let begin = found.ok_or(CutReason::UnknownCode)?;
        self.rely_on(Relied::Blob(begin));
        Ok(begin)
    }

    fn cross(&mut self, kind: CrossingKind) {
        self.crossings.push(Crossing { after: self.frames.len(), kind });
    }

    /// The word at `addr` of the stack. Words of a thread's own stack are noted.
    pub(super) fn word(&mut self, addr: VirtAddr) -> Result<u64, CutReason> {
        let value = self.stack.word(addr)?;
        if !self.stack.is_chunk && self.layout.frozen.is_some() {
            self.words.push(Assumption { addr, width: 8, value });
        }
        Ok(value)
    }

    fn slot(&mut self, base: VirtAddr, words: i64) -> Result<u64, CutReason> {
        self.word(slot_address(base, words))
    }

    /// The caller of a frame of fixed size.
    pub(super) fn above(&mut self, here: Registers, frame_bytes: u64) -> Result<Registers, Stop> {
        let sp = at(here.sp, frame_bytes);
        let (pc, fp) = (self.slot(sp, -1)?, self.stack.saved_fp(slot_address(sp, -2))?);
        Ok(Registers { sp, pc: VirtAddr(pc), fp })
    }

    /// The caller of a frame that has only a frame pointer.
    fn linked(&mut self, here: Registers) -> Result<Registers, Stop> {
        let (pc, fp) = (self.slot(here.fp, 1)?, self.stack.saved_fp(here.fp)?);
        Ok(Registers { sp: slot_address(here.fp, 2), pc: VirtAddr(pc), fp })
    }

    /// Native code called Java here; the Java frame that called the native code is in the wrapper's anchor.
    fn entry(&mut self, here: Registers) -> Result<Option<Registers>, Stop> {
        self.cross(CrossingKind::CalledFromNative);
        let wrapper = VirtAddr(self.slot(here.fp, self.layout.entry.wrapper_slot)?);
        self.anchored(at(wrapper, self.layout.entry.anchor))
    }

    /// The frame that an anchor on the stack means; none if the thread had no Java frame then.
    fn anchored(&mut self, anchor: VirtAddr) -> Result<Option<Registers>, Stop> {
        let entry = &self.layout.entry;
        let [sp, pc, fp] = [entry.last_sp, entry.last_pc, entry.last_fp].map(|field| at(anchor, field));
        let sp = VirtAddr(self.word(sp)?);
        if sp.is_null() {
            return Ok(None);
        }
        // Without an address in the anchor it is that which the last call has pushed.
        let pc = match self.word(pc)? {
            0 => self.slot(sp, -1)?,
            pc => pc,
        };
        Ok(Some(Registers { sp, pc: VirtAddr(pc), fp: VirtAddr(self.word(fp)?) }))
    }

    fn interpreted(&mut self, here: Registers) -> Result<Registers, Stop> {
        if here.fp < here.sp {
            return Err(CutReason::BadFrame.into());
        }
        // All of the frame's words first: a frame that is cut is not there.
        let sender = Registers {
            sp: self.stack.link(here.fp, slot_address(here.fp, -1))?,
            pc: VirtAddr(self.slot(here.fp, 1)?),
            fp: self.stack.saved_fp(here.fp)?,
        };
        let versioned = self.layout.versioned;
        let addr = VirtAddr(self.slot(here.fp, versioned.interpreted_method)?);
        let bytecode = VirtAddr(self.slot(here.fp, versioned.interpreted_bytecode)?);
        let method = self.method(addr)?;
        let bci = method.bci(bytecode).ok_or(CutReason::BadFrame)?;
        self.add_frame(&method, bci, FrameKind::Interpreted);
        Ok(sender)
    }

    pub(super) fn add_frame(&mut self, method: &Method, bci: u16, kind: FrameKind) {
        self.frames.push(frame(method, bci, kind));
    }

    pub(super) fn method(&mut self, addr: VirtAddr) -> Result<Arc<Method>, Stop> {
        self.rely_on(Relied::Method(addr));
        let method = self.methods.get(self.reader, self.layout, addr)?;
        Ok(method.ok_or(CutReason::BadMethod)?)
    }

    /// Adds the frames of compiled code: the method itself, last, and before it what is inlined at this place.
    fn compiled(&mut self, begin: VirtAddr, here: Registers) -> Result<(), Stop> {
        let pc_offset = self.pc_offset(begin, here)?;
        self.add_compiled(begin, pc_offset)
    }

    /// Adds the frames of compiled code at about a place, that much behind its start: the methods that are inlined there,
    /// unless only the outermost can be right, and the method itself.
    pub(super) fn add_nearest(&mut self, begin: VirtAddr, offset: u64, only_outermost: bool) -> Result<(), Stop> {
        let nmethod = self.code.get(begin).and_then(|blob| blob.nmethod.as_ref()).ok_or(CutReason::UnknownCode)?;
        let offset = i32::try_from(offset).map_err(|_error| CutReason::InvalidPcDesc)?;
        let (own_method, kind) = (nmethod.method, nmethod.kind);
        let Some(nearest) = nmethod.scopes.nearest(offset) else {
            // A wrapper has no descriptions, nor has a method that calls nothing.
            let method = self.method(own_method)?;
            self.add_frame(&method, 0, kind);
            return Ok(());
        };
        let before = self.frames.len();
        self.add_compiled(begin, nearest.pc_offset)?;
        if only_outermost && self.frames.len() > before + 1 {
            let inlined = before..self.frames.len() - 1;
            self.frames.drain(inlined);
        }
        Ok(())
    }

    fn add_compiled(&mut self, begin: VirtAddr, pc_offset: i32) -> Result<(), Stop> {
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
            let kept = at(here.sp, nmethod.orig_pc_offset);
            pc = VirtAddr(self.word(kept)?);
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
    JavaFrame { method: Arc::clone(&method.name), line: method.line(bci), kind, hidden: method.hidden }
}
