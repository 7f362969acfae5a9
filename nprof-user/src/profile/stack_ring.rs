//! One ring for many JVMs: a thread looks into it, hands each stack to whoever reads those of its JVM, and shares what may be
//! taken among the JVMs. It reads nothing of a target, and so waits for none.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nprof_common::{StackHeader, StackKind};

use super::pacing::Pacing;
use super::slow_queue::{SlowEntrance, SlowQueue, slow_queue};
use super::{Flow, Functions, Paces, RateController};
use crate::attach::{Feeds, Taken};
use crate::model::Pid;

/// How often the ring is looked into: seldom, for an idle host pays for each look, and often enough for code to be still there.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often it is decided anew which calls are taken: all functions of all JVMs are looked at for it. The ring has room for what may
/// be taken meanwhile.
const PACE_EVERY: Duration = Duration::from_millis(500);
/// The same where more calls are chosen than may be taken.
const PACE_IN_A_HURRY: Duration = Duration::from_millis(20);
/// Stacks of a JVM that wait to be read: more than are taken in the time that a busy machine makes a reader wait.
const QUEUED: usize = 64;
/// The same of what native code makes, of which stacks may be taken one after the other.
const QUEUED_MADE: usize = 256;
/// The same of slow calls: of more than that the shortest are passed over. Few of them have stacks ([`SLOW_STACKS`]), and of a native that is
/// called a million times in a second they are those of some milliseconds that the reader has to wait for a CPU.
const QUEUED_SLOW: usize = 1 << 14;
/// The most stacks of slow calls and of what is made in a second, and at once.
const SLOW_STACKS: f64 = 200.0;
const SLOW_BURST: f64 = 100.0;

/// How long the thread may take to come round: it waits for nobody.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// The thread, until it is dropped.
pub struct StackRing {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A JVM's calls, until it is removed.
type Source = Arc<Mutex<Option<Box<dyn Functions>>>>;

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// How many times the ring was looked into.
    passes: AtomicU64,
    jvms: Mutex<Jvms>,
    /// What became of stacks in the kernel.
    taken: Mutex<Taken>,
    /// Stacks of processes that nobody reads, or not any more.
    unclaimed: AtomicU64,
}

#[derive(Default)]
struct Jvms {
    next: u64,
    by_number: HashMap<u64, Watched>,
}

struct Watched {
    pid: Pid,
    functions: Source,
    entrance: Entrance,
}

/// Where the stacks of a JVM are put.
enum Entrance {
    /// Those of one group that is no slow calls, if there is room.
    Some { group: Group, queue: SyncSender<Box<[u8]>>, refused: Arc<AtomicU64> },
    /// Slow calls.
    Slow(SlowEntrance),
}

/// What stacks are of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Calls that are sampled.
    Sampled,
    Slow,
    /// What native code makes.
    Made,
}

/// The stacks of one JVM as they come.
#[derive(Debug)]
pub struct StackQueue {
    /// What the JVM is known by to the ring.
    number: u64,
    stacks: Receiver<Box<[u8]>>,
    refused: Arc<AtomicU64>,
}

