//! The records, what the loader has set, and typed access to both.

use core::ptr;

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::bpf_get_smp_processor_id;
use aya_ebpf::macros::btf_map;
use nprof_common::{LastJavaFramePlace, MethodStats};

/// The records: `shards` of them per dense index. The loader sets the size from the plan. Mappable, so that user
/// space, and later the target, reads and writes it without a system call.
#[btf_map]
static NPROF_STATS: Array<MethodStats, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Shards per record, less one. Each CPU writes to the shard of its number: a record that all CPUs share costs
/// more than everything else in the program.
#[unsafe(no_mangle)]
static SHARD_MASK: u32 = 0;

/// Whether the kernel lets only hits of the target through. Kernels before 6.10 do not.
#[unsafe(no_mangle)]
static FILTERED: u32 = 0;

/// What is collected besides counts and times: bits of [`nprof_common::stack::collect`].
#[unsafe(no_mangle)]
static COLLECT: u32 = 0;

/// How many pages of a stack are copied.
#[unsafe(no_mangle)]
static STACK_PAGES: u32 = 0;

/// Where the kernel keeps a thread's number in its `task_struct`, in bytes; 0 if that is not known.
#[unsafe(no_mangle)]
static TASK_PID: u32 = 0;

/// The same of the number of its process.
#[unsafe(no_mangle)]
static TASK_TGID: u32 = 0;

/// Where the kernel keeps when it last let a thread run, in bytes of its `task_struct`; 0 if that is not known.
#[unsafe(no_mangle)]
static TASK_ARRIVAL: u32 = 0;

/// The process that the timer and the switches of threads are of interest in.
#[unsafe(no_mangle)]
static TARGET: u32 = 0;

/// From a `JNIEnv` to where its thread notes its last Java frame.
#[unsafe(no_mangle)]
static ANCHOR_FROM_ENV: [i64; 3] = [0; 3];

/// Where the thread with this `JNIEnv` notes its last Java frame, as far as that is known.
#[inline(always)]
pub(crate) fn anchor_place(env: u64) -> Option<LastJavaFramePlace> {
    // SAFETY: a constant that the loader has set; volatile, or the compiler would take its initial value.
    let [sp, pc, fp] = unsafe { ptr::read_volatile(&raw const ANCHOR_FROM_ENV) };
    let place = |offset: i64| env.wrapping_add_signed(offset);
    (env != 0 && sp != 0).then(|| LastJavaFramePlace { sp: place(sp), pc: place(pc), fp: place(fp), thread: 0 })
}

/// Whether this is to be collected. As with [`is_filtered`], what is not costs nothing.
#[inline(always)]
pub(crate) fn collects(what: u32) -> bool {
    // SAFETY: a constant that the loader has set; volatile, or the compiler would take its initial value.
    unsafe { ptr::read_volatile(&raw const COLLECT) & what != 0 }
}

/// How many pages of a stack are copied.
#[inline(always)]
pub(crate) fn stack_pages() -> usize {
    // SAFETY: as above.
    unsafe { ptr::read_volatile(&raw const STACK_PAGES) as usize }
}

/// The process that the timer and the switches of threads are of interest in.
#[inline(always)]
pub(crate) fn target() -> u32 {
    // SAFETY: as above.
    unsafe { ptr::read_volatile(&raw const TARGET) }
}

/// Where the kernel keeps a thread's number; 0 if that is not known.
#[inline(always)]
pub(crate) fn task_pid() -> u32 {
    // SAFETY: as above.
    unsafe { ptr::read_volatile(&raw const TASK_PID) }
}

/// Where the kernel keeps the number of a thread's process; 0 if that is not known.
#[inline(always)]
pub(crate) fn task_tgid() -> u32 {
    // SAFETY: as above.
    unsafe { ptr::read_volatile(&raw const TASK_TGID) }
}

/// Where the kernel keeps when it last let a thread run; 0 if that is not known.
#[inline(always)]
pub(crate) fn task_arrival() -> u32 {
    // SAFETY: as above.
    unsafe { ptr::read_volatile(&raw const TASK_ARRIVAL) }
}

/// Whether a hit can only be one of the target.
#[inline(always)]
pub(crate) fn is_filtered() -> bool {
    // SAFETY: a constant that the loader has set; volatile, or the compiler would take its initial value. The verifier
    // knows it and leaves out the code that it rules out.
    unsafe { ptr::read_volatile(&raw const FILTERED) != 0 }
}

/// The shard of a method's record that this CPU writes to.
#[inline(always)]
pub(crate) fn stats(index: u32) -> Option<*mut MethodStats> {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    NPROF_STATS.get_ptr_mut(shard(index, cpu))
}

/// The place of the shard that a CPU writes to, of what is kept for an index.
#[inline(always)]
pub(crate) fn shard(index: u32, cpu: u32) -> u32 {
    // SAFETY: a constant that the loader has set; volatile, or the compiler would take its initial value.
    let mask = unsafe { ptr::read_volatile(&raw const SHARD_MASK) };
    index * (mask + 1) + (cpu & mask)
}

/// The first shard of a method's record, which all CPUs can read.
#[inline(always)]
pub(crate) fn first_shard(index: u32) -> Option<*mut MethodStats> {
    NPROF_STATS.get_ptr_mut(shard(index, 0))
}
