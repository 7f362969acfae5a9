//! The calls of each function by the thread that makes them.
//!
//! A call that finds no place among them is in the record of its function alone: whoever reads both sees the difference.

use core::ptr;

use aya_ebpf::bindings::BPF_NOEXIST;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::macros::btf_map;
use nprof_common::ThreadCalls;
use nprof_common::by_record::key;
use nprof_common::by_thread::NAME_BYTES;
use nprof_common::stack::collect;

use crate::{maps, threads};

/// The calls by thread and record. The loader says for how many of these there is room.
#[btf_map]
static NPROF_THREADS: HashMap<u64, ThreadCalls, 1> = HashMap::new();

/// No calls.
static NONE: ThreadCalls = ThreadCalls::NONE;

/// Adds a call of the current thread, if it is wanted by thread. The caller has put it into the function's record before.
#[inline(always)]
pub(crate) fn add(record: u32, one: ThreadCalls) {
    if !maps::collects(collect::THREADS) {
        return;
    }
    let calls = calls_or_null(key(threads::current_tid(), record));
    if calls.is_null() {
        return;
    }
    // SAFETY: the map gave the pointer, and only the thread itself adds to what is its own.
    let calls = unsafe { &mut *calls };
    calls.counted += one.counted;
    calls.timed += one.timed;
    calls.untimed += one.untimed;
    calls.total_ns += one.total_ns;
    calls.child_ns += one.child_ns;
    calls.off_ns += one.off_ns;
    // SAFETY: there is room for so much.
    unsafe { bpf_get_current_comm((&raw mut calls.name).cast(), NAME_BYTES as u32) };
}

/// The calls of a thread and record, as one word, which is all that a function can return; null if there is no room for more.
#[inline(never)]
fn calls_or_null(key: u64) -> *mut ThreadCalls {
    let known = NPROF_THREADS.get_ptr_mut(key).or_else(|| {
        // There may be no room, which shows next.
        _ = insert_none(key);
        NPROF_THREADS.get_ptr_mut(key)
    });
    known.unwrap_or(ptr::null_mut())
}

/// Makes a place for the calls of a thread and record.
#[inline(always)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "the value is too large for the stack")]
fn insert_none(key: u64) -> Result<(), i32> {
    NPROF_THREADS.insert(key, &NONE, u64::from(BPF_NOEXIST))
}
