//! Look-ups of classes and members by native code: known by what they are about, and those that were made before.
//!
//! What they are about is read when they begin. A page that nobody has touched cannot be read by a probe, nor is a class known that the
//! collector moves: what could not be read then is read when the look-up returns.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::{HashMap, LruHashMap};
use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::macros::btf_map;
use nprof_common::jni::{NO_CALLER, pair};
use nprof_common::{Frame, JniPlaces, Loss};

use crate::jni::{self, CLASS, MEMBER};
use crate::{losses, threads, vm};

/// What look-ups have found, by a number for what they look up: the record of the first function that has found it.
#[btf_map]
static NPROF_LOOK_UPS: HashMap<u64, u64, 1> = HashMap::new();

/// The arguments of look-ups that could not be read when they began, by thread and stack pointer: the VM reads them as well, and
/// they are read once more when it has. Of one that finds nothing or never returns they stay until
/// others need the room.
#[btf_map]
static NPROF_UNREAD: LruHashMap<[u64; 2], [u64; 3], 1> = LruHashMap::new();

/// What handles of objects have in their lowest bits besides the address.
const HANDLE_TAG: u64 = 7;
/// The most that is read of a name or signature, in bytes, with the zero at its end. What is longer is not told apart.
const TEXT_BYTES: usize = 160;
/// What the kernel answers if there is such a key.
const EEXIST: i32 = -17;
/// An odd number whose bits look random (2^64 divided by the golden ratio).
pub(crate) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A look-up begins that was called with this stack pointer: what [`Frame::env`] keeps of it, a number for what is looked up, or 0 if that is
/// not known yet.
#[inline(always)]
pub(crate) fn begin(kind: u64, asked: [u64; 3], sp: u64) -> u64 {
    let number = looked_up(kind, &asked);
    if number == 0 && (kind == CLASS || places().klass != 0) {
        // If there is no room, the look-up stays unknown, which shows when it returns.
        _ = NPROF_UNREAD.insert(asked_by(sp), asked, 0);
    }
    number
}

/// Something was looked up and found: for the first time, or again. Which class a name means depends on who asks: of nobody's
/// calls that is not known.
#[inline(always)]
pub(crate) fn end(kind: u64, caller: u32, frame: &Frame, time_ns: u64) {
    if kind == MEMBER && places().klass == 0 {
        return;
    }
    let asks = if kind == CLASS { caller } else { NO_CALLER };
    if kind == CLASS && asks == NO_CALLER {
        return;
    }
    let number = if frame.env == 0 { looked_up_late(kind, frame.sp) } else { frame.env };
    if number == 0 {
        return losses::lose(Loss::UnknownLookUp, frame.index, frame.sp);
    }
    let key = mixed(number ^ pair(asks, frame.index));
    match NPROF_LOOK_UPS.insert(key, u64::from(frame.index), u64::from(BPF_NOEXIST)) {
        Ok(()) => {}
        Err(EEXIST) => {
            let Some(calls) = jni::calls_of(caller, frame.index, 0) else { return };
            // SAFETY: the map gave the pointer.
            jni::add(unsafe { &raw mut (*calls).redundant }, 1);
            // SAFETY: as above.
            jni::add(unsafe { &raw mut (*calls).redundant_ns }, time_ns);
        }
        Err(_) => losses::lose(Loss::UnknownLookUp, frame.index, frame.sp),
    }
}

/// A number for what is looked up, from the arguments; 0 if one of them cannot be read.
#[inline(always)]
fn looked_up(kind: u64, &[first, second, third]: &[u64; 3]) -> u64 {
    if kind == CLASS {
        return text(MIX, first);
    }
    match klass(first) {
        0 => 0,
        klass => text(text(mixed(klass), second), third),
    }
}

/// The same of a look-up that returns and could not be read when it began: nobody had touched the page of a name, or an object was
/// being moved.
#[inline(never)]
fn looked_up_late(kind: u64, sp: u64) -> u64 {
    let key = asked_by(sp);
    // SAFETY: the value is copied at once, and only the thread itself writes it.
    let Some(&asked) = (unsafe { NPROF_UNREAD.get(key) }) else { return 0 };
    // It was there a moment ago, and nobody else takes it away.
    _ = NPROF_UNREAD.remove(key);
    looked_up(kind, &asked)
}

/// A look-up of the current thread that was called with this stack pointer.
#[inline(always)]
fn asked_by(sp: u64) -> [u64; 2] {
    [threads::current_tid().into(), sp]
}

/// What the VM knows a class by, from a handle of its Java object; 0 if that is not sure. The collector may move the object
/// at any time: what is read is right if it leads back to where it was read.
#[inline(always)]
fn klass(handle: u64) -> u64 {
    let JniPlaces { klass: to_klass, mirror: to_mirror, .. } = places();
    if to_klass == 0 {
        return 0;
    }
    let read = |addr: u64| vm::word(addr).unwrap_or(0);
    let object = read(handle & !HANDLE_TAG);
    let klass = read(object.wrapping_add(to_klass));
    let back = read(read(klass.wrapping_add(to_mirror)));
    if object != 0 && back == object { klass } else { 0 }
}

/// A number for a text and what was read before it; 0 if it cannot be read, is too long, or nothing is known of what was before.
#[inline(never)]
fn text(before: u64, addr: u64) -> u64 {
    let mut words = [0u64; TEXT_BYTES / size_of::<u64>()];
    if before == 0 {
        return 0;
    }
    // SAFETY: there is room for so many bytes, and the helper takes any address.
    let read = unsafe { bpf_probe_read_user_str((&raw mut words).cast(), TEXT_BYTES as u32, addr as *const _) };
    if read <= 0 || read >= TEXT_BYTES as i64 {
        return 0;
    }
    let mut number = before;
    for word in &words {
        number = mixed(number ^ *word);
    }
    number | 1
}

/// Another number for each number, which differs from those of similar ones in all bits.
#[inline(always)]
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(MIX);
    (number ^ number >> 29).wrapping_mul(MIX)
}

/// What is known of the VM of the current process; zeros if nothing is.
#[inline(always)]
fn places() -> JniPlaces {
    const NOTHING: JniPlaces = JniPlaces { klass: 0, mirror: 0, pending_from_env: 0 };
    vm::places().map_or(NOTHING, |places| places.jni)
}
