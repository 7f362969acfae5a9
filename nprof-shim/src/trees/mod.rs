//! Methods that tell of themselves: classes are enhanced by nprof, and what their methods call is recorded in rings that nprof reads.
//!
//! ```text
//! enhanced method ──> java.lang.NprofTree (`hook`) ──> native (`record`) ──> ring of the thread (`rows`)
//! nprof ──> our own thread ──> RetransformClasses (`classes`) ──> the VM asks us for the class file ──> nprof ──> the new file
//! ```
//!
//! # Who waits
//! Our own thread alone: for nprof's new file of a class, for two seconds at most. Threads of the JVM write to their rings, take no lock and
//! wait for nobody; what finds no room is counted. Loading of classes by other threads is passed through.
//!
//! # How classes are restored
//! They are retransformed once more, and this time left as they are: the VM gives them the file that they had before us, with the
//! changes of other agents. That is done at the end, and when nprof has gone without a word. A thread that is still in an enhanced
//! method calls the hook until it leaves it; nothing is recorded then.
//!
//! # Tasks
//! Where a followed method hands a task to another thread, methods of the JDK tell of making and running tasks (`tasks`).
//!
//! # What stays
//! The class of the hook, with its natives, as those of `helper`; the addresses of the shared memory (`memory`); and marks of tasks, as long as these are there.

mod classes;
mod exceptions;
mod hook;
mod record;
mod rows;
mod tasks;
mod waits;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nprof_common::tree;

pub(crate) use self::classes::{Classes, Restored, class_file_loaded, has_changed_classes};
use self::exceptions::Exceptions;
pub(crate) use self::exceptions::Named;
use self::rows::Rows;
use self::tasks::Tasks;
use self::waits::Waits;
use crate::agent::Agent;
use crate::jni::Jni;
use crate::jvmti::Jvmti;
use crate::memory::{Shared, Words};
use crate::records::map_rows;
use crate::{helper, jvmti};

/// How long is waited at the end for threads that are writing, and how often it is looked.
const STEPS: u32 = 200;
const STEP: Duration = Duration::from_millis(1);
/// What is mapped, in bytes.
const BYTES: usize = tree::WORDS * 8;

static TREES: OnceLock<Trees> = OnceLock::new();
/// The right to begin and to end. Not held by threads that are recorded.
static CHANGE: Mutex<Option<Mapped>> = Mutex::new(None);

/// What is mapped of nprof's.
#[derive(Debug)]
struct Mapped {
    memory: Shared,
    /// What the kernel knows of threads, if that is wanted.
    rows: Option<Shared>,
}

/// All that threads need that are recorded. It stays once it is made.
#[derive(Debug)]
struct Trees {
    is_on: AtomicBool,
    /// How many methods are entry methods: those with the first numbers.
    entries: AtomicU32,
    /// The counters of threads that are told of, as their bits.
    counted: AtomicU32,
    /// Where the shared memory is. It stays mapped, be it to something else.
    memory: AtomicUsize,
    /// The number of the run: what a thread keeps of an earlier one means nothing.
    run: AtomicU32,
    rows: Rows,
    waits: Waits,
    exceptions: Exceptions,
    tasks: Tasks,
}

