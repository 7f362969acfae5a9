//! From a record of the ring to its frames: Java frames, native ones, or both.
//!
//! They are not named here, because this is urgent: what a stack leads to in the target may be gone a moment later. Names of native
//! code come from files, where a function that is new can take milliseconds, and can wait until all stacks are read.

use nprof_common::{FrozenPlaces, HeapPlaces, Referent, StackHeader, StackKind};

use super::frames::Frames;
use crate::attach::StackRecord;
use crate::model::{Library, Pid, VirtAddr};
use crate::native::{NativeEnd, NativeSample, NativeStack, NativeUnwinder, ProbedReturn};
use crate::sys::remote_memory::{MemoryError, ProcessMemory};
use crate::unwind::{FrozenCopy, HeapObject, Interrupted, JavaStack, NativeCaller, Sample, Unwinder};

/// Unwinds the stacks of one JVM.
#[derive(Debug)]
pub(super) struct Stacks {
    java: Unwinder<ProcessMemory>,
    native: NativeUnwinder,
}

impl Stacks {
    pub(super) fn new(pid: Pid, java: Unwinder<ProcessMemory>) -> Self {
        Self { java, native: NativeUnwinder::new(pid) }
    }

    /// Takes over what the process has mapped now.
    pub(super) fn set_libraries(&mut self, libraries: &[Library]) {
        self.native.set_libraries(libraries);
    }

    /// Where among the words at which a continuation was entered its object is: [`Unwinder::entered`].
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn entered(&mut self, words: &[u64]) -> Result<Option<u64>, MemoryError> {
        self.java.entered(words)
    }

    /// Where frozen frames lie, if stacks were cut for want of it: [`Unwinder::frozen_places`]. `env` is the offset of the
    /// `JNIEnv` in a thread.
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn missed_frozen_places(&mut self, env: u64) -> Result<Option<FrozenPlaces>, MemoryError> {
        if self.java.take_misses_frozen() { self.java.frozen_places(env) } else { Ok(None) }
    }

    /// What the first bytes of an object tell: [`Unwinder::object`].
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn object(&mut self, copied: &Referent, collections: u64) -> Result<Option<HeapObject>, MemoryError> {
        self.java.object(copied, collections)
    }

    /// The same of one of many: [`Unwinder::next_object`].
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn next_object(
        &mut self,
        copied: &Referent,
        collections: u64,
    ) -> Result<Option<HeapObject>, MemoryError> {
        self.java.next_object(copied, collections)
    }

    /// Reads classes of objects anew: [`Unwinder::forget_classes`].
    pub(super) fn forget_classes(&mut self) {
        self.java.forget_classes();
    }

    /// How references are followed: [`Unwinder::heap_places`].
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn heap_places(&mut self) -> Result<Option<HeapPlaces>, MemoryError> {
        self.java.heap_places()
    }

    /// Reads the stack of a record.
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn read(&mut self, taken: &StackRecord<'_>) -> Result<Frames, MemoryError> {
        let header = taken.header;
        let in_java = self.java.contains_code(VirtAddr(header.pc));
        let calls = [StackKind::Return, StackKind::Stub, StackKind::Slow, StackKind::SlowStub, StackKind::SlowUnasked];
        let is_call = calls.iter().any(|kind| header.kind == *kind as u32);
        if header.kind == StackKind::Made as u32 {
            // Only who has called from Java is of interest.
            let frames = Frames::default();
            return match noted(taken) {
                Some(sample) => Ok(frames.called_by(self.java.unwind(&sample)?)),
                None => Ok(frames),
            };
        }
        match (is_call, in_java) {
            // A native method has returned to Java: the registers are exact.
            (true, true) => Ok(Frames::default().called_by(self.java.unwind(&interrupted(taken))?)),
            (false, true) => self.in_java(taken),
            (_, false) => self.in_native(taken),
        }
    }

    /// The frames of Java of a thread that is in native code now. `is_there` says whether it still is in the same call. `None` where it has not
    /// noted its last Java frame in what was copied.
    ///
    /// # Errors
    /// What makes all reads of the target fail: it has ended.
    pub(super) fn at_anchor(
        &mut self,
        header: &StackHeader,
        stack: &[u8],
        is_there: &dyn Fn() -> bool,
    ) -> Result<Option<JavaStack>, MemoryError> {
        let [sp, pc, fp] = [header.anchor.sp, header.anchor.pc, header.anchor.fp].map(VirtAddr);
        let sample = Sample::at_anchor(sp, pc, fp, stack, VirtAddr(header.base()));
        sample.map(|sample| self.java.unwind_while(&sample, is_there)).transpose()
    }

    /// The thread was interrupted in Java code, or in a stub that native code calls Java by: then as in native code.
    fn in_java(&mut self, taken: &StackRecord<'_>) -> Result<Frames, MemoryError> {
        let header = taken.header;
        let (bcp, rax, rbx) = (header.bcp, Some(header.rax), Some(header.rbx));
        let thread = Interrupted { at: interrupted(taken), bcp, rax, rbx };
        if let Some(caller) = self.java.caller_of_upcall(&thread)? {
            let probed = probed(taken);
            let sample = NativeSample { probed: probed.as_slice(), ..native_sample(taken) };
            let native = self.native_caller(caller, &sample);
            return self.beyond_native(taken, native);
        }
        Ok(Frames::default().called_by(self.java.unwind_interrupted(&thread)?))
    }

    /// The thread was in native code, the VM's included: its frames, then those of Java if that has called it.
    fn in_native(&mut self, taken: &StackRecord<'_>) -> Result<Frames, MemoryError> {
        let probed = probed(taken);
        let sample = NativeSample { probed: probed.as_slice(), ..native_sample(taken) };
        let java = &self.java;
        let native = self.native.unwind(&sample, &|pc| java.contains_code(pc));
        self.beyond_native(taken, native)
    }

