//! What threads ask allocators for: `malloc` and its kin in the target's own memory, as far as they ask for any.
//!
//! Some of an allocator's functions do their work by another of them. That is one request and not two: who is called from within
//! the allocator's code is part of another one's work, and so is who is jumped to with the same stack.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::bpf_get_attach_cookie;
use aya_ebpf::macros::{btf_map, uprobe};
use aya_ebpf::programs::ProbeContext;
use nprof_common::alloc::{ASKED, AllocCookie, Request};

use crate::{calls, counters, maps, rows, threads, vm};

/// The last request of a thread.
#[derive(Clone, Copy)]
#[repr(C)]
struct Asked {
    tid: u32,
    rank: u32,
    /// The stack pointer at its entry, and where it returns to.
    sp: u64,
    back: u64,
}

/// The last requests, by the lower bits of the thread's number.
#[btf_map]
static NPROF_ASKED: Array<Asked, { ASKED as usize }, 0> = Array::new();

/// A function of an allocator is entered.
#[uprobe]
fn nprof_alloc(ctx: ProbeContext) -> u32 {
    // SAFETY: the helper takes the program's own context.
    let cookie = AllocCookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    // Whatever it is, it has cost the target a trap.
    if let Some(stats) = maps::stats(cookie.index()) {
        calls::count(stats);
    }
    // SAFETY: the kernel passes the registers of the interrupted thread, valid while the program runs.
    let regs = unsafe { &*ctx.regs };
    let asked =
        Asked { tid: threads::current_tid(), rank: cookie.rank(), sp: regs.rsp, back: vm::word(regs.rsp).unwrap_or(0) };
    if cookie.is_own_code(regs.rip, asked.back) || is_jumped_to(asked) {
        return 0;
    }
    let bytes = Request::bytes(cookie.request(), [regs.rdi, regs.rsi, regs.rdx]);
    counters::asked_for(bytes);
    rows::asked_for(bytes);
    0
}

/// Whether a function that does its work by this one has just jumped here.
#[inline(always)]
fn is_jumped_to(asked: Asked) -> bool {
    let Some(last) = NPROF_ASKED.get_ptr_mut(asked.tid & (ASKED - 1)) else { return false };
    // SAFETY: the map gave the pointer. Another thread of the same place may write meanwhile; then nothing is equal.
    let before = unsafe { last.read() };
    // SAFETY: as above.
    unsafe { last.write(asked) };
    before.tid == asked.tid && before.sp == asked.sp && before.back == asked.back && before.rank > asked.rank
}