/// Why methods cannot tell of themselves.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("another nprof follows trees here already")]
    Twice,
    #[error("the memory for trees did not come along")]
    NoMemory,
    #[error("trees have not been prepared")]
    Unprepared,
    #[error("there is no memory for trees: {0}")]
    Memory(#[from] io::Error),
    #[error("the VM refuses the class java.lang.NprofTree")]
    Hook,
    #[error("the natives of java.lang.NprofTree cannot be bound: {0}")]
    Bind(#[from] helper::Error),
    #[error("classes cannot be changed here: {0}")]
    Vm(#[from] jvmti::Error),
}

/// The memory that is shared with nprof.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory(Words);

impl Memory {
    /// What has been put into the area.
    pub(crate) fn taken(self, bytes: usize) -> Vec<u8> {
        let words = self.area().iter().take(bytes.div_ceil(8));
        let mut taken: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        taken.truncate(bytes);
        taken
    }

    /// Puts something into the area; `false` if it does not fit.
    pub(crate) fn put(self, bytes: &[u8]) -> bool {
        for (place, bytes) in self.area().iter().zip(bytes.chunks(8)) {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            place.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        bytes.len() <= tree::AREA_BYTES
    }

    fn area(self) -> Words {
        self.0.get(tree::AREA..tree::AREA + tree::AREA_WORDS).unwrap_or_default()
    }
}

/// Makes ready: maps the memory, and so many rows of threads, and defines the hook. Nothing is recorded yet.
pub(crate) fn prepare(
    agent: &Agent,
    jni: Jni,
    [memory, of_threads]: [Option<OwnedFd>; 2],
    rows: u32,
) -> Result<Memory, Error> {
    let mut change = change();
    if change.is_some() {
        return Err(Error::Twice);
    }
    agent.jvmti.may_retransform()?;
    agent.jvmti.may_mark()?;
    let trees = trees(agent.jvmti)?;
    hook::define(agent, jni)?;
    let shared = Shared::map(memory.ok_or(Error::NoMemory)?.as_fd(), 0, BYTES, BYTES)?;
    let of_threads = of_threads.filter(|_| rows > 0).map(|file| map_rows(file, rows)).transpose();
    // What cannot be used is not kept. If not even that can be done, its addresses are left alone.
    let of_threads = of_threads.inspect_err(|_unusable| drop(shared.let_go()))?;
    trees.memory.store(shared.words().as_ptr().expose_provenance(), Ordering::Release);
    trees.waits.set(of_threads.map(|rows| rows.words()));
    let counted = shared.words().get(tree::COUNTED).map_or(0, |word| word.load(Ordering::Acquire));
    trees.counted.store(u32::try_from(counted).unwrap_or(0), Ordering::Release);
    trees.run.fetch_add(1, Ordering::AcqRel);
    trees.tasks.forget();
    *change = Some(Mapped { memory: shared, rows: of_threads });
    Ok(Memory(shared.words()))
}

/// Records what enhanced methods tell, from the next call of an entry method on.
pub(crate) fn record(agent: &Agent, entries: u32) -> Result<(), Error> {
    let change = change();
    let trees = TREES.get().filter(|_| change.is_some()).ok_or(Error::Unprepared)?;
    trees.entries.store(entries, Ordering::Relaxed);
    agent.note(agent.jvmti.notice_thread_ends(true));
    trees.is_on.store(true, Ordering::Release);
    Ok(())
}

/// Records nothing any more.
pub(crate) fn pause(agent: &Agent) {
    let _change = change();
    if TREES.get().is_some_and(|trees| trees.is_on.swap(false, Ordering::AcqRel)) {
        agent.note(agent.jvmti.notice_thread_ends(false));
    }
}

/// The same when the VM ends: it is not asked for anything.
pub(crate) fn pause_with_vm() {
    if let Some(trees) = TREES.get() {
        trees.is_on.store(false, Ordering::Release);
    }
}

/// Lets go of the memory, after [`pause`].
pub(crate) fn end() -> Result<(), Error> {
    let mut change = change();
    let Some(mapped) = change.take() else { return Ok(()) };
    for _ in 0..STEPS {
        std::thread::sleep(STEP);
        if !TREES.get().is_some_and(|trees| trees.rows.is_any_inside()) {
            break;
        }
    }
    // Nobody finds them any more; who has found them reads zeros from now on.
    if let Some(trees) = TREES.get() {
        trees.waits.set(None);
    }
    let rows = mapped.rows.map_or(Ok(()), Shared::let_go);
    mapped.memory.let_go()?;
    Ok(rows?)
}

/// A thread has ended, whose environment may be another's from now on.
pub(crate) fn thread_ended(env: usize) {
    if let Some(trees) = TREES.get() {
        trees.rows.release(env);
    }
}

/// The classes of exceptions, from this number on.
pub(crate) fn exceptions(from: u32) -> Vec<Named> {
    TREES.get().map(|trees| trees.exceptions.named(from)).unwrap_or_default()
}

fn trees(jvmti: Jvmti) -> Result<&'static Trees, Error> {
    if let Some(trees) = TREES.get() {
        return Ok(trees);
    }
    let trees = Trees {
        is_on: AtomicBool::new(false),
        entries: AtomicU32::new(0),
        counted: AtomicU32::new(0),
        memory: AtomicUsize::new(0),
        run: AtomicU32::new(0),
        rows: Rows::new()?,
        waits: Waits::default(),
        exceptions: Exceptions::default(),
        tasks: Tasks::new(jvmti),
    };
    Ok(TREES.get_or_init(|| trees))
}

fn change() -> MutexGuard<'static, Option<Mapped>> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}