    /// The native frames from where a call of Java returns to.
    fn native_caller(&mut self, caller: NativeCaller, sample: &NativeSample<'_>) -> NativeStack {
        let NativeCaller { pc, sp, fp } = caller;
        let java = &self.java;
        self.native.unwind_caller(&NativeSample { pc, sp, fp: Some(fp), ..*sample }, &|pc| java.contains_code(pc))
    }

    /// Follows native frames that a stub has called, by which native code calls Java: that code's frames come next.
    fn through_upcalls(
        &mut self,
        taken: &StackRecord<'_>,
        mut native: NativeStack,
    ) -> Result<NativeStack, MemoryError> {
        let probed = probed(taken);
        let sample = NativeSample { probed: probed.as_slice(), ..native_sample(taken) };
        while let NativeEnd::Java(registers) = native.end {
            let (pc, sp, fp) = (registers.pc, registers.sp, registers.fp.unwrap_or_default());
            let at = Sample { pc, sp, fp, ..interrupted(taken) };
            let thread = Interrupted { at, bcp: taken.header.bcp, rax: None, rbx: None };
            // Each is further out than the last, so this ends with the copy.
            let Some(caller) = self.java.caller_of_upcall(&thread)? else { break };
            let outer = self.native_caller(caller, &sample);
            native.frames.extend(outer.frames);
            native.guessed += outer.guessed;
            native.end = outer.end;
        }
        Ok(native)
    }

    /// The frames of Java that has called native code.
    fn beyond_native(&mut self, taken: &StackRecord<'_>, native: NativeStack) -> Result<Frames, MemoryError> {
        let header = taken.header;
        let native = self.through_upcalls(taken, native)?;
        // What the thread itself notes is exact, however far the native frames could be followed.
        let noted = noted(taken);
        // Between the last native frame that was found and the noted one there may be more.
        let may_miss = noted.is_some() && matches!(native.end, NativeEnd::Cut(_));
        let is_guess = native.guessed > 0 || may_miss;
        let frames = Frames::of_native(native.frames, is_guess);
        match (noted, native.end) {
            (Some(sample), _) => Ok(frames.called_by(self.java.unwind(&sample)?)),
            (None, NativeEnd::Java(registers)) => {
                // Called without leaving Java, as far as the VM is concerned: it has noted nothing about the place.
                let (pc, sp, fp) = (registers.pc, registers.sp, registers.fp.unwrap_or_default());
                let at = Sample { pc, sp, fp, ..interrupted(taken) };
                let thread = Interrupted { at, bcp: header.bcp, rax: None, rbx: None };
                Ok(frames.called_by(self.java.unwind_interrupted(&thread)?))
            }
            (None, NativeEnd::Complete) => Ok(frames),
            (None, NativeEnd::Cut(reason)) => Ok(frames.cut_by(reason)),
        }
    }
}

/// The last Java frame as a thread notes it that is in native code.
fn noted<'a>(taken: &StackRecord<'a>) -> Option<Sample<'a>> {
    let StackRecord { header, stack, .. } = *taken;
    let (anchor, base) = (header.anchor, VirtAddr(header.base()));
    let (sp, pc, fp) = (VirtAddr(anchor.sp), VirtAddr(anchor.pc), VirtAddr(anchor.fp));
    let noted = (anchor.sp >= header.sp).then(|| Sample::at_anchor(sp, pc, fp, stack, base)).flatten();
    noted.map(|sample| Sample { frozen: frozen(taken), collections: collections(taken), ..sample })
}

/// The registers of a thread that was interrupted, for native code.
fn native_sample<'a>(taken: &StackRecord<'a>) -> NativeSample<'a> {
    let StackRecord { header, stack, .. } = *taken;
    NativeSample {
        pc: VirtAddr(header.pc),
        sp: VirtAddr(header.sp),
        fp: Some(VirtAddr(header.fp)),
        stack,
        stack_base: VirtAddr(header.base()),
        probed: &[],
    }
}

/// Where a return probe is set, the kernel has put its own address; the thread's note is about the same place.
fn probed(taken: &StackRecord<'_>) -> Option<ProbedReturn> {
    let (anchor, call_sp) = (taken.header.anchor, taken.header.call_sp);
    (call_sp != 0 && anchor.sp == call_sp.wrapping_add(8))
        .then_some(ProbedReturn { slot: VirtAddr(call_sp), pc: VirtAddr(anchor.pc) })
}

/// Where the thread was interrupted.
fn interrupted<'a>(taken: &StackRecord<'a>) -> Sample<'a> {
    let StackRecord { header, stack, .. } = *taken;
    Sample {
        pc: VirtAddr(header.pc),
        sp: VirtAddr(header.sp),
        fp: VirtAddr(header.fp),
        stack,
        stack_base: VirtAddr(header.base()),
        frozen: frozen(taken),
        collections: collections(taken),
    }
}

/// What was copied of the frames that are frozen in the heap.
fn frozen<'a>(taken: &StackRecord<'a>) -> Option<FrozenCopy<'a>> {
    let entry_sp = VirtAddr(taken.header.entry_sp);
    (!taken.frozen.is_empty()).then_some(FrozenCopy {
        entry_sp,
        bytes: taken.frozen,
        has_more: taken.header.frozen_more != 0,
    })
}

/// How many times the heap was collected when the stack was taken.
fn collections(taken: &StackRecord<'_>) -> Option<u64> {
    taken.header.collections.checked_sub(1)
}
