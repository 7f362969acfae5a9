//! A CPU switches from one thread to another: whoever measures how long threads do not run is told.
//!
//! All threads of the host pass here, and nearly all of them are of no interest. One word that stays in the cache says so of most
//! processes: for those not even the clock is read.

use aya_ebpf::bindings::task_struct;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::macros::{btf_map, btf_tracepoint};
use aya_ebpf::programs::BtfTracePointContext;
use nprof_common::rows::ThreadRow;
use nprof_common::stack::collect;
use nprof_common::{OffCpu, StackKind};

use crate::{atomic, calls, clocks, maps, off_cpu, rows, slow, stacks, threads, user_registers};

/// How many processes have a bit of their own; a power of two. Those that share one are looked at more closely.
const PROCESSES: u32 = 4096;

/// The bits of processes with threads of interest. They stay when such a process ends: another gets its number late, if ever.
#[btf_map]
static NPROF_SWITCHED: Array<u64, { (PROCESSES / 64) as usize }, 0> = Array::new();

/// The current thread is of interest at switches from now on.
#[inline(always)]
pub(crate) fn watch_current() {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    if let Some(word) = NPROF_SWITCHED.get_ptr_mut(word_of(tgid))
        // SAFETY: the map gave the pointer. Volatile, because others set bits.
        && unsafe { word.read_volatile() } & bit_of(tgid) == 0
    {
        // SAFETY: the map gave the pointer.
        unsafe { atomic::set(word, bit_of(tgid)) };
    }
}

/// Whether a thread may be of interest: nearly none is.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
unsafe fn is_watched(task: *mut task_struct) -> bool {
    // SAFETY: the caller's promise.
    let Some(tgid) = (unsafe { threads::tgid_of(task) }) else { return true };
    let Some(word) = NPROF_SWITCHED.get_ptr(word_of(tgid)) else { return true };
    // SAFETY: the map gave the pointer. Volatile, because others set bits.
    unsafe { word.read_volatile() & bit_of(tgid) != 0 }
}

#[inline(always)]
fn word_of(tgid: u32) -> u32 {
    (tgid & (PROCESSES - 1)) / 64
}

#[inline(always)]
fn bit_of(tgid: u32) -> u64 {
    1 << (tgid & 63)
}

/// A CPU switches from one thread to another.
#[btf_tracepoint(function = "sched_switch")]
fn nprof_switch(ctx: BtfTracePointContext) -> i32 {
    let (from, to): (*mut task_struct, *mut task_struct) = (ctx.arg(1), ctx.arg(2));
    // SAFETY: the kernel gives both tasks, and `from` is the current one.
    unsafe {
        clocks::learn(from, to);
        if is_watched(from) {
            stop(from);
        }
        if is_watched(to) {
            resume(to);
        }
    }
    0
}

/// # Safety
/// `task` is the current task, which stops running.
#[inline(always)]
unsafe fn stop(task: *mut task_struct) {
    // SAFETY: the caller's promise.
    let (away, row) = unsafe { of(task) };
    if away.is_none() && row.is_none() {
        return;
    }
    // SAFETY: the helper takes no pointer.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the caller's promise, and maps gave both.
    unsafe {
        if let Some(row) = row {
            rows::stop(row, task, now_ns);
        }
        if let Some(away) = away {
            off_cpu::stop(away, task, now_ns);
            if maps::collects(collect::INSIDE)
                && let Some(call) = calls::innermost()
            {
                take_stack(call, away);
            }
        }
    }
}

/// Takes the stack of the current thread, which stops inside a call, if chance picks it.
#[inline(always)]
fn take_stack(call: stacks::Open, away: *mut OffCpu) {
    let probability = stacks::stop_probability();
    // SAFETY: the thread that stops is still the current one.
    if probability != 0 && unsafe { stacks::of_thread(StackKind::Stop, Some(call), probability, user_registers()) } {
        off_cpu::mark_taken(away);
    }
}

/// # Safety
/// `task` is live, and the next to run on this CPU.
#[inline(always)]
unsafe fn resume(task: *mut task_struct) {
    // SAFETY: the caller's promise.
    let (away, row) = unsafe { of(task) };
    if away.is_none() && row.is_none() {
        return;
    }
    // SAFETY: the helper takes no pointer.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the caller's promise, and maps gave both.
    unsafe {
        if let Some(row) = row {
            rows::resume(row, task, now_ns);
        }
        if let Some(away) = away
            && let Some(back) = off_cpu::resume(away, now_ns)
        {
            if maps::collects(collect::SLOW) {
                slow::note_wait(task, back.away_ns, true);
            }
            if back.was_taken {
                stacks::resumed(back.tid, now_ns, back.away_ns);
            }
        }
    }
}

/// What is known of a thread: for its calls with probes, and for those with stubs.
/// Callers look themselves whether there is either: behind one more function the verifier does not see which is.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
unsafe fn of(task: *mut task_struct) -> (Option<*mut OffCpu>, Option<*mut ThreadRow>) {
    // SAFETY: the caller's promise.
    unsafe {
        let away = if maps::collects(collect::OFF_CPU) { off_cpu::of(task) } else { None };
        let row = if maps::collects(collect::ROWS) { rows::of_task(task) } else { None };
        (away, row)
    }
}
