//! What the programs tell of single calls and threads, beside the records: rings that are read, and the pace that is set.

use std::mem::offset_of;
use std::os::fd::AsFd as _;
use std::time::Duration;
use std::{fmt, io};

use aya::maps::{Array, HashMap, MapData, RingBuf};
use nprof_common::stack::{MAX_PAGES, PAGE, collect};
use nprof_common::{CallEvent, Frame, Frames, LastJavaFramePlace, OffCpu, Pace, SLOTS, StackHeader, VmPlaces};
use rustix::process::{PidfdFlags, pidfd_open};
use zerocopy::{FromBytes as _, transmute};

use crate::model::{Pid, VirtAddr};
use crate::sys::bpf;
use crate::sys::mapped_array::MappedArray;

/// The ring holds the stacks of this long, at the highest pace.
const RING_SECONDS: f64 = 0.5;
/// What the kernel makes at least, and what is sensible at most, in bytes.
const RING_BYTES: std::ops::RangeInclusive<u32> = 4 << 10..=64 << 20;
/// Room for the calls of a timeline that are not read yet: 350,000.
const CALL_RING_BYTES: u32 = 8 << 20;
/// More threads than a JVM normally has; the others have no anchors.
const MAX_THREADS: u32 = 1 << 15;

/// What is to be collected of a process besides the counts and times of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collect {
    /// The process.
    pub target: Pid,
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
    /// The time from one tick of a CPU to the next, for `inside` and `everywhere`.
    pub period: Duration,
    /// From a thread's `JNIEnv` to where it notes its last Java frame, in bytes: stack pointer, program counter, frame
    /// pointer; zeros if that is not known. For threads that nobody has told the programs of.
    pub anchor_from_env: [i64; 3],
    /// How much of a stack is copied, in bytes.
    pub stack_bytes: u32,
    /// The most stacks in a second.
    pub max_stacks: u32,
}

impl Collect {
    /// Nothing.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            target: Pid(0),
            returns: false,
            off_cpu: false,
            inside: false,
            everywhere: false,
            calls: false,
            stubs: false,
            period: Duration::ZERO,
            anchor_from_env: [0; 3],
            stack_bytes: 0,
            max_stacks: 0,
        }
    }

    /// Whether any stacks are taken.
    #[must_use]
    pub fn stacks(&self) -> bool {
        self.returns || self.inside || self.everywhere || self.stubs
    }

    /// Whether it is known of each call how long its thread did not run.
    pub(super) fn measures_off_cpu(&self) -> bool {
        self.off_cpu || self.inside
    }

    pub(super) fn bits(&self) -> u32 {
        let bits = [
            (self.returns, collect::RETURNS),
            (self.measures_off_cpu(), collect::OFF_CPU),
            (self.inside, collect::INSIDE),
            (self.everywhere, collect::EVERYWHERE),
            (self.calls, collect::CALLS),
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
        let record = f64::from(self.pages()) * PAGE as f64 + size_of::<StackHeader>() as f64;
        let wanted = if self.stacks() { record * f64::from(self.max_stacks) * RING_SECONDS } else { 0.0 };
        // Sixteen at least, however slow the pace.
        let wanted = wanted.max(16.0 * record).min(f64::from(*RING_BYTES.end()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and at most 64 MB")]
        let wanted = wanted as u32;
        if self.stacks() { wanted.next_power_of_two().min(*RING_BYTES.end()) } else { *RING_BYTES.start() }
    }

    pub(super) fn call_ring_bytes(&self) -> u32 {
        if self.calls { CALL_RING_BYTES } else { *RING_BYTES.start() }
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

/// Of `pidfd_open`: any thread, and not only a process's first.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0x80);

/// What comes out of the kernel.
pub struct Feeds {
    pub(super) stacks: RingBuf<MapData>,
    pub(super) calls: RingBuf<MapData>,
    pub(super) anchors: HashMap<MapData, u32, LastJavaFrameEntry>,
    pub(super) slots: Array<MapData, Slot>,
    pub(super) vm: Array<MapData, VmEntry>,
    pub(super) pace: MappedArray,
    pub(super) off_cpu: Option<MapData>,
}

/// [`VmPlaces`] as aya passes them to the kernel.
pub(super) type VmEntry = [u64; size_of::<VmPlaces>() / size_of::<u64>()];

/// The frames of a thread as they lie in the kernel.
pub(super) type Slot = [u64; size_of::<Frames>() / size_of::<u64>()];

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

impl Feeds {
    /// Passes the stacks that are in the ring to `each`. Returns how many there were.
    pub fn read_stacks(&mut self, mut each: impl FnMut(&StackRecord<'_>)) -> usize {
        let mut read = 0;
        while let Some(record) = self.stacks.next() {
            if let Some((header, stack, frozen)) = StackHeader::take_apart(&record) {
                each(&StackRecord { header: &header, stack, frozen });
            }
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

    /// The calls that a thread (of the initial namespace) is in, outermost first. None also for the few threads whose slot
    /// another one had taken.
    #[must_use]
    pub fn open_calls(&self, tid: u32) -> Vec<Frame> {
        let Ok(slot) = self.slots.get(&(tid & (SLOTS - 1)), 0) else { return Vec::new() };
        let frames: Frames = transmute!(slot);
        frames.open_calls(tid).to_vec()
    }

    /// How long a thread (of the initial namespace) has not been running since its first traced call, at `now_ns` of the
    /// monotonic clock. `None` where that is not measured, and before Linux 6.9 for all threads but a process's first.
    #[must_use]
    pub fn off_cpu_ns(&self, tid: u32, now_ns: u64) -> Option<u64> {
        let tid = rustix::process::Pid::from_raw(i32::try_from(tid).ok()?)?;
        let thread = pidfd_open(tid, PIDFD_THREAD).ok()?;
        let known: OffCpu = bpf::lookup_task_storage(self.off_cpu.as_ref()?, thread.as_fd()).ok()?;
        let since_ns = if known.since_ns == 0 { now_ns } else { known.since_ns };
        Some(known.total_ns + now_ns.saturating_sub(since_ns))
    }

    /// Says where a thread (of the initial namespace) notes its last Java frame: stack pointer, program counter, frame
    /// pointer; and where its `JavaThread` lies.
    ///
    /// # Errors
    /// What the kernel answers, such as for more threads than there is room for.
    pub fn set_anchor(&mut self, tid: u32, [sp, pc, fp]: [VirtAddr; 3], thread: VirtAddr) -> io::Result<()> {
        self.anchors.insert(tid, [sp.0, pc.0, fp.0, thread.0], 0).map_err(io::Error::other)
    }

    /// Says what to read of the VM besides stacks. Until then nothing is.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn set_vm(&mut self, places: &VmPlaces) -> io::Result<()> {
        let words: VmEntry = transmute!(*places);
        self.vm.set(0, words, 0).map_err(io::Error::other)
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
