//! What each thread uses that makes calls with stubs, in rows that its process maps and only reads: each JVM has its own map.
//!
//! A stub reads the thread's row at a call's beginning and at its end, without the kernel. So everything in a row is written
//! by the thread's own way through the kernel: where it is switched, where it returns from a page fault or a system call. What
//! the kernel counts itself is copied from its `task_struct` where it may have changed, and is exactly that.

use core::intrinsics::{AtomicOrdering, atomic_cxchg};

use aya_ebpf::bindings::{BPF_F_INNER_MAP, BPF_F_MMAPABLE, pt_regs, task_struct};
use aya_ebpf::btf_maps::{Array, ArrayOfMaps};
use aya_ebpf::helpers::bpf_get_current_task_btf;
use aya_ebpf::macros::{btf_map, perf_event, raw_tracepoint, uprobe};
use aya_ebpf::programs::{PerfEventContext, ProbeContext, RawTracePointContext};
use nprof_common::rows::{
    BUCKET_ROWS, JVMS, JvmRows, LEAST_ROWS, OWNER_PLACES, OWNERS, RowOwners, RowPlace, ThreadRow, Used, bucket_of,
};
use nprof_common::{Counter, Loss};

use crate::{clocks, cookie, counters, losses, row_waits, switches, threads};

/// The rows of one JVM. There are as many as user space wants, who freezes the map: nobody but these programs writes to it.
type Rows = Array<ThreadRow, { LEAST_ROWS as usize }, { (BPF_F_MMAPABLE | BPF_F_INNER_MAP) as usize }>;

/// Those of all JVMs, each by its number. The loader sets the size, of this and the next: one entry where there are to be no rows.
#[btf_map]
static NPROF_ROWS: ArrayOfMaps<Rows, { JVMS as usize }, 0> = ArrayOfMaps::new();

/// Whose they are, by thread number. User space reads which JVMs' rows have owners.
#[btf_map]
static NPROF_OWNERS: Array<RowOwners, { OWNER_PLACES as usize }, { BPF_F_MMAPABLE as usize }> = Array::new();

/// What changes when a thread is switched.
const BY_SWITCH: u32 = Counter::VoluntarySwitches.bit() | Counter::InvoluntarySwitches.bit();
/// What changes by a page fault: also what storage had to do.
const BY_FAULT: u32 = Counter::MinorFaults.bit()
    | Counter::MajorFaults.bit()
    | Counter::DiskReadBytes.bit()
    | Counter::DiskWrittenBytes.bit();
/// What changes by a system call. Pages that one brings in by itself (`MAP_POPULATE`) are faults, too, which nothing else tells.
const BY_SYSCALL: u32 = Counter::ReadBytes.bit() | Counter::WrittenBytes.bit() | BY_FAULT;
/// The flag of a receiver that leaves what it has received.
const MSG_PEEK: u64 = 2;

/// A thread of a target has found no row, and gets one; or that it is not running, by its row, which is put right.
#[uprobe]
fn nprof_row(ctx: ProbeContext) -> u32 {
    // SAFETY: the kernel passes the registers of the interrupted thread, valid while the program runs.
    let (key, sp) = unsafe { ((*ctx.regs).rax, (*ctx.regs).rsp) };
    let (tid, of) = (threads::current_tid(), JvmRows::of(cookie(&ctx)));
    if let Some(place) = place_of(tid)
        && place.jvm() == of.jvm
        && let Some(row) = row_at(place)
        // SAFETY: the map gave the pointer.
        && unsafe { (*row).key } == key
    {
        // It may have been put right since: at a switch between the look and here.
        // SAFETY: as above; the current task is alive.
        unsafe {
            if (*row).since_ns != 0 {
                catch_up(row, bpf_get_current_task_btf().cast());
            }
        }
        return 0;
    }
    release(tid);
    if key == 0 || !assign(tid, key, of) {
        losses::lose(Loss::NoCounters, 0, sp);
    }
    0
}

