//! What invocations come to together, and what those of two recordings come to beside each other.

use nprof_common::{Consumed, Counter};

use super::super::{
    TreeSums, Trees, compare_trees, summarize_trees, trees_by_time, weigh_comparison, weigh_trees, weigh_trees_all,
};
use super::{Script, at, methods};
use crate::model::{
    Collectors, Invocation, PathDifference, RecordedTrees, TreeEvent, TreeEventKind, TreeMethod, TreeThread, Weight,
};

/// An invocation of method 0 that calls 2, which takes `within`, and takes `own` itself.
fn taking(own: u64, within: u64) -> Invocation {
    Script::new().enter(0).enter(2).pass(within - 1).leave(2).pass(own - 2).leave(0).one()
}

/// Check sums, the slowest, and that the time of slow invocations is found on the path where it went.
#[test]
fn slow_invocations_differ_by_a_path() {
    let mut sums = TreeSums::default();
    for number in 0..100 {
        let slow = number % 10 == 3;
        sums.add(&Invocation { number: number + 1, ..taking(100, if slow { 5_000 + number } else { 10 }) });
    }
    sums.add(&Script::new().enter(0).lose(1).one());
    let summary = summarize_trees(sums.totals(), Default::default());
    let [entry] = &summary.entries[..] else { panic!("one entry method: {summary:?}") };
    assert_eq!((entry.invocations, entry.endless, entry.failed, entry.incomplete), (100, 1, 0, 0));
    assert_eq!(entry.slowest.map(|slowest| (slowest.number, slowest.total_ns)), Some((94, 5_193)));
    assert_eq!(entry.histogram.buckets.iter().map(|(_, n)| n).sum::<u64>(), 100);
    let difference = entry.difference.as_ref().expect("there are slow ones");
    assert_eq!((difference.these.invocations, difference.others.invocations), (10, 90));
    assert_eq!((difference.these.min_ns, difference.others.max_ns), (5_103, 110));
    assert_eq!(difference.paths[0].path, [0, 2]);
    assert_eq!((difference.paths[0].these.calls, difference.paths[0].others.self_ns), (10, 900));
    let slow: u64 = difference.paths.iter().map(|path| path.these.self_ns).sum();
    assert_eq!(slow, difference.these.total_ns);
}

/// Check that few invocations, and those that are alike, are not divided.
#[test]
fn alike_invocations_are_not_divided() {
    let divided = |times: &[u64]| {
        let mut sums = TreeSums::default();
        for &time in times {
            sums.add(&taking(10, time));
        }
        summarize_trees(sums.totals(), Default::default()).entries[0].difference.is_some()
    };
    assert!(!divided(&[10, 10, 10, 10_000]));
    assert!(!divided(&[10; 50]));
    assert!(divided(&[[10; 5], [1000; 5]].concat()));
}

/// Check that all trees together are stacks of self times that add up.
#[test]
fn trees_become_stacks() {
    let mut sums = TreeSums::default();
    sums.add(&taking(100, 50));
    sums.add(&taking(200, 20));
    let weighed = trees_by_time(sums.totals(), &methods());
    assert_eq!(weighed.total, 370);
    let stacks: Vec<_> = weighed.stacks.iter().map(|stack| (stack.frames.clone(), stack.value)).collect();
    assert_eq!(stacks, [(vec![0], 300), (vec![0, 2], 70)]);
}

