//! What calls consume besides time: the counters of the thread at a call's beginning, and their difference at its end.
//!
//! Most counters are the kernel's own, fields of its `task_struct` that are read where the loader says they are. The others
//! are fed by programs at system calls and sockets. What is not wanted is no code: the verifier knows the constants.

use core::ptr;

use aya_ebpf::bindings::{BPF_F_MMAPABLE, pt_regs, task_struct};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_get_smp_processor_id, bpf_probe_read_kernel};
use aya_ebpf::macros::btf_map;
use nprof_common::stats::RETURNS_SHIFT;
use nprof_common::{
    Consumed, Counter, Frame, Loss, MethodStats, Returns, THREAD_COUNTERS, ThreadCounters, ThreadCounts,
};

use crate::task_storage::TaskStorage;
use crate::{atomic, call_bytes, losses, maps, vm};

/// The counters of each thread that has made a traced call. The kernel frees them with the thread.
#[btf_map]
static NPROF_COUNTERS: TaskStorage<ThreadCounters> = TaskStorage::new();

/// What the calls of each function have consumed, sharded like the records.
#[btf_map]
static NPROF_CONSUMED: Array<Consumed, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Which counters are wanted: bits of [`Counter`].
#[unsafe(no_mangle)]
static COUNTED: u32 = 0;

/// Where the kernel keeps them in a `task_struct`, in bytes; 0 of those that programs count.
#[unsafe(no_mangle)]
static TASK_OFFSETS: [u32; THREAD_COUNTERS] = [0; THREAD_COUNTERS];

/// From a `JNIEnv` to where its thread keeps the exception that is pending, in bytes; 0 if that is not known.
#[unsafe(no_mangle)]
static PENDING_FROM_ENV: i64 = 0;

/// From a `JavaThread` to its `JNIEnv`, and the word that stands there in each thread; zeros if that is not known.
#[unsafe(no_mangle)]
static JNI_ENV: [u64; 2] = [0; 2];

/// The counters of threads.
const OF_THREADS: u32 = (1 << THREAD_COUNTERS) - 1;

/// The system calls by which the kernel's own uprobes return: what tracing makes, and not the traced.
const UPROBE_CALLS: [u64; 2] = [335, 336];
/// `futex`, and those of its operations that wait.
const FUTEX: u64 = 202;
const FUTEX_COMMAND: u64 = 0x7f;
const FUTEX_WAITS: [u64; 5] = [0, 6, 9, 11, 13];
/// `futex_wait`, the same as a call of its own.
const FUTEX_WAIT: u64 = 455;
/// `mmap`, which is told a length second, and `mremap`, which is told the old one second and the new one third.
const MMAP: u64 = 9;
const MREMAP: u64 = 25;
/// The flag of a receiver that leaves what it has received.
const MSG_PEEK: u64 = 2;

/// Whether any counter of threads is wanted.
#[inline(always)]
pub(crate) fn are_wanted() -> bool {
    counted() & OF_THREADS != 0
}

/// Whether it is wanted how calls end.
#[inline(always)]
pub(crate) fn are_results_wanted() -> bool {
    counted() & !OF_THREADS != 0
}

/// Counts how a call has ended: with an exception pending, or else by what it has returned.
///
/// # Safety
/// `stats` is of a map and `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn result(stats: *const MethodStats, index: u32, env: u64, regs: *const pt_regs) {
    if is_pending(env) {
        return ended(index, Counter::Exceptions);
    }
    // SAFETY: the caller's promise.
    let (returns, register) = unsafe { ((*stats).brief >> RETURNS_SHIFT, (*regs).rax) };
    let (is_zero, is_negative) = Returns::zero_or_less(returns, register);
    if is_zero {
        ended(index, Counter::ZeroResults);
    }
    if is_negative {
        ended(index, Counter::NegativeResults);
    }
}

/// The `JNIEnv` of the thread that a native method has just returned in; 0 if that is not known. Code of the VM keeps its
/// `JavaThread` in `r15`, which natives preserve; what else may be there does not have the VM's table of functions in the place.
///
/// # Safety
/// `regs` are those of the current thread in user space.
#[inline(always)]
pub(crate) unsafe fn env_at_return(regs: *const pt_regs) -> u64 {
    // SAFETY: a constant that the loader has set; volatile, or the compiler would take its initial value.
    let [offset, table] = unsafe { ptr::read_volatile(&raw const JNI_ENV) };
    // SAFETY: the caller's promise.
    let env = unsafe { (*regs).r15 }.wrapping_add(offset);
    if table != 0 && vm::word(env) == Some(table) { env } else { 0 }
}

/// Whether an exception is pending in the thread of a `JNIEnv`.
#[inline(always)]
pub(crate) fn is_pending(env: u64) -> bool {
    let place = pending_place(env);
    place != 0 && vm::word(place).is_some_and(|exception| exception != 0)
}