/// A thread ends: its row is the next one's.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn nprof_row_end(_ctx: RawTracePointContext) -> i32 {
    release(threads::current_tid());
    row_waits::leave(threads::current_tid());
    0
}

/// A page fault has been dealt with, and counted by the kernel.
#[perf_event]
fn nprof_row_fault(_ctx: PerfEventContext) -> u32 {
    refresh_current(BY_FAULT);
    0
}

/// A system call returns.
#[raw_tracepoint(tracepoint = "sys_exit")]
fn nprof_row_back(_ctx: RawTracePointContext) -> i32 {
    refresh_current(BY_SYSCALL);
    0
}

/// A system call begins.
#[raw_tracepoint(tracepoint = "sys_enter")]
fn nprof_row_call(ctx: RawTracePointContext) -> i32 {
    let (regs, number): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    if counters::is_uprobes_own(number) {
        return 0;
    }
    let Some(row) = row_of(threads::current_tid()) else { return 0 };
    feed(row, Counter::Syscalls, 1);
    if counters::wants(Counter::LockWaits) && counters::waits_for_lock(regs as *const pt_regs, number) {
        feed(row, Counter::LockWaits, 1);
    }
    if counters::wants(Counter::MappedBytes) {
        feed(row, Counter::MappedBytes, counters::mapped_by(regs as *const pt_regs, number));
    }
    0
}

/// A socket has received, or failed to.
#[raw_tracepoint(tracepoint = "sock_recv_length")]
fn nprof_row_recv(ctx: RawTracePointContext) -> i32 {
    let flags: u64 = ctx.arg(2);
    if flags & MSG_PEEK == 0 {
        transferred(Counter::ReceivedBytes, ctx.arg(1));
    }
    0
}

/// A socket has sent, or failed to.
#[raw_tracepoint(tracepoint = "sock_send_length")]
fn nprof_row_sent(ctx: RawTracePointContext) -> i32 {
    transferred(Counter::SentBytes, ctx.arg(1));
    0
}

/// The current thread asks an allocator for so many bytes.
#[inline(always)]
pub(crate) fn asked_for(bytes: u64) {
    if let Some(row) = row_of(threads::current_tid()) {
        feed(row, Counter::AllocBytes, bytes);
        feed(row, Counter::Allocations, 1);
    }
}

/// The row of a thread, if it has one.
#[inline(always)]
fn row_of(tid: u32) -> Option<*mut ThreadRow> {
    row_at(place_of(tid)?)
}

/// Where the row of a thread is, if it has one.
#[inline(always)]
fn place_of(tid: u32) -> Option<RowPlace> {
    let owners = NPROF_OWNERS.get_ptr_mut(tid & (OWNER_PLACES - 1))?;
    for place in 0..OWNERS {
        // SAFETY: the map gave the pointer, and the place is one of its own. Volatile, because other threads come and go.
        if unsafe { (&raw const (*owners).tids[place]).read_volatile() } == tid {
            // SAFETY: as above.
            return Some(unsafe { (&raw const (*owners).rows[place]).read_volatile() });
        }
    }
    None
}

/// The row at a place; `None` if there is none, or the JVM's rows are not kept any more.
#[inline(always)]
fn row_at(place: RowPlace) -> Option<*mut ThreadRow> {
    NPROF_ROWS.get_value_ptr_mut(place.jvm(), &place.row())
}

/// The same of any thread; `None` also of the one that idles a CPU.
///
/// # Safety
/// `task` is a live task that the kernel has given.
#[inline(always)]
pub(crate) unsafe fn of_task(task: *mut task_struct) -> Option<*mut ThreadRow> {
    // SAFETY: the caller's promise.
    let tid = unsafe { threads::tid_of(task) };
    if tid == 0 { None } else { row_of(tid) }
}