impl StackRing {
    /// Begins to take stacks, so many in a second at most.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(feeds: Feeds, max_stacks: u32) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let rate_controller = RateController::new(max_stacks, max_stacks).with_burst(PACE_EVERY.as_secs_f64());
        let slow_pace = SlowPace { tokens: SLOW_BURST, taken: 0, paced: Instant::now() };
        let worker = Worker { feeds, rate_controller, slow_pace, shared: Arc::clone(&shared) };
        let thread = thread::Builder::new().name("nprof-stacks".to_owned()).spawn(move || worker.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Has the stacks of a JVM taken from now on.
    #[must_use]
    pub fn add(&self, pid: Pid, functions: Box<dyn Functions>) -> StackQueue {
        self.add_queue(pid, Arc::new(Mutex::new(Some(functions))), (Group::Sampled, QUEUED))
    }

    /// Has the stacks taken from now on in which native code of a JVM makes something.
    #[must_use]
    pub fn add_made(&self, pid: Pid) -> StackQueue {
        self.add_queue(pid, Source::default(), (Group::Made, QUEUED_MADE))
    }

    fn add_queue(&self, pid: Pid, functions: Source, (group, room): (Group, usize)) -> StackQueue {
        let (queue, stacks) = sync_channel(room);
        let refused = Arc::new(AtomicU64::new(0));
        let entrance = Entrance::Some { group, queue, refused: Arc::clone(&refused) };
        let number = lock(&self.shared.jvms).add(Watched { pid, functions, entrance });
        StackQueue { number, stacks, refused }
    }

    /// Has the slow calls of a JVM taken from now on.
    #[must_use]
    pub fn add_slow(&self, pid: Pid) -> SlowQueue {
        let mut jvms = lock(&self.shared.jvms);
        let (entrance, queue) = slow_queue(jvms.next, QUEUED_SLOW);
        jvms.add(Watched { pid, functions: Source::default(), entrance: Entrance::Slow(entrance) });
        queue
    }

    /// Ends that: nobody asks for its functions when this returns. Its queue ends with the stacks that are in it.
    pub fn remove(&self, number: u64) {
        let removed = lock(&self.shared.jvms).by_number.remove(&number);
        if let Some(watched) = removed {
            drop(lock(&watched.functions).take());
        }
    }

    /// Waits until everything has been given to its reader that is in the ring now.
    pub fn flush(&self) {
        let begun = self.shared.passes.load(Ordering::Acquire);
        let deadline = Instant::now() + FLUSH_LIMIT;
        // One may be under way that has passed it.
        while self.shared.passes.load(Ordering::Acquire) < begun + 2 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What became of the stacks that were chosen, and how many came too late to be given to anybody.
    #[must_use]
    pub fn taken(&self) -> (Taken, u64) {
        (*lock(&self.shared.taken), self.shared.unclaimed.load(Ordering::Relaxed))
    }
}

impl Drop for StackRing {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that takes stacks has failed");
        }
    }
}

impl Jvms {
    /// Takes one in. Returns what it is known by.
    fn add(&mut self, watched: Watched) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, watched);
        number
    }

    /// Gives a stack to its JVM's reader, who misses it if he is too slow. Returns whether there is one.
    fn give(&self, record: &[u8]) -> bool {
        let (pid, group) = (process_of(record), group_of(record));
        // Of two JVMs that one process has run, the later.
        let of = |(_, watched): &(&u64, &Watched)| Some(watched.pid) == pid && watched.entrance.group() == group;
        let found = self.by_number.iter().filter(of).max_by_key(|(number, _)| **number);
        let Some((_, watched)) = found else { return false };
        watched.entrance.put(record)
    }
}

impl Entrance {
    fn group(&self) -> Group {
        match self {
            Self::Some { group, .. } => *group,
            Self::Slow(_) => Group::Slow,
        }
    }

    /// Puts a stack in. Returns whether somebody takes it out.
    fn put(&self, record: &[u8]) -> bool {
        let (queue, refused) = match self {
            Self::Some { queue, refused, .. } => (queue, refused),
            Self::Slow(entrance) => {
                entrance.put(worth_of(record), record);
                return true;
            }
        };
        match queue.try_send(record.into()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                refused.fetch_add(1, Ordering::Relaxed);
                true
            }
            // Its reader has failed, which has been said.
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

impl StackQueue {
    /// What the JVM is known by to the ring.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Waits for the next stack, as the programs have laid it out.
    ///
    /// # Errors
    /// If there is none until then, or if there will be none any more.
    pub fn next(&self, patience: Duration) -> Result<Box<[u8]>, RecvTimeoutError> {
        self.stacks.recv_timeout(patience)
    }

    /// How many stacks had no room since the last time that somebody asked.
    #[must_use]
    pub fn take_refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }
}

struct Worker {
    feeds: Feeds,
    rate_controller: RateController,
    slow_pace: SlowPace,
    shared: Arc<Shared>,
}

/// How many stacks of slow calls may be taken: so many in a second, and as many at once as were not taken before.
struct SlowPace {
    tokens: f64,
    /// How many had been taken at the last look.
    taken: u64,
    paced: Instant,
}

impl SlowPace {
    /// How many may be taken from now on, if `taken` have been by now.
    fn step(&mut self, taken: u64, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.paced).as_secs_f64();
        let spent = taken.saturating_sub(self.taken) as f64;
        self.tokens = (self.tokens - spent + passed * SLOW_STACKS).clamp(0.0, SLOW_BURST);
        (self.taken, self.paced) = (taken, now);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the burst")]
        let allowed = self.tokens as u64;
        allowed
    }
}

