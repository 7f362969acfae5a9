//! What calls are made with. Registers and stack are noted when a call begins, since nothing of them is left when it returns; a stub keeps
//! them in its frame. What references lead to is looked at when a slow call is told: the VM keeps the handles of the call until it is back in Java.
//!
//! A collector may move objects at any time. Those that stop the program for it say so: what is read while none does, and
//! none has begun since, is what was there. What is not wanted is no code: the verifier knows the constants.

use core::mem::offset_of;

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use nprof_common::args::{
    CONTENT_BYTES, HEAD_BYTES, LEVELS, REFERENCES, REGISTERS, RESULT, STACK_WORDS, STUB_ARGS_BELOW, STUB_STACK_ABOVE,
    StubArgs, WORDS,
};
use nprof_common::stack::collect;
use nprof_common::{CallArgs, Frame, Frames, HeapPlaces, NotedCall, NotedCalls, Referent, SLOTS};

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
    // SAFETY: the caller's promise.
    let (kinds, env) = match made {
        Made::Noted(frame, depth, frames) => {
            // SAFETY: as above.
            unsafe { copy_noted(into, (frame, depth, frames)) };
            (kinds, frame.env)
        }
        // SAFETY: as above.
        Made::Kept(base) => unsafe { copy_kept(into, base) },
    };
    let has_thrown = counters::is_pending(env);
    // SAFETY: as above.
    unsafe {
        (*into).kinds = kinds;
        (*into).has_result = result.is_some() as u64;
        (*into).result = result.unwrap_or(0);
        (*into).has_thrown = has_thrown as u64;
        (*into).is_still = 0;
        let Some(heap) = heap() else { return };
        let Some(before) = standstill(heap) else { return };
        for reference in 0..REFERENCES {
            let referent = (&raw mut (*into).referents).cast::<Referent>().add(reference);
            (*referent).head_bytes = 0;
            (*referent).content_bytes = 0;
            let is_known =
                if reference == RESULT { (*into).has_result != 0 } else { (reference as u64) < (*into).known };
            let may_refer = reference != RESULT || !has_thrown;
            if kinds >> reference & 1 != 0 && is_known && may_refer {
                let handle = if reference == RESULT { (*into).result } else { (*into).words[reference] };
                follow(referent, heap, handle);
            }
        }
        (*into).is_still = (standstill(heap) == Some(before)) as u64;
    }
}

/// Copies what the programs have noted of a call.
///
/// # Safety
/// As for [`tell`].
#[inline(always)]
unsafe fn copy_noted(into: *mut CallArgs, (frame, depth, frames): (&Frame, u32, &Frames)) {
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
unsafe fn copy_kept(into: *mut CallArgs, base: u64) -> (u64, u64) {
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

/// Copies the beginning of the object that a handle leads to.
///
/// # Safety
/// `into` is a referent.
#[inline(always)]
unsafe fn follow(into: *mut Referent, heap: &HeapPlaces, handle: u64) {
    if handle == 0 || handle & TAG_BITS != 0 {
        return;
    }
    let Some(addr) = word(handle).filter(|addr| *addr != 0) else { return };
    // SAFETY: the caller's promise, here and below.
    let head = unsafe { (&raw mut (*into).head).cast::<u8>() };
    let mut bytes = HEAD_BYTES;
    if !unsafe { read(head, HEAD_BYTES, addr) } {
        bytes = LEAST_BYTES;
        if !unsafe { read(head, LEAST_BYTES, addr) } {
            return;
        }
    }
    if maps::collects(collect::CONTENTS) {
        let from = unsafe { kept_in(heap, addr, head) };
        let contents = unsafe { (&raw mut (*into).contents).cast::<u8>() };
        if let Some(from) = from
            && unsafe { read(contents, CONTENT_BYTES, from) }
        {
            unsafe { (*into).content_bytes = CONTENT_BYTES as u64 };
        }
    }
    // Some collectors move objects while the program runs, and have the handles lead to the new places.
    if word(handle) == Some(addr) {
        unsafe { (*into).addr = addr };
        unsafe { (*into).head_bytes = bytes as u64 };
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
