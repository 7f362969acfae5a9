//! Records, indices and limits that cross a border: kernel and nprof, later target and nprof.
//!
//! Integers only, explicit padding, and a size assert for each record: both sides are compiled by different
//! compilers for different targets and must agree to the byte.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod alloc;
pub mod args;
pub mod by_record;
pub mod by_thread;
pub mod call_bytes;
pub mod cookie;
pub mod counters;
pub mod exec;
pub mod frame;
pub mod histogram;
pub mod jni;
pub mod jni_locals;
pub mod loss;
pub mod row_waits;
pub mod rows;
pub mod shared;
pub mod slow;
pub mod stack;
pub mod stats;
pub mod switch;
// What follows is no business of the BPF programs, and does not make their object another one.
#[cfg(not(target_arch = "bpf"))]
pub mod tree;
#[cfg(not(target_arch = "bpf"))]
mod vm_linked;
#[cfg(not(target_arch = "bpf"))]
pub mod wire;

pub use args::{CallArgs, HeapPlaces, MadeCall, MadeWith, NotedCall, NotedCalls, ObjectHead, Referent};
pub use by_thread::ThreadCalls;
pub use call_bytes::CallBytes;
pub use cookie::Cookie;
pub use counters::{
    COUNTERS, Consumed, Counter, Counters, MAX_COUNTED_FRAMES, OpenCounters, Returns, THREAD_COUNTERS, ThreadCounters,
    ThreadCounts,
};
pub use exec::ExecEvent;
pub use frame::{Frame, Frames, MAX_FRAMES, SLOTS};
pub use jni::{
    JniCalled, JniCallee, JniCalls, JniEvent, JniHandle, JniHeld, JniHold, JniHolds, JniKind, JniMade, JniPlaces,
    JniShards, JniThrown, LockerRole,
};
pub use jni_locals::JniLocals;
pub use loss::Loss;
pub use row_waits::RowWaits;
pub use slow::{SlowDetails, SlowPace, SlowStats, WAITS, Wait, Waits};
pub use stack::{
    CallEvent, Chunk, FrozenPlaces, LastJavaFrame, LastJavaFramePlace, OffCpu, Pace, StackHeader, StackKind, VmPlaces,
};
pub use stats::{MethodStats, Mode};
pub use switch::{Lane, Switch};
#[cfg(not(target_arch = "bpf"))]
pub use vm_linked::is_vm_linked;

