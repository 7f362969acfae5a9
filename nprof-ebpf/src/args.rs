//! What calls are made with. Registers and stack are noted when a call begins, since nothing of them is left when it returns; a stub keeps
//! them in its frame. What references lead to is looked at when a call is told that was slow, or is part of a timeline: the VM keeps the
//! handles of the call until it is back in Java.
//!
//! A collector may move objects at any time. Those that stop the program for it say so: what is read while none does, and
//! none has begun since, is what was there. What is not wanted is no code: the verifier knows the constants.

use core::mem::offset_of;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use nprof_common::args::{
    CONTENT_BYTES, HEAD_BYTES, LEVELS, MADE_OBJECTS, REFERENCES, REGISTERS, RESULT, STACK_WORDS, STUB_ARGS_BELOW,
    STUB_STACK_ABOVE, StubArgs, WORDS,
};
use nprof_common::stack::collect;
use nprof_common::{
    CallArgs, Frame, Frames, HeapPlaces, MadeCall, MadeWith, NotedCall, NotedCalls, ObjectHead, Referent, SLOTS,
};

use crate::vm::{self, half, word};
use crate::{counters, maps};

/// What the open calls of threads were made with that have a slot.
#[btf_map]
static NPROF_ARGS: Array<NotedCalls, 1, 0> = Array::new();

/// The lowest bits of a handle: those of a call's arguments have none set.
const TAG_BITS: u64 = 7;
/// What is read of an object behind which nothing can be read: the header, and a field or two.
const LEAST_BYTES: usize = 24;

/// Who knows what a call was made with that has ended.
#[derive(Clone, Copy)]
pub(crate) enum Made<'a> {
    /// The programs, by the frames of its thread: its own, and how many calls it was in.
    Noted(&'a Frame, u32, &'a Frames),
    /// Its stub, whose base pointer this is.
    Kept(u64),
}

/// Notes what a call is made with that begins at this depth, of the thread that has the slot of `owner`.
///
/// # Safety
/// `regs` are those of the current thread in user space, at the call's first instruction.
#[inline(always)]
pub(crate) unsafe fn note(owner: u32, depth: u32, index: u32, regs: *const pt_regs) {
    let Some(call) = noted(owner, depth) else { return };
    // SAFETY: the map gave the pointer; only the thread itself comes here, and one program of it at a time.
    let call = unsafe { &mut *call };
    // SAFETY: the caller's promise.
    let (sp, registers) = unsafe { ((*regs).rsp, [(*regs).rsi, (*regs).rdx, (*regs).rcx, (*regs).r8, (*regs).r9]) };
    (call.sp, call.index) = (sp, index);
    for (word, register) in call.words.iter_mut().zip(registers) {
        *word = register;
    }
    // Above the return address.
    let from = sp.wrapping_add(size_of::<u64>() as u64);
    // SAFETY: the words of the stack are behind those of the registers.
    let into = unsafe { (&raw mut call.words).cast::<u64>().add(REGISTERS) };
    // SAFETY: there is room for so many words.
    call.has_stack = unsafe { read(into.cast(), STACK_WORDS * size_of::<u64>(), from) } as u32;
}

/// Writes what is known of the arguments of a call that has ended, and of its result, if it has one.
///
/// # Safety
/// There is room for it at `into`.
#[inline(always)]
pub(crate) unsafe fn tell(into: *mut CallArgs, made: Made<'_>, kinds: u64, result: Option<u64>) {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        let words = &raw mut (*into).made;
        let Some((heap, before)) = tell_words(words, made, kinds, result) else { return };
        for reference in 0..REFERENCES {
            let referent = (&raw mut (*into).referents).cast::<Referent>().add(reference);
            (*referent).head.bytes = 0;
            (*referent).content_bytes = 0;
            if let Some(handle) = handle(words, reference) {
                follow(referent, heap, handle);
            }
        }
        (*words).is_still = (standstill(heap) == Some(before)) as u64;
    }
}

/// The same of a call of a timeline: of its objects the first few, and none of their contents.
///
/// # Safety
/// There is room for it at `into`.
#[inline(always)]
pub(crate) unsafe fn tell_call(into: *mut MadeCall, made: Made<'_>, kinds: u64, result: Option<u64>) {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        let words = &raw mut (*into).made;
        (*into).collections = 0;
        let Some((heap, before)) = tell_words(words, made, kinds, result) else { return };
        (*into).collections = before;
        let mut place = 0;
        for reference in 0..REFERENCES {
            if kinds >> reference & 1 == 0 || place >= MADE_OBJECTS {
                continue;
            }
            let object = (&raw mut (*into).objects).cast::<ObjectHead>().add(place);
            place += 1;
            (*object).bytes = 0;
            if let Some(handle) = handle(words, reference)
                && let Some((addr, bytes)) = copy_head(object, handle)
            {
                confirm(object, handle, addr, bytes);
            }
        }
        (*words).is_still = (standstill(heap) == Some(before)) as u64;
    }
}

