//! The frames of a virtual thread that are frozen in the heap while it runs: those that it has not come back to since it
//! was last unmounted.
//!
//! On the stack they are represented by one return address. What they are is in the chunks of the thread's
//! continuation, which the VM's own thread structure leads to. The chunks change when the thread goes on, and objects
//! move: so the stack is looked at again, as it is now, and all that led to the frames too. Unless everything is as it
//! was in the copy, the frames are not shown.

use super::MAX_FRAMES;
use super::assumption::{Assumption, changed};
use super::blob::BlobKind;
use super::entered::Entered;
use super::frozen_layout::FrozenLayout;
use super::objects::{Colours, Object, Objects, Reference};
use super::sender::{Registers, Stop, Walk};
use super::stack_copy::{StackCopy, slot_address};
use crate::hotspot::{RemoteMemory, at};
use crate::model::{CutReason, VirtAddr};
use crate::sys::remote_memory::MemoryError;

/// How often the chunks are looked at when they change or move meanwhile.
const ATTEMPTS: usize = 3;
/// Entry frames on a stack, and words that look like one, that are asked for the thread.
const MAX_CANDIDATES: usize = 16;
/// The most bytes between the frames of a continuation and its entry: arguments on the stack.
pub(super) const MAX_ARGUMENTS: u64 = 8 * 256;
/// Of a `JavaCallWrapper`, in every version: the thread.
const WRAPPER_THREAD: u64 = 0;
/// More chunks than any thread has; the frames within are limited besides.
const MAX_CHUNKS: usize = 256;
/// Words of a chunk: 64 MB.
const MAX_CHUNK_WORDS: u64 = 1 << 23;
/// Saved frame pointer and return address, which lie below a frame's caller.
const LINK_WORDS: u64 = 2;

pub(super) const CONTINUATION: &str = "java/lang/Thread.cont";
pub(super) const TAIL: &str = "jdk/internal/vm/Continuation.tail";
pub(super) const CHUNK_OWNER: &str = "jdk/internal/vm/StackChunk.cont";
pub(super) const CHUNK_PARENT: &str = "jdk/internal/vm/StackChunk.parent";
pub(super) const CHUNK_SIZE: &str = "jdk/internal/vm/StackChunk.size";
pub(super) const CHUNK_SP: &str = "jdk/internal/vm/StackChunk.sp";
pub(super) const CHUNK_BOTTOM: &str = "jdk/internal/vm/StackChunk.bottom";
/// What JDKs before 25 have in the place of the bottom: the words above it.
pub(super) const CHUNK_ARGUMENTS: &str = "jdk/internal/vm/StackChunk.argsize";

/// The thread that runs a continuation.
#[derive(Debug)]
struct Running {
    /// Where on its stack the continuation was entered, and the address in the code that did so.
    entry: Registers,
    /// The handle of the carrier's `java.lang.Thread`.
    thread_object: VirtAddr,
}

/// Frames in the heap.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) base: VirtAddr,
    /// The stack pointer of the innermost frame, and where the outermost ends.
    pub(super) sp: VirtAddr,
    pub(super) end: VirtAddr,
    pub(super) parent: Option<VirtAddr>,
}

