//! Reads which native methods have called which JNI functions.

use std::fmt;

use aya::maps::{HashMap, MapData};
use nprof_common::jni::of_pair;
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
/// Of how many groups of what is made stacks are taken: by native method, function and class.
pub(super) const MADE: u32 = 1 << 12;

/// [`JniShards`] as aya passes them.
type JniEntry = [u64; size_of::<JniShards>() / size_of::<u64>()];

/// [`JniHandle`], [`JniThrown`] and [`JniCalled`] as aya passes them, and [`JniHeld`].
type HandleEntry = [u64; 2];
/// See [`HandleEntry`].
type HeldEntry = [u64; size_of::<JniHeld>() / size_of::<u64>()];

/// The calls of JNI functions by native method, what is held, and exceptions.
pub struct JniTable {
    pub(super) calls: HashMap<MapData, u64, JniEntry>,
    pub(super) called: HashMap<MapData, HandleEntry, JniEntry>,
    pub(super) held: HashMap<MapData, HandleEntry, HeldEntry>,
    pub(super) thrown: HashMap<MapData, HandleEntry, u64>,
}

impl JniTable {
    /// The calls of each pair so far: the records of native method and function ([`nprof_common::jni`]), and the sums.
    pub fn read(&self) -> Vec<((u32, u32), JniCalls)> {
        let entries = self.calls.iter().filter_map(|entry| {
            entry.inspect_err(|error| tracing::warn!("not all calls of JNI functions can be read: {error}")).ok()
        });
        entries.map(|(pair, entry)| (of_pair(pair), sum(transmute!(entry)))).collect()
    }

    /// The calls of functions that call Java, by pair of records and Java method (`jmethodID`). Those that did not get room of their own are
    /// among [`Self::read`].
    pub fn called(&self) -> Vec<(JniCalled, JniCalls)> {
        let entries = self.called.iter().filter_map(|entry| {
            entry.inspect_err(|error| tracing::warn!("not all calls of Java methods can be read: {error}")).ok()
        });
        entries.map(|(called, entry)| (transmute!(called), sum(transmute!(entry)))).collect()
    }

    /// The ids of Java methods that were called so far.
    pub fn called_ids(&self) -> Vec<u64> {
        self.called.keys().filter_map(Result::ok).map(|[_, id]| id).collect()
    }

    /// What is held now. Whoever reads while the target runs sees each at one moment, not all at the same; what is let go meanwhile may
    /// have the kernel begin again, so not more are looked at than there can be twice.
    pub fn held(&self) -> std::collections::HashMap<JniHandle, JniHeld> {
        let entries = self.held.iter().take(2 * HELD as usize).filter_map(|entry| {
            entry.inspect_err(|error| tracing::warn!("not all that is held can be read: {error}")).ok()
        });
        entries.map(|(handle, held)| (transmute!(handle), transmute!(held))).collect()
    }

    /// The exceptions so far, by native method, how, and class.
    pub fn thrown(&self) -> Vec<(JniThrown, u64)> {
        let entries = self.thrown.iter().filter_map(|entry| {
            entry.inspect_err(|error| tracing::warn!("not all exceptions can be read: {error}")).ok()
        });
        entries.map(|(thrown, count)| (transmute!(thrown), count)).collect()
    }

    /// Whether something is still held that was made at this time.
    #[must_use]
    pub fn is_held(&self, handle: JniHandle, since_ns: u64) -> bool {
        let key: HandleEntry = transmute!(handle);
        let held: Option<JniHeld> = self.held.get(&key, 0).ok().map(|held| transmute!(held));
        held.is_some_and(|held| held.since_ns == since_ns)
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
