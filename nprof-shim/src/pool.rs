//! The stubs: machine code that the linker put into this library, one for each native method, or JNI function, that is watched.
//!
//! No code is made at run time and no page is both written and executed. What differs from stub to stub stands in a row
//! of a table; `stubs.s` is the template. What a stub does at a call is its [`Mode`]:
//!
//! | mode | at a call |
//! | --- | --- |
//! | off | a compare, and a jump to the native |
//! | count | `counted` of the method's counts + 1, and a jump to the native |
//! | sample | as count, or as time by chance |
//! | time | `entered` + 1, a frame with a copy of the stack's arguments, the native, then time, histogram, maximum |
//!
//! Natives whose calls are counted here find the call's [`mark`](nprof_common::switch::mark) in a register that they do not
//! look at. What is counted stands apart from the records, methods next to each other ([`Layout`](nprof_common::wire::Layout)).
//! A record may be replaced by another at any time: each call is in one of them, and a timed call ends in the one
//! in which it began; where the whole run is over by then ([`end_run`]), in none.
//!
//! A call in flight is one that is in `entered` and not yet in the histogram; one that is left by `longjmp` or by the
//! end of its thread stays so. Which call was made by which is known only where it is collected what threads use
//! ([`collect`]); else `child_ns` stays zero.
//!
//! A JNI function may have any number of arguments (`CallIntMethod`), of which a stub does not know where they end. Such a function has a
//! twin that takes the same as a `va_list` (`CallIntMethodV`): a timed call makes one of its arguments, where they are, and calls that.
//!
//! A stub is never taken back: a thread may stand in it, and code that the VM has compiled may call it, long after its
//! method has got another address.

#![expect(unsafe_code, reason = "the code and the table of the stubs are defined in assembler")]

use std::arch::global_asm;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use nprof_common::args::{STUB_ARGS_BELOW, StubArgs};
use nprof_common::histogram::{LARGEST, QUARTERS};
use nprof_common::rows::{BUCKET_ROWS, BUCKETS, MULTIPLIER, ROWS, SHIFT, ThreadRow, Used};
use nprof_common::switch;
use nprof_common::wire::{COUNTS_STRIDE, PAGE, StubCounts, probability_of};
use nprof_common::{MethodStats, StackHeader};

use crate::clock::Clock;
use crate::collected::{Call, Nested, collected};
use crate::records::{Place, SHARD_BITS};
use crate::sharding::Sharding;

/// How many stubs there are.
pub const STUBS: usize = nprof_common::wire::MOST_STUBS as usize;

/// What a stub occupies: a cache line.
const STUB_SIZE: usize = 64;
/// Where in a stub its second entry is, behind the first `endbr64`.
const SECOND_ENTRY: usize = 4;
/// 2^32 times the golden ratio, modulo 2^32, as an assembler takes it.
const GOLDEN: i32 = -1_640_531_535;
/// The segment whose limit is the number of the CPU, and the node above it.
const CPU_SEGMENT: u32 = 0x7b;
/// The bits of the CPU in what `rdpid` and that limit give.
const CPU_MASK: u32 = 0xfff;

/// In place of the words that a call passes on the stack: it passes any number, behind so many bytes of arguments that it always has.
const VARIADIC: u32 = 1 << 31;
/// What the arguments of such a call take as a list: the list itself, and from where on those are that were in registers.
const LISTED: usize = SAVED + 6 * 8 + 8 * 16;
const SAVED: usize = 32;
const _: () = assert!(LISTED.is_multiple_of(16));

/// What is done at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Off,
    /// The call is counted.
    Count,
    /// The call is counted, and timed with this chance, of 2^32.
    Sample(u32),
    /// The call is counted and timed.
    Time,
}

impl Mode {
    /// The number in the row, and the chance.
    const fn words(self) -> (u32, u32) {
        match self {
            Self::Off => (OFF, 0),
            Self::Count => (COUNT, 0),
            Self::Time => (TIME, 0),
            Self::Sample(probability) => (SAMPLE, probability),
        }
    }

