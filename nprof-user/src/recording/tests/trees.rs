//! Trees written and read back, and files that claim trees which cannot be.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::{Dice, read_back, written};
use crate::model::{
    AlikeTotals, Collectors, EntryTotals, HandOver, Invocation, InvocationGroup, JniStep, KeptInvocation, Missing,
    NodeException, NodeUse, PathSum, Profile, RecordedTrees, SlowestInvocation, Submission, TreeCaller, TreeClock,
    TreeKind, TreeLosses, TreeMethod, TreeNode, TreeThread, TreeTotals, TreeWay, Unfinished,
};
use crate::recording::Error;

/// A method of each kind.
const KINDS: [TreeKind; 4] = [TreeKind::Java, TreeKind::Native, TreeKind::Intrinsic, TreeKind::Jni(JniStep::Release)];

/// Trees with so many methods and invocations. The first two methods are entry methods.
pub(super) fn trees(rows: u32, dice: &mut Dice) -> RecordedTrees {
    let limit = u64::from(rows.max(2));
    let method = |at: u32| TreeMethod {
        class: format!("com.é.C{at}").into(),
        method: format!("m{at}").into(),
        signature: "(I)V".into(),
        callee: None,
        kind: KINDS[at as usize % 4],
        is_entry: at < 2,
        depth: at.min(5),
        callers: (0..at % 3).map(|method| TreeCaller { method, lines: vec![7; method as usize] }).collect(),
    };
    let mut ways = vec![TreeWay { before: None, method: 0 }, TreeWay { before: None, method: 1 }];
    ways.extend((0..rows).map(|at| TreeWay { before: Some(at % 2), method: dice.small(limit) }));
    let entry = |method: u32, dice: &mut Dice| {
        let mut group = InvocationGroup::one(dice.below(1 << 40), Some(9));
        group.unknown_off = 1;
        let of_entry = (0..).zip(&ways).filter(|(at, way)| way.before.unwrap_or(*at) == method);
        let sum = |way: u32| PathSum { calls: way.into(), self_ns: 1 << 40, off_ns: 3 };
        let ways = of_entry.map(|(way, _)| (way, sum(way))).collect();
        let alike = BTreeMap::from([(dice.small(181), AlikeTotals { group, ways })]);
        let thread = if method == 0 { TreeThread::Platform(u32::MAX) } else { TreeThread::Virtual(u64::MAX) };
        let slowest = Some(SlowestInvocation { number: 3, total_ns: 5, thread, started_ns: 1 << 60 });
        (method, EntryTotals { incomplete: 1, failed: 2, endless: 3, slowest, alike })
    };
    let entries = [0, 1].map(|method| entry(method, dice)).into_iter().collect();
    RecordedTrees {
        began: TreeClock { wall: Timestamp::new(1_700_000_001, 5).unwrap(), monotonic_ns: 77 },
        elapsed: Duration::from_nanos(9_876_543_210),
        methods: (0..rows.max(2)).map(method).collect(),
        exceptions: (1..4).map(|number| (number, format!("E{number}"))).collect(),
        totals: TreeTotals { ways: ways.clone(), entries, seen: 9, ways_left_out: 8 },
        unfinished: Unfinished {
            begun_before: 1,
            still_inside: 2,
            died_inside: 3,
            lost_beginnings: 4,
            crowded: 5,
            unknown: 6,
        },
        losses: TreeLosses { events: 1, invocations: 2, without_ring: 3, waits: 4 },
        silenced: vec![1, 0],
        kept: (0..rows).map(|at| kept(at, limit, dice)).collect(),
    }
}

fn kept(at: u32, methods: u64, dice: &mut Dice) -> KeptInvocation {
    let mut nodes: Vec<TreeNode> = Vec::new();
    for place in 0..=at.min(30) {
        let max_ns = dice.below(1 << 30);
        let exceptions = (0..dice.small(3)).map(|exception| NodeException { exception, left: 3, threw: 2, caught: 1 });
        nodes.push(TreeNode {
            method: dice.small(methods),
            children: Vec::new(),
            calls: 5,
            unended: dice.below(5),
            total_ns: 3 * max_ns,
            min_ns: max_ns / 2,
            max_ns,
            nested_ns: dice.below(1 << 30),
            off_ns: dice.below(1 << 30),
            used: (0..dice.small(4)).map(|counter| NodeUse { counter, amount: dice.below(1 << 40) }).collect(),
            exceptions: exceptions.collect(),
        });
        if place > 0 {
            let caller = dice.index(place as usize);
            nodes[caller].children.push(place);
        }
    }
    let missing =
        Missing { lost: 1, lost_calls: 2, unbegun: 3, unended: 4, cut: 5, calls_left_out: 0, is_after_loss: true };
    let submission = |invocation: u32| Submission {
        invocation: invocation.into(),
        thread: TreeThread::Platform(invocation),
        method: 0,
        at_ns: 1 << 49,
        is_thread: invocation.is_multiple_of(2),
    };
    let handed = |task: u32| HandOver { node: 0, task: task.into(), came: (0..u64::from(task) % 5).collect() };
    let invocation = Invocation {
        number: at.into(),
        started_ns: 1 << 50,
        knows_off: at.is_multiple_of(2),
        knows_used: at.is_multiple_of(6),
        collectors: if at.is_multiple_of(3) {
            Collectors::named(&["io", "faults"]).unwrap()
        } else {
            Collectors::default()
        },
        missing: if at.is_multiple_of(2) { Missing::default() } else { missing },
        submitted_by: at.is_multiple_of(5).then(|| submission(at)),
        handed_over: (0..at % 4).map(handed).collect(),
        ..Invocation::new(TreeThread::Virtual(at.into()), nodes)
    };
    KeptInvocation { number: at.into(), thread: at.is_multiple_of(3).then(|| "häng".to_owned()), invocation }
}

