//! What the programs tell of single calls and threads, beside the records: rings that are read, and the pace that is set.

use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use aya::maps::{HashMap, MapData, RingBuf};
use nprof_common::stack::{MAX_PAGES, PAGE, collect};
use nprof_common::{
    CallArgs, CallEvent, Counter, JniEvent, JniHandle, LastJavaFramePlace, MadeCall, Pace, SlowDetails, SlowPace,
    StackHeader, alloc,
};
use zerocopy::FromBytes as _;

use super::by_record;
use super::open_frames::OpenFrames;
use super::rows;
use super::vm_table::VmTable;
use crate::model::{ArgsWanted, Pid, VirtAddr};
use crate::sys::mapped_array::MappedArray;

/// Slow calls that come all at once and have no stack: some thousands of each function are told on a CPU before it keeps most back.
const FLOOD: f64 = 16_384.0;
/// The ring holds the stacks of this long, at the highest pace.
const RING_SECONDS: f64 = 0.5;
/// What the kernel makes at least, and what is sensible at most, in bytes.
const RING_BYTES: std::ops::RangeInclusive<u32> = 4 << 10..=64 << 20;
/// Room for the calls of a timeline that are not read yet: 350,000.
const CALL_RING_BYTES: u32 = 8 << 20;
/// The same with what they were made with: 48,000.
const MADE_RING_BYTES: u32 = 32 << 20;
/// More threads than a JVM normally has; the others have no anchors.
const MAX_THREADS: u32 = 1 << 15;

/// What is to be collected of a process besides the counts and times of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collect {
    /// The process; none where the stacks are those of many.
    pub target: Pid,
    /// Of how many JVMs the programs are told where things lie in the VM.
    pub vms: u32,
    /// Stacks of calls that return.
    pub returns: bool,
    /// The time that threads do not run inside calls.
    pub off_cpu: bool,
    /// Stacks inside calls, by timer and when a thread stops running.
    pub inside: bool,
    /// Stacks by timer wherever a thread is.
    pub everywhere: bool,
    /// Every call, one by one.
    pub calls: bool,
    /// Stacks of calls that stubs in the target choose.
    pub stubs: bool,
    /// Calls that take longer than the threshold of their function, one by one, with their stacks.
    pub slow: bool,
    /// The time from one tick of a CPU to the next, for `inside` and `everywhere`.
    pub period: Duration,
    /// From a thread's `JNIEnv` to where it notes its last Java frame, in bytes: stack pointer, program counter, frame
    /// pointer; zeros if that is not known. For threads that nobody has told the programs of.
    pub anchor_from_env: [i64; 3],
    /// How much of a stack is copied, in bytes.
    pub stack_bytes: u32,
    /// The most stacks in a second.
    pub max_stacks: u32,
    /// The counters of threads whose difference each timed call gets: bits of [`nprof_common::Counter`].
    pub counters: u32,
    /// What slow calls, and those that are told one by one, were made with.
    pub args: ArgsWanted,
    /// How the VM is asked for a pending exception.
    pub pending: PendingPlaces,
    /// Whether calls are seen at their return alone, where they are counted.
    pub at_exit: bool,
    /// With how many rows of threads a JVM has at least, a power of two up to [`nprof_common::rows::ROWS`], by which off-CPU times and
    /// counters are known to stubs too; with 0 they are not.
    pub rows: u32,
    /// Nobody asks for counters but by these rows.
    pub only_rows: bool,
    /// Whether links may serve several targets.
    pub shares: bool,
    /// Calls of JNI functions by the native method that makes them.
    pub jni: bool,
    /// Of those that call Java, which method.
    pub callees: bool,
    /// Of JNI functions also what they make, until it is let go, with stacks of some of it.
    pub held: bool,
    /// The calls of each function by thread.
    pub by_thread: bool,
    /// How long collections wait for the end of critical sections, where JNI functions are traced.
    pub collections: bool,
}

/// How the programs find the exception that is pending in a thread; zeros if that is not known, or if there are several VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PendingPlaces {
    /// From a `JNIEnv` to the exception, in bytes.
    pub from_env: i64,
    /// From a `JavaThread` to its `JNIEnv`, in bytes, and the word that stands there in each thread.
    pub env: [u64; 2],
}