    /// One call of `every` is timed.
    #[must_use]
    pub fn one_of(every: u32) -> Self {
        match every {
            0 => Self::Count,
            1 => Self::Time,
            _ => Self::Sample(probability_of(every)),
        }
    }
}

// The first three are those of `nprof_common::Mode`.
const OFF: u32 = nprof_common::Mode::Off as u32;
const COUNT: u32 = nprof_common::Mode::Count as u32;
const TIME: u32 = nprof_common::Mode::Time as u32;
const SAMPLE: u32 = 3;

/// What a stub is told when it is taken.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// The native's address.
    pub original: usize,
    /// Words that a call passes on the stack ([`crate::signature::stack_words`]).
    pub stack_words: u32,
    /// The dense index of the method.
    pub index: u32,
    /// Where its calls are recorded.
    pub place: Place,
    /// What is done at a call.
    pub mode: Mode,
    /// Timed calls of at least as many nanoseconds pass the [`chosen_site`]; if it is 0, those that are chosen with the chance
    /// that their record says.
    pub threshold_ns: u64,
}

/// A stub's line in the table.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Row {
    mode: AtomicU32,
    probability: AtomicU32,
    original: AtomicUsize,
    /// Where its calls are recorded, if they are timed.
    record: AtomicU64,
    /// Where they are, if they are counted.
    counts: AtomicU64,
    threshold_ns: AtomicU64,
    stack_words: AtomicU32,
    index: AtomicU32,
    /// What the marks of all calls of the native have in common.
    mark: AtomicU64,
    /// What the arguments are, if timed calls keep them; otherwise 0.
    kinds: AtomicU64,
}

const _: () = assert!(size_of::<Row>() == 64);

/// What is behind the stub of a JNI function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The function.
    pub(crate) original: usize,
    /// Where it takes any number of arguments: how many come before these.
    pub(crate) fixed: Option<u32>,
    /// The function that takes the same as a list, if there is one: without it, calls of such a function are not to be timed.
    pub(crate) twin: Option<usize>,
}

/// What all stubs share.
#[derive(Debug)]
#[repr(C, align(64))]
struct Settings {
    sharding: AtomicU32,
    rseq_offset: AtomicUsize,
    multiplier: AtomicU64,
    floor_ticks: AtomicU64,
    run: AtomicU64,
    rows: AtomicUsize,
    consumed: AtomicUsize,
    bytes: AtomicUsize,
}

const _: () = assert!(size_of::<Settings>() == 64);

