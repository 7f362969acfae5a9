//! The profile of each JVM of a host, always on: the last hour in windows, from stacks that all JVMs take by one ring.
//!
//! ```text
//! ring ─> StackRing ─> queue of a JVM ─> reader: unwind, name, add up ┐
//!            ↑ chances                   TracedJvm: snapshot ─> Since ┴> assemble ─> Profile ─> Windows
//! ```
//!
//! What may have to wait for a JVM is done on a thread of that JVM's own. Whoever asks for a profile waits for none of them.

mod reader;
mod which;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use self::reader::Reader;
pub use self::which::{NoProfile, WhichJvm};
use super::sampled::Sampled;
use super::{Error, SlowWatch, TracedJvm, VMS};
use crate::aggregate::{WindowKey, WindowLimits, Windows, WindowsTally};
use crate::attach::{Collect, Engine, Feeds, VmTable};
use crate::discover::Proc;
use crate::model::{Jvm, Profile, ProfilesStatus, Snapshot};
use crate::profile::StackRing;

/// The most stacks in a second, of all JVMs together: at some microseconds each they cost all threads of the host less than a
/// thousandth of a CPU.
const MAX_STACKS: u32 = 100;
/// How much of a stack is copied, in bytes.
const STACK_BYTES: u32 = 32 << 10;
/// How old a window gets.
const KEPT: Duration = Duration::from_secs(3600);
/// What all windows may take: a thirtieth of what the unit allows.
const MOST_BYTES: usize = 32 << 20;

/// The profiles of the JVMs of a host.
#[derive(Debug)]
pub struct Profiles {
    proc: Proc,
    engine: Arc<Engine>,
    vms: Arc<VmTable>,
    ring: Arc<StackRing>,
    store: Arc<Store>,
    readers: Mutex<Vec<Arc<Reader>>>,
}

/// The windows of all JVMs, ended ones included.
#[derive(Debug)]
struct Store {
    windows: Mutex<Windows>,
    /// How much there was when it was last looked at.
    tally: Mutex<WindowsTally>,
    window: Duration,
    /// Stacks that could not be read.
    unread: AtomicU64,
    /// It has been said that windows are dropped.
    has_told: AtomicBool,
}

impl Profiles {
    /// What is to be collected for it.
    #[must_use]
    pub fn collect() -> Collect {
        Collect {
            vms: VMS,
            returns: true,
            stubs: true,
            stack_bytes: STACK_BYTES,
            max_stacks: MAX_STACKS,
            ..Collect::nothing()
        }
    }

