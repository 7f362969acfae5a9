//! Counts bytes by method: what `nprof trace --on-return` or `--on-entry` runs.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "programs run on all CPUs at once, and are preempted: sums need atomic operations"
)]

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_attach_cookie;
use aya_ebpf::macros::{map, uprobe, uretprobe};
use aya_ebpf::maps::Array;
use aya_ebpf::programs::{ProbeContext, RetProbeContext};

/// By method. nprof makes it as large as it has to be, and shows it.
#[map(name = "nprof_values")]
static BYTES: Array<u64> = Array::with_max_entries(1, 0);

/// What a method returns: `int read(...)`.
#[uretprobe]
fn returned(ctx: RetProbeContext) -> u32 {
    add(&ctx, ctx.ret())
}

/// What a method is given first: `static void write(int length)`. Before it are JNI's environment and the class.
#[uprobe]
fn given(ctx: ProbeContext) -> u32 {
    add(&ctx, ctx.arg(2).unwrap_or(0))
}

fn add(ctx: &impl EbpfContext, bytes: i32) -> u32 {
    // SAFETY: the kernel gave this context to the program that runs.
    let index = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) } as u32;
    if let Some(sum) = BYTES.get_ptr_mut(index)
        && bytes > 0
    {
        // SAFETY: the map gave the pointer, to a value of this type.
        unsafe {
            core::intrinsics::atomic_xadd::<u64, u64, { core::intrinsics::AtomicOrdering::Relaxed }>(sum, bytes as u64)
        };
    }
    0
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses a program that could reach this.
    loop {}
}