/// Where the exception is kept that is pending in the thread of a `JNIEnv`; 0 if that is not known.
#[inline(always)]
fn pending_place(env: u64) -> u64 {
    // SAFETY: a constant that the loader has set; volatile, or the compiler would take its initial value.
    let pending = unsafe { ptr::read_volatile(&raw const PENDING_FROM_ENV) };
    if pending == 0 || env == 0 { 0 } else { env.wrapping_add_signed(pending) }
}

/// Counts a call that has ended in this way.
#[inline(always)]
fn ended(index: u32, how: Counter) {
    let Some(consumed) = consumed(index) else { return };
    // SAFETY: the map gave the pointer, and the place is one of the array's.
    add(unsafe { &raw mut (*consumed).total[how as usize] }, 1);
    // SAFETY: as above.
    add(unsafe { &raw mut (*consumed).own[how as usize] }, 1);
}

/// Notes the counters at the beginning of a call, which has this depth and stack pointer.
#[inline(always)]
pub(crate) fn begin(depth: u32, index: u32, sp: u64) {
    let Some(counters) = NPROF_COUNTERS.of_current_or_new() else { return losses::lose(Loss::NoCounters, index, sp) };
    // SAFETY: the map gave the pointer; only the thread itself comes here, and one program of it at a time.
    let ThreadCounters { fed, open } = unsafe { &mut *counters };
    let Some(open) = open.get_mut(depth as usize) else { return losses::lose(Loss::NoCounters, index, sp) };
    open.sp = sp;
    each(|counter| {
        open.of_children[counter] = 0;
        open.at_entry[counter] = read(counter, fed);
    });
}

/// Adds what a call that ends has consumed to its function, and to the call that made it. `depth` is the call's own.
#[inline(always)]
pub(crate) fn end(depth: u32, call: Frame) {
    let Some(counters) = NPROF_COUNTERS.of_current() else { return };
    // SAFETY: as in `begin`.
    let ThreadCounters { fed, open } = unsafe { &mut *counters };
    let Some(own) = open.get(depth as usize).copied().filter(|own| own.sp == call.sp) else { return };
    let Some(consumed) = consumed(call.index) else { return };
    let mut total = [0; THREAD_COUNTERS];
    each(|counter| {
        total[counter] = read(counter, fed).saturating_sub(own.at_entry[counter]);
        // SAFETY: the map gave the pointer.
        add(unsafe { &raw mut (*consumed).total[counter] }, total[counter]);
        call_bytes::add(call.index, counter, total[counter]);
        // SAFETY: as above.
        add(unsafe { &raw mut (*consumed).own[counter] }, total[counter].saturating_sub(own.of_children[counter]));
    });
    if let Some(parent) = open.get_mut((depth as usize).wrapping_sub(1)) {
        each(|counter| parent.of_children[counter] += total[counter]);
    }
}

/// What the call of this depth and stack pointer has consumed until now, with nested ones. Returns whether that is known.
///
/// # Safety
/// There is room for it at `into`.
#[inline(always)]
pub(crate) unsafe fn since_begin(depth: u32, sp: u64, into: *mut ThreadCounts) -> bool {
    let Some(counters) = NPROF_COUNTERS.of_current() else { return false };
    // SAFETY: as in `begin`.
    let ThreadCounters { fed, open } = unsafe { &*counters };
    let Some(own) = open.get(depth as usize).filter(|own| own.sp == sp) else { return false };
    each(|counter| {
        let consumed = read(counter, fed).saturating_sub(own.at_entry[counter]);
        // SAFETY: the caller's promise, and the place is one of the array's.
        unsafe { (*into)[counter] = consumed };
    });
    true
}

/// The current thread makes a system call.
#[inline(always)]
pub(crate) fn system_call(regs: *const pt_regs, number: u64) {
    if is_uprobes_own(number) {
        return;
    }
    let Some(counters) = NPROF_COUNTERS.of_current() else { return };
    feed(counters, Counter::Syscalls, 1);
    if wants(Counter::LockWaits) && waits_for_lock(regs, number) {
        feed(counters, Counter::LockWaits, 1);
    }
    if wants(Counter::MappedBytes) {
        feed(counters, Counter::MappedBytes, mapped_by(regs, number));
    }
}

/// How many bytes of address space a system call asks for that were not there before.
#[inline(always)]
pub(crate) fn mapped_by(regs: *const pt_regs, number: u64) -> u64 {
    // SAFETY: the kernel gives the registers of the call, and the helper checks the address.
    let second = || unsafe { bpf_probe_read_kernel(&raw const (*regs).rsi) }.unwrap_or(0);
    // SAFETY: as above.
    let third = || unsafe { bpf_probe_read_kernel(&raw const (*regs).rdx) }.unwrap_or(0);
    match number {
        MMAP => second(),
        MREMAP => third().saturating_sub(second()),
        _ => 0,
    }
}

