//! From the parts of a file to trees whose every index leads somewhere, which are no deeper than trees are, and whose numbers can be
//! added up.

use std::time::Duration;

use nprof_common::histogram::BUCKETS;

use super::Error;
use super::checks::{check, is_below, timestamp};
use super::numbers::{COUNTERS, TREE_KINDS, value};
use super::wire::{self, Part};
use crate::model::{
    AlikeTotals, Collectors, EntryTotals, HandOver, Invocation, InvocationGroup, KeptInvocation, Missing,
    NodeException, NodeUse, PathSum, RecordedTrees, SlowestInvocation, Submission, TreeCaller, TreeClock, TreeLosses,
    TreeMethod, TreeNode, TreeThread, TreeTotals, TreeWay, Unfinished,
};

/// How deep trees and ways are at most. Those that nprof makes are less deep.
const MOST_DEPTH: u32 = 64;

/// The rows of trees that have been read so far.
#[derive(Debug, Default)]
pub(super) struct TreeRows {
    trees: Option<RecordedTrees>,
    groups: Vec<wire::TreeGroup>,
    sums: Vec<wire::TreeSum>,
    invocations: Vec<wire::Invocation>,
    nodes: Vec<(u32, TreeNode)>,
}

impl TreeRows {
    /// Adds those of a part.
    pub(super) fn add(&mut self, part: &mut Part) -> Result<(), Error> {
        if let Some(about) = part.trees.take() {
            check(self.trees.is_none(), "it says twice what trees there are")?;
            self.trees = Some(self::about(about)?);
        }
        let Some(trees) = &mut self.trees else {
            let lengths = [
                part.tree_methods.len(),
                part.tree_exceptions.len(),
                part.tree_ways.len(),
                part.tree_entries.len(),
                part.tree_groups.len(),
                part.tree_sums.len(),
                part.invocations.len(),
                part.tree_nodes.len(),
            ];
            return check(lengths == [0; 8], "it does not say what trees there are");
        };
        for row in part.tree_methods.drain(..) {
            trees.methods.push(method(row)?);
        }
        trees.exceptions.extend(part.tree_exceptions.drain(..).map(|row| (row.number, row.class)));
        let way = |wire::TreeWay { before, method }| TreeWay { before, method };
        trees.totals.ways.extend(part.tree_ways.drain(..).map(way));
        for row in part.tree_entries.drain(..) {
            let known = trees.totals.entries.insert(row.method, entry(row)?);
            check(known.is_none(), "an entry method is there twice")?;
        }
        self.groups.append(&mut part.tree_groups);
        self.sums.append(&mut part.tree_sums);
        self.invocations.append(&mut part.invocations);
        for row in part.tree_nodes.drain(..) {
            self.nodes.push((row.caller_before, node(row)?));
        }
        Ok(())
    }

    /// The trees, if there are any and they are whole.
    pub(super) fn finish(self) -> Result<Option<RecordedTrees>, Error> {
        let Some(mut trees) = self.trees else { return Ok(None) };
        let methods = trees.methods.len();
        let is_method = |number: &u32| is_below(*number, methods);
        let callers = trees.methods.iter().flat_map(|method| &method.callers).map(|caller| &caller.method);
        check(callers.chain(&trees.silenced).all(is_method), "a method of trees that is not there")?;
        check(trees.totals.entries.keys().all(is_method), "an entry method that is not there")?;
        check(trees.totals.ways.iter().all(|way| is_method(&way.method)), "a way to a method that is not there")?;
        add_sums(&mut trees.totals, self.groups, self.sums)?;
        can_be_added_up(&trees)?;
        let mut nodes = self.nodes.into_iter();
        for row in self.invocations {
            trees.kept.push(invocation(row, &mut nodes, methods)?);
        }
        check(nodes.next().is_none(), "nodes of no tree")?;
        Ok(Some(trees))
    }
}

fn about(about: wire::Trees) -> Result<RecordedTrees, Error> {
    let wall = timestamp(about.began_seconds, about.began_nanos)?;
    Ok(RecordedTrees {
        began: TreeClock { wall, monotonic_ns: about.began_monotonic_ns },
        elapsed: Duration::from_nanos(about.elapsed_ns),
        totals: TreeTotals { seen: about.seen, ways_left_out: about.ways_left_out, ..TreeTotals::default() },
        unfinished: Unfinished {
            begun_before: about.begun_before,
            still_inside: about.still_inside,
            died_inside: about.died_inside,
            lost_beginnings: about.lost_beginnings,
            crowded: about.crowded,
            unknown: about.unknown,
        },
        losses: TreeLosses {
            events: about.lost_events,
            invocations: about.lost_invocations,
            without_ring: about.without_ring,
            waits: about.lost_waits,
        },
        silenced: about.silenced,
        ..RecordedTrees::default()
    })
}

fn method(row: wire::TreeMethod) -> Result<TreeMethod, Error> {
    Ok(TreeMethod {
        class: row.class.into(),
        method: row.method.into(),
        signature: row.signature.into(),
        // Trees of natives and the functions that they call are not recorded.
        callee: None,
        kind: value(&TREE_KINDS, row.kind).ok_or(Error::Damaged { what: "an unknown kind of method" })?,
        is_entry: row.is_entry,
        depth: row.depth,
        callers: callers(&row.callers)?,
    })
}

