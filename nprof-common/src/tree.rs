//! What enhanced methods tell: the class that they call, and the memory into which that writes.
//!
//! ```text
//! head: losses, a page │ heads of the rings │ calls not told, by method │ area: class files, lists of classes │ ring of a thread: events │ ring │ ...
//! ```
//!
//! All of it is in 64-bit words, each whole. The target writes all of them but `READ`, `COUNTED` and, in turns, the area.

use crate::counters::THREAD_COUNTERS;

/// The class that enhanced methods call. Of the VM's own package: every module reads it and every loader finds it.
pub const HOOK_CLASS: &str = "java/lang/NprofTree";
/// Its methods, all static, and their descriptors. The number is the method's in the plan.
pub const ENTER: (&str, &str) = ("enter", "(I)V");
/// As [`ENTER`].
pub const LEAVE: (&str, &str) = ("leave", "(I)V");
/// As [`ENTER`], with what was thrown.
pub const THREW: (&str, &str) = ("threw", "(Ljava/lang/Throwable;I)V");
/// What methods of the JDK call that make tasks or start threads: with these, and a [`TaskKind`].
pub const HANDS: (&str, &str) = ("hands", "(Ljava/lang/Object;I)V");
/// And those that run tasks: first with the task, or null where they run many, and with nothing at their end.
pub const RUNS: (&str, &str) = ("runs", "(Ljava/lang/Object;)V");
/// See [`RUNS`].
pub const RAN: (&str, &str) = ("ran", "()V");

/// How many threads can have rings at a time.
pub const RINGS: usize = 512;
/// How many events there is room for in a ring; a power of two.
pub const RING_EVENTS: usize = 32_768;

/// How many methods can have numbers.
pub const METHODS: usize = 32_768;

/// In the place of a method's number, where calls are counted: what is told of tasks.
#[expect(clippy::cast_possible_truncation, reason = "a small number")]
pub const TASKS: u32 = METHODS as u32 - 1;

/// Words before the heads of the rings.
const LOSS_WORDS: usize = 512;
/// Counts events of threads without a ring.
pub const WITHOUT_RING: usize = 0;
/// Counts calls of enhanced methods of which nothing is told, in any thread. In a cache line of its own, as its parts are not.
pub const UNTOLD: usize = 8;
/// Which counters of threads are told of, as their bits ([`crate::Counter`]). nprof writes it before the target maps the memory.
pub const COUNTED: usize = 16;
/// One of so many calls of a thread is counted, for all of them: a prime number, so that calls in turns are counted in turns.
pub const UNTOLD_EVERY: u64 = 61;
/// Words of the head of a ring: two cache lines, one for each who writes.
pub const RING_HEAD_WORDS: usize = 16;
/// Words of the area. What is passed there belongs to a message, which says how many bytes it is.
pub const AREA_WORDS: usize = 4 << 17;
/// The same in bytes: no class file may be longer, and no part of a list.
pub const AREA_BYTES: usize = AREA_WORDS * 8;
/// Where the same calls are counted by method.
const UNTOLD_OF: usize = LOSS_WORDS + RINGS * RING_HEAD_WORDS;
/// Where the area begins.
pub const AREA: usize = UNTOLD_OF + METHODS;
/// Words of the events of a ring.
pub const RING_WORDS: usize = RING_EVENTS * EVENT_WORDS;
/// Words of everything.
pub const WORDS: usize = AREA + AREA_WORDS + RINGS * RING_WORDS;

/// Where the head of a ring is.
#[must_use]
#[inline]
pub const fn head_of(ring: usize) -> usize {
    LOSS_WORDS + ring * RING_HEAD_WORDS
}

/// Where calls of a method are counted of which nothing is told; `None` of a number that no method has.
#[must_use]
#[inline]
pub const fn untold_of(method: u32) -> Option<usize> {
    if (method as usize) < METHODS { Some(UNTOLD_OF + method as usize) } else { None }
}