/// Names of the maps in the BPF object. At most 15 bytes: the kernel keeps no more.
pub mod maps {
    /// `MethodStats`, one per shard and dense index.
    pub const STATS: &str = "NPROF_STATS";
    /// The frames of most threads, by thread number.
    pub const SLOTS: &str = "NPROF_SLOTS";
    /// The frames of the threads whose slot is taken.
    pub const FRAMES: &str = "NPROF_FRAMES";
    /// Counters by `Loss`.
    pub const LOSSES: &str = "NPROF_LOSSES";
    /// `ExecEvent`s on their way out; a ring buffer.
    pub const EXECS: &str = "NPROF_EXECS";
    /// `StackHeader`s, each with its pages, on their way out; a ring buffer.
    pub const STACKS: &str = "NPROF_STACKS";
    /// `CallEvent`s on their way out; a ring buffer.
    pub const CALLS: &str = "NPROF_CALLS";
    /// One `Pace`.
    pub const PACE: &str = "NPROF_PACE";
    /// `LastJavaFramePlace`s by thread number.
    pub const ANCHORS: &str = "NPROF_ANCHORS";
    /// One `VmPlaces`.
    pub const VM: &str = "NPROF_VM";
    /// How long each thread with calls has not been running whose slot is taken.
    pub const OFF_CPU: &str = "NPROF_OFF_CPU";
    /// Whether there are any: one word.
    pub const STORED: &str = "NPROF_STORED";
    /// A bit for each process with threads that are of interest at switches, by its number.
    pub const SWITCHED: &str = "NPROF_SWITCHED";
    /// `Consumed`, one per shard and dense index.
    pub const CONSUMED: &str = "NPROF_CONSUMED";
    /// The counters of each thread with calls.
    pub const COUNTERS: &str = "NPROF_COUNTERS";
    /// `ThreadRow`s of each JVM, in a map of its own: what threads have used that make calls with stubs.
    pub const ROWS: &str = "NPROF_ROWS";
    /// `RowOwners`, by thread number.
    pub const OWNERS: &str = "NPROF_OWNERS";
    /// The last requests of threads to allocators, by thread number.
    pub const ASKED: &str = "NPROF_ASKED";
    /// `shared::Member`s by `shared::slot`.
    pub const MEMBERS: &str = "NPROF_MEMBERS";
    /// Numbers of records by `shared::place`.
    pub const PLACES: &str = "NPROF_PLACES";
    /// The words of `shared::strangers`.
    pub const STRANGERS: &str = "NPROF_STRANGERS";
    /// `SlowStats`, one per shard and dense index.
    pub const SLOW: &str = "NPROF_SLOW";
    /// One `SlowPace`.
    pub const SLOW_PACE: &str = "NPROF_SLOW_PACE";
    /// `Waits` of the threads that have a slot, by its number.
    pub const WAITS: &str = "NPROF_WAITS";
    /// `RowWaits` of threads that make calls with stubs, by the lower bits of their numbers.
    pub const ROW_WAITS: &str = "NPROF_ROW_WAITS";
    /// `NotedCalls` of the threads that have a slot, by its number.
    pub const ARGS: &str = "NPROF_ARGS";
    /// `CallBytes` by counter and record (`by_record::key`).
    pub const BYTES: &str = "NPROF_BYTES";
    /// `ThreadCalls` by thread and record.
    pub const THREADS: &str = "NPROF_THREADS";
    /// `JniShards` by `jni::pair`.
    pub const JNI: &str = "NPROF_JNI";
    /// `JniShards` by `JniCalled`.
    pub const CALLED: &str = "NPROF_CALLED";
    /// What look-ups have found, by a number for what they look up.
    pub const LOOK_UPS: &str = "NPROF_LOOK_UPS";
    /// `JniHold`s by thread number.
    pub const HOLDS: &str = "NPROF_HOLDS";
    /// The arguments of look-ups that could not be read, by thread and stack pointer.
    pub const UNREAD: &str = "NPROF_UNREAD";
    /// `JniHeld`s by `JniHandle`.
    pub const HELD: &str = "NPROF_HELD";
    /// `JniLocals` by thread and the depth of the native method's call.
    pub const LOCALS: &str = "NPROF_LOCALS";
    /// `JniMade`s by native method, function and class.
    pub const MADE: &str = "NPROF_MADE";
    /// Numbers of exceptions by `JniThrown`.
    pub const THROWN: &str = "NPROF_THROWN";
    /// Since when threads want to begin a collection, by thread number.
    pub const BLOCKS: &str = "NPROF_BLOCKS";
}

/// Names of the constants that are set when the BPF object is loaded.
pub mod globals {
    /// Number of shards of each method's record, less one; a power of two less one.
    pub const SHARD_MASK: &str = "SHARD_MASK";
    /// Whether the kernel itself lets only hits of the target through: 1, or 0.
    pub const FILTERED: &str = "FILTERED";
    /// What is collected besides counts and times: bits of `stack::collect`.
    pub const COLLECT: &str = "COLLECT";
    /// From a `JNIEnv` to where its thread notes its last Java frame, in bytes: stack pointer, program counter, frame
    /// pointer; zeros if that is not known.
    pub const ANCHOR_FROM_ENV: &str = "ANCHOR_FROM_ENV";
    /// How many pages of a stack are copied.
    pub const STACK_PAGES: &str = "STACK_PAGES";
    /// The process that the timer and the switches of threads are of interest in.
    pub const TARGET: &str = "TARGET";
    /// Where the kernel keeps a thread's number in its `task_struct`, in bytes; 0 if that is not known.
    pub const TASK_PID: &str = "TASK_PID";
    /// The same of the number of its process.
    pub const TASK_TGID: &str = "TASK_TGID";
    /// Where the kernel keeps when it last let a thread run, by the scheduler's clock, in bytes of its `task_struct`; 0 if that is not
    /// known.
    pub const TASK_ARRIVAL: &str = "TASK_ARRIVAL";
    /// Which counters of threads are collected: bits of `Counter`.
    pub const COUNTED: &str = "COUNTED";
    /// Where the kernel keeps each of them in its `task_struct`, in bytes; 0 where programs count.
    pub const TASK_OFFSETS: &str = "TASK_OFFSETS";
    /// From a `JNIEnv` to where its thread keeps the exception that is pending, in bytes; 0 if that is not known.
    pub const PENDING_FROM_ENV: &str = "PENDING_FROM_ENV";
    /// From a `JavaThread` to its `JNIEnv`, in bytes, and the word that stands there in each thread; zeros if that is not known.
    pub const JNI_ENV: &str = "JNI_ENV";
}