/// Writes all but what references lead to. If these can be followed now: how, and how many collections there have been.
///
/// # Safety
/// As for [`tell`].
#[inline(always)]
unsafe fn tell_words(
    into: *mut MadeWith,
    made: Made<'_>,
    kinds: u64,
    result: Option<u64>,
) -> Option<(&'static HeapPlaces, u64)> {
    let (kinds, env) = match made {
        Made::Noted(frame, depth, frames) => {
            // SAFETY: the caller's promise.
            unsafe { copy_noted(into, (frame, depth, frames)) };
            (kinds, frame.env)
        }
        // SAFETY: as above.
        Made::Kept(base) => unsafe { copy_kept(into, base) },
    };
    // SAFETY: as above.
    unsafe {
        (*into).kinds = kinds;
        (*into).has_result = result.is_some() as u64;
        (*into).result = result.unwrap_or(0);
        (*into).has_thrown = counters::is_pending(env) as u64;
        (*into).is_still = 0;
    }
    let heap = heap()?;
    Some((heap, standstill(heap)?))
}

/// The handle of an argument or the result that is a reference, if it is known.
///
/// # Safety
/// There are words at `made`.
#[inline(always)]
unsafe fn handle(made: *const MadeWith, reference: usize) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        if (*made).kinds >> reference & 1 == 0 {
            return None;
        }
        if reference == RESULT {
            return ((*made).has_result != 0 && (*made).has_thrown == 0).then_some((*made).result);
        }
        let word = (&raw const (*made).words).cast::<u64>().add(reference);
        if (reference as u64) < (*made).known { Some(*word) } else { None }
    }
}

/// Copies what the programs have noted of a call.
///
/// # Safety
/// As for [`tell`].
#[inline(always)]
unsafe fn copy_noted(into: *mut MadeWith, (frame, depth, frames): (&Frame, u32, &Frames)) {
    let noted = noted(frames.owner, depth);
    // SAFETY: the map gave the pointer, and the thread is the current one.
    let noted = noted.map(|noted| unsafe { &*noted }).filter(|of| of.sp == frame.sp && of.index == frame.index);
    // SAFETY: the caller's promise.
    unsafe {
        (*into).known = 0;
        if let Some(noted) = noted {
            (*into).words = noted.words;
            (*into).known = if noted.has_stack != 0 { WORDS as u64 } else { REGISTERS as u64 };
        }
    }
}

/// Copies what a stub has kept of a call, in the frame with this base pointer. Returns what its arguments are, 0 if it has kept nothing,
/// and the `JNIEnv`.
///
/// # Safety
/// As for [`tell`].
#[inline(always)]
unsafe fn copy_kept(into: *mut MadeWith, base: u64) -> (u64, u64) {
    let kept = base.wrapping_sub(STUB_ARGS_BELOW as u64);
    let field = |offset: usize| word(kept.wrapping_add(offset as u64)).unwrap_or(0);
    let kinds = field(offset_of!(StubArgs, kinds));
    // SAFETY: the caller's promise.
    unsafe { (*into).known = 0 };
    // SAFETY: as above.
    let words = unsafe { (&raw mut (*into).words).cast::<u64>() };
    // SAFETY: there is room for so many words.
    if kinds == 0 || !unsafe { read(words.cast(), REGISTERS * size_of::<u64>(), kept) } {
        return (0, 0);
    }
    let stack = base.wrapping_add(STUB_STACK_ABOVE as u64);
    // SAFETY: the words of the stack are behind those of the registers, and there is room for them.
    let has_stack = unsafe { read(words.add(REGISTERS).cast(), STACK_WORDS * size_of::<u64>(), stack) };
    // SAFETY: as above.
    unsafe { (*into).known = if has_stack { WORDS as u64 } else { REGISTERS as u64 } };
    (kinds, field(offset_of!(StubArgs, env)))
}