/// Where an event of a ring is, by how many were written before.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "below the number of events of a ring")]
pub const fn place_of(ring: usize, written: u64) -> usize {
    AREA + AREA_WORDS + ring * RING_WORDS + (written % RING_EVENTS as u64) as usize * EVENT_WORDS
}

/// How many events have been written to a ring; a word of its head.
pub const WRITTEN: usize = 0;
/// How many events there was no room for.
pub const LOST: usize = 1;
/// How many invocations of entry methods were left out as a whole.
pub const SKIPPED: usize = 2;
/// How many events nprof has read. In a cache line of its own.
pub const READ: usize = 8;

/// Words of an event.
pub const EVENT_WORDS: usize = 4;
/// Set in [`Event::thread`] of a virtual thread. Without a number it stands for any of them.
pub const VIRTUAL: u64 = 1 << 63;
/// Told behind the entry into an entry method: nothing is known of how long the thread will not run within.
pub const UNKNOWN_WAIT: u64 = u64::MAX;
/// An exception whose class has no number.
pub const UNKNOWN_EXCEPTION: u32 = 0;

/// What a thread tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// It has entered a method.
    Enter = 1,
    /// It has left one normally.
    Leave = 2,
    /// It has left one by an exception; the detail is the number of its class.
    Threw = 3,
    /// Before this so many events found no room; the detail is how many.
    Lost = 4,
    /// Since what it told last it has not been running for a time; the detail is how long, in nanoseconds, or [`UNKNOWN_WAIT`]. Where it was not so
    /// nothing is told.
    Waited = 5,
    /// It has made a task that another thread may run; the detail is its number ([`task_number`]).
    Handed = 6,
    /// Told behind the entry into an entry method: it is part of the task with the number that is the detail.
    Came = 7,
    /// It begins to run a task; the detail is its number, or 0 if nobody has told of it. Only virtual threads tell this: for others the shim keeps it.
    Begins = 8,
    /// It has run the task that it began last. Likewise.
    Ends = 9,
    /// Since what it told last a counter of its has grown; the detail is which and by how much ([`consumed`]).
    Consumed = 10,
}

/// Where the number of the counter is in the detail of [`EventKind::Consumed`].
const CONSUMED_BY: u32 = 56;

/// The detail of an event: a counter has grown by so much, of which so much is told as there is room for.
#[must_use]
#[inline]
pub const fn consumed(counter: usize, amount: u64) -> u64 {
    let most = (1 << CONSUMED_BY) - 1;
    (counter as u64) << CONSUMED_BY | if amount > most { most } else { amount }
}

/// What [`consumed`] has packed; `None` where there is no such counter.
#[must_use]
pub const fn consumed_of(detail: u64) -> Option<(usize, u64)> {
    let counter = (detail >> CONSUMED_BY) as usize;
    if counter < THREAD_COUNTERS { Some((counter, detail & ((1 << CONSUMED_BY) - 1))) } else { None }
}

/// What can be handed to another thread. The last two bits of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum TaskKind {
    /// An object that is made for one submission.
    Task = 0,
    /// An object that may be submitted again once it has been run, or is wrapped in another task.
    Again = 1,
    /// A thread.
    Thread = 2,
    /// What is done when something else is, by whoever completes that.
    Stage = 3,
}

impl TaskKind {
    /// The kind of the task with a number; also by the kind alone.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        match number & 3 {
            0 => Self::Task,
            1 => Self::Again,
            2 => Self::Thread,
            _ => Self::Stage,
        }
    }
}

/// Where the number of the run begins in that of a task, and that of the ring.
const TASK_RUN: u32 = 47;
const TASK_RING: u32 = TASK_RUN - RINGS.trailing_zeros();

/// The number of the task that a ring's thread tells of after so many others: no other task has it, of 32,768 runs.
#[must_use]
#[inline]
pub const fn task_number(run: u32, ring: usize, before: u64, kind: TaskKind) -> u64 {
    let count = (before + 1) << 2 & ((1 << TASK_RING) - 1);
    ((run & 0x7fff) as u64) << TASK_RUN | (ring as u64) << TASK_RING | count | kind as u64
}

