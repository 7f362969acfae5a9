//! What all invocations have in common, whether they are shown or not, in room that does not grow with their number.

use std::cmp::Reverse;

use nprof_common::histogram::bucket_of;

use super::difference;
use super::paths::Paths;
use crate::aggregate::weigh::NotRecorded;
use crate::model::{
    EntrySummary, EntryTotals, Histogram, Invocation, InvocationGroup, PathSum, ProfileFrame, ProfileFrameKind,
    SlowestInvocation, TreeKind, TreeMethod, TreeSummary, TreeTotals, Unfinished, Unit, Weighed, WeighedStack, Weight,
};

/// Adds invocations up.
#[derive(Debug, Default)]
pub struct TreeSums {
    paths: Paths,
    totals: TreeTotals,
}

impl TreeSums {
    /// Adds one.
    pub fn add(&mut self, invocation: &Invocation) {
        let Self { paths, totals } = self;
        totals.seen += 1;
        let of = totals.entries.entry(invocation.root().method).or_default();
        let Some(total_ns) = invocation.total_ns() else {
            of.endless += 1;
            return;
        };
        of.incomplete += u64::from(invocation.missing.is_incomplete());
        of.failed += u64::from(invocation.failed_by().is_some());
        if of.slowest.is_none_or(|slowest| slowest.total_ns < total_ns) {
            let &Invocation { number, thread, started_ns, .. } = invocation;
            of.slowest = Some(SlowestInvocation { number, total_ns, thread, started_ns });
        }
        let alike = of.alike.entry(bucket_of(total_ns)).or_default();
        let off_ns = invocation.off_ns().and_then(|off_ns| off_ns.first().copied());
        alike.group = alike.group.with(InvocationGroup::one(total_ns, off_ns));
        for (node, way) in invocation.nodes.iter().zip(paths.of(invocation, &mut totals.ways)) {
            match way {
                Some(way) => {
                    let more = PathSum { calls: node.calls, self_ns: node.self_ns(), off_ns: node.self_off_ns() };
                    alike.ways.entry(way).or_default().add(more);
                }
                None => totals.ways_left_out += node.calls,
            }
        }
    }

    /// What they add up to.
    #[must_use]
    pub fn totals(&self) -> &TreeTotals {
        &self.totals
    }

    /// The same, to be kept.
    #[must_use]
    pub fn into_totals(self) -> TreeTotals {
        self.totals
    }
}

/// What there is to say of all invocations.
#[must_use]
pub fn summarize_trees(totals: &TreeTotals, unfinished: Unfinished) -> TreeSummary {
    let mut entries: Vec<EntrySummary> = totals.entries.iter().map(|(method, of)| entry(totals, *method, of)).collect();
    entries.sort_by_key(|entry| (Reverse(entry.total_ns), entry.method));
    TreeSummary { entries, unfinished, paths_left_out: totals.ways_left_out }
}

fn entry(totals: &TreeTotals, method: u32, of: &EntryTotals) -> EntrySummary {
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
        difference: difference::between(&of.alike, totals),
    }
}

/// The trees of all together, as stacks with the time that was not spent in nested calls.
#[must_use]
pub fn trees_by_time(totals: &TreeTotals, methods: &[TreeMethod]) -> Weighed {
    weighed(totals, methods, Unit::Nanoseconds, |sum| sum.self_ns)
}

/// The same by another weight.
///
/// # Errors
/// If it is not known of all how long threads did not run, and the weight needs that.
pub fn weigh_trees(totals: &TreeTotals, methods: &[TreeMethod], weight: Weight) -> Result<Weighed, NotRecorded> {
    let weigher = Weigher::of(weight, totals.entries.values().map(EntryTotals::group))?;
    Ok(weighed(totals, methods, weigher.unit, weigher.value))
}

/// What a weight makes of the sums of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weigher {
    pub(super) unit: Unit,
    pub(super) value: fn(PathSum) -> u64,
}

impl Weigher {
    /// For these invocations.
    ///
    /// # Errors
    /// As [`weigh_trees`].
    pub(super) fn of(weight: Weight, mut groups: impl Iterator<Item = InvocationGroup>) -> Result<Self, NotRecorded> {
        if matches!(weight, Weight::OnCpu | Weight::OffCpu) && groups.any(|group| group.known_off_ns().is_none()) {
            return Err(NotRecorded::OffCpu);
        }
        let value: fn(PathSum) -> u64 = match weight {
            Weight::Time | Weight::SelfTime => |sum| sum.self_ns,
            Weight::Calls => |sum| sum.calls,
            Weight::OnCpu => |sum| sum.self_ns.saturating_sub(sum.off_ns),
            Weight::OffCpu => |sum| sum.off_ns,
        };
        Ok(Self { unit: if weight == Weight::Calls { Unit::Calls } else { Unit::Nanoseconds }, value })
    }
}

/// The trees by everything that is known of them.
#[must_use]
pub fn weigh_trees_all(totals: &TreeTotals, methods: &[TreeMethod]) -> Vec<(Weight, Weighed)> {
    let weights = [Weight::Calls, Weight::Time, Weight::OnCpu, Weight::OffCpu];
    weights.into_iter().filter_map(|weight| Some((weight, weigh_trees(totals, methods, weight).ok()?))).collect()
}

fn weighed(totals: &TreeTotals, methods: &[TreeMethod], unit: Unit, value: impl Fn(PathSum) -> u64) -> Weighed {
    let stacks = totals.by_way().into_iter().map(|(way, sum)| (totals.path(way), value(sum)));
    of_stacks(unit, methods, stacks)
}

/// Stacks of methods, each with its value.
pub(super) fn of_stacks(unit: Unit, methods: &[TreeMethod], stacks: impl Iterator<Item = (Vec<u32>, u64)>) -> Weighed {
    let stack = |(frames, value)| WeighedStack { frames, value, samples: 0 };
    let stacks: Vec<WeighedStack> = stacks.map(stack).collect();
    let total = stacks.iter().map(|stack| stack.value).sum();
    Weighed { unit, frames: methods.iter().map(frame).collect(), stacks, total }
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
