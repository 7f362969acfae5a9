//! The natives of the hook: what an enhanced method tells is written to the ring of its thread.
//!
//! Of a platform thread only what happens within an entry method is written; other calls are counted, since they cost as well. A virtual thread is on another thread of the kernel
//! each time, so all that it tells is written, and nprof sorts it out. An invocation of an entry method for which there may not be room
//! is left out as a whole, and counted; what finds none all the same is counted, and the ring tells of it as soon as there is room.

#![expect(
    unsafe_code,
    reason = "is called by the VM, with its pointers; the memory that is shared is found by its address"
)]

use std::arch::asm;
use std::ptr::with_exposed_provenance;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use jvmti_bindings::sys::jni::{JNIEnv, jboolean, jclass, jint, jlong, jobject};
use nprof_common::tree::{
    EVENT_WORDS, Event, EventKind, LOST, READ, RING_EVENTS, SKIPPED, UNKNOWN_WAIT, UNTOLD, UNTOLD_EVERY, VIRTUAL,
    WITHOUT_RING, WORDS, WRITTEN, consumed, head_of, place_of, untold_of,
};

use super::rows::Row;
use super::waits::{Moment, moment, used};
use super::{TREES, Trees};
use crate::jni::Jni;
use crate::memory::Words;

const ROOM: u64 = RING_EVENTS as u64;
/// With more events than this in the ring, an invocation is left out.
const NEARLY_FULL: u64 = ROOM / 4 * 3;
/// How many events ahead the memory of the ring is asked for.
const AHEAD: u64 = 16;

/// The natives, in the order of `hook`.
pub(super) fn addresses() -> [usize; 3] {
    [enter as *const () as usize, leave as *const () as usize, threw as *const () as usize]
}

extern "system" fn enter(env: *mut JNIEnv, _class: jclass, method: jint, thread: jlong, is_virtual: jboolean) {
    with_thread(env, thread, is_virtual, |told| told.enter(method.cast_unsigned()));
}

extern "system" fn leave(env: *mut JNIEnv, _class: jclass, method: jint, thread: jlong, is_virtual: jboolean) {
    with_thread(env, thread, is_virtual, |told| told.leave(method.cast_unsigned(), EventKind::Leave, || 0));
}

extern "system" fn threw(
    env: *mut JNIEnv,
    _class: jclass,
    thrown: jobject,
    method: jint,
    thread: jlong,
    is_virtual: jboolean,
) {
    with_thread(env, thread, is_virtual, |told| {
        told.leave(method.cast_unsigned(), EventKind::Threw, || {
            // SAFETY: the VM passes the thread's environment to each native.
            let number =
                unsafe { Jni::passed(env) }.map(|jni| told.trees.exceptions.number(jni, thrown, &told.row.exception));
            number.unwrap_or_default().into()
        });
    });
}

/// The thread that tells something, and where to.
pub(super) struct Told {
    pub(super) trees: &'static Trees,
    pub(super) row: &'static Row,
    shared: Words,
    /// The number of its ring.
    pub(super) ring: usize,
    /// The number of a virtual thread, with [`VIRTUAL`].
    pub(super) is_virtual: Option<u64>,
}

