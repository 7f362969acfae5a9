//! The BPF programs of nprof: measure, pair, count. No policy: which methods, which mode and what becomes of the
//! numbers is decided outside.
//!
//! One pair of programs serves all methods of all targets; the attach cookie says which call this is.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch, core_intrinsics)]
#![expect(
    internal_features,
    reason = "core has no atomics for this target; the intrinsics are what they would be made of"
)]

mod alloc;
mod args;
mod atomic;
mod by_thread;
mod call_bytes;
mod calls;
mod clocks;
mod collections;
mod counters;
mod events;
mod frozen;
mod handover;
mod held;
mod jni;
mod locals;
mod look_ups;
mod losses;
mod made;
mod maps;
mod off_cpu;
mod row_waits;
mod rows;
mod shared;
mod slow;
mod stacks;
mod switches;
mod task_storage;
mod threads;
mod thrown;
mod timeline;
mod vm;

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::bpf_task_pt_regs;
use aya_ebpf::helpers::{bpf_get_attach_cookie, bpf_get_current_pid_tgid, bpf_get_current_task_btf, bpf_ktime_get_ns};
use aya_ebpf::macros::{perf_event, raw_tracepoint, uprobe, uretprobe};
use aya_ebpf::programs::{PerfEventContext, ProbeContext, RawTracePointContext, RetProbeContext};
use nprof_common::stack::collect;
use nprof_common::switch::mark;
use nprof_common::{Cookie, Loss, Mode, Pace, StackKind, Switch, ThreadCalls};

/// A native method is entered.
#[uprobe]
fn nprof_enter(ctx: ProbeContext) -> u32 {
    let cookie = cookie(&ctx);
    let Some(index) = record_of_hit(cookie) else { return 0 };
    // SAFETY: the kernel passes the registers of the interrupted thread, valid while the program runs.
    let sp = unsafe { (*ctx.regs).rsp };
    let Some(stats) = maps::stats(index) else {
        losses::lose(Loss::BadIndex, index, sp);
        return 0;
    };
    // SAFETY: the map gave the pointer. Volatile, because user space changes the word at any time.
    let switch = Switch(unsafe { (&raw const (*stats).switch).read_volatile() });
    let mut mode = switch.settled_mode(cookie.lane());
    if mode > Mode::Time as u64 {
        // SAFETY: as above.
        let (ip, r10) = unsafe { ((*ctx.regs).rip, (*ctx.regs).r10) };
        let is_marked = r10 == mark(ip.wrapping_sub(cookie.distance()), sp);
        mode = handover::mode(index, cookie.lane() as u64, sp, is_marked);
    }
    if mode == Mode::Time as u64 {
        // SAFETY: as above.
        unsafe { calls::begin(stats, index, sp, ctx.regs) };
    } else if mode == Mode::Count as u64 {
        calls::count(stats);
        by_thread::add(index, ThreadCalls { counted: 1, ..ThreadCalls::NONE });
        if maps::collects(collect::JNI) {
            // SAFETY: as above.
            unsafe { jni::count(stats, index, ctx.regs) };
        }
    }
    0
}

/// A native method returns. Its mode does not matter any more: what was begun is ended.
#[uretprobe]
fn nprof_return(ctx: RetProbeContext) -> u32 {
    // First of all, so that our own work is not part of the call's time.
    // SAFETY: the helper takes no pointer.
    let now = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the kernel passes the registers of the interrupted thread, valid while the program runs.
    let sp = unsafe { (*ctx.regs).rsp };
    // The return has popped the return address, which the stack pointer at entry pointed at. Nothing else is needed: a
    // thread of another process has no frames, and the frame knows its method.
    // SAFETY: as above.
    unsafe { calls::end(sp.wrapping_sub(8), now, ctx.regs) };
    0
}