/// Copies the beginning of the object that a handle leads to, and of its contents, if these are wanted.
///
/// # Safety
/// `into` is a referent.
#[inline(always)]
unsafe fn follow(into: *mut Referent, heap: &HeapPlaces, handle: u64) {
    // SAFETY: the caller's promise, here and below.
    let head = unsafe { &raw mut (*into).head };
    let Some((addr, bytes)) = (unsafe { copy_head(head, handle) }) else { return };
    if maps::collects(collect::CONTENTS) {
        let from = unsafe { kept_in(heap, addr, (&raw const (*head).words).cast()) };
        let contents = unsafe { (&raw mut (*into).contents).cast::<u8>() };
        if let Some(from) = from
            && unsafe { read(contents, CONTENT_BYTES, from) }
        {
            unsafe { (*into).content_bytes = CONTENT_BYTES as u64 };
        }
    }
    unsafe { confirm(head, handle, addr, bytes) };
}

/// Copies the beginning of the object that a handle leads to. Returns its address, and how much could be read.
///
/// # Safety
/// `into` is a head.
#[inline(always)]
unsafe fn copy_head(into: *mut ObjectHead, handle: u64) -> Option<(u64, usize)> {
    if handle == 0 || handle & TAG_BITS != 0 {
        return None;
    }
    let addr = word(handle).filter(|addr| *addr != 0)?;
    // SAFETY: the caller's promise.
    let head = unsafe { (&raw mut (*into).words).cast::<u8>() };
    // SAFETY: there is room for so much.
    if unsafe { read(head, HEAD_BYTES, addr) } {
        return Some((addr, HEAD_BYTES));
    }
    // SAFETY: as above.
    unsafe { read(head, LEAST_BYTES, addr) }.then_some((addr, LEAST_BYTES))
}

/// Some collectors move objects while the program runs, and have the handles lead to the new places.
///
/// # Safety
/// `into` is a head.
#[inline(always)]
unsafe fn confirm(into: *mut ObjectHead, handle: u64, addr: u64, bytes: usize) {
    if word(handle) == Some(addr) {
        // SAFETY: the caller's promise.
        unsafe { (*into).addr = addr };
        // SAFETY: as above.
        unsafe { (*into).bytes = bytes as u64 };
    }
}

/// Where the contents of an object are: its own or, of a string, those of its array.
///
/// # Safety
/// There are so many bytes of the object at `head`.
#[inline(always)]
unsafe fn kept_in(heap: &HeapPlaces, addr: u64, head: *const u8) -> Option<u64> {
    // SAFETY: the caller's promise.
    let (first, second) = unsafe { (head.cast::<u64>().read(), head.cast::<u64>().add(1).read()) };
    let class = if heap.class_word == 0 { first } else { second };
    if heap.string_class == 0 || class & heap.class_mask != heap.string_class {
        return Some(addr);
    }
    let value = addr.wrapping_add(heap.string_value);
    if heap.reference_bytes != 4 {
        return word(value).filter(|value| *value != 0);
    }
    let value = half(value).filter(|value| *value != 0)?;
    Some(heap.reference_base.wrapping_add(value << (heap.reference_shift & 31)))
}

/// How many collections there have been, if none stops the program now.
#[inline(always)]
pub(crate) fn standstill(heap: &HeapPlaces) -> Option<u64> {
    let mut stopped = 0u8;
    // SAFETY: the byte is ours.
    if !unsafe { read(&raw mut stopped, 1, heap.stopped) } || stopped != 0 {
        return None;
    }
    Some(vm::collections()).filter(|collections| *collections != 0)
}

#[inline(always)]
pub(crate) fn heap() -> Option<&'static HeapPlaces> {
    vm::places().map(|places| &places.heap).filter(|heap| heap.stopped != 0)
}

/// Reads bytes of the current process. Returns whether they could be read.
///
/// # Safety
/// There is room for so many.
#[inline(always)]
unsafe fn read(into: *mut u8, bytes: usize, from: u64) -> bool {
    // SAFETY: the caller's promise; the helper takes any address.
    unsafe { bpf_probe_read_user(into.cast(), bytes as u32, from as *const _) == 0 }
}

/// What was noted of a thread's open call at this depth; `None` if the thread has no slot, or the call is nested too deep.
#[inline(always)]
fn noted(owner: u32, depth: u32) -> Option<*mut NotedCall> {
    if owner == 0 || depth as usize >= LEVELS {
        return None;
    }
    let calls = NPROF_ARGS.get_ptr_mut(owner & (SLOTS - 1))?;
    // SAFETY: the map gave the pointer, and the depth is one of its levels.
    Some(unsafe { (&raw mut (*calls).of).cast::<NotedCall>().add(depth as usize) })
}
