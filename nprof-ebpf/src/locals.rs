//! How many local references calls of native methods hold, by local frame: noted when a function has returned that makes them, lets them go
//! or makes room for them, and forgotten when the native method returns, which lets go of all. A call that holds too many is counted as it
//! begins to, and with the most so far: it may never return.

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::btf_map;
use nprof_common::jni::LOCALS_BEYOND;
use nprof_common::{Frame, Frames, JniLocals, Loss, MethodStats};

use crate::jni::{self, LETS_GO, MAKES_ROOM, POPS_FRAME, PUSHES_FRAME};
use crate::{losses, threads};

/// What is held, by thread and depth of the call. The loader says for how many calls there is room.
#[btf_map]
static NPROF_LOCALS: HashMap<u64, JniLocals, 1> = HashMap::new();

/// Nothing is held.
static NONE: JniLocals = JniLocals::NONE;

/// A function has returned that is about local references, and was just taken off `frames`: `about` is its argument, and 0 was returned if
/// it made none. One that is only counted is noted when it is called, as if it had succeeded and made nothing.
///
/// # Safety
/// `stats` and `frames` are of maps, and these are the current thread's.
#[inline(never)]
pub(crate) unsafe fn note(stats: *const MethodStats, frames: *mut Frames, about: u64, returned: u64) {
    // SAFETY: the caller's promise.
    let Frames { depth, frames, .. } = unsafe { &mut *frames };
    let (kind, place) = (jni::kind(stats), (*depth as usize).wrapping_sub(1));
    // What a function of the VM's own makes, or native code that is not traced, is nobody's.
    let Some(call) = frames.get_mut(place).filter(|call| call.caller_and_lost & Frame::CALLER != 0) else { return };
    let is_known = call.caller_and_lost & Frame::LOCALS != 0;
    let is_nothing = match kind {
        LETS_GO => about == 0 || !is_known,
        PUSHES_FRAME | MAKES_ROOM => returned as u32 != 0,
        POPS_FRAME => returned == 0 && !is_known,
        _ => returned == 0,
    };
    if is_nothing {
        return;
    }
    let key = key(place);
    if !is_known {
        if !begin(key) {
            return losses::lose(Loss::NoHeldRoom, call.index, call.sp);
        }
        call.caller_and_lost |= Frame::LOCALS;
    }
    let Some(locals) = NPROF_LOCALS.get_ptr_mut(key) else { return };
    // SAFETY: the map gave the pointer, and only the thread itself has this key.
    let locals = unsafe { &mut *locals };
    match kind {
        LETS_GO => locals.let_go(about),
        MAKES_ROOM => locals.make_room(about as u32),
        PUSHES_FRAME => {
            if !locals.push(about as u32) {
                losses::lose(Loss::NoHeldRoom, call.index, call.sp);
            }
        }
        _ => {
            if kind == POPS_FRAME {
                locals.pop();
            }
            let before = locals.most;
            if returned != 0 {
                locals.make(returned);
            }
            if locals.most > before {
                jni::reached(call.index, LOCALS_BEYOND, u64::from(before == 0), locals.most.into());
            }
        }
    }
}

/// A call has ended, at this depth: what it held is let go.
#[inline(never)]
pub(crate) fn end(depth: u32) {
    _ = NPROF_LOCALS.remove(key(depth as usize));
}

/// Makes a place for what a call holds. There may be one of a call that was given up.
#[inline(always)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "the value is too large for the stack")]
fn begin(key: u64) -> bool {
    NPROF_LOCALS.insert(key, &NONE, u64::from(BPF_ANY)).is_ok()
}

/// What a call of the current thread is known by.
#[inline(always)]
fn key(depth: usize) -> u64 {
    u64::from(threads::current_tid()) << 8 | depth as u64
}