/// A native method returns, of which nothing else is seen: it is counted, and how it has ended.
#[uretprobe]
fn nprof_result(ctx: RetProbeContext) -> u32 {
    let cookie = cookie(&ctx);
    if !is_for_hit(cookie) {
        return 0;
    }
    let index = cookie.index();
    // SAFETY: the kernel passes the registers of the interrupted thread, valid while the program runs.
    let sp = unsafe { (*ctx.regs).rsp };
    let Some(stats) = maps::stats(index) else {
        losses::lose(Loss::BadIndex, index, sp);
        return 0;
    };
    // SAFETY: the map gave the pointer. Volatile, because user space changes the word at any time.
    let switch = Switch(unsafe { (&raw const (*stats).switch).read_volatile() });
    let mut mode = switch.settled_mode(cookie.lane());
    if mode > Mode::Time as u64 {
        mode = handover::mode(index, cookie.lane() as u64, sp, false);
    }
    if mode == Mode::Count as u64 {
        calls::count(stats);
        by_thread::add(index, ThreadCalls { counted: 1, ..ThreadCalls::NONE });
        if counters::are_results_wanted() {
            // SAFETY: as above.
            let env = unsafe { counters::env_at_return(ctx.regs) };
            if maps::collects(collect::JNI) {
                thrown::note_pending(index, env);
            }
            // SAFETY: as above.
            unsafe { counters::result(stats, index, env, ctx.regs) };
        }
    }
    0
}

/// A stub of a target has timed a call and chosen it, and is about to return to its caller.
#[uprobe]
fn nprof_chosen(ctx: ProbeContext) -> u32 {
    let cookie = cookie(&ctx);
    if !is_for_hit(cookie) {
        return 0;
    }
    if maps::collects(collect::SLOW) {
        // SAFETY: the kernel passes the registers of the interrupted thread, valid while the program runs.
        unsafe { slow::of_stub_call(cookie.index(), ctx.regs) };
    }
    if maps::collects(collect::RETURNS) {
        // SAFETY: as above.
        unsafe { stacks::of_stub_call(ctx.regs) };
    }
    0
}

/// A thread ends, perhaps one of a target's inside a native method.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn nprof_exit(_ctx: RawTracePointContext) -> i32 {
    // SAFETY: the helper takes no pointer.
    calls::end_all(unsafe { bpf_ktime_get_ns() });
    0
}

/// A timer fires on a CPU.
#[perf_event]
fn nprof_tick(_ctx: PerfEventContext) -> u32 {
    if (bpf_get_current_pid_tgid() >> 32) as u32 != maps::target() {
        return 0;
    }
    let call = calls::innermost();
    if call.is_some() || maps::collects(collect::EVERYWHERE) {
        // SAFETY: the helpers give the registers that the current thread has left user space with.
        unsafe { stacks::of_thread(StackKind::Tick, call, Pace::CERTAIN, user_registers()) };
    }
    0
}

/// Any thread of the host makes a system call.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn nprof_syscall(ctx: RawTracePointContext) -> i32 {
    let (regs, number): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    counters::system_call(regs as *const pt_regs, number);
    0
}

/// A socket has received, or failed to.
#[raw_tracepoint(tracepoint = "sock_recv_length")]
fn nprof_received(ctx: RawTracePointContext) -> i32 {
    counters::received(ctx.arg(1), ctx.arg(2));
    0
}

/// A socket has sent, or failed to.
#[raw_tracepoint(tracepoint = "sock_send_length")]
fn nprof_sent(ctx: RawTracePointContext) -> i32 {
    counters::sent(ctx.arg(1));
    0
}

/// The registers that the current thread has left user space with.
#[inline(always)]
fn user_registers() -> *const pt_regs {
    // SAFETY: the helpers take the current task, which is alive.
    unsafe { bpf_task_pt_regs(bpf_get_current_task_btf().cast()) as *const pt_regs }
}

/// What the probe was attached with.
#[inline(always)]
fn cookie(ctx: &impl EbpfContext) -> Cookie {
    // SAFETY: the helper takes the program's own context.
    Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) })
}

/// The record that a hit is for; `None` if nobody wants it.
#[inline(always)]
fn record_of_hit(cookie: Cookie) -> Option<u32> {
    if cookie.is_shared() {
        return shared::record(cookie.index());
    }
    is_for_hit(cookie).then(|| cookie.index())
}

/// Whether a probe was attached for the process that hits it: uprobes belong to a file, and the kernel's own filter was
/// broken before 6.10.
#[inline(always)]
fn is_for_hit(cookie: Cookie) -> bool {
    maps::is_filtered() || (bpf_get_current_pid_tgid() >> 32) as u32 == cookie.tgid()
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses a program that could reach this.
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
