//! Invocations put together from what threads tell, compared with a naive model of the same calls.

use std::collections::BTreeMap;

use super::open::{MAX_DEPTH, MAX_NODES};
use super::{TreeSums, Trees, summarize_trees};
use crate::model::{
    Invocation, Missing, NodeException, Submission, TreeEvent, TreeEventKind, TreeKind, TreeMethod, TreeNode,
    TreeThread,
};

mod sums;

/// Six methods: 0 and 1 are entry methods, 5 is native.
fn methods() -> Vec<TreeMethod> {
    let method = |number: u32| TreeMethod {
        class: "a.B".into(),
        method: format!("m{number}").into(),
        signature: "()V".into(),
        kind: if number == 5 { TreeKind::Native } else { TreeKind::Java },
        is_entry: number < 2,
        depth: u32::from(number >= 2),
        callers: Vec::new(),
        callee: None,
    };
    (0..6).map(method).collect()
}

const MAIN: TreeThread = TreeThread::Platform(7);

/// Events of one thread, a nanosecond after the other unless it is said otherwise.
struct Script {
    trees: Trees,
    now: u64,
    done: Vec<Invocation>,
}

impl Script {
    fn new() -> Self {
        Self { trees: Trees::new(&methods(), true), now: 1000, done: Vec::new() }
    }

    fn tell(mut self, method: u32, kind: TreeEventKind) -> Self {
        self.now += 1;
        self.done.extend(self.trees.take(&TreeEvent { thread: MAIN, at_ns: self.now, method, kind }));
        self
    }

    fn enter(self, method: u32) -> Self {
        self.tell(method, TreeEventKind::Enter)
    }

    fn leave(self, method: u32) -> Self {
        self.tell(method, TreeEventKind::Return)
    }

    fn throw(self, method: u32, exception: u32) -> Self {
        self.tell(method, TreeEventKind::Throw { exception })
    }

    fn lose(self, events: u64) -> Self {
        self.tell(0, TreeEventKind::Lost(events))
    }

    fn pass(mut self, ns: u64) -> Self {
        self.now += ns;
        self
    }

    /// The only invocation.
    fn one(self) -> Invocation {
        let [one] = <[Invocation; 1]>::try_from(self.done).expect("one invocation");
        one
    }
}

/// The node at the end of a path of methods below the root.
fn at<'a>(invocation: &'a Invocation, path: &[u32]) -> &'a TreeNode {
    path.iter().fold(invocation.root(), |node, method| {
        let child = |place: &&u32| invocation.nodes[**place as usize].method == *method;
        let place = node.children.iter().find(child).expect("the method was called there");
        &invocation.nodes[*place as usize]
    })
}

fn thrown(exception: u32, left: u64, threw: u64, caught: u64) -> NodeException {
    NodeException { exception, left, threw, caught }
}

/// Check that repeated calls are one node with count, sum, shortest and longest, and what is left for the caller.
#[test]
fn repeated_calls_are_one_node() {
    let invocation =
        Script::new().enter(0).enter(2).leave(2).enter(2).pass(9).leave(2).enter(3).leave(3).leave(0).one();
    let node = at(&invocation, &[2]);
    assert_eq!((node.calls, node.total_ns, node.min_ns, node.max_ns, node.self_ns()), (2, 11, 1, 10, 11));
    let root = invocation.root();
    assert_eq!((invocation.total_ns(), root.self_ns(), root.children.len()), (Some(16), 4, 2));
    assert_eq!((invocation.started_ns, invocation.missing), (1001, Missing::default()));
    let calls: Vec<_> = invocation.calls.iter().map(|call| (call.node, call.start_ns, call.duration_ns)).collect();
    assert_eq!(calls, [(1, 1, 1), (1, 3, 10), (2, 14, 1), (0, 0, 16)]);
}