global_asm!(
    include_str!("stubs.s"),
    STUBS = const STUBS,
    ROW_SIZE = const size_of::<Row>(),
    MODE = const offset_of!(Row, mode),
    CHANCE = const offset_of!(Row, probability),
    ORIGINAL = const offset_of!(Row, original),
    RECORDS = const offset_of!(Row, record),
    ROW_COUNTS = const offset_of!(Row, counts),
    THRESHOLD = const offset_of!(Row, threshold_ns),
    WORDS = const offset_of!(Row, stack_words),
    INDEX = const offset_of!(Row, index),
    OFF = const OFF,
    TIME = const TIME,
    SAMPLE = const SAMPLE,
    SETTINGS_SIZE = const size_of::<Settings>(),
    SHARDING = const offset_of!(Settings, sharding),
    RECORD_SIZE = const size_of::<MethodStats>(),
    SHARD_BITS = const SHARD_BITS,
    MARK = const offset_of!(Row, mark),
    KINDS = const offset_of!(Row, kinds),
    TWIN_SHIFT = const (size_of::<Row>() / size_of::<usize>()).trailing_zeros(),
    LISTED = const LISTED,
    SAVED = const SAVED,
    FRAME = const STUB_ARGS_BELOW,
    ARGS_ENV = const offset_of!(StubArgs, env),
    ARGS_KINDS = const offset_of!(StubArgs, kinds),
    RSEQ_OFFSET = const offset_of!(Settings, rseq_offset),
    MULTIPLIER = const offset_of!(Settings, multiplier),
    FLOOR = const offset_of!(Settings, floor_ticks),
    RUN = const offset_of!(Settings, run),
    ROWS = const offset_of!(Settings, rows),
    CONSUMED = const offset_of!(Settings, consumed),
    PAGE = const PAGE,
    ROW_MULTIPLIER = const MULTIPLIER,
    ROW_SHIFT = const SHIFT,
    ROW_BUCKETS = const BUCKETS,
    ROW_BUCKET_SIZE = const BUCKET_ROWS as usize * size_of::<ThreadRow>(),
    BUCKET_ROWS = const BUCKET_ROWS,
    THREAD_ROW = const size_of::<ThreadRow>(),
    THREAD_ROWS = const ROWS,
    ROW_SINCE = const offset_of!(ThreadRow, since_ns),
    ROW_USED = const offset_of!(ThreadRow, used),
    USED = const size_of::<Used>(),
    OFF_NS = const offset_of!(Used, off_ns),
    CALL = const size_of::<Call>(),
    NESTED = const offset_of!(Call, nested),
    ROW = const offset_of!(Call, row),
    AT_ENTRY = const offset_of!(Call, at_entry),
    ROWS_AT_ENTRY = const offset_of!(Call, rows),
    COUNTS = const offset_of!(Call, counts),
    BEFORE = const offset_of!(Call, before),
    BEFORE_NS = const offset_of!(Call, before_ns),
    BEFORE_OFF = const offset_of!(Call, before) + offset_of!(Used, off_ns),
    IS_COLLECTED = const offset_of!(Call, is_collected),
    NESTED_NS = const offset_of!(Nested, ns),
    NESTED_USED = const offset_of!(Nested, used),
    COLLECTED = sym collected,
    RSEQ = const Sharding::RSEQ,
    RDPID = const Sharding::RDPID,
    COUNTS_SHIFT = const COUNTS_STRIDE.trailing_zeros(),
    COUNTED = const offset_of!(StubCounts, counted),
    CHOSEN = const offset_of!(StubCounts, chosen),
    ENTERED = const offset_of!(MethodStats, entered),
    TOTAL = const offset_of!(MethodStats, total_ns),
    MAX = const offset_of!(MethodStats, max_ns),
    HISTOGRAM = const offset_of!(MethodStats, histogram),
    PER_CALL = const offset_of!(MethodStats, probability),
    PER_NS = const offset_of!(MethodStats, probability_per_ns),
    QUARTER0 = const QUARTERS[0],
    QUARTER1 = const QUARTERS[1],
    QUARTER2 = const QUARTERS[2],
    QUARTER3 = const QUARTERS[3],
    LARGEST = const LARGEST,
    GOLDEN = const GOLDEN,
    CPU_SEGMENT = const CPU_SEGMENT,
    CPU_MASK = const CPU_MASK,
);

// SAFETY: `stubs.s` defines them with these sizes, zeroed; all their fields are atomic.
unsafe extern "C" {
    static nprof_stub_pool: [[u8; STUB_SIZE]; STUBS];
    static nprof_stub_chosen: [u8; 5];
    static nprof_stub_rowless: [u8; 5];
    safe fn nprof_stub_ask();
    safe static nprof_stub_table: [Row; STUBS];
    safe static nprof_stub_twins: [AtomicUsize; STUBS];
    safe static nprof_stub_settings: Settings;
}

/// The stubs that have been taken: the first ones.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Tells the stubs how to record. Not while one may be called that is not off: shards that were added to with a lock
/// would be added to without.
pub fn configure(sharding: Sharding, clock: &Clock) {
    let settings = &nprof_stub_settings;
    let (number, rseq_offset) = sharding.words();
    settings.rseq_offset.store(rseq_offset, Ordering::Relaxed);
    settings.sharding.store(number, Ordering::Release);
    set_clock(clock);
}

/// Tells the stubs how long a tick is.
pub fn set_clock(clock: &Clock) {
    nprof_stub_settings.multiplier.store(clock.multiplier, Ordering::Relaxed);
    nprof_stub_settings.floor_ticks.store(clock.floor_ticks, Ordering::Relaxed);
}

