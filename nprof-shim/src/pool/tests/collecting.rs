//! What threads use meanwhile: stubs read rows that these tests write as the kernel does.

use std::arch::asm;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nprof_common::rows::{LEAST_ROWS, bucket_of};
use nprof_common::wire::Layout;
use nprof_common::{CallBytes, Consumed, Counter};

use super::*;
use crate::collected::COLLECTED;
use crate::records::Run;

/// A file of rows, in which the current thread has one if it is to.
struct Rows {
    file: File,
    /// How many there are.
    count: u32,
    /// Where in it that is.
    row: u64,
}

impl Rows {
    fn new(count: u32, has_row: bool) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(u64::from(count) * size_of::<ThreadRow>() as u64).unwrap();
        let key = this_thread();
        // Not the first of its bucket.
        let row = u64::from(bucket_of(key, count / BUCKET_ROWS) * BUCKET_ROWS + 2) * size_of::<ThreadRow>() as u64;
        let rows = Self { file, count, row };
        if has_row {
            rows.write(offset_of!(ThreadRow, key), key);
        }
        rows
    }

    fn file(&self) -> OwnedFd {
        self.file.try_clone().unwrap().into()
    }

    /// The kernel lets the thread wait for so long, and counts so many waits for locks.
    fn use_up(&self, ns: u64, waits: u64) {
        let used = offset_of!(ThreadRow, used);
        self.add(used + offset_of!(Used, off_ns), ns);
        self.add(used + offset_of!(Used, counters) + 8 * Counter::LockWaits as usize, waits);
    }

    fn add(&self, offset: usize, more: u64) {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, self.row + offset as u64).unwrap();
        self.write(offset, u64::from_ne_bytes(word) + more);
    }

    fn write(&self, offset: usize, word: u64) {
        self.file.write_all_at(&word.to_ne_bytes(), self.row + offset as u64).unwrap();
    }
}

fn this_thread() -> u64 {
    let address;
    // SAFETY: every thread has this word.
    unsafe { asm!("mov {}, fs:[0]", out(reg) address, options(nostack, readonly, preserves_flags)) };
    address
}

/// What natives find, who have no arguments.
static WORLD: Mutex<Option<(Rows, Stub)>> = Mutex::new(None);

fn use_up(ns: u64, waits: u64) {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner).as_ref().unwrap().0.use_up(ns, waits);
}

extern "C" fn inner() {
    use_up(500, 3);
}

/// Calls the stub of `inner` twice, and waits before, in between and afterwards.
extern "C" fn outer(value: f64) -> f64 {
    use_up(1, 0);
    let stub = WORLD.lock().unwrap_or_else(PoisonError::into_inner).as_ref().unwrap().1;
    call(stub);
    use_up(20, 1);
    call(stub);
    use_up(300, 0);
    value + 1.0
}

extern "C" fn next_run() {
    use_up(500, 3);
    end_run();
}

fn call(stub: Stub) {
    // SAFETY: the stub stands before a function without arguments.
    let through = unsafe { std::mem::transmute::<usize, extern "C" fn()>(stub.entry()) };
    through();
}

fn call_outer(stub: Stub, value: f64) -> f64 {
    // SAFETY: the stub stands before `outer`.
    let through = unsafe { std::mem::transmute::<usize, extern "C" fn(f64) -> f64>(stub.entry()) };
    through(value)
}

/// Records of two methods with what their calls consume, in a file.
struct Recorded {
    file: File,
    records: Records,
}

const SHARDS: usize = CPUS as usize + 1;
/// Of which it is recorded how much each call consumed, where anything is.
const BYTES: [Counter; 2] = [Counter::ReadBytes, Counter::AllocBytes];
/// Where that is.
const BYTES_AT: usize = (2 * SHARDS * (size_of::<MethodStats>() + size_of::<Consumed>())).next_multiple_of(4_096);

impl Recorded {
    fn new(rows: &Rows, consumed: bool) -> Self {
        let file = tempfile::tempfile().unwrap();
        let bytes = if consumed { BYTES.map(Counter::bit).iter().sum() } else { 0 };
        let run = Run { first: 0, records: 2, shards: CPUS, consumed, bytes };
        file.set_len(Layout::of(2, CPUS + 1, consumed, bytes).unwrap().end).unwrap();
        let records = Records::map_run(file.try_clone().unwrap().into(), run).unwrap();
        let records = records.with_rows(rows.file(), rows.count).unwrap();
        collect(records.collecting());
        Self { file, records }
    }

