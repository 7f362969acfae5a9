//! Single calls on their way out, where a timeline is wanted; with what they were made with, where that is wanted too.

use core::ffi::c_void;

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use aya_ebpf::btf_maps::RingBuf;
use aya_ebpf::helpers::generated::{bpf_ringbuf_reserve, bpf_ringbuf_submit};
use aya_ebpf::macros::btf_map;
use nprof_common::stack::collect;
use nprof_common::{CallEvent, Frame, Frames, MadeCall};

use crate::args::{self, Made};
use crate::{maps, slow, stacks, threads};

/// The calls. One page, the least that the kernel makes; whoever reads them asks for more, and looks for them at his own pace.
#[btf_map]
static NPROF_CALLS: RingBuf<CallEvent, 4096> = RingBuf::new();

/// Whether calls are told with what they were made with, which is known only when they have ended.
#[inline(always)]
pub(crate) fn has_args() -> bool {
    maps::collects(collect::CALLS) && maps::collects(collect::ARGS)
}

/// Tells of a call.
#[inline(always)]
pub(crate) fn tell(index: u32, start_ns: u64, time_ns: u64) {
    let event = CallEvent { start_ns, time_ns, index, tid: threads::current_tid() };
    match NPROF_CALLS.reserve(0) {
        Some(mut record) => {
            record.write(event);
            record.submit(u64::from(BPF_RB_NO_WAKEUP));
        }
        None => stacks::lose_call(),
    }
}

/// Tells of a call that has been taken off `frames`, with what it was made with and, unless it has ended with its thread, has returned.
#[inline(always)]
pub(crate) fn tell_made(frames: &Frames, call: &Frame, time_ns: u64, result: Option<u64>) {
    // SAFETY: the map is a ring buffer.
    let record = unsafe { bpf_ringbuf_reserve(ring(), size_of::<MadeCall>() as u64, 0) }.cast::<MadeCall>();
    if record.is_null() {
        return stacks::lose_call();
    }
    let event = CallEvent { start_ns: call.start_ns, time_ns, index: call.index, tid: threads::current_tid() };
    let made = Made::Noted(call, frames.depth, frames);
    // SAFETY: the record is of that size, and was reserved above.
    unsafe {
        (*record).call = event;
        args::tell_call(record, made, slow::kinds(call.index), result);
        bpf_ringbuf_submit(record.cast(), u64::from(BPF_RB_NO_WAKEUP));
    }
}

/// The ring that calls go out by.
#[inline(always)]
pub(crate) fn ring() -> *mut c_void {
    (&raw const NPROF_CALLS).cast_mut().cast()
}