/// Check that tasks are linked by their numbers, whichever is seen first: that it was made or that it was run; and that what nobody has told of is
/// linked with nothing.
#[test]
fn tasks_link_invocations() {
    use TreeEventKind::{Comes, Enter, Hands, Return};
    let other = TreeThread::Virtual(5);
    let mut trees = Trees::new(&methods(), false);
    let mut ended: Vec<Invocation> = Vec::new();
    let mut tell = |thread, at_ns, method, kind| {
        let event = TreeEvent { thread, at_ns, method, kind };
        ended.extend(trees.take(&event));
    };
    let (task, thread, unknown, early) = (4, 4 | 2, 8, 12);
    for (at_ns, number) in [(10, task), (20, unknown), (30, early), (40, thread)] {
        tell(other, at_ns, 0, Enter);
        tell(other, at_ns, 0, Comes(number));
        // What it runs itself does not come of another thread.
        tell(other, at_ns + 1, 0, Comes(99));
        tell(other, at_ns + 2, 0, Return);
        if number == task {
            tell(MAIN, 5, 0, Enter);
            tell(MAIN, 6, 1, Enter);
            [task, early, thread].into_iter().for_each(|number| tell(MAIN, 7, u32::MAX, Hands(number)));
            tell(MAIN, 8, 1, Return);
        }
    }
    tell(MAIN, 50, 0, Return);
    tell(MAIN, 60, 0, Hands(16));
    let are_whole: Vec<bool> = ended.iter_mut().map(|one| trees.link(one)).collect();
    assert_eq!(are_whole, [true, false, true, true, true]);
    let submitter = 2;
    let by = |is_thread| Submission { invocation: submitter, thread: MAIN, method: 1, at_ns: 7, is_thread };
    let linked: Vec<_> = ended.iter().map(|one| (one.number, one.submitted_by)).collect();
    let expected = [(1, Some(by(false))), (3, None), (4, Some(by(false))), (5, Some(by(true))), (2, None)];
    assert_eq!(linked, expected);
    let handed: Vec<_> =
        ended[4].handed_over.iter().map(|handed| (handed.node, handed.task, &handed.came[..])).collect();
    assert_eq!(handed, [(1, task, &[1][..]), (1, early, &[4]), (1, thread, &[5])]);
}

/// Check that recursion and an entry method within another are nodes of one tree.
#[test]
fn recursion_is_nested() {
    let invocation = Script::new().enter(0).enter(0).enter(1).leave(1).leave(0).leave(0).one();
    assert_eq!(invocation.total_ns(), Some(5));
    assert_eq!((at(&invocation, &[0]).total_ns, at(&invocation, &[0, 1]).total_ns), (3, 1));
}

/// Check that what is nested too deep is counted, and its time is that of its caller.
#[test]
fn depth_has_a_limit() {
    let deep = MAX_DEPTH + 3;
    let script = (0..deep).fold(Script::new(), |script, _| script.enter(0));
    let invocation = (0..deep).fold(script, |script, _| script.leave(0)).one();
    assert_eq!((invocation.nodes.len(), invocation.missing.cut), (MAX_DEPTH, 3));
    let innermost = &invocation.nodes[MAX_DEPTH - 1];
    assert_eq!((innermost.total_ns, innermost.self_ns()), (7, 7));
    assert!(!invocation.missing.is_incomplete());
}

/// Check that it is said who threw and who caught: the innermost that threw, the nearest above that did not.
#[test]
fn exceptions_go_from_who_threw_to_who_caught() {
    let invocation = Script::new().enter(0).enter(2).enter(3).throw(3, 9).throw(2, 9).enter(4).leave(4).leave(0).one();
    assert_eq!(at(&invocation, &[2, 3]).exceptions, [thrown(9, 1, 1, 0)]);
    assert_eq!(at(&invocation, &[2]).exceptions, [thrown(9, 1, 0, 0)]);
    assert_eq!(invocation.root().exceptions, [thrown(9, 0, 0, 1)]);
    assert_eq!(invocation.failed_by(), None);
}

/// Check that an exception that leaves the entry method is nobody's to catch, and that another class is another exception.
#[test]
fn wrapped_exceptions_are_caught_and_thrown() {
    let invocation = Script::new().enter(0).enter(2).enter(3).throw(3, 1).throw(2, 8).throw(0, 8).one();
    assert_eq!(at(&invocation, &[2]).exceptions, [thrown(1, 0, 0, 1), thrown(8, 1, 1, 0)]);
    assert_eq!(invocation.root().exceptions, [thrown(8, 1, 0, 0)]);
    assert_eq!(invocation.failed_by(), Some(8));
}

/// Check that each exception of a loop is caught once, and that work in a `finally` does not catch one.
#[test]
fn loops_and_finally_blocks() {
    let script = (0..3).fold(Script::new().enter(0), |script, _| script.enter(2).throw(2, 4));
    assert_eq!(script.leave(0).one().root().exceptions, [thrown(4, 0, 0, 3)]);
    let finally = Script::new().enter(0).enter(2).enter(3).throw(3, 4).enter(4).leave(4).throw(2, 4).leave(0).one();
    assert_eq!(at(&finally, &[2]).exceptions, [thrown(4, 1, 0, 0)]);
    assert_eq!(finally.root().exceptions, [thrown(4, 0, 0, 1)]);
}

/// Check that a native method of which only the caller tells that it is left by an exception has thrown it.
#[test]
fn native_methods_throw_by_their_callers() {
    let invocation = Script::new().enter(0).enter(2).enter(5).throw(2, 3).leave(0).one();
    assert_eq!(at(&invocation, &[2, 5]).exceptions, [thrown(3, 1, 1, 0)]);
    assert_eq!((at(&invocation, &[2, 5]).total_ns, invocation.missing), (1, Missing::default()));
}