    fn stub(&self, function: usize, index: u32) -> Stub {
        let place = self.records.place(index).unwrap();
        let (mode, threshold_ns) = (Mode::Time, u64::MAX);
        Stub::take(&Parameters { original: function, stack_words: 0, index, place, mode, threshold_ns }).unwrap()
    }

    /// The time, that of nested calls and that of waiting of a method.
    fn times(&self, index: u32) -> [u64; 3] {
        let sum = |offset: usize| self.sum(index, offset, 0, size_of::<MethodStats>());
        [offset_of!(MethodStats, total_ns), offset_of!(MethodStats, child_ns), offset_of!(MethodStats, off_ns)].map(sum)
    }

    /// Its waits for locks, with and without those of nested calls.
    fn waits(&self, index: u32) -> [u64; 2] {
        let behind = 2 * SHARDS * size_of::<MethodStats>();
        let of = |offset: usize| offset + 8 * Counter::LockWaits as usize;
        [of(offset_of!(Consumed, total)), of(offset_of!(Consumed, own))]
            .map(|offset| self.sum(index, offset, behind, size_of::<Consumed>()))
    }

    /// The most that a call of a method consumed of the counters that count bytes, and how many calls consumed this much.
    fn bytes(&self, index: u32, much: u64) -> [[u64; 2]; 2] {
        let word = |place: usize, offset: usize| {
            let begin = BYTES_AT + (index as usize * BYTES.len() + place) * size_of::<CallBytes>();
            let mut word = [0; 8];
            self.file.read_exact_at(&mut word, (begin + offset) as u64).unwrap();
            u64::from_ne_bytes(word)
        };
        let bucket = nprof_common::histogram::bucket_of(much) as usize;
        let (max, calls) = (offset_of!(CallBytes, max), offset_of!(CallBytes, calls) + 8 * bucket);
        [0, 1].map(|place| [word(place, max), word(place, calls)])
    }

    fn sum(&self, index: u32, offset: usize, begin: usize, size: usize) -> u64 {
        let word = |shard: usize| {
            let mut word = [0; 8];
            let place = begin + (index as usize * SHARDS + shard) * size + offset;
            self.file.read_exact_at(&mut word, place as u64).unwrap();
            u64::from_ne_bytes(word)
        };
        (0..SHARDS).map(word).sum()
    }
}

/// Check that what a thread used meanwhile is a call's, with what nested calls used told apart, in all shardings; that results
/// pass; and that nothing is left over for the next call; with as many rows as there may be, and as few; and with times only, where
/// counters are nobody's, whatever the row says.
#[test]
fn used_by_whom() {
    let (_turn, _file) = (turn(), crate::memory::tests::turn());
    let kinds = [(ROWS, true), (LEAST_ROWS, true), (LEAST_ROWS, false)];
    for (sharding, (count, counts)) in Sharding::all().flat_map(|sharding| kinds.map(|kind| (sharding, kind))) {
        let waits = |own: u64, nested: u64| if counts { [own + nested, own] } else { [0; 2] };
        configure(sharding, &Clock::estimate());
        let rows = Rows::new(count, true);
        let recorded = Recorded::new(&rows, counts);
        let [inner, outer] = [(inner as *const () as usize, 0), (outer as *const () as usize, 1)]
            .map(|(function, index)| recorded.stub(function, index));
        *WORLD.lock().unwrap() = Some((rows, inner));
        for round in 1..=3 {
            assert_eq!(call_outer(outer, 0.5), 1.5);
            call(inner);
            let [inner_ns, nested_ns, off_ns] = recorded.times(0);
            assert_eq!((nested_ns, off_ns, recorded.waits(0)), (0, round * 1_500, waits(9 * round, 0)), "{sharding:?}");
            let [outer_ns, nested_ns, off_ns] = recorded.times(1);
            assert_eq!((off_ns, recorded.waits(1)), (round * 321, waits(round, 6 * round)), "{sharding:?}");
            assert!((1..outer_ns).contains(&nested_ns) && nested_ns <= inner_ns, "{sharding:?}");
        }
        collect(None);
    }
}

/// The next call of [`moves`] is of so many bytes.
static NEXT: AtomicU64 = AtomicU64::new(0);