#[inline]
pub(super) fn with_thread(env: *mut JNIEnv, thread: jlong, is_virtual: jboolean, work: impl FnOnce(&Told)) {
    let Some(trees) = TREES.get() else { return };
    if !trees.is_on.load(Ordering::Relaxed) {
        return;
    }
    let Some((number, row)) = trees.rows.of(env.addr()) else {
        if let Some(rowless) = trees.shared().get(WITHOUT_RING) {
            rowless.fetch_add(1, Ordering::Relaxed);
        }
        return;
    };
    row.inside.store(1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    if trees.is_on.load(Ordering::Acquire) {
        let run = trees.run.load(Ordering::Relaxed);
        if row.run.load(Ordering::Relaxed) != run {
            row.begin_run(run);
        }
        let is_virtual = (is_virtual != 0).then_some(VIRTUAL | thread.cast_unsigned());
        work(&Told { trees, row, shared: trees.shared(), ring: number, is_virtual });
    }
    row.inside.store(0, Ordering::Release);
}

impl Trees {
    #[inline]
    fn shared(&self) -> Words {
        let address = self.memory.load(Ordering::Acquire);
        if address == 0 {
            return &[];
        }
        // SAFETY: so many words have been mapped there, which stay mapped for good, and have atomics only.
        unsafe { std::slice::from_raw_parts(with_exposed_provenance::<AtomicU64>(address), WORDS) }
    }
}

impl Told {
    #[inline]
    fn enter(&self, method: u32) {
        let row = self.row;
        if self.is_virtual.is_none() {
            let is_first = row.depth.load(Ordering::Relaxed) == 0;
            if is_first {
                if method >= self.trees.entries.load(Ordering::Relaxed) {
                    return self.untold(method);
                }
                let is_full = self.in_ring(NEARLY_FULL) > NEARLY_FULL;
                row.skips.store(is_full.into(), Ordering::Relaxed);
                if is_full {
                    count(self.head(SKIPPED));
                }
            }
            row.push(method);
            if row.skips.load(Ordering::Relaxed) != 0 {
                return self.untold(method);
            }
            if is_first {
                return self.enter_first(method);
            }
        }
        self.write(method, EventKind::Enter, || 0, self.moment());
        if self.is_virtual.is_some() && method < self.trees.entries.load(Ordering::Relaxed) {
            self.comes_of_thread(method);
        }
    }

    /// Enters an entry method. How long the thread does not run is known from here on, or it is said that it is not.
    fn enter_first(&self, method: u32) {
        let row = self.row;
        if self.trees.waits.are_known() && row.waits.load(Ordering::Relaxed) == 0 {
            self.find_waits();
        }
        let moment = self.moment();
        row.off_ns.store(moment.off_ns.unwrap_or(0), Ordering::Relaxed);
        // What it has consumed before is not the method's.
        self.count_from_here();
        self.write(method, EventKind::Enter, || 0, moment);
        if self.trees.waits.are_known() && moment.off_ns.is_none() {
            self.write(method, EventKind::Waited, || UNKNOWN_WAIT, moment);
        }
        self.comes_of_task(method, moment);
    }

    /// Looks for the thread's row. Asking for one takes the kernel a microsecond, so it is not asked for ever.
    #[cold]
    fn find_waits(&self) {
        const MOST: u32 = 8;
        let row = self.row;
        let missed = row.waits_missed.load(Ordering::Relaxed);
        if missed < MOST {
            match self.trees.waits.find() {
                Some(found) => row.waits.store(found, Ordering::Relaxed),
                None => row.waits_missed.store(missed + 1, Ordering::Relaxed),
            }
        }
    }

    /// Now. A virtual thread may have been on another thread of the kernel since it told something.
    #[inline]
    pub(super) fn moment(&self) -> Moment {
        moment(if self.is_virtual.is_some() { 0 } else { self.row.waits.load(Ordering::Relaxed) })
    }

    #[inline]
    fn leave(&self, method: u32, kind: EventKind, detail: impl FnOnce() -> u64) {
        if self.is_virtual.is_none() && self.row.is_outside() {
            return;
        }
        // What follows is not the method's.
        let moment = self.moment();
        if self.is_virtual.is_none() && (!self.row.pop(method) || self.row.skips.load(Ordering::Relaxed) != 0) {
            return;
        }
        self.write(method, kind, detail, moment);
    }

    /// A call of which nothing is told.
    #[inline]
    pub(super) fn untold(&self, method: u32) {
        match self.row.untold.load(Ordering::Relaxed).checked_sub(1) {
            Some(left) => self.row.untold.store(left, Ordering::Relaxed),
            None => self.count_untold(method),
        }
    }

    #[cold]
    fn count_untold(&self, method: u32) {
        self.row.untold.store(UNTOLD_EVERY - 1, Ordering::Relaxed);
        for place in untold_of(method).into_iter().chain([UNTOLD]).filter_map(|place| self.shared.get(place)) {
            place.fetch_add(UNTOLD_EVERY, Ordering::Relaxed);
        }
    }

    /// How many events are in the ring that nprof has not read; it is looked again if that is more than a limit.
    #[inline]
    fn in_ring(&self, limit: u64) -> u64 {
        let written = self.row.written.load(Ordering::Relaxed);
        let unread = written.wrapping_sub(self.row.read.load(Ordering::Relaxed));
        if unread <= limit {
            return unread;
        }
        let read = self.head(READ).map_or(0, |word| word.load(Ordering::Acquire));
        self.row.read.store(read, Ordering::Relaxed);
        written.wrapping_sub(read)
    }

    /// Tells something, and before it what there was meanwhile. What the telling itself consumes is nobody's.
    #[inline]
    pub(super) fn write(
        &self,
        method: u32,
        kind: EventKind,
        detail: impl FnOnce() -> u64,
        Moment { ticks, off_ns }: Moment,
    ) {
        let lost = self.row.lost.load(Ordering::Relaxed);
        let waited_ns = off_ns.map_or(0, |off_ns| off_ns.saturating_sub(self.row.off_ns.load(Ordering::Relaxed)));
        let mut grown = self.grown();
        let needed = 1 + u64::from(lost > 0) + u64::from(waited_ns > 0) + u64::from(grown.count_ones());
        // What is no number of events in the ring is too many.
        if self.in_ring(ROOM - needed) > ROOM - needed {
            self.row.lost.store(lost + 1, Ordering::Relaxed);
            count(self.head(LOST));
            return;
        }
        let thread = self.is_virtual.unwrap_or_else(|| self.tid().into());
        let event = Event { ticks, thread, method, kind, detail: 0 };
        if lost > 0 {
            self.row.lost.store(0, Ordering::Relaxed);
            // Of which virtual threads events are missing is not known.
            let thread = if self.is_virtual.is_some() { VIRTUAL } else { thread };
            self.put(&Event { thread, kind: EventKind::Lost, detail: lost, ..event });
        }
        if waited_ns > 0 {
            self.row.off_ns.store(off_ns.unwrap_or(0), Ordering::Relaxed);
            self.put(&Event { kind: EventKind::Waited, detail: waited_ns, ..event });
        }
        while grown != 0 {
            let counter = grown.trailing_zeros() as usize;
            grown &= grown - 1;
            self.put(&Event { kind: EventKind::Consumed, detail: consumed(counter, self.more(counter)), ..event });
        }
        self.put(&Event { detail: detail(), ..event });
        self.count_from_here();
    }

    /// The counters that are told of and have grown since something was told, as bits.
    #[inline]
    fn grown(&self) -> u32 {
        let counted = self.counted();
        if counted == 0 {
            return 0;
        }
        (0..u32::BITS)
            .filter(|bit| counted & 1 << bit != 0 && self.more(*bit as usize) > 0)
            .fold(0, |all, bit| all | 1 << bit)
    }

    /// By how much.
    #[inline]
    fn more(&self, counter: usize) -> u64 {
        let now = used(self.row.waits.load(Ordering::Relaxed)).and_then(|used| used.get(counter));
        let before = self.row.used.get(counter);
        now.zip(before)
            .map_or(0, |(now, before)| now.load(Ordering::Relaxed).saturating_sub(before.load(Ordering::Relaxed)))
    }

    /// What is told of, of this thread. A virtual thread may have been on another thread of the kernel meanwhile.
    #[inline]
    fn counted(&self) -> u32 {
        if self.is_virtual.is_some() { 0 } else { self.trees.counted.load(Ordering::Relaxed) }
    }

    /// What the thread has consumed until now is told, or nobody's.
    #[inline]
    fn count_from_here(&self) {
        let counted = self.counted();
        if counted == 0 {
            return;
        }
        let Some(used) = used(self.row.waits.load(Ordering::Relaxed)) else { return };
        for (counter, (now, before)) in used.iter().zip(&self.row.used).enumerate() {
            if counted & 1 << counter != 0 {
                before.store(now.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    #[inline]
    fn put(&self, event: &Event) {
        let written = self.row.written.load(Ordering::Relaxed);
        let place = place_of(self.ring, written);
        if let Some(places) = self.shared.get(place..place + EVENT_WORDS) {
            places.iter().zip(event.words()).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        }
        self.own_soon(place_of(self.ring, written.wrapping_add(AHEAD)));
        let written = written.wrapping_add(1);
        self.row.written.store(written, Ordering::Relaxed);
        if let Some(place) = self.head(WRITTEN) {
            place.store(written, Ordering::Release);
        }
    }

    /// Asks for the cache line at a place of the ring, which nprof has read last: the CPU would wait for it where it is written.
    #[inline]
    fn own_soon(&self, place: usize) {
        if let Some(place) = self.shared.get(place) {
            // SAFETY: a hint, which changes neither memory nor registers.
            unsafe { asm!("prefetchw [{}]", in(reg) place, options(nostack, readonly, preserves_flags)) };
        }
    }

    #[inline]
    fn head(&self, word: usize) -> Option<&AtomicU64> {
        self.shared.get(head_of(self.ring) + word)
    }

    #[inline]
    fn tid(&self) -> u32 {
        match self.row.tid.load(Ordering::Relaxed) {
            0 => self.new_tid(),
            tid => tid,
        }
    }

    #[cold]
    fn new_tid(&self) -> u32 {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        self.row.tid.store(tid, Ordering::Relaxed);
        tid
    }
}

/// Counts in a ring's head, to which no other thread writes.
fn count(place: Option<&AtomicU64>) {
    if let Some(place) = place {
        place.store(place.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}