impl<M: RemoteMemory> Walk<'_, M> {
    /// Adds the frozen frames that go on at `here`, and returns where the virtual thread was entered from its carrier.
    pub(super) fn frozen(&mut self, here: Registers) -> Result<Registers, Stop> {
        let Some(layout) = &self.layout.frozen else {
            return Err(CutReason::FrozenFrames.into());
        };
        if let Some(copied) = self.copied {
            return self.thaw_copied(layout, here, copied);
        }
        let before = (self.frames.len(), self.crossings.len());
        // Most threads that have gone on show it on their stack.
        if !self.still_holds(&[])? {
            return Err(CutReason::FrozenFrames.into());
        }
        for _ in 0..ATTEMPTS {
            let mut path = Vec::new();
            let thawed = self.thaw(layout, here, &mut path);
            if let Err(Stop::Memory(error)) = thawed {
                return Err(error.into());
            }
            let holds = self.still_holds(&path)?;
            match thawed {
                Ok(entry) if holds => {
                    self.before_frozen.get_or_insert(before);
                    return Ok(entry);
                }
                Err(Stop::Cut(reason @ (CutReason::TooDeep | CutReason::StackTooShort))) if holds => {
                    self.before_frozen.get_or_insert(before);
                    return Err(reason.into());
                }
                _ => {
                    self.frames.truncate(before.0);
                    self.crossings.truncate(before.1);
                }
            }
        }
        Err(CutReason::FrozenFrames.into())
    }

    /// Whether the thread is still where it was when its stack was copied, and whether what led to its frames is so.
    fn still_holds(&mut self, path: &[Assumption]) -> Result<bool, MemoryError> {
        let assumptions: Vec<((), Assumption)> =
            self.words.iter().chain(path).map(|assumption| ((), *assumption)).collect();
        Ok(changed(self.reader, &assumptions, None)?.0.is_empty())
    }

    /// Reads the frames. Everything that led to them is added to `path`.
    fn thaw(&mut self, layout: &FrozenLayout, here: Registers, path: &mut Vec<Assumption>) -> Result<Registers, Stop> {
        let entered = self.entered(layout)?;
        let running = self.running_thread(layout, entered, here, path)?;
        // The entry names the continuation: it is not that of another virtual thread that runs here by now.
        for offset in (0..entered.size).step_by(8) {
            self.word(at(running.entry.sp, offset))?;
        }
        let mut objects = match self.objects.take() {
            Some(objects) => objects,
            None => Objects::of(self.reader, self.layout)?.ok_or(CutReason::FrozenFrames)?,
        };
        let result = self.thaw_chunks(&mut objects, &running, path);
        *self.objects = Some(objects);
        result?;
        if self.is_wrapper(running.entry.pc)? { Ok(running.entry) } else { Err(CutReason::FrozenFrames.into()) }
    }

    /// Where threads note that they run a continuation.
    pub(super) fn entered(&mut self, layout: &FrozenLayout) -> Result<Entered, Stop> {
        if self.entered.is_none() {
            *self.entered = layout.entered.find(self.reader, self.layout, self.code)?;
        }
        Ok(self.entered.ok_or(CutReason::FrozenFrames)?)
    }

    /// Whether `pc` lies in the wrapper of a native method, as the code does that enters continuations.
    pub(super) fn is_wrapper(&mut self, pc: VirtAddr) -> Result<bool, MemoryError> {
        let begin = self.code.find(self.reader, self.layout, pc)?;
        let blob = begin.and_then(|begin| self.code.get(begin));
        Ok(blob.is_some_and(|blob| blob.kind == BlobKind::NativeWrapper))
    }

    fn thaw_chunks(
        &mut self,
        objects: &mut Objects,
        running: &Running,
        path: &mut Vec<Assumption>,
    ) -> Result<(), Stop> {
        let colours = objects.colours(self.reader)?.ok_or(CutReason::FrozenFrames)?;
        let [carrier] = self.reader.numbers([(running.thread_object, 8)])?.ok_or(CutReason::FrozenFrames)?;
        path.push(Assumption { addr: running.thread_object, width: 8, value: carrier });
        let carrier = leads_to(objects.outside(carrier, colours))?;
        let continuation = self.follow(objects, colours, carrier, CONTINUATION, path)?;
        let mut next = Some(self.follow(objects, colours, continuation, TAIL, path)?);
        for _ in 0..MAX_CHUNKS {
            let Some(addr) = next else {
                return Ok(());
            };
            let mut object = self.object(objects, addr)?;
            let chunk = self.chunk(objects, colours, &mut object, continuation);
            path.append(&mut object.assumptions);
            let chunk = chunk?;
            self.chunk_frames(&chunk)?;
            next = chunk.parent;
        }
        Err(CutReason::FrozenFrames.into())
    }

    fn object(&mut self, objects: &mut Objects, addr: VirtAddr) -> Result<Object, Stop> {
        let object = objects.read(self.reader, self.layout, addr)?;
        Ok(object.ok_or(CutReason::FrozenFrames)?)
    }

    /// The object that a field of another one refers to.
    fn follow(
        &mut self,
        objects: &mut Objects,
        colours: Colours,
        from: VirtAddr,
        field: &str,
        path: &mut Vec<Assumption>,
    ) -> Result<VirtAddr, Stop> {
        let mut object = self.object(objects, from)?;
        let value = object.number(field, objects.reference_bytes());
        path.append(&mut object.assumptions);
        leads_to(objects.within(value.ok_or(CutReason::FrozenFrames)?, colours))
    }

    /// Finds the thread by the frames in which native code called Java on its stack: each knows its thread. That it is
    /// the right one is seen from its stack and from where its continuation was entered.
    fn running_thread(
        &mut self,
        layout: &FrozenLayout,
        entered: Entered,
        here: Registers,
        path: &mut Vec<Assumption>,
    ) -> Result<Running, Stop> {
        let mut reason = CutReason::StackTooShort;
        let returns = self.stack.find(self.fixed.call_stub_return.0, here.sp);
        for slot in returns.take(MAX_CANDIDATES) {
            let Ok(thread) = self.thread_of_entry_frame(slot) else { continue };
            reason = CutReason::FrozenFrames;
            let field = |offset| (at(thread, offset), 8);
            let wanted = [entered.noted, layout.thread_object, layout.stack_base, layout.stack_size].map(field);
            let Some([entry, handle, base, size]) = self.reader.numbers(wanted)? else { continue };
            let stack = base.saturating_sub(size)..base;
            let entries = here.sp.0..=here.sp.0.saturating_add(MAX_ARGUMENTS);
            if stack.contains(&here.sp.0) && entries.contains(&entry) && entry.is_multiple_of(8) {
                path.push(Assumption { addr: at(thread, entered.noted), width: 8, value: entry });
                let entry = Registers { sp: VirtAddr(entry), pc: entered.code, fp: VirtAddr(0) };
                return Ok(Running { entry, thread_object: VirtAddr(handle) });
            }
        }
        Err(reason.into())
    }

    /// The thread that the entry frame knows whose callee returns to it by the word at `slot`.
    fn thread_of_entry_frame(&self, slot: VirtAddr) -> Result<VirtAddr, CutReason> {
        let fp = VirtAddr(self.stack.slot(slot, -1)?);
        let wrapper = VirtAddr(self.stack.slot(fp, self.layout.entry.wrapper_slot)?);
        self.stack.word(at(wrapper, WRAPPER_THREAD)).map(VirtAddr)
    }

    /// Reads the frames in a chunk, which must belong to `continuation`.
    fn chunk(
        &mut self,
        objects: &Objects,
        colours: Colours,
        object: &mut Object,
        continuation: VirtAddr,
    ) -> Result<Chunk, Stop> {
        let numbers = [CHUNK_SIZE, CHUNK_SP].map(|name| object.number(name, 4));
        let bottom = object.number(CHUNK_BOTTOM, 4);
        let arguments = object.number(CHUNK_ARGUMENTS, 4);
        let references = [CHUNK_OWNER, CHUNK_PARENT].map(|name| object.number(name, objects.reference_bytes()));
        let ([Some(size), Some(sp)], [Some(owner), Some(parent)]) = (numbers, references) else {
            return Err(CutReason::FrozenFrames.into());
        };
        let bottom = bottom.or_else(|| size.checked_sub(arguments?)).ok_or(CutReason::FrozenFrames)?;
        let parent = match objects.within(parent, colours) {
            Reference::Null => None,
            reference => Some(leads_to(reference)?),
        };
        // One whose colour is old may lead to where the continuation was before; then other things have to suffice.
        let owned = match objects.within(owner, colours) {
            Reference::To(owner) => owner == continuation,
            Reference::Stale => true,
            Reference::Null => false,
        };
        if !owned || size > MAX_CHUNK_WORDS || sp > size || bottom > size {
            return Err(CutReason::FrozenFrames.into());
        }
        let start = at(object.addr, object.class.instance_bytes);
        let [sp_addr, end] = [sp, bottom].map(|words| at(start, 8 * words));
        let mut chunk = Chunk { bytes: Vec::new(), base: sp_addr, sp: sp_addr, end, parent };
        if sp < bottom {
            let first = sp.checked_sub(LINK_WORDS).ok_or(CutReason::FrozenFrames)?;
            chunk.base = at(start, 8 * first);
            let run = (chunk.base, usize::try_from(8 * (size - first)).unwrap_or(usize::MAX));
            let mut found = None;
            self.reader.runs_of(&[run], |run| *run, |_, bytes| found = bytes.map(<[u8]>::to_vec))?;
            chunk.bytes = found.ok_or(CutReason::FrozenFrames)?;
        }
        Ok(chunk)
    }

    /// Adds the frames of one chunk.
    pub(super) fn chunk_frames(&mut self, chunk: &Chunk) -> Result<(), Stop> {
        if chunk.sp >= chunk.end {
            return Ok(());
        }
        let mut inner = self.on_another(StackCopy { base: chunk.base, bytes: &chunk.bytes, is_chunk: true });
        let result = inner.run_chunk(chunk);
        let (frames, crossings, relied) = inner.into_parts();
        (self.frames, self.crossings, self.relied) = (frames, crossings, relied);
        match result {
            // What is wrong or missing in a chunk says nothing of the copy of the stack.
            Err(Stop::Cut(reason)) if reason != CutReason::TooDeep => Err(CutReason::FrozenFrames.into()),
            result => result,
        }
    }

    fn run_chunk(&mut self, chunk: &Chunk) -> Result<(), Stop> {
        let mut here = Registers {
            sp: chunk.sp,
            pc: VirtAddr(self.stack.slot(chunk.sp, -1)?),
            fp: self.stack.saved_fp(slot_address(chunk.sp, -2))?,
        };
        while here.sp < chunk.end {
            let is_interpreted = self.fixed.interpreter.contains(&here.pc);
            // The arguments of the outermost interpreted frame are the last thing in a chunk.
            let is_last = is_interpreted && at(self.locals(here.fp)?, 8) >= chunk.end;
            let sender = self.step(here)?.ok_or(CutReason::FrozenFrames)?;
            if self.frames.len() > MAX_FRAMES {
                self.frames.truncate(MAX_FRAMES);
                return Err(CutReason::TooDeep.into());
            }
            let links = slot_address(chunk.end, -LINK_WORDS.cast_signed());
            if is_last || !is_interpreted && sender.sp >= links {
                return Ok(());
            }
            if sender.sp <= here.sp {
                return Err(CutReason::BadFrame.into());
            }
            here = sender;
        }
        Err(CutReason::BadFrame.into())
    }

    /// The address of an interpreted frame's first local variable, in a chunk.
    fn locals(&self, fp: VirtAddr) -> Result<VirtAddr, CutReason> {
        let words = self.stack.slot(fp, self.layout.versioned.interpreted_locals)?;
        Ok(slot_address(fp, words.cast_signed()))
    }
}

fn leads_to(reference: Reference) -> Result<VirtAddr, Stop> {
    match reference {
        Reference::To(addr) => Ok(addr),
        Reference::Null | Reference::Stale => Err(CutReason::FrozenFrames.into()),
    }
}
