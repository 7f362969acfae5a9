//! Where native code was called from that has made something: stacks of the first things that a native method makes by a function
//! and of a class, and of some of the later ones.
//!
//! Whose stack was not taken is known as well, only not where it comes from. So each of these groups gets its share, however
//! much more the others make.

use aya_ebpf::bindings::{BPF_NOEXIST, BPF_RB_NO_WAKEUP, pt_regs};
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_ringbuf_submit};
use aya_ebpf::macros::btf_map;
use nprof_common::jni::{NO_CALLER, pair};
use nprof_common::stack::PAGE;
use nprof_common::{JniHandle, JniHeld, JniMade, MethodStats, StackHeader, StackKind};

use crate::look_ups::MIX;
use crate::stacks::Thread;
use crate::{args, held, maps, slow, stacks};

/// What was taken of each group. The loader says for how many there is room; of others no stack is taken.
#[btf_map]
static NPROF_MADE: HashMap<u64, JniMade, 1> = HashMap::new();

/// So many of a group are taken at once.
const FIRST: u64 = 8;
/// About the time from one of the later ones to the next, in nanoseconds.
const PERIOD_NS: u64 = 16_000_000;
/// If none was taken for so long, one of the next is, picked by chance: `2 << SOON` of them at most.
const LONG_NS: u64 = 16 * PERIOD_NS;
const SOON: u64 = 3;
/// One of so many is taken at least, as a power of two.
const SELDOM: u64 = 24;

/// Whether the stack is to be taken in which something was made.
#[inline(always)]
pub(crate) fn is_stack_wanted(held: &JniHeld) -> bool {
    if held.caller == NO_CALLER {
        return false;
    }
    let class = args::heap().map_or(0, |heap| held.object & heap.class_mask);
    let key = pair(held.caller, held.function) ^ class.wrapping_mul(MIX);
    let Some(made) = NPROF_MADE.get_ptr_mut(key) else {
        let first = JniMade { taken: 1, left: 0, shift: 0, last_ns: held.since_ns };
        return NPROF_MADE.insert(key, first, u64::from(BPF_NOEXIST)).is_ok();
    };
    // SAFETY: the map gave the pointer. Who comes here at the same time takes one more or less.
    let made = unsafe { &mut *made };
    if made.taken >= FIRST && made.left > 0 {
        made.left -= 1;
        if held.since_ns.saturating_sub(made.last_ns) > LONG_NS {
            // It has become seldom.
            made.shift = made.shift.min(SOON);
            made.left = made.left.min(chance(SOON));
            made.last_ns = held.since_ns;
        }
        return false;
    }
    choose_next(made, held.since_ns);
    true
}

/// Says how many are left out until the next stack is taken: by chance, and so many that there is one in each period. Not the first
/// after some time: programs do things in bursts, and what they keep may always come at the same place in them.
#[inline(always)]
fn choose_next(made: &mut JniMade, now_ns: u64) {
    let passed_ns = now_ns.saturating_sub(made.last_ns);
    if passed_ns < PERIOD_NS / 2 && made.shift < SELDOM && made.taken >= FIRST {
        made.shift += 1;
    } else if passed_ns > 2 * PERIOD_NS && made.shift > 0 {
        made.shift -= 1;
    }
    made.left = chance(made.shift);
    (made.taken, made.last_ns) = (made.taken + 1, now_ns);
}

/// A number below `2 << shift`.
#[inline(always)]
fn chance(shift: u64) -> u64 {
    // SAFETY: the helper takes no pointer.
    u64::from(unsafe { bpf_get_prandom_u32() }) & ((2 << (shift & 31)) - 1)
}

/// Takes the stack in which a function, of this record, has returned a value at a time. `env` is the thread's `JNIEnv`.
///
/// # Safety
/// `stats` is of a map and `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn tell(
    stats: *const MethodStats,
    (index, now_ns, returned): (u32, u64, u64),
    env: u64,
    regs: *const pt_regs,
) {
    let details = size_of::<StackHeader>() + maps::stack_pages() * PAGE;
    if !slow::may_take() {
        return;
    }
    // SAFETY: the caller's promise.
    let header = stacks::at(StackHeader { index, now_ns, ..stacks::header(StackKind::Made) }, unsafe { &*regs });
    let (anchor, java) = stacks::anchor(header.tid, env);
    let Some(record) = slow::reserve(details + size_of::<JniHandle>()) else { return };
    // SAFETY: the record has room for the header, so many pages, and what follows them.
    unsafe {
        stacks::fill(record, StackHeader { anchor, ..header }, Thread { env, java });
        record.add(details).cast::<JniHandle>().write(held::handle(stats, returned));
        bpf_ringbuf_submit(record.cast(), u64::from(BPF_RB_NO_WAKEUP));
    }
}