/// Check that waiting belongs to the innermost call that is open, to its caller where that has no end, and to all around it; and that
/// it is not known of virtual threads, nor where a thread says so.
#[test]
fn waiting_belongs_to_the_innermost_call() {
    let new = || Script { trees: Trees::new(&methods(), true).knowing_off(true), now: 1000, done: Vec::new() };
    let waited = |ns| TreeEventKind::Waited(Some(ns));
    let one =
        new().tell(0, waited(99)).enter(0).pass(100).tell(2, waited(30)).enter(2).pass(50).tell(2, waited(30)).leave(2);
    // Also what is told with a task, which is no method.
    let one = one.tell(u32::MAX, waited(10));
    // A call that does not tell of its end, and one that waits longer than it takes.
    let one =
        one.enter(3).tell(4, waited(7)).enter(4).pass(30).tell(4, waited(11)).leave(3).enter(5).tell(5, waited(1_000));
    let one = one.leave(5).leave(0).one();
    let own = |path: &[u32]| at(&one, path).self_off_ns();
    assert_eq!((own(&[]), own(&[2]), own(&[3]), own(&[3, 4]), own(&[5])), (40, 30, 18, 0, 2));
    let all = one.off_ns().unwrap();
    assert_eq!((all[0], at(&one, &[5]).total_ns), (90, 2));
    let mut sums = TreeSums::default();
    sums.add(&one);
    assert_eq!(summarize_trees(sums.totals(), Trees::new(&methods(), true).unfinished()).entries[0].off_ns, Some(90));

    let unknown = new().enter(0).tell(0, TreeEventKind::Waited(None)).leave(0).one();
    assert_eq!((unknown.off_ns(), Script::new().enter(0).leave(0).one().off_ns()), (None, None));
    sums.add(&unknown);
    assert_eq!(summarize_trees(sums.totals(), Trees::new(&methods(), true).unfinished()).entries[0].off_ns, None);
    let mut trees = Trees::new(&methods(), true).knowing_off(true);
    let event = |kind| TreeEvent { thread: TreeThread::Virtual(1), at_ns: 0, method: 0, kind };
    assert!(trees.take(&event(TreeEventKind::Enter)).is_none());
    assert_eq!(trees.take(&event(TreeEventKind::Return)).unwrap().off_ns(), None);
}

/// Check that what was consumed belongs to the innermost call that is open, to its caller where that has no end, and with nested calls to all
/// around it; and that it is not known of virtual threads, nor where a thread says so or nothing was collected.
#[test]
fn consumption_belongs_to_the_innermost_call() {
    let faults = Collectors::named(&["faults"]).unwrap();
    let trees = || Trees::new(&methods(), true).collecting(faults);
    let new = || Script { trees: trees(), now: 1000, done: Vec::new() };
    let used = |amount| TreeEventKind::Consumed { counter: Counter::MinorFaults as u32, amount };
    let one = new().tell(0, used(99)).enter(0).tell(2, used(30)).enter(2).tell(2, used(5)).leave(2);
    let one = one.enter(2).tell(2, used(6)).leave(2).tell(u32::MAX, used(10));
    let one = one.enter(3).tell(4, used(7)).enter(4).tell(4, used(11)).leave(3).tell(0, used(2)).leave(0).one();
    let place = |path: &[u32]| one.nodes.iter().position(|node| std::ptr::eq(node, at(&one, path))).unwrap();
    let consumed = one.consumed().unwrap();
    let of = |path: &[u32]| {
        let Consumed { own, total } = consumed[place(path)];
        (own[Counter::MinorFaults as usize], total[Counter::MinorFaults as usize])
    };
    assert_eq!((of(&[]), of(&[2]), of(&[3]), of(&[3, 4])), ((42, 71), (11, 11), (18, 18), (0, 0)));
    let unknown = new().enter(0).tell(0, TreeEventKind::Waited(None)).tell(0, used(1)).leave(0).one();
    assert_eq!((unknown.consumed(), Script::new().enter(0).tell(0, used(1)).leave(0).one().consumed()), (None, None));
    let mut trees = trees();
    let event = |kind| TreeEvent { thread: TreeThread::Virtual(1), at_ns: 0, method: 0, kind };
    assert!(trees.take(&event(TreeEventKind::Enter)).is_none());
    assert_eq!(trees.take(&event(TreeEventKind::Return)).unwrap().consumed(), None);
}