/// Check that an end without a beginning, and a call without an end, change no time and are said.
#[test]
fn what_fits_nothing_is_said() {
    let unbegun = Script::new().enter(0).leave(3).leave(0).one();
    assert_eq!((unbegun.total_ns(), unbegun.missing.unbegun, unbegun.nodes.len()), (Some(2), 1, 1));
    let unended = Script::new().enter(0).enter(2).enter(3).leave(3).leave(0).one();
    let node = at(&unended, &[2]);
    assert_eq!((node.calls, node.unended, node.total_ns, node.max_ns), (1, 1, 0, 0));
    assert_eq!((unended.missing.unended, at(&unended, &[2, 3]).total_ns), (1, 1));
    assert!(unended.missing.is_incomplete());
}

/// Check that a loss ends an invocation without a time, that what follows makes no wrong one, and that order returns.
#[test]
fn a_loss_makes_no_wrong_number() {
    let script = Script::new().enter(0).enter(2).leave(2).enter(2).lose(5);
    assert_eq!(script.done.len(), 1);
    let script = script.leave(2).enter(2).leave(2).leave(0).enter(0).leave(0);
    assert_eq!(script.trees.unfinished().lost_beginnings, 0);
    let [lost, after] = <[Invocation; 2]>::try_from(script.done).unwrap();
    assert_eq!((lost.total_ns(), lost.missing.lost, lost.missing.unended), (None, 5, 2));
    assert_eq!((at(&lost, &[2]).calls, at(&lost, &[2]).unended, at(&lost, &[2]).total_ns), (2, 1, 1));
    assert_eq!((after.total_ns(), after.missing), (Some(1), Missing::default()));
    let adrift = Script::new().lose(2).enter(0).leave(0);
    assert!(adrift.one().missing.is_after_loss);
    let headless = Script::new().lose(2).leave(2).leave(0);
    assert_eq!((headless.done.len(), headless.trees.unfinished().lost_beginnings), (0, 1));
}

/// Check that invocations without a beginning or an end are counted.
#[test]
fn unfinished_invocations_are_counted() {
    let script = Script::new().leave(2).leave(1).leave(0).enter(3).leave(3).enter(0).enter(9);
    let mut trees = script.trees;
    let unfinished = trees.unfinished();
    assert_eq!((unfinished.begun_before, unfinished.still_inside, unfinished.unknown), (2, 1, 1));
    assert!(trees.thread_ended(MAIN) && !trees.thread_ended(MAIN));
    assert_eq!((trees.unfinished().still_inside, trees.unfinished().died_inside), (0, 1));
}

/// A generator of pseudo-random numbers (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn method(&mut self, count: u64) -> u32 {
        u32::try_from(self.below(count)).unwrap()
    }
}

/// What the model knows of a path: the times of its calls, its self time, and how many were left by an exception.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    times: Vec<u64>,
    self_ns: u64,
    left: u64,
}

/// A thread of the model, which makes random calls.
struct Model<'a> {
    random: &'a mut Random,
    thread: TreeThread,
    now: u64,
    events: Vec<TreeEvent>,
    known: BTreeMap<Vec<u32>, Known>,
}

impl Model<'_> {
    fn tell(&mut self, method: u32, kind: TreeEventKind) {
        self.events.push(TreeEvent { thread: self.thread, at_ns: self.now, method, kind });
    }

    /// Makes a call, and tells of it. Returns what it took, and whether it was left by an exception.
    fn call(&mut self, path: &[u32]) -> (u64, bool) {
        let method = *path.last().unwrap();
        let (began, mut nested) = (self.now, 0);
        self.tell(method, TreeEventKind::Enter);
        let mut throws = false;
        for _ in 0..self.random.below(4).saturating_sub(u64::from(path.len() > 3)) {
            self.now += self.random.below(50);
            if path.len() < 7 {
                let next = [path, &[self.random.method(5)]].concat();
                let (took, thrown) = self.call(&next);
                nested += took;
                throws = thrown && self.random.below(2) == 0;
                if throws {
                    break;
                }
            }
        }
        self.now += self.random.below(50);
        throws |= self.random.below(8) == 0;
        self.tell(method, if throws { TreeEventKind::Throw { exception: 1 } } else { TreeEventKind::Return });
        let took = self.now - began;
        let known = self.known.entry(path.to_vec()).or_default();
        known.times.push(took);
        known.self_ns += took - nested;
        known.left += u64::from(throws);
        (took, throws)
    }
}