/// Gives a thread a row that nobody has. `false` if there is none in its bucket, or no place to note it.
#[inline(always)]
fn assign(tid: u32, key: u64, of: JvmRows) -> bool {
    let Some(rows) = NPROF_ROWS.get(of.jvm) else { return false };
    let first = bucket_of(key, of.buckets) * BUCKET_ROWS;
    for place in 0..BUCKET_ROWS {
        let Some(row) = rows.get_ptr_mut(first + place) else { return false };
        // SAFETY: the map gave the pointer; threads of one bucket may all try.
        if unsafe { claim(&raw mut (*row).key, key) } {
            // SAFETY: the map gave the pointer, and only this thread has it.
            unsafe {
                (&raw mut (*row).used).write(Used { off_ns: 0, counters: [0; nprof_common::THREAD_COUNTERS] });
            }
            // SAFETY: as above.
            unsafe { ((*row).back_ns, (*row).ahead_ns) = (0, 0) };
            // SAFETY: as above.
            unsafe { (&raw mut (*row).since_ns).write_volatile(0) };
            // SAFETY: the helper takes no pointer, and the current task is alive.
            refresh(row, unsafe { bpf_get_current_task_btf() }.cast(), u32::MAX);
            switches::watch_current();
            let is_noted = note(tid, RowPlace::new(of.jvm, first + place));
            if !is_noted {
                // SAFETY: as above.
                unsafe { (&raw mut (*row).key).write_volatile(0) };
            }
            return is_noted;
        }
    }
    false
}

/// Notes whose row it is. The number of the thread comes last: by it the row is found.
#[inline(always)]
fn note(tid: u32, row: RowPlace) -> bool {
    let Some(owners) = NPROF_OWNERS.get_ptr_mut(tid & (OWNER_PLACES - 1)) else { return false };
    for place in 0..OWNERS {
        // SAFETY: the map gave the pointer, and the place is one of its own.
        let rows = unsafe { (&raw mut (*owners).rows[place]).cast() };
        // SAFETY: as above; threads of several numbers may all try.
        let (_, is_taken) =
            unsafe { atomic_cxchg::<u32, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(rows, 0, row.0) };
        if is_taken {
            // SAFETY: as above; nobody else writes it now.
            unsafe { (&raw mut (*owners).tids[place]).write_volatile(tid) };
            return true;
        }
    }
    false
}

/// Gives a thread's row to the next that wants one.
#[inline(always)]
fn release(tid: u32) {
    let Some(owners) = NPROF_OWNERS.get_ptr_mut(tid & (OWNER_PLACES - 1)) else { return };
    for place in 0..OWNERS {
        // SAFETY: the map gave the pointer, and the place is one of its own.
        let (tids, rows) = unsafe { (&raw mut (*owners).tids[place], &raw mut (*owners).rows[place]) };
        // SAFETY: as above; only the thread itself comes here.
        if unsafe { tids.read_volatile() } == tid {
            // SAFETY: as above.
            let row = unsafe { rows.read_volatile() };
            // SAFETY: as above.
            unsafe { tids.write_volatile(0) };
            if let Some(row) = row_at(row) {
                // SAFETY: the map gave the pointer.
                unsafe { (&raw mut (*row).key).write_volatile(0) };
            }
            // SAFETY: as above. Last, for whoever takes the place.
            unsafe { rows.write_volatile(RowPlace::NONE) };
        }
    }
}

/// # Safety
/// `key` is in a row.
#[inline(always)]
unsafe fn claim(key: *mut u64, value: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(key, 0, value) }.1
}