/// Check that trees are weighed by calls and by waiting as well, and that waiting is not made up where it is not known.
#[test]
fn trees_have_other_weights() {
    let waited = |ns| TreeEventKind::Waited(Some(ns));
    let knowing = Script { trees: Trees::new(&methods(), true).knowing_off(true), now: 1000, done: Vec::new() };
    let mut sums = TreeSums::default();
    sums.add(&knowing.enter(0).enter(2).pass(50).tell(2, waited(30)).leave(2).enter(2).leave(2).leave(0).one());
    let values = |sums: &TreeSums, weight| -> Option<Vec<u64>> {
        let weighed = weigh_trees(sums.totals(), &methods(), weight).ok()?;
        assert_eq!(weighed.total, weighed.stacks.iter().map(|stack| stack.value).sum::<u64>());
        Some(weighed.stacks.iter().map(|stack| stack.value).collect())
    };
    assert_eq!(values(&sums, Weight::Calls), Some(vec![1, 2]));
    assert_eq!(values(&sums, Weight::OffCpu), Some(vec![0, 30]));
    let (time, work) = (values(&sums, Weight::Time).unwrap(), values(&sums, Weight::OnCpu).unwrap());
    assert_eq!((time[0], time[1]), (work[0], work[1] + 30));
    assert_eq!(weigh_trees_all(sums.totals(), &methods()).len(), 4);
    sums.add(&taking(10, 20));
    assert_eq!((values(&sums, Weight::OffCpu), weigh_trees_all(sums.totals(), &methods()).len()), (None, 2));
}

/// A recording of so many invocations, each of which takes as long itself and within.
fn recorded(own: u64, within: u64, rounds: u64, methods: Vec<TreeMethod>) -> RecordedTrees {
    let mut sums = TreeSums::default();
    for _ in 0..rounds {
        sums.add(&taking(own, within));
    }
    RecordedTrees { methods, totals: sums.into_totals(), ..RecordedTrees::default() }
}

/// Two of them, in which a method is of a class with another name, and has another number.
fn before_and_after() -> [RecordedTrees; 2] {
    let named = |class: &str| {
        let mut methods = methods();
        methods[2].class = class.into();
        methods
    };
    let before = recorded(100, 10, 30, named("a.L$$Lambda$14/0x0000000800001"));
    let mut after = recorded(150, 1_000, 20, named("a.L$$Lambda/0x00007f"));
    after.methods.swap(2, 3);
    after.totals.ways.iter_mut().filter(|way| way.method == 2).for_each(|way| way.method = 3);
    [before, after]
}

/// Check that recordings are compared by what methods are, not by their numbers, and that the differences of paths add up.
#[test]
fn recordings_are_compared() {
    let [before, after] = before_and_after();
    let comparison = compare_trees(&before, &after);
    let [entry] = &comparison.entries[..] else { panic!("one entry method: {comparison:?}") };
    let difference = &entry.difference;
    assert_eq!((difference.others.invocations, difference.these.invocations), (30, 20));
    assert_eq!(difference.paths.len(), 2);
    let largest = &difference.paths[0];
    let names: Vec<&str> = largest.path.iter().map(|method| &*comparison.methods[*method as usize].method).collect();
    assert_eq!((names, largest.others.calls, largest.these.calls), (vec!["m0", "m2"], 30, 20));
    let more = |path: &PathDifference| path.these.self_ns / 20 - path.others.self_ns / 30;
    let all = difference.these.mean_ns() - difference.others.mean_ns();
    assert_eq!(difference.paths.iter().map(more).sum::<u64>(), all);
}

/// Check that pictures of both have as many invocations, that one that only one of them has is as it was, and that waiting is not made up.
#[test]
fn compared_recordings_are_weighed() {
    let [before, after] = before_and_after();
    let values = |before: &RecordedTrees, after: &RecordedTrees, weight| -> Option<[Vec<u64>; 2]> {
        let both = weigh_comparison(&compare_trees(before, after), weight).ok()?;
        Some(both.map(|weighed| {
            let mut stacks = weighed.stacks;
            stacks.sort_by_key(|stack| stack.frames.len());
            assert_eq!(weighed.total, stacks.iter().map(|stack| stack.value).sum::<u64>());
            stacks.iter().map(|stack| stack.value).collect()
        }))
    };
    assert_eq!(values(&before, &after, Weight::Time), Some([vec![2_000, 200], vec![3_000, 20_000]]));
    assert_eq!(values(&before, &after, Weight::Calls), Some([vec![20, 20], vec![20, 20]]));
    assert_eq!(values(&before, &RecordedTrees::default(), Weight::Time), Some([vec![3_000, 300], vec![0, 0]]));
    assert_eq!(values(&before, &after, Weight::OffCpu), None);
}