/// Where rows of threads are, and what calls use, for [`collect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collecting {
    /// The address of the first row, where a page begins, and below it how many buckets of rows there are less one. One word, so that
    /// a stub never sees one without the other.
    pub rows: usize,
    /// How far what its calls consume is from the address of a record, divided by how many times as large the record is; 0 if that is
    /// not to be known.
    pub consumed: usize,
    /// Where it is how much each call consumed: the address, where a page begins, and below it of which counters, as bits
    /// (`call_bytes`); 0 if that is not to be known.
    pub bytes: usize,
}

/// Has it collected of timed calls that begin from now on what their threads use meanwhile; with `None` not. What is given stays
/// mapped.
pub fn collect(what: Option<Collecting>) {
    let settings = &nprof_stub_settings;
    settings.bytes.store(what.map_or(0, |what| what.bytes), Ordering::Release);
    settings.consumed.store(what.map_or(0, |what| what.consumed), Ordering::Release);
    settings.rows.store(what.map_or(0, |what| what.rows), Ordering::Release);
}

/// What [`Collecting::consumed`] and [`Collecting::bytes`] are, for a call that began in this run; both 0 if that is over, and they are
/// those of other records perhaps.
pub(crate) fn places_of_run(run: u64) -> (usize, usize) {
    let settings = &nprof_stub_settings;
    // A run is over before the places of the next are told: whoever finds those finds its number changed.
    let places = (settings.consumed.load(Ordering::Acquire), settings.bytes.load(Ordering::Acquire));
    if settings.run.load(Ordering::Acquire) == run { places } else { (0, 0) }
}

/// The dense index of a stub's method, by its line in the table.
///
/// # Safety
/// It is one, as a stub keeps it in its frame.
pub(crate) unsafe fn index_in(row: *const Row) -> u32 {
    // SAFETY: the caller's promise. The table is there for good.
    unsafe { &*row }.index.load(Ordering::Relaxed) & !StackHeader::UNASKED
}

/// Ends the run: what calls that are in flight would record when they return is recorded nowhere. To be called before
/// stubs get places among other records, and before the old ones' addresses become those of others.
pub fn end_run() {
    nprof_stub_settings.run.fetch_add(1, Ordering::SeqCst);
}

/// One stub that has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stub(usize);

impl Stub {
    /// Takes the next stub; `None` when all have been taken. [`configure`] must have been called.
    #[must_use]
    pub fn take(parameters: &Parameters) -> Option<Self> {
        let next = |taken: usize| (taken < STUBS).then_some(taken + 1);
        let stub = Self(TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?);
        let row = stub.row();
        row.original.store(parameters.original, Ordering::Relaxed);
        row.mark.store(switch::name(parameters.original as u64), Ordering::Relaxed);
        row.record.store(parameters.place.record, Ordering::Relaxed);
        row.counts.store(parameters.place.counts, Ordering::Relaxed);
        row.threshold_ns.store(parameters.threshold_ns, Ordering::Relaxed);
        row.stack_words.store(parameters.stack_words, Ordering::Relaxed);
        row.index.store(parameters.index, Ordering::Relaxed);
        stub.set_mode(parameters.mode);
        Some(stub)
    }

    /// Takes the next stub for a JNI function, which does nothing yet; `None` when all have been taken.
    pub(crate) fn take_before(behind: Behind, (place, index): (Place, u32)) -> Option<Self> {
        let (mode, threshold_ns) = (Mode::Off, u64::MAX);
        let parameters = Parameters { original: behind.original, stack_words: 0, index, place, mode, threshold_ns };
        let stub = Self::take(&parameters)?;
        stub.set_behind(behind);
        Some(stub)
    }

    /// Has it stand before this function of the same place in the table. A call that is on its way through the stub goes to this one or to
    /// the one before.
    pub(crate) fn set_behind(self, behind: Behind) {
        let row = self.row();
        let words = behind.fixed.map_or(0, |before| VARIADIC | (before * 8));
        row.stack_words.store(words, Ordering::Relaxed);
        // Without one, a call that is still being timed finds the one before.
        if let Some(twin) = behind.twin {
            nprof_stub_twins[self.0].store(twin, Ordering::Relaxed);
        }
        row.mark.store(switch::name(behind.original as u64), Ordering::Relaxed);
        row.original.store(behind.original, Ordering::Release);
    }