extern "C" fn moves() {
    let world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    let of = |counter: Counter| offset_of!(ThreadRow, used) + offset_of!(Used, counters) + 8 * counter as usize;
    let rows = &world.as_ref().unwrap().0;
    rows.add(of(Counter::AllocBytes), NEXT.load(Ordering::Relaxed));
    // Whatever the kernel counts of what nobody wants, and what is no number of bytes.
    [Counter::SentBytes, Counter::Syscalls].iter().for_each(|&counter| rows.add(of(counter), 7));
}

/// Check that each call is in the histogram of its own method and of the bytes that it moved, in all shardings, that calls that moved none
/// are in none, and that nothing is written where that is not wanted.
#[test]
fn bytes_of_each_call() {
    let (_turn, _file) = (turn(), crate::memory::tests::turn());
    for (sharding, counts) in Sharding::all().flat_map(|sharding| [(sharding, true), (sharding, false)]) {
        configure(sharding, &Clock::estimate());
        let rows = Rows::new(LEAST_ROWS, true);
        let recorded = Recorded::new(&rows, counts);
        let stub = recorded.stub(moves as *const () as usize, 1);
        *WORLD.lock().unwrap() = Some((rows, stub));
        for bytes in [100, 0, 5_000, 100] {
            NEXT.store(bytes, Ordering::Relaxed);
            call(stub);
        }
        let known = |max: u64, calls: u64| if counts { [max, calls] } else { [0; 2] };
        assert_eq!(recorded.bytes(1, 100), [[0, 0], known(5_000, 2)], "{sharding:?}");
        assert_eq!(recorded.bytes(1, 5_000), [[0, 0], known(5_000, 1)], "{sharding:?}");
        assert_eq!(recorded.bytes(0, 100), [[0; 2]; 2], "{sharding:?}");
        collect(None);
    }
}

extern "C" fn idle() {}

/// Check that a call that uses nothing is not added up by the function, whatever its thread has used in calls before.
#[test]
fn used_before() {
    let (_turn, _file) = (turn(), crate::memory::tests::turn());
    configure(Sharding::best(), &Clock::estimate());
    for counts in [true, false] {
        let rows = Rows::new(LEAST_ROWS, true);
        let recorded = Recorded::new(&rows, counts);
        let inner = recorded.stub(inner as *const () as usize, 0);
        *WORLD.lock().unwrap() = Some((rows, inner));
        let idle = recorded.stub(idle as *const () as usize, 1);
        let before = COLLECTED.load(Ordering::Relaxed);
        [inner, idle, idle].into_iter().for_each(call);
        assert_eq!(COLLECTED.load(Ordering::Relaxed) - before, 1, "{counts}");
        let [_, nested_ns, off_ns] = recorded.times(1);
        assert_eq!((nested_ns, off_ns, recorded.waits(1)), (0, 0, [0; 2]));
        collect(None);
    }
}

/// Check that a thread without a row is timed all the same, passes a nop on its way, and that a call whose run is over by its
/// end is recorded nowhere.
#[test]
fn used_by_nobody() {
    let (_turn, _file) = (turn(), crate::memory::tests::turn());
    // SAFETY: code never changes.
    assert_eq!(unsafe { nprof_stub_rowless }, [0x0f, 0x1f, 0x44, 0x00, 0x00]);
    configure(Sharding::best(), &Clock::estimate());
    for (function, has_row, is_timed) in
        [(inner as *const () as usize, false, true), (next_run as *const () as usize, true, false)]
    {
        let rows = Rows::new(LEAST_ROWS, has_row);
        let recorded = Recorded::new(&rows, true);
        let stub = recorded.stub(function, 0);
        *WORLD.lock().unwrap() = Some((rows, stub));
        call(stub);
        let [total_ns, nested_ns, off_ns] = recorded.times(0);
        assert_eq!((total_ns > 0, nested_ns, off_ns, recorded.waits(0)), (is_timed, 0, 0, [0; 2]));
        collect(None);
    }
}

/// Check that rows that cannot be as many as nprof says are refused, and that rows which are let go of are not read any more.
#[test]
fn rows_come_and_go() {
    let (_turn, _file) = (turn(), crate::memory::tests::turn());
    let rows = Rows::new(64, true);
    let mut records = Recorded::new(&rows, true).records;
    for wrong in [0, LEAST_ROWS / 2, 48, 128, 2 * ROWS] {
        assert!(records.with_rows(rows.file(), wrong).is_err(), "{wrong}");
    }
    assert!(records.collecting().is_some_and(|what| what.rows % 4_096 == 7));
    records.let_rows_go().unwrap();
    assert_eq!(records.collecting(), None);
    collect(None);
}
