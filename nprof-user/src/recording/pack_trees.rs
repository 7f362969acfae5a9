//! From the trees of a profile to the parts of a file.

use nprof_common::Counter;

use super::numbers::{COUNTERS, TREE_KINDS, number};
use super::rows::rows;
use super::wire::{self, Part};
use crate::model::{
    AlikeTotals, EntryTotals, HandOver, Invocation, KeptInvocation, Missing, NodeException, NodeUse, PathSum,
    RecordedTrees, Submission, TreeCaller, TreeMethod, TreeNode, TreeThread, TreeWay,
};

/// What stands in the first part.
pub(super) fn about(trees: &RecordedTrees) -> wire::Trees {
    let RecordedTrees { began, unfinished, losses, totals, .. } = trees;
    wire::Trees {
        began_seconds: began.wall.as_second(),
        began_nanos: began.wall.subsec_nanosecond(),
        began_monotonic_ns: began.monotonic_ns,
        elapsed_ns: u64::try_from(trees.elapsed.as_nanos()).unwrap_or(u64::MAX),
        seen: totals.seen,
        ways_left_out: totals.ways_left_out,
        silenced: trees.silenced.clone(),
        begun_before: unfinished.begun_before,
        still_inside: unfinished.still_inside,
        died_inside: unfinished.died_inside,
        lost_beginnings: unfinished.lost_beginnings,
        crowded: unfinished.crowded,
        unknown: unfinished.unknown,
        lost_events: losses.events,
        lost_invocations: losses.invocations,
        without_ring: losses.without_ring,
        lost_waits: losses.waits,
    }
}

/// Gives each further part to `each`, in order.
///
/// # Errors
/// The first one of `each`; no part comes after it.
pub(super) fn parts<E>(trees: &RecordedTrees, mut each: impl FnMut(Part) -> Result<(), E>) -> Result<(), E> {
    let each = &mut each;
    rows(&trees.methods, method, |tree_methods| each(Part { tree_methods, ..Part::default() }))?;
    let exception = |(number, class): (&u32, &String)| wire::TreeException { number: *number, class: class.clone() };
    rows(&trees.exceptions, exception, |tree_exceptions| each(Part { tree_exceptions, ..Part::default() }))?;
    let way = |&TreeWay { before, method }: &TreeWay| wire::TreeWay { before, method };
    rows(&trees.totals.ways, way, |tree_ways| each(Part { tree_ways, ..Part::default() }))?;
    rows(entries(trees), |row| row, |tree_entries| each(Part { tree_entries, ..Part::default() }))?;
    rows(groups(trees), |row| row, |tree_groups| each(Part { tree_groups, ..Part::default() }))?;
    rows(sums(trees), |row| row, |tree_sums| each(Part { tree_sums, ..Part::default() }))?;
    rows(&trees.kept, invocation, |invocations| each(Part { invocations, ..Part::default() }))?;
    let nodes = trees.kept.iter().flat_map(|kept| nodes(&kept.invocation));
    rows(nodes, |row| row, |tree_nodes| each(Part { tree_nodes, ..Part::default() }))
}

fn method(method: &TreeMethod) -> wire::TreeMethod {
    let caller = |caller: &TreeCaller| {
        let count = u32::try_from(caller.lines.len()).unwrap_or(u32::MAX);
        [caller.method, count].into_iter().chain(caller.lines.iter().map(|&line| line.into())).collect::<Vec<u32>>()
    };
    wire::TreeMethod {
        class: method.class.to_string(),
        method: method.method.to_string(),
        signature: method.signature.to_string(),
        kind: number(&TREE_KINDS, &method.kind),
        is_entry: method.is_entry,
        depth: method.depth,
        callers: method.callers.iter().flat_map(caller).collect(),
    }
}

fn entries(trees: &RecordedTrees) -> impl Iterator<Item = wire::TreeEntry> {
    trees.totals.entries.iter().map(|(&method, of)| wire::TreeEntry {
        method,
        incomplete: of.incomplete,
        failed: of.failed,
        endless: of.endless,
        slowest: of.slowest.map(|slowest| {
            let (is_virtual, thread) = thread(slowest.thread);
            let (number, total_ns, started_ns) = (slowest.number, slowest.total_ns, slowest.started_ns);
            wire::Slowest { number, total_ns, is_virtual, thread, started_ns }
        }),
    })
}