/// Names of the programs in the BPF object. At most 15 bytes: the kernel keeps no more.
pub mod programs {
    /// Runs when a native method is entered: counts it, or pushes a frame.
    pub const ENTER: &str = "nprof_enter";
    /// Runs when a native method returns: pops its frame and records the call.
    pub const RETURN: &str = "nprof_return";
    /// Runs when a native method returns whose entry has no probe: counts it, and how it ended.
    pub const RESULT: &str = "nprof_result";
    /// Runs when any thread of the host ends: closes the calls that a target's thread was still in.
    pub const EXIT: &str = "nprof_exit";
    /// Runs when any process of the host begins to run a program: says so.
    pub const EXEC: &str = "nprof_exec";
    /// Runs when a timer fires on a CPU: takes the stack of a target's thread.
    pub const TICK: &str = "nprof_tick";
    /// Runs when a stub in a target has chosen a call: takes the stack of its caller.
    pub const CHOSEN: &str = "nprof_chosen";
    /// Runs when a CPU switches from one thread to another: measures how long a target's threads do not run, and notes it in their rows.
    pub const SWITCH: &str = "nprof_switch";
    /// Runs at each system call of the host: counts those of threads with traced calls.
    pub const SYSCALL: &str = "nprof_syscall";
    /// Runs when a socket has received.
    pub const RECEIVED: &str = "nprof_received";
    /// Runs when a socket has sent.
    pub const SENT: &str = "nprof_sent";
    /// Runs when a function of an allocator is entered: counts what it is asked for.
    pub const ALLOC: &str = "nprof_alloc";
    /// Runs when the VM does something about critical sections that keep it from collecting.
    pub const LOCK: &str = "nprof_lock";
    /// Runs when it has done so: measures how long it waited.
    pub const LOCK_RETURN: &str = "nprof_lock_ret";
    /// Runs when a thread with stubs has found no row of its own: gives it one.
    pub const ROW: &str = "nprof_row";
    /// Runs when any thread of the host ends: takes its row back.
    pub const ROW_END: &str = "nprof_row_end";
    /// Runs after each page fault of the host: brings the thread's row up to date.
    pub const ROW_FAULT: &str = "nprof_row_fault";
    /// Runs when a system call returns: brings the thread's row up to date.
    pub const ROW_BACK: &str = "nprof_row_back";
    /// Runs at each system call of the host: counts those of threads with rows.
    pub const ROW_CALL: &str = "nprof_row_call";
    /// Runs when a socket has received: counts it in the thread's row.
    pub const ROW_RECEIVED: &str = "nprof_row_recv";
    /// Runs when a socket has sent: counts it in the thread's row.
    pub const ROW_SENT: &str = "nprof_row_sent";
}

#[cfg(test)]
mod tests {
    use super::{maps, programs};

    /// Check that the kernel keeps every name whole.
    #[test]
    fn names_fit() {
        let counts = [maps::STATS, maps::SLOTS, maps::FRAMES, maps::LOSSES, maps::EXECS];
        let stacks = [
            maps::STACKS,
            maps::CALLS,
            maps::PACE,
            maps::ANCHORS,
            maps::VM,
            maps::OFF_CPU,
            maps::STORED,
            maps::SWITCHED,
        ];
        let shared = [maps::MEMBERS, maps::PLACES, maps::STRANGERS, maps::THREADS, maps::BYTES];
        let slow = [maps::SLOW, maps::SLOW_PACE, maps::WAITS, maps::ROW_WAITS, maps::ARGS];
        let jni = [maps::JNI, maps::CALLED, maps::LOOK_UPS, maps::UNREAD, maps::HOLDS, maps::THROWN, maps::BLOCKS];
        let held = [maps::HELD, maps::LOCALS, maps::MADE];
        let counters = [maps::CONSUMED, maps::COUNTERS, programs::SYSCALL, programs::RECEIVED, programs::SENT];
        let allocators = [maps::ASKED, programs::ALLOC, programs::LOCK, programs::LOCK_RETURN];
        let rows = [maps::ROWS, maps::OWNERS, programs::ROW, programs::ROW_END, programs::ROW_FAULT];
        let row_calls = [programs::ROW_BACK, programs::ROW_CALL, programs::ROW_RECEIVED, programs::ROW_SENT];
        let programs = [
            programs::ENTER,
            programs::RETURN,
            programs::EXIT,
            programs::EXEC,
            programs::TICK,
            programs::SWITCH,
            programs::CHOSEN,
            programs::RESULT,
        ];
        let kernel = counts
            .into_iter()
            .chain(stacks)
            .chain(shared)
            .chain(slow)
            .chain(jni)
            .chain(held)
            .chain(counters)
            .chain(programs);
        for name in kernel.chain(rows).chain(row_calls).chain(allocators) {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