fn with(trees: RecordedTrees) -> Profile {
    Profile { trees: Some(Box::new(trees)), ..Profile::default() }
}

/// Check that trees come back as they were, none, small ones and those of many parts, and that the same trees make the same file.
#[test]
fn come_back_as_they_were() {
    let nothing = with(RecordedTrees::default());
    assert_eq!(read_back(&written(&nothing)).unwrap(), nothing);
    let mut dice = Dice(11);
    for rows in (0..40).chain([3_000]) {
        let profile = with(trees(rows, &mut dice));
        let file = written(&profile);
        assert_eq!(read_back(&file).unwrap(), profile, "{rows} rows");
        assert_eq!(file, written(&profile.clone()), "{rows} rows");
    }
}

/// Check that what cannot be is refused: indices that lead nowhere, what is deeper than anything, and numbers that contradict each other or
/// have no sum.
#[test]
fn what_cannot_be_is_refused() {
    fn first(trees: &mut RecordedTrees) -> &mut AlikeTotals {
        trees.totals.entries.get_mut(&0).unwrap().alike.values_mut().next().unwrap()
    }
    let good = trees(9, &mut Dice(12));
    let damages: [fn(&mut RecordedTrees); 19] = [
        |trees| trees.methods.truncate(8),
        |trees| trees.silenced.push(9),
        |trees| trees.methods[3].callers.push(TreeCaller { method: 9, lines: vec![] }),
        |trees| trees.totals.ways[4].method = 9,
        |trees| trees.totals.ways[4].before = Some(4),
        |trees| trees.totals.ways[0].method = 5,
        |trees| trees.totals.ways.truncate(2),
        |trees| {
            let deep = (10..90).map(|at| TreeWay { before: Some(at), method: 0 });
            trees.totals.ways.extend(deep);
        },
        |trees| {
            let alike = first(trees).clone();
            trees.totals.entries.get_mut(&0).unwrap().alike.insert(181, alike);
        },
        |trees| first(trees).group.min_ns = u64::MAX,
        |trees| first(trees).group.unknown_off = 2,
        |trees| first(trees).ways.values_mut().for_each(|sum| sum.self_ns = u64::MAX / 4),
        |trees| first(trees).group.total_ns = u64::MAX,
        |trees| trees.losses.events = u64::MAX,
        |trees| trees.kept[4].invocation.nodes[2].method = 9,
        |trees| trees.kept[4].invocation.nodes[2].unended = 6,
        |trees| trees.kept[4].invocation.nodes[2].min_ns = u64::MAX,
        |trees| {
            let nodes = &mut trees.kept[4].invocation.nodes;
            nodes.iter_mut().for_each(|node| (node.children, node.total_ns) = (Vec::new(), u64::MAX / 3));
            nodes[0].children = (1..5).collect();
        },
        |trees| {
            let node = TreeNode { calls: 1, ..TreeNode::default() };
            let chain = (1..=99).map(|next| TreeNode { children: vec![next], ..node.clone() });
            trees.kept[4].invocation.nodes = chain.chain([node.clone()]).collect();
        },
    ];
    for (at, damage) in damages.iter().enumerate() {
        let mut trees = good.clone();
        damage(&mut trees);
        let read = read_back(&written(&with(trees)));
        assert!(matches!(read, Err(Error::Damaged { .. })), "damage {at}");
    }
}

/// What trees take in memory at least.
pub(super) fn held(trees: &RecordedTrees) -> usize {
    let callers = |of: &TreeMethod| of.callers.iter().map(|of| size_of_val(of) + 2 * of.lines.len()).sum::<usize>();
    let of_node = |of: &TreeNode| {
        let lists = size_of_val(of.exceptions.as_slice()) + size_of_val(of.used.as_slice());
        size_of_val(of) + 4 * of.children.len() + lists
    };
    let of_entry = |of: &EntryTotals| {
        let alike = of.alike.values().map(|of| size_of_val(of) + of.ways.len() * size_of::<(u32, PathSum)>());
        size_of_val(of) + alike.sum::<usize>()
    };
    let nodes = trees.kept.iter().flat_map(|kept| &kept.invocation.nodes);
    trees.methods.iter().map(|of| size_of_val(of) + of.class.len() + of.method.len() + callers(of)).sum::<usize>()
        + size_of_val(trees.totals.ways.as_slice())
        + trees.totals.entries.values().map(of_entry).sum::<usize>()
        + size_of_val(trees.kept.as_slice())
        + nodes.map(of_node).sum::<usize>()
}
