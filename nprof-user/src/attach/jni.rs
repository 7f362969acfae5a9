//! Reads which native methods have called which JNI functions.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::Pod;
use aya::maps::MapData;
use nprof_common::jni::{CRITICAL_SECTIONS, of_pair};
use nprof_common::{JniCalled, JniCalls, JniHandle, JniHeld, JniShards, JniThrown};
use zerocopy::transmute;

/// For how many pairs of native method and JNI function there is room: a method calls some ten of them, and few methods call any.
pub(super) const PAIRS: u32 = 1 << 14;
/// For how many pairs of those with a Java method that the function calls: few are called back by name.
pub(super) const CALLED: u32 = 1 << 13;
/// How many different things can be looked up.
pub(super) const LOOK_UPS: u32 = 1 << 16;
/// For how many exceptions there is room that differ in method, class, or whether they are cleared.
pub(super) const THROWN: u32 = 1 << 12;
/// How many threads can be in critical sections.
pub(super) const THREADS: u32 = 1 << 12;
/// How much can be held at once that is followed: 20 MB.
pub(super) const HELD: u32 = 1 << 17;
/// Of how many calls at a time it can be followed how many local references they hold: 1 MB.
pub(super) const LOCALS: u32 = 1 << 12;
/// Of how many groups of what is made stacks are taken: by native method, function and class.
pub(super) const MADE: u32 = 1 << 12;

/// [`JniShards`] as aya passes them.
type JniEntry = [u64; size_of::<JniShards>() / size_of::<u64>()];

/// [`JniHandle`], [`JniThrown`] and [`JniCalled`] as aya passes them, and [`JniHeld`].
type HandleEntry = [u64; 2];
/// See [`HandleEntry`].
type HeldEntry = [u64; size_of::<JniHeld>() / size_of::<u64>()];

/// A map of the kernel's.
type Map<K, V> = aya::maps::HashMap<MapData, K, V>;

/// The calls of JNI functions by native method, what is held, and exceptions: of all JVMs that share an engine. Any thread may read.
pub struct JniTable(Mutex<Maps>);

/// The records of native method and function, and the calls.
type PairCalls = ((u32, u32), JniCalls);

/// What there is for all JVMs at one moment, by the records of JNI functions; of exceptions that are pending, of native methods.
#[derive(Debug, Default)]
pub struct JniRead {
    calls: HashMap<u32, Vec<PairCalls>>,
    thrown: HashMap<u32, Vec<(JniThrown, u64)>>,
}

impl JniRead {
    /// The calls of functions with these records, and their critical sections.
    pub fn calls_of(&self, records: impl Iterator<Item = u32>) -> Vec<((u32, u32), JniCalls)> {
        records.filter_map(|record| self.calls.get(&record)).flatten().copied().collect()
    }

    /// The exceptions that were cleared by functions, or left by methods, with these records.
    pub fn thrown_of(&self, records: impl Iterator<Item = u32>) -> Vec<(JniThrown, u64)> {
        records.filter_map(|record| self.thrown.get(&record)).flatten().copied().collect()
    }
}

pub(super) struct Maps {
    pub(super) calls: Map<u64, JniEntry>,
    pub(super) called: Map<HandleEntry, JniEntry>,
    pub(super) look_ups: Map<u64, u64>,
    pub(super) held: Map<HandleEntry, HeldEntry>,
    pub(super) thrown: Map<HandleEntry, u64>,
}

impl JniTable {
    pub(super) fn new(maps: Maps) -> Self {
        Self(Mutex::new(maps))
    }

    /// The calls of each pair so far: the records of native method and function ([`nprof_common::jni`]), and the sums.
    pub fn read(&self) -> Vec<((u32, u32), JniCalls)> {
        let each = entries(&self.maps().calls, PAIRS, "calls of JNI functions");
        each.into_iter().map(|(pair, entry)| (of_pair(pair), sum(transmute!(entry)))).collect()
    }

    /// The calls of functions that call Java, by pair of records and Java method (`jmethodID`). Those that did not get room of their own are
    /// among [`Self::read`].
    pub fn called(&self) -> Vec<(JniCalled, JniCalls)> {
        let each = entries(&self.maps().called, CALLED, "calls of Java methods");
        each.into_iter().map(|(called, entry)| (transmute!(called), sum(transmute!(entry)))).collect()
    }

