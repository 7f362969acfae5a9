//! How many bytes each call moves: the timed calls of a function by that.
//!
//! All CPUs add to the same histogram: a call that moves bytes has made a system call, or asked an allocator, which costs more than
//! to wait for the others. Calls that move none are not in it, and cost nothing.

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::btf_map;
use nprof_common::by_record::key;
use nprof_common::histogram::{BUCKETS, bucket_of};
use nprof_common::{CallBytes, Counter, Loss};

use crate::{atomic, losses};

/// The histograms by counter and record. The loader says for how many there is room.
#[btf_map]
static NPROF_BYTES: HashMap<u64, CallBytes, 1> = HashMap::new();

/// No calls.
static NONE: CallBytes = CallBytes::NONE;

/// The counters that count bytes.
const BYTES: u32 = Counter::OF_BYTES;

/// Adds a call that has ended, if the counter is one of bytes and there were any.
#[inline(always)]
pub(crate) fn add(record: u32, counter: usize, bytes: u64) {
    if BYTES & (1 << counter) != 0 && bytes != 0 {
        add_to(key(counter as u32, record), bytes);
    }
}

/// One for all counters, as the code is not small.
#[inline(never)]
fn add_to(key: u64, bytes: u64) -> u32 {
    let known = NPROF_BYTES.get_ptr_mut(key).or_else(|| {
        // Another CPU may have been faster, which is as good; or there is no room, which shows next.
        _ = insert_none(key);
        NPROF_BYTES.get_ptr_mut(key)
    });
    let bucket = bucket_of(bytes) as usize;
    let Some(calls) = known.filter(|_| bucket < BUCKETS) else {
        losses::lose(Loss::NoCounters, key as u32, 0);
        return 0;
    };
    // SAFETY: the map gave the pointer, and the bucket is one of its own.
    unsafe { atomic::add((&raw mut (*calls).calls).cast::<u64>().add(bucket), 1) };
    // SAFETY: as above.
    if !unsafe { atomic::raise(&raw mut (*calls).max, bytes) } {
        losses::lose(Loss::MaxContended, key as u32, 0);
    }
    0
}

/// Makes a place for the calls of a counter and record.
#[inline(always)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "the value is too large for the stack")]
fn insert_none(key: u64) -> Result<(), i32> {
    NPROF_BYTES.insert(key, &NONE, u64::from(BPF_NOEXIST))
}