/// The current thread asks an allocator for so many bytes.
#[inline(always)]
pub(crate) fn asked_for(bytes: u64) {
    if let Some(counters) = NPROF_COUNTERS.of_current() {
        feed(counters, Counter::AllocBytes, bytes);
        feed(counters, Counter::Allocations, 1);
    }
}

/// Whether a system call is one by which the kernel's own uprobes return.
#[inline(always)]
pub(crate) fn is_uprobes_own(number: u64) -> bool {
    UPROBE_CALLS.contains(&number)
}

/// The current thread has received so many bytes from a socket, or has failed to.
#[inline(always)]
pub(crate) fn received(bytes: u64, flags: u64) {
    if flags & MSG_PEEK == 0 {
        transferred(Counter::ReceivedBytes, bytes);
    }
}

/// The current thread has sent so many bytes to a socket, or has failed to.
#[inline(always)]
pub(crate) fn sent(bytes: u64) {
    transferred(Counter::SentBytes, bytes);
}

#[inline(always)]
fn transferred(counter: Counter, bytes: u64) {
    let bytes = bytes as i32;
    if bytes > 0
        && let Some(counters) = NPROF_COUNTERS.of_current()
    {
        feed(counters, counter, bytes as u64);
    }
}

/// Adds to what programs count of the current thread. No other thread does.
#[inline(always)]
fn feed(counters: *mut ThreadCounters, counter: Counter, more: u64) {
    // SAFETY: the map gave the pointer, and the place is one of the array's.
    let fed = unsafe { &raw mut (*counters).fed[counter as usize] };
    // SAFETY: as above.
    unsafe { fed.write(fed.read().wrapping_add(more)) };
}

/// Whether a system call waits for a lock of user space.
#[inline(always)]
pub(crate) fn waits_for_lock(regs: *const pt_regs, number: u64) -> bool {
    if number == FUTEX_WAIT {
        return true;
    }
    // SAFETY: the kernel gives the registers of the call, and the helper checks the address.
    let operation = || unsafe { bpf_probe_read_kernel(&raw const (*regs).rsi) };
    number == FUTEX && operation().is_ok_and(|operation| FUTEX_WAITS.contains(&(operation & FUTEX_COMMAND)))
}

/// Does something for each counter that is wanted.
#[inline(always)]
pub(crate) fn each(mut work: impl FnMut(usize)) {
    // One by one, so that the compiler knows each number: the code of what is not wanted can be taken out.
    macro_rules! each_of {
        ($($counter:literal)*) => { $(if counted() & (1 << $counter) != 0 { work($counter); })* };
    }
    each_of!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
}

const _: () = assert!(THREAD_COUNTERS == 15, "`each` has one arm for each counter");

/// What a counter of the current thread stands at.
#[inline(always)]
fn read(counter: usize, fed: &ThreadCounts) -> u64 {
    if task_offset(counter) == 0 {
        return fed[counter];
    }
    // SAFETY: the helper takes no pointer, and the current task is alive.
    unsafe { of_task(bpf_get_current_task_btf().cast(), counter) }.unwrap_or(0)
}

/// What the kernel itself has counted of a thread; `None` where it does not count.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn of_task(task: *mut task_struct, counter: usize) -> Option<u64> {
    let offset = task_offset(counter);
    if offset == 0 {
        return None;
    }
    // SAFETY: the caller's promise; the loader has read from the kernel's types that a word of 8 bytes lies there, and the
    // verifier looks whether that is so. Volatile, because the kernel goes on counting.
    Some(unsafe { task.cast::<u8>().add(offset as usize).cast::<u64>().read_volatile() })
}

#[inline(always)]
fn add(counter: *mut u64, value: u64) {
    if value != 0 {
        // SAFETY: `end` passes places in a map value.
        unsafe { atomic::add(counter, value) };
    }
}

#[inline(always)]
pub(crate) fn wants(counter: Counter) -> bool {
    counted() & counter.bit() != 0
}

#[inline(always)]
fn counted() -> u32 {
    // SAFETY: a constant that the loader has set; volatile, or the compiler would take its initial value.
    unsafe { ptr::read_volatile(&raw const COUNTED) }
}

#[inline(always)]
fn task_offset(counter: usize) -> u32 {
    // SAFETY: as above, and the place is one of the array's.
    unsafe { ptr::read_volatile(&raw const TASK_OFFSETS[counter]) }
}

/// The shard of what a function's calls have consumed that this CPU writes to.
#[inline(always)]
fn consumed(index: u32) -> Option<*mut Consumed> {
    // SAFETY: the helper takes no pointer.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    NPROF_CONSUMED.get_ptr_mut(maps::shard(index, cpu))
}