impl Collect {
    /// Nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            target: Pid(0),
            vms: 1,
            returns: false,
            off_cpu: false,
            inside: false,
            everywhere: false,
            calls: false,
            stubs: false,
            slow: false,
            period: Duration::ZERO,
            anchor_from_env: [0; 3],
            stack_bytes: 0,
            max_stacks: 0,
            counters: 0,
            args: ArgsWanted::No,
            pending: PendingPlaces::default(),
            at_exit: false,
            rows: 0,
            only_rows: false,
            shares: false,
            jni: false,
            callees: false,
            held: false,
            by_thread: false,
            collections: false,
        }
    }

    /// Whether any stacks are taken.
    #[must_use]
    pub fn stacks(&self) -> bool {
        self.returns || self.inside || self.everywhere || self.stubs || self.slow || self.held
    }

    /// Whether it is known of each call how long its thread did not run.
    pub(super) fn measures_off_cpu(&self) -> bool {
        self.off_cpu || self.inside
    }

    /// Whether anything is to be done when threads are switched.
    pub(super) fn needs_switches(&self) -> bool {
        self.measures_off_cpu() || self.rows != 0 && self.counters & rows::BY_SWITCH != 0
    }

    /// Whether it is told of calls what they were made with.
    #[must_use]
    pub fn tells_args(&self) -> bool {
        (self.slow || self.calls) && self.args != ArgsWanted::No
    }

    pub(super) fn bits(&self) -> u32 {
        let bits = [
            (self.returns, collect::RETURNS),
            (self.measures_off_cpu(), collect::OFF_CPU),
            (self.inside, collect::INSIDE),
            (self.everywhere, collect::EVERYWHERE),
            (self.calls, collect::CALLS),
            (self.slow, collect::SLOW),
            (self.tells_args(), collect::ARGS),
            (self.slow && self.args == ArgsWanted::Contents, collect::CONTENTS),
            (self.jni, collect::JNI),
            (self.held, collect::HELD),
            (self.by_thread, collect::THREADS),
            (self.collections, collect::COLLECTIONS),
            (self.rows != 0, collect::ROWS),
        ];
        bits.into_iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, bit)| all | bit)
    }

    /// One more than the bytes fill: the copy begins at the page that the stack pointer is in.
    pub(super) fn pages(&self) -> u32 {
        if !self.stacks() {
            return 0;
        }
        let most = u32::try_from(MAX_PAGES).unwrap_or(u32::MAX);
        self.stack_bytes.div_ceil(u32::try_from(PAGE).unwrap_or(u32::MAX)).saturating_add(1).min(most)
    }

    pub(super) fn stack_ring_bytes(&self) -> u32 {
        let args = if self.slow && self.tells_args() { size_of::<CallArgs>() } else { 0 };
        let around = size_of::<StackHeader>() + size_of::<SlowDetails>().max(size_of::<JniHandle>()) + args;
        let record = f64::from(self.pages()) * PAGE as f64 + around as f64;
        let wanted = if self.stacks() { record * f64::from(self.max_stacks) * RING_SECONDS } else { 0.0 };
        let wanted = if self.slow { wanted + around as f64 * FLOOD } else { wanted };
        // Sixteen at least, however slow the pace.
        let wanted = wanted.max(16.0 * record).min(f64::from(*RING_BYTES.end()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and at most 64 MB")]
        let wanted = wanted as u32;
        if self.stacks() { wanted.next_power_of_two().min(*RING_BYTES.end()) } else { *RING_BYTES.start() }
    }

    pub(super) fn call_ring_bytes(&self) -> u32 {
        match self.calls {
            true if self.tells_args() => MADE_RING_BYTES,
            true => CALL_RING_BYTES,
            false => *RING_BYTES.start(),
        }
    }

    /// Whether there are rows of functions that say when their calls are slow, and what their arguments are.
    pub(super) fn has_slow_rows(&self) -> bool {
        self.slow || self.tells_args()
    }

    /// How many of what is kept for slow calls there are to be, if there are `all` where they are wanted.
    pub(super) fn for_slow(&self, all: u32) -> u32 {
        if self.slow { all } else { 1 }
    }

    /// Whether it is counted what threads ask allocators for.
    pub(super) fn counts_allocations(&self) -> bool {
        self.counters & Counter::OF_ALLOCATORS != 0
    }

    /// For how many pairs of thread and function there is to be room.
    pub(super) fn threads(&self) -> u32 {
        if self.by_thread { by_record::THREADS } else { 1 }
    }

    /// For how many functions there is to be room that move bytes, of each number of them.
    pub(super) fn byte_counts(&self) -> u32 {
        if self.counters & Counter::OF_BYTES != 0 { by_record::BYTES } else { 1 }
    }

    /// Of how many threads the last request to an allocator is known.
    pub(super) fn askers(&self) -> u32 {
        if self.counts_allocations() { alloc::ASKED } else { 1 }
    }

    /// The same of what is kept of JNI functions.
    pub(super) fn for_jni(&self, all: u32) -> u32 {
        if self.jni { all } else { 1 }
    }

    pub(super) fn max_threads(&self) -> u32 {
        if self.inside || self.everywhere { MAX_THREADS } else { 1 }
    }

    pub(super) fn period_ns(&self) -> Option<u64> {
        (self.inside || self.everywhere).then(|| u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A [`LastJavaFramePlace`] as aya passes it to the kernel.
pub(super) type LastJavaFrameEntry = [u64; size_of::<LastJavaFramePlace>() / size_of::<u64>()];

/// What comes out of the kernel.
pub struct Feeds {
    pub(super) stacks: RingBuf<MapData>,
    pub(super) calls: RingBuf<MapData>,
    pub(super) anchors: HashMap<MapData, u32, LastJavaFrameEntry>,
    pub(super) open: Arc<OpenFrames>,
    pub(super) vms: Arc<VmTable>,
    pub(super) pace: MappedArray,
    pub(super) slow_pace: MappedArray,
}

/// A stack that was taken.
#[derive(Debug, Clone, Copy)]
pub struct StackRecord<'a> {
    /// What is said of it.
    pub header: &'a StackHeader,
    /// The copy of the stack from [`StackHeader::base`] on.
    pub stack: &'a [u8],
    /// What is frozen of it: [`nprof_common::Chunk`]s.
    pub frozen: &'a [u8],
}

/// What became of the stacks that were chosen, since the programs were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// They are in the ring or were read.
    pub taken: u64,
    /// There were too many in too short a time.
    pub over_pace: u64,
    /// The ring had no room.
    pub no_room: u64,
    /// Calls of the timeline for which its ring had no room.
    pub calls_lost: u64,
}

impl StackRecord<'_> {
    /// Passes a record to `each` as it is laid out in these bytes, if it is one.
    pub fn read(bytes: &[u8], each: impl FnOnce(&StackRecord<'_>)) {
        if let Some((header, stack, frozen)) = StackHeader::take_apart(bytes) {
            each(&StackRecord { header: &header, stack, frozen });
        }
    }
}

impl Feeds {
    /// What the programs are told of VMs.
    #[must_use]
    pub fn vms(&self) -> &Arc<VmTable> {
        &self.vms
    }

    /// Passes the stacks that are in the ring to `each`, as the programs have laid them out.
    pub fn read_raw_stacks(&mut self, mut each: impl FnMut(&[u8])) {
        while let Some(record) = self.stacks.next() {
            each(&record);
        }
    }

    /// Passes the stacks that are in the ring to `each`, no more than `most`. Returns how many there were.
    pub fn read_stacks(&mut self, most: usize, mut each: impl FnMut(&StackRecord<'_>)) -> usize {
        let mut read = 0;
        while read < most
            && let Some(record) = self.stacks.next()
        {
            StackRecord::read(&record, &mut each);
            read += 1;
        }
        read
    }

    /// Passes the calls that are in their ring to `each`.
    pub fn read_calls(&mut self, mut each: impl FnMut(CallEvent)) {
        while let Some(record) = self.calls.next() {
            if let Ok(call) = CallEvent::read_from_bytes(&record) {
                each(call);
            }
        }
    }

    /// The same with what they were made with, where that is told ([`Collect::tells_args`]).
    pub fn read_made_calls(&mut self, mut each: impl FnMut(&MadeCall)) {
        while let Some(record) = self.calls.next() {
            if let Ok(call) = MadeCall::read_from_bytes(&record) {
                each(&call);
            }
        }
    }

    /// The same where JNI functions are traced: with where in each other they were.
    pub fn read_nested_calls(&mut self, mut each: impl FnMut(JniEvent)) {
        while let Some(record) = self.calls.next() {
            if let Ok(call) = JniEvent::read_from_bytes(&record) {
                each(call);
            }
        }
    }

    /// The calls that threads are in.
    #[must_use]
    pub fn open(&self) -> &OpenFrames {
        &self.open
    }

    /// Says where a thread (of the initial namespace) notes its last Java frame: stack pointer, program counter, frame
    /// pointer; and where its `JavaThread` lies.
    ///
    /// # Errors
    /// What the kernel answers, such as for more threads than there is room for.
    pub fn set_anchor(&mut self, tid: u32, [sp, pc, fp]: [VirtAddr; 3], thread: VirtAddr) -> io::Result<()> {
        self.anchors.insert(tid, [sp.0, pc.0, fp.0, thread.0], 0).map_err(io::Error::other)
    }

    /// Of calls that last this long without nested ones, and longer, each stack is taken; of others with a chance in
    /// proportion to that. `None`: time has no influence.
    pub fn set_period(&self, period: Option<Duration>) {
        let ns = period.map_or(0, |period| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.store(offset_of!(Pace, period_ns), ns);
    }

    /// The chance that the stack of a thread is taken which stops running inside a call.
    pub fn set_stop_probability(&self, probability: f64) {
        self.store(offset_of!(Pace, stop_probability), fixed_point(probability));
    }

    /// Allows `more` stacks beyond those that were taken by now.
    pub fn allow(&self, more: u64) {
        self.store(offset_of!(Pace, allowed), self.load(offset_of!(Pace, taken)).saturating_add(more));
    }

    /// How many stacks of slow calls were taken.
    #[must_use]
    pub fn slow_taken(&self) -> u64 {
        self.slow_pace.load(offset_of!(SlowPace, taken) / size_of::<u64>()).unwrap_or(0)
    }

    /// Has stacks of slow calls taken until there are so many: the others are told without.
    pub fn allow_slow(&self, most: u64) {
        self.slow_pace.store(offset_of!(SlowPace, allowed) / size_of::<u64>(), most);
    }

    /// What became of the stacks that were chosen.
    #[must_use]
    pub fn taken(&self) -> Taken {
        Taken {
            taken: self.load(offset_of!(Pace, taken)),
            over_pace: self.load(offset_of!(Pace, over_pace)),
            no_room: self.load(offset_of!(Pace, no_room)),
            calls_lost: self.load(offset_of!(Pace, calls_lost)),
        }
    }

    fn load(&self, offset: usize) -> u64 {
        self.pace.load(offset / size_of::<u64>()).unwrap_or(0)
    }

    fn store(&self, offset: usize, value: u64) {
        self.pace.store(offset / size_of::<u64>(), value);
    }
}

impl fmt::Debug for Feeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feeds").field("pace", &self.pace).finish_non_exhaustive()
    }
}

/// A chance of 0 to 1 as the programs compare it.
pub(crate) fn fixed_point(probability: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^32")]
    let fixed = (probability.clamp(0.0, 1.0) * Pace::CERTAIN as f64) as u64;
    fixed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what calls were made with is neither looked at nor has room where nobody asks for it, and that contents are only looked
    /// at in slow calls.
    #[test]
    fn arguments_only_where_wanted() {
        let of = |slow, calls, args| Collect { slow, calls, args, ..Collect::nothing() };
        let timeline = of(false, true, ArgsWanted::No);
        assert_eq!((timeline.bits(), timeline.call_ring_bytes()), (collect::CALLS, CALL_RING_BYTES));
        assert!(!timeline.has_slow_rows());
        let with_args = of(false, true, ArgsWanted::Values);
        assert_eq!((with_args.bits(), with_args.call_ring_bytes()), (collect::CALLS | collect::ARGS, MADE_RING_BYTES));
        assert!(with_args.has_slow_rows() && with_args.stack_ring_bytes() == timeline.stack_ring_bytes());
        assert_eq!(of(false, true, ArgsWanted::Contents).bits(), collect::CALLS | collect::ARGS);
        let slow = of(true, false, ArgsWanted::Contents);
        assert_eq!(slow.bits(), collect::SLOW | collect::ARGS | collect::CONTENTS);
        assert_eq!(of(false, false, ArgsWanted::Values).bits(), 0);
    }
}
