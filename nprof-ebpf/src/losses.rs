//! What could not be measured as it should have been: always counted, and told one by one where somebody listens.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use aya_log_ebpf::debug;
use nprof_common::Loss;

use crate::{atomic, threads};

/// Counters by [`Loss`].
#[btf_map]
static NPROF_LOSSES: Array<u64, { Loss::ALL.len() }, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Counts a loss at a call of the function with this record, at this stack pointer; zeros where there is no such thing.
///
/// A function that is called, because it is needed in many places. Where nobody listens the verifier takes out what tells: the
/// level is a constant by then. Otherwise user space reads the numbers and puts names to them.
#[inline(never)]
pub(crate) fn lose(loss: Loss, record: u32, sp: u64) {
    if let Some(counter) = NPROF_LOSSES.get_ptr_mut(loss as u32) {
        // SAFETY: the map gave the pointer.
        unsafe { atomic::add(counter, 1) };
    }
    debug!((), "{} {} {} {}", loss as u32, record, threads::current_tid(), sp);
}