/// A thread stops running.
///
/// # Safety
/// `row` is in a map, and `task` its thread, which is the current one.
#[inline(always)]
pub(crate) unsafe fn stop(row: *mut ThreadRow, task: *mut task_struct, now_ns: u64) {
    // SAFETY: the caller's promise; the thread is switched by one CPU at a time.
    unsafe {
        if (&raw const (*row).since_ns).read_volatile() != 0 {
            catch_up(row, task);
        } else if (*row).back_ns != 0 {
            (*row).ahead_ns = clocks::compare(task, (*row).back_ns, (*row).ahead_ns);
        }
        (&raw mut (*row).since_ns).write_volatile(now_ns);
    }
    refresh(row, task, BY_SWITCH);
}

/// A thread that runs was not seen to run again ([`clocks`]).
///
/// # Safety
/// `row` is in a map, and `task` its thread, which is the current one.
#[inline(always)]
unsafe fn catch_up(row: *mut ThreadRow, task: *mut task_struct) {
    // SAFETY: the caller's promise.
    unsafe {
        match clocks::away_ns(task, (*row).since_ns, (*row).ahead_ns) {
            Some(away_ns) => {
                add_off(row, away_ns);
                row_waits::note(task, (*row).used.off_ns, away_ns, false);
            }
            None => losses::lose(Loss::NoOffCpu, 0, 0),
        }
        (*row).back_ns = 0;
        (&raw mut (*row).since_ns).write_volatile(0);
    }
}

/// A thread runs again.
///
/// # Safety
/// `row` is in a map, and `task` its thread, which is the next on this CPU.
#[inline(always)]
pub(crate) unsafe fn resume(row: *mut ThreadRow, task: *mut task_struct, now_ns: u64) {
    // SAFETY: the caller's promise; the thread is switched by one CPU at a time.
    let since_ns = unsafe { (&raw const (*row).since_ns).read_volatile() };
    if since_ns == 0 {
        return;
    }
    let away_ns = now_ns.saturating_sub(since_ns);
    // SAFETY: as above.
    unsafe {
        add_off(row, away_ns);
        (*row).back_ns = now_ns;
        (&raw mut (*row).since_ns).write_volatile(0);
        row_waits::note(task, (*row).used.off_ns, away_ns, true);
    }
}

/// # Safety
/// `row` is in a map.
#[inline(always)]
unsafe fn add_off(row: *mut ThreadRow, more_ns: u64) {
    // SAFETY: the caller's promise.
    let off_ns = unsafe { &raw mut (*row).used.off_ns };
    // SAFETY: as above.
    unsafe { off_ns.write_volatile(off_ns.read_volatile() + more_ns) };
}

#[inline(always)]
fn refresh_current(which: u32) {
    if let Some(row) = row_of(threads::current_tid()) {
        // SAFETY: the helper takes no pointer, and the current task is alive.
        refresh(row, unsafe { bpf_get_current_task_btf() }.cast(), which);
    }
}

/// Copies what the kernel itself counts of a thread, as far as it is wanted and among `which`.
#[inline(always)]
fn refresh(row: *mut ThreadRow, task: *mut task_struct, which: u32) {
    counters::each(|counter| {
        if which & (1 << counter) != 0 {
            // SAFETY: callers pass a live task that the kernel has given.
            if let Some(count) = unsafe { counters::of_task(task, counter) } {
                // SAFETY: the map gave the pointer, and the place is one of the array's.
                unsafe { (&raw mut (*row).used.counters[counter]).write_volatile(count) };
            }
        }
    });
}

#[inline(always)]
fn transferred(counter: Counter, bytes: u64) {
    let bytes = bytes as i32;
    if bytes > 0
        && let Some(row) = row_of(threads::current_tid())
    {
        feed(row, counter, bytes as u64);
    }
}

/// Adds to what programs count of the current thread. No other thread does.
#[inline(always)]
fn feed(row: *mut ThreadRow, counter: Counter, more: u64) {
    // SAFETY: the map gave the pointer, and the place is one of the array's.
    let count = unsafe { &raw mut (*row).used.counters[counter as usize] };
    // SAFETY: as above.
    unsafe { count.write_volatile(count.read_volatile().wrapping_add(more)) };
}