fn callers(mut numbers: &[u32]) -> Result<Vec<TreeCaller>, Error> {
    let mut callers = Vec::new();
    while let [method, count, rest @ ..] = numbers {
        let lines = rest
            .get(..*count as usize)
            .and_then(|lines| lines.iter().map(|&line| u16::try_from(line)).collect::<Result<Vec<u16>, _>>().ok());
        let lines = lines.ok_or(Error::Damaged { what: "the lines of a call" })?;
        numbers = &rest[lines.len()..];
        callers.push(TreeCaller { method: *method, lines });
    }
    check(numbers.is_empty(), "the callers of a method")?;
    Ok(callers)
}

fn entry(row: wire::TreeEntry) -> Result<EntryTotals, Error> {
    let slowest = row.slowest.map(|of| {
        let (number, total_ns, started_ns) = (of.number, of.total_ns, of.started_ns);
        Ok(SlowestInvocation { number, total_ns, thread: thread(of.is_virtual, of.thread)?, started_ns })
    });
    let wire::TreeEntry { incomplete, failed, endless, .. } = row;
    Ok(EntryTotals { incomplete, failed, endless, slowest: slowest.transpose()?, ..EntryTotals::default() })
}

fn thread(is_virtual: bool, number: u64) -> Result<TreeThread, Error> {
    if is_virtual {
        return Ok(TreeThread::Virtual(number));
    }
    let tid =
        u32::try_from(number & !wire::CONTAINED).map_err(|_large| Error::Damaged { what: "a thread that is none" })?;
    Ok(if number & wire::CONTAINED == 0 { TreeThread::Platform(tid) } else { TreeThread::Contained(tid) })
}

/// Adds the sums to the entry methods that they are of.
fn add_sums(totals: &mut TreeTotals, groups: Vec<wire::TreeGroup>, sums: Vec<wire::TreeSum>) -> Result<(), Error> {
    let roots = roots(&totals.ways)?;
    for row in groups {
        let of = totals.entries.get_mut(&row.entry);
        let of = of.ok_or(Error::Damaged { what: "times of an entry method that is not there" })?;
        check((row.bucket as usize) < BUCKETS, "a bucket that is none")?;
        check(row.min_ns <= row.max_ns && row.unknown_off <= row.invocations, "times that are none")?;
        let wire::TreeGroup { invocations, total_ns, min_ns, max_ns, off_ns, unknown_off, .. } = row;
        let group = InvocationGroup { invocations, total_ns, min_ns, max_ns, off_ns, unknown_off };
        let known = of.alike.insert(row.bucket, AlikeTotals { group, ..AlikeTotals::default() });
        check(known.is_none(), "times of an entry method that are there twice")?;
    }
    for wire::TreeSum { way, bucket, calls, self_ns, off_ns } in sums {
        let entry = roots.get(way as usize).and_then(|root| totals.entries.get_mut(root));
        let alike = entry.and_then(|entry| entry.alike.get_mut(&bucket));
        let alike = alike.ok_or(Error::Damaged { what: "sums of invocations that are not there" })?;
        let known = alike.ways.insert(way, PathSum { calls, self_ns, off_ns });
        check(known.is_none(), "sums of a way that are there twice")?;
    }
    Ok(())
}

/// The entry method that each way begins at.
fn roots(ways: &[TreeWay]) -> Result<Vec<u32>, Error> {
    let mut roots: Vec<(u32, u32)> = Vec::with_capacity(ways.len());
    for way in ways {
        let root = match way.before {
            None => (way.method, 1),
            Some(before) => {
                let known = roots.get(before as usize).copied();
                let (root, depth) = known.ok_or(Error::Damaged { what: "a way that goes on none before it" })?;
                (root, depth + 1)
            }
        };
        check(root.1 <= MOST_DEPTH, "a way that is too deep")?;
        roots.push(root);
    }
    Ok(roots.into_iter().map(|(root, _)| root).collect())
}

/// The sums of all rows of a kind have to be numbers as well.
fn can_be_added_up(trees: &RecordedTrees) -> Result<(), Error> {
    let entries = || trees.totals.entries.values();
    let groups = || entries().flat_map(|of| of.alike.values()).map(|alike| alike.group);
    let sums = || entries().flat_map(|of| of.alike.values()).flat_map(|alike| alike.ways.values());
    let TreeLosses { events, invocations, without_ring, waits } = trees.losses;
    let is_number = is_sum(groups().map(|group| group.invocations).chain(entries().map(|of| of.endless)))
        && is_sum(groups().map(|group| group.total_ns))
        && is_sum(groups().map(|group| group.off_ns))
        && is_sum(sums().map(|sum| sum.calls))
        && is_sum(sums().map(|sum| sum.self_ns))
        && is_sum(sums().map(|sum| sum.off_ns))
        && is_sum([events, invocations, without_ring, waits].into_iter());
    check(is_number, "a sum that is no number")
}