/// The paths of an invocation, with what a model could know.
fn paths(invocation: &Invocation) -> BTreeMap<Vec<u32>, [u64; 6]> {
    let mut found = BTreeMap::new();
    let mut left = vec![(0_u32, vec![invocation.root().method])];
    while let Some((place, path)) = left.pop() {
        let node = &invocation.nodes[place as usize];
        for &child in &node.children {
            left.push((child, [&path[..], &[invocation.nodes[child as usize].method]].concat()));
        }
        let thrown = node.exceptions.iter().map(|sum| sum.left).sum();
        found.insert(path, [node.calls, node.total_ns, node.min_ns, node.max_ns, node.self_ns(), thrown]);
    }
    found
}

/// Check thousands of random invocations of many threads at once: every count and every time is the model's.
#[test]
fn random_calls_are_those_of_the_model() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..200 {
        let threads = [TreeThread::Platform(1), TreeThread::Platform(2), TreeThread::Virtual(1)];
        let mut streams = Vec::new();
        let mut expected: BTreeMap<(TreeThread, u64), BTreeMap<Vec<u32>, Known>> = BTreeMap::new();
        for thread in threads {
            let mut now = 0;
            let mut events = Vec::new();
            for _ in 0..10 {
                let entry = random.method(2);
                let mut model = Model { random: &mut random, thread, now, events, known: BTreeMap::new() };
                model.call(&[entry]);
                let began = model.now - model.known[&vec![entry]].times[0];
                (now, events) = (model.now + 1, model.events);
                expected.insert((thread, began), model.known);
            }
            events.reverse();
            streams.push(events);
        }
        let mut trees = Trees::new(&methods(), round % 2 == 0);
        let mut found = 0;
        while !streams.is_empty() {
            let which = usize::try_from(random.below(streams.len() as u64)).unwrap();
            let Some(event) = streams[which].pop() else {
                streams.remove(which);
                continue;
            };
            let Some(invocation) = trees.take(&event) else { continue };
            let known = &expected[&(invocation.thread, invocation.started_ns)];
            let known: BTreeMap<_, _> = known.iter().map(|(path, known)| (path.clone(), of(known))).collect();
            assert_eq!(paths(&invocation), known, "round {round}");
            assert_eq!(invocation.missing, Missing::default());
            found += 1;
        }
        assert_eq!((found, trees.unfinished().still_inside), (30, 0));
    }
}

fn of(known: &Known) -> [u64; 6] {
    let times = &known.times;
    let (min, max) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    [times.len() as u64, times.iter().sum(), *min, *max, known.self_ns, known.left]
}

/// Check that no stream of events, whatever is in it, makes numbers that contradict each other.
#[test]
fn senseless_events_make_no_senseless_numbers() {
    let mut random = Random(77);
    for _ in 0..300 {
        let mut trees = Trees::new(&methods(), true);
        let mut sums = TreeSums::default();
        for _ in 0..400 {
            let kind = match random.below(9) {
                0..4 => TreeEventKind::Enter,
                4..7 => TreeEventKind::Return,
                7 => TreeEventKind::Throw { exception: random.method(3) },
                _ => TreeEventKind::Lost(1),
            };
            let (thread, at_ns) = (TreeThread::Platform(random.method(2)), random.below(1000));
            let Some(invocation) = trees.take(&TreeEvent { thread, at_ns, method: random.method(7), kind }) else {
                continue;
            };
            sums.add(&invocation);
            assert!(invocation.total_ns().is_some() || invocation.missing.lost > 0);
            for node in &invocation.nodes {
                assert!(node.calls >= node.unended && node.min_ns <= node.max_ns && node.max_ns <= node.total_ns);
            }
        }
        let _answered = summarize_trees(sums.totals(), trees.unfinished());
    }
}

/// Check that a program that calls too many different things takes bounded room.
#[test]
fn nodes_have_a_limit() {
    let mut random = Random(3);
    let mut script = Script::new().enter(0);
    script.trees.keeps_calls = false;
    let mut depth = 0;
    for _ in 0..400_000 {
        script = script.enter(2 + random.method(3));
        depth += 1;
        if depth == 30 {
            // Up to somewhere, so that the next way down is another one.
            let up = 1 + random.below(29);
            for _ in 0..up {
                let innermost = script.innermost();
                script = script.leave(innermost);
            }
            depth -= up;
        }
    }
    while depth > 0 {
        let innermost = script.innermost();
        script = script.leave(innermost);
        depth -= 1;
    }
    let invocation = script.leave(0).one();
    assert_eq!(invocation.nodes.len(), MAX_NODES);
    let calls: u64 = invocation.nodes.iter().map(|node| node.calls).sum();
    assert_eq!(calls + invocation.missing.cut, 400_001);
    assert!(!invocation.missing.is_incomplete());
}

impl Script {
    /// The method that the thread is in.
    fn innermost(&self) -> u32 {
        match &self.trees.threads[&MAIN] {
            super::State::Inside(open) => open.innermost().expect("it is in one"),
            super::State::Adrift { .. } => panic!("nothing was lost"),
        }
    }
}
