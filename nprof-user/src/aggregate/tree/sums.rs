//! What all invocations have in common, whether they are shown or not, in room that does not grow with their number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use nprof_common::histogram::bucket_of;

use super::difference;
use super::paths::Paths;
use crate::model::{
    EntrySummary, Histogram, Invocation, InvocationGroup, PathSum, ProfileFrame, ProfileFrameKind, SlowestInvocation,
    TreeKind, TreeMethod, TreeSummary, Unfinished, Unit, Weighed, WeighedStack,
};

/// Adds invocations up.
#[derive(Debug, Default)]
pub struct TreeSums {
    paths: Paths,
    entries: BTreeMap<u32, OfEntry>,
    seen: u64,
    paths_left_out: u64,
}

/// All invocations of an entry method.
#[derive(Debug, Default)]
struct OfEntry {
    incomplete: u64,
    failed: u64,
    endless: u64,
    slowest: Option<SlowestInvocation>,
    /// By the bucket of their times.
    alike: BTreeMap<u32, Alike>,
}

/// Invocations that took about the same time.
#[derive(Debug, Default)]
pub(super) struct Alike {
    pub(super) group: InvocationGroup,
    /// By the number of the way.
    pub(super) paths: HashMap<u32, PathSum>,
}

impl TreeSums {
    /// Adds one. Returns its number, from 1 on.
    pub fn add(&mut self, invocation: &Invocation) -> u64 {
        self.seen += 1;
        let number = self.seen;
        let of = self.entries.entry(invocation.root().method).or_default();
        let Some(total_ns) = invocation.total_ns() else {
            of.endless += 1;
            return number;
        };
        of.incomplete += u64::from(invocation.missing.is_incomplete());
        of.failed += u64::from(invocation.failed_by().is_some());
        if of.slowest.is_none_or(|slowest| slowest.total_ns < total_ns) {
            let (thread, started_ns) = (invocation.thread, invocation.started_ns);
            of.slowest = Some(SlowestInvocation { number, total_ns, thread, started_ns });
        }
        let alike = of.alike.entry(bucket_of(total_ns)).or_default();
        let off_ns = invocation.off_ns().and_then(|off_ns| off_ns.first().copied());
        alike.group = alike.group.with(InvocationGroup::one(total_ns, off_ns));
        for (node, way) in invocation.nodes.iter().zip(self.paths.of(invocation)) {
            match way {
                Some(way) => {
                    let more = PathSum { calls: node.calls, self_ns: node.self_ns(), off_ns: node.self_off_ns() };
                    alike.paths.entry(way).or_default().add(more);
                }
                None => self.paths_left_out += node.calls,
            }
        }
        number
    }

    /// How many invocations there were.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// What there is to say of all.
    #[must_use]
    pub fn summary(&self, unfinished: Unfinished) -> TreeSummary {
        let mut entries: Vec<EntrySummary> = self.entries.iter().map(|(method, of)| self.entry(*method, of)).collect();
        entries.sort_by_key(|entry| (Reverse(entry.total_ns), entry.method));
        TreeSummary { entries, unfinished, paths_left_out: self.paths_left_out }
    }

    fn entry(&self, method: u32, of: &OfEntry) -> EntrySummary {
        let groups = || of.alike.iter().map(|(bucket, alike)| (*bucket, alike.group));
        EntrySummary {
            method,
            invocations: groups().map(|(_, group)| group.invocations).sum(),
            incomplete: of.incomplete,
            failed: of.failed,
            endless: of.endless,
            total_ns: groups().map(|(_, group)| group.total_ns).sum(),
            off_ns: groups().map(|(_, group)| group.known_off_ns()).sum(),
            histogram: Histogram {
                buckets: groups()
                    .map(|(bucket, group)| (i32::try_from(bucket).unwrap_or(i32::MAX), group.invocations))
                    .collect(),
            },
            slowest: of.slowest,
            difference: difference::between(&of.alike, &self.paths),
        }
    }

    /// The trees of all together, as stacks with the time that was not spent in nested calls.
    #[must_use]
    pub fn weighed(&self, methods: &[TreeMethod]) -> Weighed {
        let mut sums: BTreeMap<u32, PathSum> = BTreeMap::new();
        for (way, more) in self.entries.values().flat_map(|of| of.alike.values()).flat_map(|alike| &alike.paths) {
            sums.entry(*way).or_default().add(*more);
        }
        let stacks: Vec<WeighedStack> = sums
            .iter()
            .map(|(way, sum)| WeighedStack { frames: self.paths.methods(*way), value: sum.self_ns, samples: 0 })
            .collect();
        let total = stacks.iter().map(|stack| stack.value).sum();
        Weighed { unit: Unit::Nanoseconds, frames: methods.iter().map(frame).collect(), stacks, total }
    }
}

/// How a method ran is not known: compiled is what other tools draw in the colour of Java.
fn frame(method: &TreeMethod) -> ProfileFrame {
    ProfileFrame {
        kind: match method.kind {
            TreeKind::Java | TreeKind::Intrinsic => ProfileFrameKind::C2,
            TreeKind::Native => ProfileFrameKind::NativeMethod,
            TreeKind::Jni(_) => ProfileFrameKind::Vm,
        },
        scope: method.class.to_string(),
        name: method.method.to_string(),
        signature: method.signature.to_string(),
        line: None,
        hidden: false,
        library: String::new(),
    }
}
