//! Copies what of a virtual thread's stack is frozen in the heap.
//!
//! A virtual thread that was unmounted comes back with its innermost frames only; the others stay in chunks of the heap
//! until it returns to them. When the sample is read it has gone on, so they are copied with it. Only the thread itself
//! changes its chunks, and it stands still now; but a collector may move them meanwhile. So the way to them is gone
//! twice, and a copy to which it does not lead any more is not used. What lies where an object has not arrived yet shows by
//! not belonging to the thread's continuation.

use core::arch::asm;

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use nprof_common::stack::PAGE;
use nprof_common::{Chunk, FrozenPlaces};

use crate::stacks::Thread;
use crate::vm::{self, half, word};

/// Words of a chunk: 64 MB.
const MAX_WORDS: u64 = 1 << 23;
/// Saved frame pointer and return address of the innermost frame lie below it.
const LINK_WORDS: u64 = 2;
/// Chunks that are copied. As a rule there is one, or two when the heap was collected meanwhile.
const MAX_CHUNKS: usize = 4;
/// What is copied of the stack above the place where a continuation was entered: the frames of the thread that carries it.
const CARRIER_BYTES: u64 = 16 << 10;
/// The lowest bits of the first word of an object that has been moved, and all that are no part of its new address.
const MOVED: u64 = 0b11;
const MARK_BITS: u64 = 0b111;
/// The lowest bits of a coloured reference, and where in them stands how far its address is shifted.
const COLOUR_BITS: u64 = 16;
const SHIFT_BITS: u64 = 12;
const HEAD: u64 = size_of::<Chunk>() as u64;

/// What was copied of a thread: see [`nprof_common::StackHeader`].
pub(crate) struct Copied {
    pub(crate) stack_bytes: u64,
    pub(crate) entry_sp: u64,
    pub(crate) frozen_bytes: u64,
    pub(crate) frozen_more: u64,
}

/// A continuation that a thread runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mounted {
    /// The stack pointer at which it was entered.
    entry_sp: u64,
    /// The address above the stack.
    stack_end: u64,
    /// The object, and its innermost chunk.
    continuation: u64,
    tail: Found,
}

/// The continuation that a thread runs, if it does.
#[inline(always)]
fn mounted(Thread { env, java }: Thread) -> Option<Mounted> {
    let places = places()?;
    let thread = if env != 0 { env.wrapping_add_signed(places.thread_from_env) } else { java };
    if thread == 0 {
        return None;
    }
    let entry_sp = word(thread.wrapping_add(places.entry_sp)).filter(|sp| *sp != 0)?;
    let stack_end = word(thread.wrapping_add(places.stack_base))?;
    let bad = bad_colours(places)?;
    let continuation = if places.entered != 0 {
        // References on a stack have no colour. As long as one is of old, the thread has not gone on since.
        moved(places, word(entry_sp.wrapping_add(places.entered))?)?
    } else {
        let is_good = |found: &Found| bad == 0 || found.is_there;
        let handle = word(thread.wrapping_add(places.thread_object))?;
        let object = reference(places, bad, word(handle)?).filter(is_good)?.addr;
        field(places, bad, object, places.continuation).filter(is_good)?.addr
    };
    let tail = field(places, bad, continuation, places.tail)?;
    (continuation != 0).then_some(Mounted { entry_sp, stack_end, continuation, tail })
}

/// Copies the stack of a thread that runs a continuation, and behind it what is frozen. The thread is found by its
/// `JNIEnv` or, if that is not known, by its `JavaThread`. `None` if it runs none, or if the stack needs more than three
/// quarters of the room.
///
/// # Safety
/// There are `pages` pages at `room`.
#[inline(always)]
pub(crate) unsafe fn copy(room: *mut u8, pages: usize, sp: u64, thread: Thread) -> Option<Copied> {
    let mounted = mounted(thread).filter(|mounted| mounted.entry_sp >= sp)?;
    let all = (pages * PAGE) as u64;
    let base = sp & !(PAGE as u64 - 1);
    let above = (mounted.entry_sp + CARRIER_BYTES).min(mounted.stack_end);
    let stack_bytes = above.saturating_sub(base) & !7;
    // Much of the stack leaves little room for the rest, which is usually little then: a thread has so many frames. The
    // verifier knows both parts as constants.
    let behind = if stack_bytes <= all / 2 { all / 2 } else { all / 4 };
    let parts = (all - behind, behind);
    // SAFETY: the room is there.
    if all == 0 || stack_bytes == 0 || stack_bytes > parts.0 || !unsafe { copy_bytes(room, stack_bytes, parts.0, base) }
    {
        return None;
    }
    // SAFETY: the caller's promise; both parts are the room.
    let (frozen_bytes, frozen_more) = unsafe { copy_chunks(room, parts, stack_bytes, &mounted) }.unwrap_or((0, 0));
    // A collector that has moved the chunks may have done so while they were copied.
    let is_same = self::mounted(thread) == Some(mounted);
    let (frozen_bytes, frozen_more) = if is_same { (frozen_bytes, frozen_more) } else { (0, 0) };
    Some(Copied { stack_bytes, entry_sp: mounted.entry_sp, frozen_bytes, frozen_more })
}