/// Whether numbers can be added up, and some more with them.
fn is_sum(mut numbers: impl Iterator<Item = u64>) -> bool {
    const MOST: u64 = u64::MAX >> 1;
    numbers.try_fold(0, u64::checked_add).is_some_and(|sum| sum <= MOST)
}

/// An invocation with the nodes that come next.
fn invocation(
    row: wire::Invocation,
    rows: &mut impl Iterator<Item = (u32, TreeNode)>,
    methods: usize,
) -> Result<KeptInvocation, Error> {
    let (mut nodes, mut depths): (Vec<TreeNode>, Vec<u32>) = (Vec::new(), Vec::new());
    check(row.nodes > 0, "a tree without nodes")?;
    for place in 0..row.nodes {
        let (before, node) = rows.next().ok_or(Error::Damaged { what: "a tree that lacks nodes" })?;
        check(is_below(node.method, methods), "a node of a method that is not there")?;
        let caller = place.checked_sub(before).filter(|_| (before == 0) == (place == 0));
        let caller = caller.ok_or(Error::Damaged { what: "a node whose caller is not there" })?;
        let depth = if place == 0 { 1 } else { depths[caller as usize] + 1 };
        check(depth <= MOST_DEPTH, "a tree that is too deep")?;
        nodes.push(node);
        depths.push(depth);
        if place > 0 {
            nodes[caller as usize].children.push(place);
        }
    }
    let are_sums = nodes.iter().all(|node| {
        let children = || node.children.iter().map(|&child| &nodes[child as usize]);
        is_sum(children().map(|child| child.total_ns)) && is_sum(children().map(|child| child.calls))
    });
    check(are_sums, "a sum that is no number")?;
    let wire::Invocation {
        number,
        started_ns,
        knows_off,
        knows_used,
        lost,
        lost_calls,
        unbegun,
        unended,
        cut,
        is_after_loss,
        ..
    } = row;
    let missing = Missing { lost, lost_calls, unbegun, unended, cut, calls_left_out: 0, is_after_loss };
    let thread = thread(row.is_virtual, row.thread)?;
    let submitted_by = row.submitted_by.map(submission).transpose()?;
    let handed_over = hand_overs(&row.handed_over, nodes.len())?;
    let collectors = Collectors::known(&row.collectors);
    let of = Invocation::new(thread, nodes);
    let invocation =
        Invocation { number, started_ns, knows_off, collectors, knows_used, missing, submitted_by, handed_over, ..of };
    Ok(KeptInvocation { number, thread: row.thread_name, invocation })
}

fn submission(row: wire::Submission) -> Result<Submission, Error> {
    let wire::Submission { invocation, method, at_ns, is_thread, .. } = row;
    Ok(Submission { invocation, thread: thread(row.is_virtual, row.thread)?, method, at_ns, is_thread })
}

fn hand_overs(mut row: &[u64], nodes: usize) -> Result<Vec<HandOver>, Error> {
    let mut all = Vec::new();
    while let [node, task, count, rest @ ..] = row {
        let node = u32::try_from(*node).ok().filter(|&node| (node as usize) < nodes);
        let came = usize::try_from(*count).ok().and_then(|count| rest.split_at_checked(count));
        check(node.is_some() && came.is_some(), "a task that no node has made")?;
        let (came, after) = came.unwrap_or_default();
        all.push(HandOver { node: node.unwrap_or_default(), task: *task, came: came.to_vec() });
        row = after;
    }
    check(row.is_empty(), "a task without a number")?;
    Ok(all)
}

/// Of the counters that this nprof knows.
fn used(row: &[u64]) -> Result<Vec<NodeUse>, Error> {
    let (pairs, rest) = row.as_chunks();
    check(rest.is_empty(), "what a node consumed")?;
    let known = |&[counter, amount]: &[u64; 2]| {
        let counter = value(&COUNTERS, u32::try_from(counter).ok()?)? as u32;
        Some(NodeUse { counter, amount })
    };
    Ok(pairs.iter().filter_map(known).collect())
}

fn node(row: wire::TreeNode) -> Result<TreeNode, Error> {
    let wire::TreeNode { method, calls, unended, total_ns, min_ns, max_ns, nested_ns, off_ns, .. } = row;
    let is_sound = unended <= calls && min_ns <= max_ns && max_ns <= total_ns && is_sum([calls, total_ns].into_iter());
    check(is_sound, "a node whose numbers contradict each other")?;
    let exceptions = row.exceptions.chunks(4).map(|of| match *of {
        [number, left, threw, caught] => {
            let exception =
                u32::try_from(number).map_err(|_large| Error::Damaged { what: "an exception that is none" })?;
            Ok(NodeException { exception, left, threw, caught })
        }
        _ => Err(Error::Damaged { what: "the exceptions of a node" }),
    });
    let exceptions = exceptions.collect::<Result<_, _>>()?;
    let children = Vec::new();
    let used = used(&row.used)?;
    Ok(TreeNode { method, children, calls, unended, total_ns, min_ns, max_ns, nested_ns, off_ns, used, exceptions })
}
