//! What happens on the host and is told at once, through a ring buffer, instead of being counted.
//!
//! The programs here are attached only where somebody reads the ring.

use aya_ebpf::btf_maps::RingBuf;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::{btf_map, raw_tracepoint};
use aya_ebpf::programs::RawTracePointContext;
use nprof_common::{ExecEvent, Loss};

use crate::losses;

/// Records on their way out. One page, the least that the kernel makes; whoever reads them asks for more.
#[btf_map]
static NPROF_EXECS: RingBuf<ExecEvent, 4096> = RingBuf::new();

/// A process runs a new program: its threads are down to one and its old memory is gone.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn nprof_exec(_ctx: RawTracePointContext) -> i32 {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    match NPROF_EXECS.reserve(0) {
        Some(mut record) => {
            record.write(ExecEvent::new(tgid));
            record.submit(0);
        }
        None => losses::lose(Loss::MissedExec, 0, 0),
    }
    0
}