/// Copies the chunks of a continuation. Returns how many bytes they are, and 1 if there was no room for all.
///
/// There is one way through each round: the verifier walks through all of them, in each of the ways they can go.
///
/// # Safety
/// There are two parts of so many bytes at `room`, of which `used` bytes are used.
#[inline(always)]
unsafe fn copy_chunks(room: *mut u8, (first, second): (u64, u64), used: u64, mounted: &Mounted) -> Option<(u64, u64)> {
    let places = places()?;
    let bad = bad_colours(places)?;
    let (mut next, mut owner) = (mounted.tail, mounted.continuation);
    let mut at = used;
    for _ in 0..MAX_CHUNKS {
        if next.addr == 0 || at > first - HEAD {
            break;
        }
        let (chunk, parent) = chunk(places, bad, next, &mut owner)?;
        let bytes = chunk.bytes.min(second);
        // SAFETY: it begins in the first part, and what follows has no more than the second.
        let is_copied = unsafe {
            let head = room.add(at as usize);
            head.cast::<Chunk>().write_unaligned(chunk);
            copy_bytes(head.add(HEAD as usize), bytes, second, chunk.base)
        };
        if !is_copied {
            return None;
        }
        next = parent;
        at += HEAD + bytes;
    }
    Some((at - used, (next.addr != 0) as u64))
}

/// Copies bytes of the current process, no more than `most`.
///
/// # Safety
/// There is room for `most` bytes.
#[inline(always)]
unsafe fn copy_bytes(into: *mut u8, bytes: u64, most: u64, from: u64) -> bool {
    // The verifiers before Linux 6.13 forget on the way here what was compared before.
    let bytes = hidden(bytes);
    // SAFETY: the caller's promise; the helper takes any address.
    bytes <= most && unsafe { bpf_probe_read_user(into.cast(), bytes as u32, from as *const _) == 0 }
}

/// The same number, of which the compiler knows nothing: it would omit comparisons that a verifier needs.
#[inline(always)]
fn hidden(mut number: u64) -> u64 {
    // SAFETY: there is no instruction in it.
    unsafe { asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    number
}

/// What is said of a chunk, and the next one. `owner` is the continuation that it must belong to.
#[inline(always)]
fn chunk(places: &FrozenPlaces, bad: u64, found: Found, owner: &mut u64) -> Option<(Chunk, Found)> {
    let addr = found.addr;
    let number = |offset: u64| half(addr.wrapping_add(offset));
    let (size, sp, bottom) = (number(places.size)?, number(places.sp)?, number(places.bottom)?);
    let bottom = if places.from_end != 0 { size.checked_sub(bottom)? } else { bottom };
    let own = field(places, bad, addr, places.owner)?.addr;
    if found.is_there {
        // Written long ago, perhaps, and of where the continuation was then; as that of the chunks that follow.
        *owner = own;
    }
    if own != *owner || size > MAX_WORDS || sp > size || bottom > size {
        return None;
    }
    let words = addr.wrapping_add(places.words);
    let first = sp.saturating_sub(LINK_WORDS);
    let bytes = if sp < bottom { 8 * (size - first) } else { 0 };
    let place = |word: u64| words.wrapping_add(8 * word);
    let parent = field(places, bad, addr, places.parent)?;
    Some((Chunk { base: place(first), sp: place(sp), end: place(bottom), bytes }, parent))
}

/// Where a reference leads.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Found {
    /// 0 for null.
    addr: u64,
    /// Whether the object is certainly there. If not, what lies there has to be looked at.
    is_there: bool,
}

/// The colours that references do not have whose objects are there; 0 if they have none.
#[inline(always)]
fn bad_colours(places: &FrozenPlaces) -> Option<u64> {
    if places.bad_colours == 0 { Some(0) } else { word(places.bad_colours) }
}

/// Where a field of an object leads.
#[inline(always)]
fn field(places: &FrozenPlaces, bad: u64, object: u64, offset: u64) -> Option<Found> {
    let at = object.wrapping_add(offset);
    if places.reference_bytes != 4 {
        return reference(places, bad, word(at)?);
    }
    let value = half(at)?;
    let addr = places.reference_base.wrapping_add(value << (places.reference_shift & 31));
    Some(Found { addr: if value == 0 { 0 } else { moved(places, addr)? }, is_there: false })
}

/// Where a reference leads that has its full width.
///
/// A bad colour says that the collector Z has moved objects since the reference was last looked at. Who looks at one heals
/// it: so the thread itself has not been at the object since either, and what lies at its old place is still true, or no
/// such object at all.
#[inline(always)]
fn reference(places: &FrozenPlaces, bad: u64, value: u64) -> Option<Found> {
    if places.bad_colours == 0 {
        return Some(Found { addr: moved(places, value)?, is_there: false });
    }
    if value >> COLOUR_BITS == 0 {
        return Some(Found { addr: 0, is_there: true });
    }
    let addr = match value >> SHIFT_BITS & 0xf {
        1 => value >> 13,
        2 => value >> 14,
        4 => value >> 15,
        8 => value >> 16,
        _ => return None,
    };
    Some(Found { addr, is_there: value & bad == 0 })
}

/// Where an object is by now. Most collectors move objects while no Java runs: then the old one is as good as the new one
/// until no reference leads to it. Others go on to let Java run, and only the new one is kept up to date.
#[inline(always)]
fn moved(places: &FrozenPlaces, object: u64) -> Option<u64> {
    if places.moves == 0 || object == 0 {
        return Some(object);
    }
    let mark = word(object)?;
    let to = mark & !MARK_BITS;
    Some(if mark & MOVED == MOVED && to != 0 { to } else { object })
}

#[inline(always)]
fn places() -> Option<&'static FrozenPlaces> {
    vm::places().map(|places| &places.frozen).filter(|places| places.thread_from_env != 0)
}