    /// The stub that has an entry at this address.
    #[must_use]
    pub fn at(address: usize) -> Option<Self> {
        let offset = address.checked_sub(pool_address())?;
        let number = offset / STUB_SIZE;
        let is_entry = matches!(offset % STUB_SIZE, 0 | SECOND_ENTRY);
        (is_entry && number < TAKEN.load(Ordering::Relaxed)).then_some(Self(number))
    }

    /// All that have been taken.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TAKEN.load(Ordering::Relaxed)).map(Self)
    }

    /// Where the VM is to call it.
    #[must_use]
    pub fn entry(self) -> usize {
        pool_address() + self.0 * STUB_SIZE
    }

    /// Another address that does the same, for binding a method to the stub once more: the VM does nothing when it is
    /// told the address that it knows.
    #[must_use]
    pub fn second_entry(self) -> usize {
        self.entry() + SECOND_ENTRY
    }

    /// The native behind it.
    #[must_use]
    pub fn original(self) -> usize {
        self.row().original.load(Ordering::Relaxed)
    }

    /// The dense index of its method.
    #[must_use]
    pub fn index(self) -> u32 {
        self.row().index.load(Ordering::Relaxed) & !StackHeader::UNASKED
    }

    /// Whether nothing is done at calls.
    #[must_use]
    pub fn is_off(self) -> bool {
        self.row().mode.load(Ordering::Relaxed) == OFF
    }

    /// Changes what is done at calls that begin from now on. Calls in flight end as they began.
    pub fn set_mode(self, mode: Mode) {
        let (mode, probability) = mode.words();
        self.row().probability.store(probability, Ordering::Relaxed);
        self.row().mode.store(mode, Ordering::Release);
    }

    /// Has calls that begin from now on recorded elsewhere. Calls in flight end where they began: that must stay mapped,
    /// which [`crate::records::Records`] always are.
    /// Calls that it chooses say whether anybody `is_asked` for them ([`StackHeader::UNASKED`]).
    pub fn set_place(self, place: Place, index: u32, is_asked: bool) {
        let index = if is_asked { index } else { index | StackHeader::UNASKED };
        self.row().index.store(index, Ordering::Relaxed);
        self.row().record.store(place.record, Ordering::Release);
        self.row().counts.store(place.counts, Ordering::Release);
    }

    /// Changes which calls pass the [`chosen_site`].
    pub fn set_threshold_ns(self, threshold_ns: u64) {
        self.row().threshold_ns.store(threshold_ns, Ordering::Relaxed);
    }

    /// Has timed calls that begin from now on keep what they are made with, if `kinds` is not 0 ([`StubArgs`]).
    pub fn set_kinds(self, kinds: u64) {
        self.row().kinds.store(kinds, Ordering::Relaxed);
    }

    fn row(self) -> &'static Row {
        &nprof_stub_table[self.0]
    }
}

/// The address of the instruction, a nop of five bytes, that each chosen call passes before it returns: with the method's
/// index in `edi` ([`StackHeader::UNASKED`] in it), the nanoseconds in `rsi` and the chance that it had in `rdx`, of 2^32. A probe there costs the other calls
/// nothing.
#[must_use]
pub fn chosen_site() -> usize {
    (&raw const nprof_stub_chosen).addr()
}

/// Asks the kernel to put right what the current thread's row says: a probe at [`rowless_site`] does it.
pub(crate) fn ask() {
    nprof_stub_ask();
}

/// The address of the instruction, a nop of five bytes, that a thread passes that has no row, or whose row is behind, with the
/// address of its control block in `rax`.
#[must_use]
pub fn rowless_site() -> usize {
    (&raw const nprof_stub_rowless).addr()
}

/// Where the stubs are.
#[must_use]
pub fn addresses() -> Range<usize> {
    pool_address()..pool_address() + STUBS * STUB_SIZE
}

/// How many stubs have been taken.
#[must_use]
pub fn taken() -> usize {
    TAKEN.load(Ordering::Relaxed)
}

fn pool_address() -> usize {
    (&raw const nprof_stub_pool).addr()
}

#[cfg(test)]
mod tests;
