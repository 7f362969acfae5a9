//! Where native code was called from that has made something: the stacks of one JVM that the programs have taken, each kept until
//! what was made is let go.
//!
//! ```text
//! ring ─> StackRing ─> queue ─> reader: unwind, name ─> Known, by what was made ─> who asks where it comes from
//! ```

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nprof_common::{JniHandle, StackHeader};

use super::StackQueue;
use super::callers::Callers;
use crate::attach::{StackRecord, VmTable};
use crate::discover::Proc;
use crate::model::Pid;
use crate::sys::priority;

/// How long the reader waits at a time.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many stacks may be known before it is looked which of them are still of interest.
const FEW: usize = 1 << 14;
/// The most frames that are kept of a stack, the innermost.
const FRAMES: usize = 256;

/// Who has called, the innermost first. Equal ones are the same.
pub type CallPath = Arc<[String]>;

/// Something that was made: what it is known by while it is held, and when that was, since the values come again.
type Thing = (JniHandle, u64);

/// A thread that reads stacks until their queue ends.
#[derive(Debug)]
pub struct MadeStacks {
    known: Arc<Mutex<Known>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Known {
    of: HashMap<Thing, CallPath>,
    /// Each of them once.
    paths: HashSet<CallPath>,
    /// How many may be known until it is looked again.
    many: usize,
}

impl MadeStacks {
    /// Begins to read what comes by `queue`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start((proc, pid): (Proc, Pid), queue: StackQueue, vms: Arc<VmTable>) -> io::Result<Self> {
        let known = Arc::new(Mutex::new(Known { many: FEW, ..Known::default() }));
        let own = Arc::clone(&known);
        let thread = thread::Builder::new().name("nprof-made".to_owned()).spawn(move || {
            let callers = Callers::new(proc, pid, vms, "it is not known from where things are made");
            run(&queue, callers, &own);
        })?;
        Ok(Self { known, thread: Mutex::new(Some(thread)) })
    }

    /// Who had called when something was made; `None` if that stack was not taken, or not read.
    #[must_use]
    pub fn path_of(&self, handle: JniHandle, since_ns: u64) -> Option<CallPath> {
        lock(&self.known).of.get(&(handle, since_ns)).cloned()
    }

    /// Forgets what is not held any more, if there is much.
    pub fn forget(&self, is_held: impl Fn(JniHandle, u64) -> bool) {
        let many = |known: &Known| known.of.len() >= known.many;
        let things: Vec<Thing> = {
            let known = lock(&self.known);
            if many(&known) { known.of.keys().copied().collect() } else { return }
        };
        // What the kernel has to be asked for keeps nobody waiting.
        let gone: Vec<Thing> = things.into_iter().filter(|&(handle, since_ns)| !is_held(handle, since_ns)).collect();
        lock(&self.known).forget(&gone);
    }

    /// Waits until everything is read: its queue has been ended.
    pub fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that reads stacks of what is made has failed, which is a defect");
        }
    }
}

impl Known {
    fn add(&mut self, thing: Thing, path: Vec<String>) {
        let path = match self.paths.get(path.as_slice()) {
            Some(path) => Arc::clone(path),
            None => CallPath::from(path),
        };
        self.paths.insert(Arc::clone(&path));
        self.of.insert(thing, path);
    }

    fn forget(&mut self, gone: &[Thing]) {
        for thing in gone {
            self.of.remove(thing);
        }
        // One is this set's own.
        self.paths.retain(|path| Arc::strong_count(path) > 1);
        self.many = FEW.max(2 * self.of.len());
    }
}

fn run(queue: &StackQueue, mut callers: Callers, known: &Mutex<Known>) {
    priority::raise(None);
    loop {
        match queue.next(PATIENCE) {
            Ok(record) => {
                let Some((thing, path)) = read(&record, &mut callers) else { continue };
                lock(known).add(thing, path);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// What was made, and who had called; `None` if that is not known.
fn read(record: &[u8], callers: &mut Callers) -> Option<(Thing, Vec<String>)> {
    let ((header, ..), handle) = (StackHeader::take_apart(record)?, JniHandle::at_end_of(record)?);
    let mut path = Vec::new();
    StackRecord::read(record, |taken| path = callers.of(taken));
    path.truncate(FRAMES);
    (!path.is_empty()).then_some(((handle, header.now_ns), path))
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // Whoever panicked here has added a stack or not.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(value: u64, since_ns: u64) -> Thing {
        (JniHandle { value, of: 1 }, since_ns)
    }

    fn path(text: &str) -> Vec<String> {
        vec![text.to_owned(), "a.Main::main:1".to_owned()]
    }

    /// Check that equal stacks are kept once, that values that come again are told apart, and that what is let go is forgotten with
    /// the stacks that nothing else has, but not before there is much.
    #[test]
    fn what_is_let_go_is_forgotten() {
        let stacks =
            MadeStacks { known: Arc::new(Mutex::new(Known { many: 3, ..Known::default() })), thread: Mutex::new(None) };
        let add = |value, since_ns, text| lock(&stacks.known).add(thing(value, since_ns), path(text));
        add(1, 10, "a.One::a:1");
        add(2, 11, "a.One::a:1");
        stacks.forget(|_, _| false);
        let of = |value, since_ns| stacks.path_of(thing(value, since_ns).0, since_ns);
        assert!(Arc::ptr_eq(&of(1, 10).unwrap(), &of(2, 11).unwrap()));
        add(1, 20, "a.Other::b:2");
        assert_eq!((of(1, 10).unwrap()[0].as_str(), of(1, 20).unwrap()[0].as_str()), ("a.One::a:1", "a.Other::b:2"));
        stacks.forget(|handle, since_ns| handle.value == 1 && since_ns == 20);
        assert_eq!((of(1, 10), of(2, 11), of(1, 20).is_some()), (None, None, true));
        let known = lock(&stacks.known);
        assert_eq!((known.paths.len(), known.many), (1, FEW));
    }
}