    /// Begins to take stacks, in windows of this length.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub fn start(proc: Proc, engine: Arc<Engine>, feeds: Feeds, window: Duration) -> Result<Self, Error> {
        if !engine.takes_chosen() {
            tracing::warn!(
                "this kernel lets probes reach other processes: profiles have no stacks of calls that stubs count"
            );
        }
        let vms = Arc::clone(feeds.vms());
        let ring = StackRing::start(feeds, MAX_STACKS).map_err(|error| Error::Defect { what: error.to_string() })?;
        let windows = Mutex::new(Windows::new(WindowLimits { age: KEPT, bytes: MOST_BYTES }));
        let (tally, unread, has_told) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false));
        let store = Arc::new(Store { windows, tally, window, unread, has_told });
        Ok(Self { proc, engine, vms, ring: Arc::new(ring), store, readers: Mutex::default() })
    }

    /// Takes slow calls, too, by the same ring.
    ///
    /// # Errors
    /// If the engine collects none.
    pub fn with_slow(&self) -> Result<SlowWatch, Error> {
        SlowWatch::by_ring(self.proc.clone(), &self.engine, Arc::clone(&self.ring), Arc::clone(&self.vms))
    }

    /// A JVM is traced from now on.
    pub fn joined(&self, traced_jvm: &Arc<TracedJvm>) {
        let functions = Sampled::new(Arc::clone(traced_jvm), Arc::clone(&self.engine));
        let pid = traced_jvm.jvm().pid;
        let queue = self.ring.add(pid, Box::new(functions));
        let number = queue.number();
        let reader = Reader::new(Arc::clone(traced_jvm), number, MAX_STACKS);
        match reader.start(queue, (self.proc.clone(), Arc::clone(&self.vms)), Arc::clone(&self.store)) {
            Ok(reader) => self.readers().push(reader),
            Err(error) => {
                tracing::warn!("process {pid}: no profile: there can be no thread for it: {error}");
                self.ring.remove(number);
            }
        }
    }

    /// A JVM is not traced any more; these are its last results. What it has in the kernel is not looked at when this returns.
    pub fn ended(&self, traced_jvm: &Arc<TracedJvm>, last: &Snapshot) {
        let mut readers = self.readers();
        let Some(place) = readers.iter().position(|reader| reader.is_of(traced_jvm)) else { return };
        let reader = readers.swap_remove(place);
        drop(readers);
        reader.end(last.clone());
        self.ring.remove(reader.number());
    }

    /// What a JVM did in the windows that have ended in the last time, so long.
    ///
    /// # Errors
    /// If it is not clear which JVM is meant, or there are no windows of it.
    pub fn profile(&self, which: &WhichJvm, last: Duration) -> Result<Profile, NoProfile> {
        let now = Timestamp::now();
        let mut windows = self.store.windows();
        windows.expire(now);
        let of = which.one_of(windows.jvms(), || self.living(), self.store.window)?;
        let since = SignedDuration::try_from(last).ok().and_then(|last| now.checked_sub(last).ok());
        let key = (of.jvm.pid, of.jvm.start_time);
        windows.profile(key, since.unwrap_or(Timestamp::MIN)).ok_or_else(|| NoProfile::nothing_since(&of, now))
    }

    /// What a JVM did in its last window, from [`crate::model::About::started`] on for [`crate::model::About::elapsed`]; `None`
    /// if none is over yet, or the last one was more than an hour ago.
    #[must_use]
    pub fn last_window(&self, jvm: WindowKey) -> Option<Profile> {
        self.store.windows().last(jvm)
    }

    /// Each window of each JVM, ended ones included, that was over after `since`: for whoever passes them on, once each. To be
    /// called where others need not wait.
    #[must_use]
    pub fn windows_since(&self, since: Timestamp) -> Vec<(Jvm, Profile)> {
        self.store.windows().ended_after(since)
    }

    /// What there is, and what is missing. Waits for nobody who adds windows up.
    #[must_use]
    pub fn status(&self) -> ProfilesStatus {
        let (taken, unclaimed) = self.ring.taken();
        let windows = self.store.tally();
        ProfilesStatus {
            windows: windows.windows as u64,
            bytes: windows.bytes as u64,
            most_bytes: windows.most_bytes as u64,
            dropped: windows.dropped,
            stacks: taken.taken,
            over_pace: taken.over_pace,
            no_room: taken.no_room,
            unread: unclaimed + self.store.unread.load(Ordering::Relaxed),
        }
    }

    fn living(&self) -> Vec<Jvm> {
        self.readers().iter().map(|reader| reader.jvm().clone()).collect()
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Arc<Reader>>> {
        // Whoever panicked here has added one or removed one.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much there is, or was before somebody began to work on it.
    fn tally(&self) -> WindowsTally {
        let mut known = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let mut windows = match self.windows.try_lock() {
            Ok(windows) => windows,
            Err(TryLockError::Poisoned(panicked)) => panicked.into_inner(),
            Err(TryLockError::WouldBlock) => return *known,
        };
        windows.expire(Timestamp::now());
        *known = windows.tally();
        *known
    }

    fn add(&self, jvm: &Jvm, profile: Profile) {
        let dropped = self.windows().add(jvm, profile);
        if dropped > 0 && !self.has_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "profiles take more than {} MiB: less than the last hour is kept; see `nprof ctl status`",
                MOST_BYTES >> 20
            );
        }
    }
}
