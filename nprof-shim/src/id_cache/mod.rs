//! The id cache: ids of methods and fields that native code has looked up are kept, and given again without asking the VM.
//!
//! The four functions that look ids up are replaced in the VM's table of functions, by the tool interface
//! (`SetJNIFunctionTable`, `function_table`). What was there before stays behind ours, whoever put it there: a miss is its work.
//!
//! # Why a hit is right
//! An id depends on the class, whether a method or a field is asked for, whether a static one, and two names. All that is compared: the
//! class by the VM itself (`IsSameObject` with a weak reference, which a class that is unloaded clears), names by content. An id of a
//! class stays right as long as that is loaded: redefinition leads the same id to the new version of the method, unless methods may be
//! deleted, and nprof keeps no ids in such a VM. The original also initialises the class and waits for another thread that does. So
//! only ids of classes are kept that are initialised, which they are for ever. With an exception pending the original gives nothing;
//! such a call goes to it.
//!
//! # The files
//! `front`: our functions. `entries`: what is kept, and when it may be freed. `rows`: what each thread counts, and how it leaves alone
//! who calls in vain. `table`: ours in the VM's table.

mod entries;
mod front;
mod rows;
mod table;
mod texts;

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use self::entries::Entries;
use self::rows::{Rows, Sums};
use crate::agent::Agent;
use crate::function_table::Place;
use crate::jni::Jni;
use crate::jvmti;

/// How many functions there are.
pub(crate) const FUNCTIONS: usize = 4;
/// How long is waited at the end for calls that are under way, and how often it is looked.
const STEPS: u32 = 200;
const STEP: Duration = Duration::from_millis(5);

static CACHE: OnceLock<Cache> = OnceLock::new();
/// The right to begin and to end. Not held by threads that look something up.
static CHANGE: Mutex<()> = Mutex::new(());

/// All that there is of it. It stays once it is made.
#[derive(Debug)]
struct Cache {
    is_on: AtomicBool,
    /// What was in the table when we came.
    places: [Place; FUNCTIONS],
    /// Where the VM keeps a pending exception, from a thread's environment.
    pending: AtomicIsize,
    entries: Entries,
    rows: Rows,
}

/// Why ids are not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("another nprof keeps ids here already")]
    Twice,
    #[error("there is no memory for ids: {0}")]
    Memory(std::io::Error),
    #[error("the table of JNI functions cannot be replaced: {0}")]
    Table(#[from] jvmti::Error),
}

/// What the cache has done.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) sums: Sums,
    /// So many functions stay behind those of another agent.
    pub(crate) behind: usize,
}

/// Begins to keep ids.
pub(crate) fn begin(agent: &Agent, pending: isize) -> Result<(), Error> {
    let _change = change();
    let cache = cache()?;
    if cache.is_on.load(Ordering::Relaxed) {
        return Err(Error::Twice);
    }
    cache.rows.start_over();
    cache.pending.store(pending, Ordering::Relaxed);
    agent.note(agent.jvmti.notice_thread_ends(true));
    cache.is_on.store(true, Ordering::Release);
    let put = table::put(agent.jvmti, cache);
    if put.is_err() {
        cache.is_on.store(false, Ordering::Release);
        agent.note(agent.jvmti.notice_thread_ends(false));
    }
    Ok(put?)
}

/// Keeps no ids any more, and tells what came of it. `None` if none were kept.
pub(crate) fn end(agent: &Agent, jni: Jni) -> Option<Report> {
    let _change = change();
    let cache = CACHE.get().filter(|cache| cache.is_on.swap(false, Ordering::AcqRel))?;
    let behind = table::put_back(agent.jvmti, cache).unwrap_or_else(|error| {
        agent.note(Err(error));
        FUNCTIONS
    });
    agent.note(agent.jvmti.notice_thread_ends(false));
    cache.entries.forget_all();
    for _ in 0..STEPS {
        cache.entries.free(cache.rows.inside(), jni);
        if cache.entries.is_empty() {
            break;
        }
        std::thread::sleep(STEP);
    }
    Some(Report { sums: cache.rows.sums(), behind })
}

/// The same when the VM ends: nothing is put back.
pub(crate) fn end_with_vm() -> Option<Report> {
    let _change = change();
    let cache = CACHE.get().filter(|cache| cache.is_on.swap(false, Ordering::AcqRel))?;
    Some(Report { sums: cache.rows.sums(), behind: 0 })
}

/// A thread has ended, whose environment may be another's from now on.
pub(crate) fn thread_ended(env: usize) {
    if let Some(cache) = CACHE.get() {
        cache.rows.release(env);
    }
}

fn cache() -> Result<&'static Cache, Error> {
    if let Some(cache) = CACHE.get() {
        return Ok(cache);
    }
    let cache = Cache {
        is_on: AtomicBool::new(false),
        places: Default::default(),
        pending: AtomicIsize::new(0),
        entries: Entries::new().map_err(Error::Memory)?,
        rows: Rows::new().map_err(Error::Memory)?,
    };
    Ok(CACHE.get_or_init(|| cache))
}

fn change() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}
