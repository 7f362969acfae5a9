//! Reads which native methods have called which JNI functions.

use std::fmt;

use aya::maps::{HashMap, MapData};
use nprof_common::jni::of_pair;
use nprof_common::{JniCalls, JniShards};
use zerocopy::transmute;

/// For how many pairs of native method and JNI function there is room: a method calls some ten of them, and few methods call any.
pub(super) const PAIRS: u32 = 1 << 14;
/// How many different things can be looked up.
pub(super) const LOOK_UPS: u32 = 1 << 16;
/// How many threads can be in critical sections.
pub(super) const THREADS: u32 = 1 << 12;

/// [`JniShards`] as aya passes them.
pub(super) type JniEntry = [u64; size_of::<JniShards>() / size_of::<u64>()];

/// The calls of JNI functions by native method.
pub struct JniTable(HashMap<MapData, u64, JniEntry>);

impl JniTable {
    pub(super) fn new(map: HashMap<MapData, u64, JniEntry>) -> Self {
        Self(map)
    }

    /// The calls of each pair so far: the records of native method and function ([`nprof_common::jni`]), and the sums.
    pub fn read(&self) -> Vec<((u32, u32), JniCalls)> {
        let entries = self.0.iter().filter_map(|entry| {
            entry.inspect_err(|error| tracing::warn!("not all calls of JNI functions can be read: {error}")).ok()
        });
        entries.map(|(pair, entry)| (of_pair(pair), sum(transmute!(entry)))).collect()
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