    /// The ids of Java methods that were called so far.
    pub fn called_ids(&self) -> Vec<u64> {
        self.maps().called.keys().filter_map(Result::ok).map(|[_, id]| id).collect()
    }

    /// What is held now. Whoever reads while the target runs sees each at one moment, not all at the same; what is let go meanwhile may
    /// have the kernel begin again, so not more are looked at than there can be twice.
    pub fn held(&self) -> HashMap<JniHandle, JniHeld> {
        let each = entries(&self.maps().held, HELD, "things that are held");
        each.into_iter().map(|(handle, held)| (transmute!(handle), transmute!(held))).collect()
    }

    /// The exceptions so far, by native method, how, and class.
    pub fn thrown(&self) -> Vec<(JniThrown, u64)> {
        let each = entries(&self.maps().thrown, THROWN, "exceptions");
        each.into_iter().map(|(thrown, count)| (transmute!(thrown), count)).collect()
    }

    /// Everything for all JVMs but what is held.
    pub fn read_all(&self) -> JniRead {
        let mut read = JniRead { thrown: self.thrown_by_owner(), ..JniRead::default() };
        for ((caller, function), calls) in self.read() {
            read.calls.entry(function & !CRITICAL_SECTIONS).or_default().push(((caller, function), calls));
        }
        read
    }

    fn thrown_by_owner(&self) -> HashMap<u32, Vec<(JniThrown, u64)>> {
        let mut thrown: HashMap<u32, Vec<_>> = HashMap::new();
        for (one, count) in self.thrown() {
            thrown.entry(one.owner()).or_default().push((one, count));
        }
        thrown
    }

    /// Whether something is still held that was made at this time.
    #[must_use]
    pub fn is_held(&self, handle: JniHandle, since_ns: u64) -> bool {
        let key: HandleEntry = transmute!(handle);
        let held: Option<JniHeld> = self.maps().held.get(&key, 0).ok().map(|held| transmute!(held));
        held.is_some_and(|held| held.since_ns == since_ns)
    }

    /// Forgets what is of these records, which other functions are to have. Nobody may add to them any more.
    pub(super) fn forget(&self, records: &[u32]) {
        let records: HashSet<u32> = records.iter().copied().collect();
        let is_of = |pair: u64| {
            let (caller, function) = of_pair(pair);
            records.contains(&caller) || records.contains(&(function & !CRITICAL_SECTIONS))
        };
        let Maps { calls, called, look_ups, held, thrown } = &mut *self.maps();
        forget(calls, PAIRS, |pair, _| is_of(pair));
        forget(called, CALLED, |key, _| is_of(key[0]));
        forget(look_ups, LOOK_UPS, |_, by| u32::try_from(by).is_ok_and(|by| records.contains(&by)));
        forget(held, HELD, |_, entry| {
            let held: JniHeld = transmute!(entry);
            records.contains(&held.function)
        });
        forget(thrown, THROWN, |key, _| {
            let thrown: JniThrown = transmute!(key);
            records.contains(&thrown.method) || records.contains(&thrown.by)
        });
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        // Whoever panicked here has changed nothing but by single system calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything in a map. If something is forgotten meanwhile, the kernel may begin again: each entry is there once, as it was met last.
fn entries<K: Pod + Eq + std::hash::Hash, V: Pod>(map: &Map<K, V>, room: u32, what: &str) -> HashMap<K, V> {
    let entries = map
        .iter()
        .take(2 * room as usize)
        .filter_map(|entry| entry.inspect_err(|error| tracing::warn!("not all {what} can be read: {error}")).ok());
    entries.collect()
}

/// Removes what is to be forgotten.
fn forget<K: Pod, V: Pod>(map: &mut Map<K, V>, room: u32, is_theirs: impl Fn(K, V) -> bool) {
    let entries = map.iter().take(2 * room as usize).filter_map(Result::ok);
    let theirs: Vec<K> = entries.filter(|(key, value)| is_theirs(*key, *value)).map(|(key, _)| key).collect();
    for key in theirs {
        // It may have been met twice.
        _ = map.remove(&key);
    }
}

fn sum(shards: JniShards) -> JniCalls {
    shards.into_iter().fold(JniCalls::NONE, JniCalls::and)
}

impl fmt::Debug for JniTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JniTable").finish_non_exhaustive()
    }
}