fn groups(trees: &RecordedTrees) -> impl Iterator<Item = wire::TreeGroup> {
    let of_entry = |(&entry, of): (&u32, &EntryTotals)| {
        let group = |(&bucket, alike): (&u32, &AlikeTotals)| {
            let of = alike.group;
            wire::TreeGroup {
                entry,
                bucket,
                invocations: of.invocations,
                total_ns: of.total_ns,
                min_ns: of.min_ns,
                max_ns: of.max_ns,
                off_ns: of.off_ns,
                unknown_off: of.unknown_off,
            }
        };
        of.alike.iter().map(group).collect::<Vec<_>>()
    };
    trees.totals.entries.iter().flat_map(of_entry)
}

/// By bucket and way, so that the same trees make the same file.
fn sums(trees: &RecordedTrees) -> impl Iterator<Item = wire::TreeSum> {
    let of_bucket = |(&bucket, alike): (&u32, &AlikeTotals)| {
        let mut ways: Vec<(u32, PathSum)> = alike.ways.iter().map(|(way, sum)| (*way, *sum)).collect();
        ways.sort_unstable_by_key(|(way, _)| *way);
        let sum =
            move |(way, PathSum { calls, self_ns, off_ns })| wire::TreeSum { way, bucket, calls, self_ns, off_ns };
        ways.into_iter().map(sum)
    };
    trees.totals.entries.values().flat_map(|of| &of.alike).flat_map(of_bucket)
}

fn invocation(kept: &KeptInvocation) -> wire::Invocation {
    let Invocation {
        thread: of, started_ns, ref nodes, knows_off, collectors, knows_used, missing, submitted_by, ..
    } = kept.invocation;
    // Single calls are not kept.
    let Missing { lost, lost_calls, unbegun, unended, cut, calls_left_out: _, is_after_loss } = missing;
    let (is_virtual, thread) = thread(of);
    wire::Invocation {
        number: kept.number,
        is_virtual,
        thread,
        thread_name: kept.thread.clone(),
        started_ns,
        knows_off,
        nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        lost,
        lost_calls,
        unbegun,
        unended,
        cut,
        is_after_loss,
        submitted_by: submitted_by.map(submission),
        handed_over: kept.invocation.handed_over.iter().flat_map(hand_over).collect(),
        knows_used,
        collectors: collectors.iter().map(|collector| collector.name.to_owned()).collect(),
    }
}

fn submission(of: Submission) -> wire::Submission {
    let Submission { invocation, method, at_ns, is_thread, .. } = of;
    let (is_virtual, thread) = thread(of.thread);
    wire::Submission { invocation, is_virtual, thread, method, at_ns, is_thread }
}

fn hand_over(of: &HandOver) -> impl Iterator<Item = u64> {
    [of.node.into(), of.task, of.came.len() as u64].into_iter().chain(of.came.iter().copied())
}

/// Each node, and how far behind its caller it is.
fn nodes(invocation: &Invocation) -> impl Iterator<Item = wire::TreeNode> {
    let mut callers = vec![0; invocation.nodes.len()];
    for (place, node) in (0_u32..).zip(&invocation.nodes) {
        for &child in &node.children {
            callers[child as usize] = place;
        }
    }
    (0_u32..).zip(&invocation.nodes).zip(callers).map(|((place, node), caller)| self::node(node, place - caller))
}

fn node(node: &TreeNode, caller_before: u32) -> wire::TreeNode {
    let exception = |of: &NodeException| [of.exception.into(), of.left, of.threw, of.caught];
    wire::TreeNode {
        caller_before,
        method: node.method,
        calls: node.calls,
        unended: node.unended,
        total_ns: node.total_ns,
        min_ns: node.min_ns,
        max_ns: node.max_ns,
        nested_ns: node.nested_ns,
        off_ns: node.off_ns,
        exceptions: node.exceptions.iter().flat_map(exception).collect(),
        used: node.used.iter().flat_map(used).collect(),
    }
}

/// Whether it is a virtual one, and its number.
fn thread(thread: TreeThread) -> (bool, u64) {
    match thread {
        TreeThread::Platform(tid) => (false, tid.into()),
        TreeThread::Contained(tid) => (false, wire::CONTAINED | u64::from(tid)),
        TreeThread::Virtual(id) => (true, id),
    }
}

/// The number of a counter that has grown, and by how much.
fn used(&NodeUse { counter, amount }: &NodeUse) -> [u64; 2] {
    let known = Counter::ALL.get(counter as usize);
    [known.map_or(0, |counter| number(&COUNTERS, counter)).into(), amount]
}
