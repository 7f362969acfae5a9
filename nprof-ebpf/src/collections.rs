//! How long garbage collections wait for the end of critical sections, by what the VM's own functions do ([`LockerRole`]).
//!
//! A wait is one during which a section ended: it is charged to the native method that held the one that ended last.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::btf_maps::{Array, HashMap};
use aya_ebpf::helpers::{bpf_get_attach_cookie, bpf_ktime_get_ns};
use aya_ebpf::macros::{btf_map, uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use nprof_common::jni::{NO_CALLER, of_pair, pair};
use nprof_common::stack::collect;
use nprof_common::{Cookie, LockerRole};

use crate::{is_for_hit, jni, maps, threads};

/// What is known of the one JVM.
#[repr(C)]
struct Locker {
    /// Since when a collection is due that could not begin; 0 if none is.
    due_ns: u64,
    /// When a collection that others have to wait for has ended last.
    unblocked_ns: u64,
    /// When a critical section has ended last, and the [`pair`] of the native method that held it and the thread.
    section_ns: u64,
    section: u64,
}

/// It.
#[btf_map]
static NPROF_LOCKER: Array<Locker, 1, 0> = Array::new();

/// Since when threads want to begin a collection, by thread.
#[btf_map]
static NPROF_BLOCKS: HashMap<u32, u64, 1> = HashMap::new();

const BLOCKS: u32 = LockerRole::Blocks as u32;
const UNBLOCKS: u32 = LockerRole::Unblocks as u32;
const CHECKS: u32 = LockerRole::Checks as u32;
const CLEARED: u32 = LockerRole::Cleared as u32;

/// One of the VM's functions is entered.
#[uprobe]
fn nprof_lock(ctx: ProbeContext) -> u32 {
    // SAFETY: the helper takes the program's own context.
    let cookie = Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    if !is_for_hit(cookie) {
        return 0;
    }
    // SAFETY: the helper takes no pointer.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let tid = threads::current_tid();
    let Some(locker) = locker() else { return 0 };
    match cookie.index() {
        BLOCKS => _ = NPROF_BLOCKS.insert(tid, now_ns, u64::from(BPF_ANY)),
        UNBLOCKS => locker.unblocked_ns = now_ns,
        CLEARED => {
            let since_ns = locker.due_ns;
            locker.due_ns = 0;
            if since_ns != 0 {
                let (caller, by) = of_pair(locker.section);
                // It is the thread itself whose section was the last.
                jni::waited(if by == tid { caller } else { NO_CALLER }, now_ns.saturating_sub(since_ns));
            }
        }
        _ => {}
    }
    0
}

/// One of them returns.
#[uretprobe]
fn nprof_lock_ret(ctx: RetProbeContext) -> u32 {
    // SAFETY: the helper takes the program's own context.
    let cookie = Cookie(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    if !is_for_hit(cookie) {
        return 0;
    }
    // SAFETY: the helper takes no pointer.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    let Some(locker) = locker() else { return 0 };
    match cookie.index() {
        BLOCKS => blocked(locker, now_ns),
        CHECKS => {
            // SAFETY: the kernel passes the registers of the interrupted thread, valid while the program runs.
            let is_held = unsafe { (*ctx.regs).rax } & 0xff != 0;
            if !is_held {
                locker.due_ns = 0;
            } else if locker.due_ns == 0 {
                locker.due_ns = now_ns;
            }
        }
        _ => {}
    }
    0
}

/// A thread may begin a collection from now on. It has waited for one that another had begun, or for critical sections, or for nothing.
#[inline(always)]
fn blocked(locker: &Locker, now_ns: u64) {
    let tid = threads::current_tid();
    // SAFETY: nobody else takes away what this thread has put there.
    let Some(since_ns) = (unsafe { NPROF_BLOCKS.get(tid) }).copied() else { return };
    _ = NPROF_BLOCKS.remove(tid);
    let since_ns = if since_ns > locker.unblocked_ns { since_ns } else { locker.unblocked_ns };
    if locker.section_ns >= since_ns {
        let (caller, _) = of_pair(locker.section);
        jni::waited(caller, now_ns.saturating_sub(since_ns));
    }
}

/// The current thread ends a critical section that a native method has begun, or nobody knows who.
#[inline(always)]
pub(crate) fn section_ends(caller: u32, now_ns: u64) {
    if !maps::collects(collect::COLLECTIONS) {
        return;
    }
    if let Some(locker) = locker() {
        locker.section = pair(caller, threads::current_tid());
        locker.section_ns = now_ns;
    }
}

#[inline(always)]
fn locker() -> Option<&'static mut Locker> {
    // SAFETY: the map gave the pointer. Others may write each of the words meanwhile, which are whole.
    NPROF_LOCKER.get_ptr_mut(0).map(|locker| unsafe { &mut *locker })
}