impl Worker {
    fn run(mut self) {
        let mut pacing = Pacing::new(PACE_EVERY, PACE_IN_A_HURRY);
        self.pace(&mut pacing);
        self.pace_slow();
        while !self.shared.stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
            self.hand_out();
            self.shared.passes.fetch_add(1, Ordering::Release);
            self.pace_slow();
            let now = self.feeds.taken();
            if pacing.is_due(&now) {
                self.pace(&mut pacing);
                *lock(&self.shared.taken) = now;
            }
        }
        self.feeds.allow(0);
    }

    /// Gives each stack to its JVM's reader.
    fn hand_out(&mut self) {
        let mut jvms = None;
        let shared = &self.shared;
        self.feeds.read_raw_stacks(|record| {
            let given = jvms.get_or_insert_with(|| lock(&shared.jvms)).give(record);
            if !given {
                shared.unclaimed.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    fn pace_slow(&mut self) {
        let taken = self.feeds.slow_taken();
        self.feeds.allow_slow(taken + self.slow_pace.step(taken, Instant::now()));
    }

    /// Decides which calls are taken from now on.
    fn pace(&mut self, pacing: &mut Pacing) {
        let sources: Vec<(u64, Source)> = {
            let jvms = lock(&self.shared.jvms);
            jvms.by_number.iter().map(|(number, watched)| (*number, Arc::clone(&watched.functions))).collect()
        };
        let flows = |(number, source): &(u64, Source)| {
            let flows = lock(source).as_ref().map(|functions| functions.flows()).unwrap_or_default();
            (*number, flows)
        };
        let flows: Vec<(u64, Vec<Flow>)> = sources.iter().map(flows).collect();
        let (passed, taken) = pacing.step(self.feeds.taken());
        let flows: Vec<(u64, &[Flow])> = flows.iter().map(|(number, flows)| (*number, &flows[..])).collect();
        let paces: Vec<Paces> = self.rate_controller.step_all(&flows, passed, taken);
        for ((_, source), paces) in sources.iter().zip(&paces) {
            if let Some(functions) = &mut *lock(source) {
                functions.pace(paces);
            }
        }
        if let Some(first) = paces.first() {
            self.feeds.set_period(Some(first.period));
            self.feeds.allow(first.allow);
        }
    }
}

/// What a record is of.
fn group_of(record: &[u8]) -> Group {
    const GROUPS: [(StackKind, Group); 4] = [
        (StackKind::Slow, Group::Slow),
        (StackKind::SlowStub, Group::Slow),
        (StackKind::SlowUnasked, Group::Slow),
        (StackKind::Made, Group::Made),
    ];
    let kind = word_of(record, offset_of!(StackHeader, kind));
    let known = GROUPS.iter().find(|(of, _)| kind == Some(*of as u32));
    known.map_or(Group::Sampled, |(_, group)| *group)
}

/// The process whose stack a record is.
fn process_of(record: &[u8]) -> Option<Pid> {
    word_of(record, offset_of!(StackHeader, tgid)).map(Pid)
}

/// How long a slow call took, in nanoseconds, as far as that makes it worth a place; `None` of one that is perhaps not wanted.
fn worth_of(record: &[u8]) -> Option<u64> {
    let (header, ..) = StackHeader::take_apart(record)?;
    (header.kind != StackKind::SlowUnasked as u32).then_some(header.time_ns)
}

fn word_of(record: &[u8], at: usize) -> Option<u32> {
    let bytes = record.get(at..at + size_of::<u32>())?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these is set or replaced as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for StackRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackRing").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;

    struct Nothing;

    impl Functions for Nothing {
        fn flows(&self) -> Vec<Flow> {
            Vec::new()
        }

        fn pace(&mut self, _paces: &Paces) {}
    }

    fn ring() -> StackRing {
        StackRing { shared: Arc::default(), thread: None }
    }

    fn add(ring: &StackRing, pid: u32) -> StackQueue {
        ring.add(Pid(pid), Box::new(Nothing))
    }

    fn give(ring: &StackRing, tgid: u32, index: u32) -> bool {
        lock(&ring.shared.jvms).give(StackHeader { tgid, index, ..StackHeader::default() }.as_bytes())
    }

    /// The indices of the stacks that are there.
    fn taken(queue: &StackQueue) -> Vec<u32> {
        std::iter::from_fn(|| queue.next(Duration::ZERO).ok())
            .map(|record| StackHeader::take_apart(&record).unwrap().0.index)
            .collect()
    }

    /// Check that each JVM gets its own stacks, in their order, and of two in one process the later; and that nobody gets those of
    /// others, nor what is no stack.
    #[test]
    fn each_has_its_own() {
        let ring = ring();
        let (one, other) = (add(&ring, 7), add(&ring, 8));
        assert!(give(&ring, 7, 1) && give(&ring, 8, 2) && give(&ring, 7, 3));
        let later = add(&ring, 7);
        assert!(give(&ring, 7, 4) && !give(&ring, 9, 5));
        assert!(!lock(&ring.shared.jvms).give(&[0; 3]));
        assert_eq!([taken(&one), taken(&other), taken(&later)], [vec![1, 3], vec![2], vec![4]]);
    }

    /// Check that a reader that is too slow misses stacks, which are counted once, and keeps nobody else from any.
    #[test]
    fn a_queue_is_bounded() {
        let ring = ring();
        let (slow, quick) = (add(&ring, 7), add(&ring, 8));
        assert!((0..100).all(|index| give(&ring, 7, index)) && give(&ring, 8, 1));
        assert_eq!((slow.take_refused(), slow.take_refused(), taken(&slow).len()), (36, 0, QUEUED));
        assert_eq!((quick.take_refused(), taken(&quick)), (0, vec![1]));
    }

    /// Check that slow calls go to their own reader and sampled ones to theirs.
    #[test]
    fn slow_calls_are_told_apart() {
        let ring = ring();
        let (sampled, slow) = (add(&ring, 7), ring.add_slow(Pid(7)));
        let give = |kind: StackKind, index| {
            let header = StackHeader { kind: kind as u32, tgid: 7, index, ..StackHeader::default() };
            lock(&ring.shared.jvms).give(header.as_bytes())
        };
        assert!(give(StackKind::Slow, 1) && give(StackKind::Return, 2) && give(StackKind::SlowStub, 3));
        assert!(give(StackKind::Stub, 4));
        let slow = std::iter::from_fn(|| slow.next(Duration::ZERO).ok());
        let slow: Vec<u32> = slow.map(|record| StackHeader::take_apart(&record).unwrap().0.index).collect();
        assert_eq!([taken(&sampled), slow], [vec![2, 4], vec![1, 3]]);
    }

    /// Check that stacks of slow calls are taken at once as long as there were few, and then at the pace.
    #[test]
    fn the_pace_of_slow_calls() {
        let start = Instant::now();
        let mut pace = SlowPace { tokens: SLOW_BURST, taken: 0, paced: start };
        let mut step = |taken, ms| pace.step(taken, start + Duration::from_millis(ms));
        assert_eq!(
            [step(0, 0), step(100, 0), step(100, 100), step(120, 200), step(120, 10_000)],
            [100, 0, 20, 20, 100]
        );
    }

    /// Check that a queue ends with what is in it when its JVM is removed, and that nothing is left of that.
    #[test]
    fn an_end_comes_last() {
        let ring = ring();
        let queue = add(&ring, 7);
        assert!(give(&ring, 7, 1));
        ring.remove(queue.number());
        assert!(!give(&ring, 7, 2));
        assert_eq!(taken(&queue), [1]);
        assert!(matches!(queue.next(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected)));
        assert!(lock(&ring.shared.jvms).by_number.is_empty());
    }
}