/// Whether the number of a task is of a run.
#[must_use]
#[inline]
pub const fn is_task_of(run: u32, number: u64) -> bool {
    number >> TASK_RUN == (run & 0x7fff) as u64 && number != 0
}

/// One thing that a thread tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, by the CPU's time stamp counter.
    pub ticks: u64,
    /// The thread's id in the kernel as the target sees it, or the number of a virtual thread with [`VIRTUAL`].
    pub thread: u64,
    /// The number of the method.
    pub method: u32,
    /// What.
    pub kind: EventKind,
    /// See [`EventKind`].
    pub detail: u64,
}

impl Event {
    /// The words that stand for it in a ring.
    #[must_use]
    #[inline]
    pub const fn words(&self) -> [u64; EVENT_WORDS] {
        [self.ticks, self.thread, (self.method as u64) << 32 | self.kind as u64, self.detail]
    }

    /// What such words stand for; `None` if nothing.
    #[must_use]
    pub const fn of([ticks, thread, what, detail]: [u64; EVENT_WORDS]) -> Option<Self> {
        let kind = match what & 0xffff_ffff {
            1 => EventKind::Enter,
            2 => EventKind::Leave,
            3 => EventKind::Threw,
            4 => EventKind::Lost,
            5 => EventKind::Waited,
            6 => EventKind::Handed,
            7 => EventKind::Came,
            8 => EventKind::Begins,
            9 => EventKind::Ends,
            10 => EventKind::Consumed,
            _ => return None,
        };
        Some(Self { ticks, thread, method: (what >> 32) as u32, kind, detail })
    }
}

const _: () = assert!(RING_EVENTS.is_power_of_two() && RINGS.is_power_of_two() && (WORDS * 8).is_multiple_of(4_096));

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an event comes out as it went in, and that words without a meaning are none.
    #[test]
    fn round_trips() {
        let kinds = [EventKind::Enter, EventKind::Leave, EventKind::Threw, EventKind::Lost, EventKind::Waited];
        let of_tasks = [EventKind::Handed, EventKind::Came, EventKind::Begins, EventKind::Ends];
        for kind in kinds.into_iter().chain(of_tasks).chain([EventKind::Consumed]) {
            let event = Event { ticks: 1, thread: VIRTUAL | 7, method: u32::MAX, kind, detail: 1 << 40 };
            assert_eq!(Event::of(event.words()), Some(event));
        }
        assert_eq!(Event::of([1, 2, 0, 3]), None);
        assert_eq!(Event::of([1, 2, 11, 3]), None);
    }

    /// Check that each counter and what it has grown by come out as they went in, as far as there is room, and that there is no other.
    #[test]
    fn consumption_round_trips() {
        for counter in 0..THREAD_COUNTERS {
            for amount in [1, 5_000, (1 << 56) - 1] {
                assert_eq!(consumed_of(consumed(counter, amount)), Some((counter, amount)));
            }
            assert_eq!(consumed_of(consumed(counter, u64::MAX)), Some((counter, (1 << 56) - 1)));
        }
        assert_eq!(consumed_of(consumed(THREAD_COUNTERS, 1)), None);
    }

    /// Check that tasks of other runs, rings and kinds, and those told before and after, have other numbers.
    #[test]
    fn tasks_have_numbers() {
        let number = task_number(3, RINGS - 1, 70, TaskKind::Thread);
        assert!(is_task_of(3, number) && !is_task_of(2, number) && !is_task_of(0, 0));
        assert_eq!(TaskKind::of(number), TaskKind::Thread);
        let others = [
            task_number(4, RINGS - 1, 70, TaskKind::Thread),
            task_number(3, 0, 70, TaskKind::Thread),
            task_number(3, RINGS - 1, 71, TaskKind::Thread),
            task_number(3, RINGS - 1, 70, TaskKind::Stage),
        ];
        assert!(
            !others.contains(&number)
                && i64::try_from(task_number(u32::MAX, RINGS - 1, 1 << 30, TaskKind::Task)).is_ok()
        );
    }
}
