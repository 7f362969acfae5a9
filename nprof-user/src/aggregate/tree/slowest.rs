//! The slowest invocations, as many as there is room for. Entry methods share that: the slow ones of one do not drive out those of another.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::{Invocation, KeptInvocation};

/// How many invocations are kept.
pub(super) const MOST_TREES: usize = 100;
/// How many nodes they have together: more than the largest tree has.
pub(super) const MOST_NODES: usize = 262_144;

/// The slowest invocations so far.
#[derive(Debug, Default)]
pub struct SlowestTrees {
    kept: Vec<KeptInvocation>,
    exceptions: BTreeMap<u32, String>,
}

/// What decides whether an invocation is kept.
#[derive(Debug, Clone, Copy)]
struct Rank {
    place: usize,
    entry: u32,
    total_ns: u64,
    nodes: usize,
}

impl Rank {
    fn of(place: usize, invocation: &Invocation) -> Self {
        let root = invocation.root();
        Self { place, entry: root.method, total_ns: root.total_ns, nodes: invocation.nodes.len() }
    }
}

impl SlowestTrees {
    /// Keeps an invocation, if it is one of the slowest. One that has no end has no time, and is not kept.
    pub fn add(
        &mut self,
        number: u64,
        invocation: &Invocation,
        thread: impl FnOnce() -> Option<String>,
        exception: impl Fn(u32) -> Option<String>,
    ) {
        if invocation.total_ns().is_none() {
            return;
        }
        let Some(mut making_room) = self.making_room(invocation) else { return };
        making_room.sort_unstable();
        for place in making_room.into_iter().rev() {
            self.kept.remove(place);
        }
        for sum in invocation.nodes.iter().flat_map(|node| &node.exceptions) {
            if let Some(class) = exception(sum.exception) {
                self.exceptions.insert(sum.exception, class);
            }
        }
        let invocation = Invocation { calls: Vec::new(), ..invocation.clone() };
        self.kept.push(KeptInvocation { number, thread: thread(), invocation });
    }

    /// What is kept, as it ended, and the classes of the exceptions in it.
    #[must_use]
    pub fn finish(self) -> (Vec<KeptInvocation>, BTreeMap<u32, String>) {
        let Self { kept, mut exceptions } = self;
        let nodes = || kept.iter().flat_map(|kept| &kept.invocation.nodes);
        let used: Vec<u32> = nodes().flat_map(|node| &node.exceptions).map(|sum| sum.exception).collect();
        exceptions.retain(|number, _| used.contains(number));
        (kept, exceptions)
    }

    /// The places of those that make room for a new one; `None` if it would have to go itself. Of whichever entry method has most the
    /// quickest goes, of equal ones the latest.
    fn making_room(&self, new: &Invocation) -> Option<Vec<usize>> {
        let kept = self.kept.iter().map(|kept| &kept.invocation).chain([new]);
        let mut all: Vec<Rank> = kept.enumerate().map(|(place, invocation)| Rank::of(place, invocation)).collect();
        let mut making_room = Vec::new();
        loop {
            let are_many = all.len() > MOST_TREES;
            if !are_many && all.iter().map(|rank| rank.nodes).sum::<usize>() <= MOST_NODES {
                return Some(making_room);
            }
            let mut shares: BTreeMap<u32, usize> = BTreeMap::new();
            for rank in &all {
                *shares.entry(rank.entry).or_default() += if are_many { 1 } else { rank.nodes };
            }
            let (largest, _) = shares.into_iter().max_by_key(|&(_, share)| share)?;
            let of_largest = all.iter().enumerate().filter(|(_, rank)| rank.entry == largest);
            let (at, _) = of_largest.min_by_key(|(_, rank)| (rank.total_ns, Reverse(rank.place)))?;
            let gone = all.remove(at);
            if gone.place == self.kept.len() {
                return None;
            }
            making_room.push(gone.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NodeException, TreeNode, TreeThread};

    fn invocation(entry: u32, total_ns: u64, nodes: usize) -> Invocation {
        let root = TreeNode { method: entry, calls: 1, total_ns, ..TreeNode::default() };
        let exceptions = vec![NodeException { exception: 7, left: 1, threw: 1, caught: 0 }];
        let below = TreeNode { method: 9, calls: 1, exceptions, ..TreeNode::default() };
        let nodes = [root].into_iter().chain(std::iter::repeat_n(below, nodes - 1)).collect();
        Invocation::new(TreeThread::Platform(1), nodes)
    }

    fn add(slowest: &mut SlowestTrees, number: u64, invocation: &Invocation) {
        slowest.add(number, invocation, || Some("main".to_owned()), |number| Some(format!("E{number}")));
    }

    fn numbers(slowest: SlowestTrees) -> Vec<u64> {
        slowest.finish().0.iter().map(|kept| kept.number).collect()
    }

    /// Check that the slowest are kept, in the order in which they ended, and of equal ones those that came first.
    #[test]
    fn slowest_are_kept() {
        let mut slowest = SlowestTrees::default();
        for number in 0..1_000 {
            add(&mut slowest, number, &invocation(0, 5 + number % 500 / 499, 1));
        }
        let expected: Vec<u64> = (0..98).chain([499, 999]).collect();
        assert_eq!(numbers(slowest), expected);
    }

    /// Check that slow invocations of one entry method leave their share to those of another.
    #[test]
    fn entry_methods_share_the_room() {
        let mut slowest = SlowestTrees::default();
        (0..200).for_each(|number| add(&mut slowest, number, &invocation(0, 1_000, 1)));
        (200..400).for_each(|number| add(&mut slowest, number, &invocation(1, 10, 1)));
        let kept = slowest.finish().0;
        let of_second = kept.iter().filter(|kept| kept.invocation.root().method == 1).count();
        assert_eq!((kept.len(), of_second), (MOST_TREES, MOST_TREES / 2));
    }

    /// Check that large trees make room for slower ones, that what has no end is not kept, and that classes of exceptions go with their trees.
    #[test]
    fn nodes_have_a_limit() {
        let mut slowest = SlowestTrees::default();
        let half = MOST_NODES / 2;
        add(&mut slowest, 1, &invocation(0, 30, half));
        add(&mut slowest, 2, &invocation(0, 10, half));
        add(&mut slowest, 3, &invocation(0, 5, half));
        add(&mut slowest, 4, &invocation(0, 20, half));
        let mut endless = invocation(0, 100, 1);
        endless.nodes[0].unended = 1;
        add(&mut slowest, 5, &endless);
        assert_eq!(slowest.exceptions.len(), 1);
        assert_eq!(numbers(slowest), [1, 4]);
        let mut slowest = SlowestTrees::default();
        add(&mut slowest, 1, &invocation(0, 1, 2));
        (2..102).for_each(|number| add(&mut slowest, number, &invocation(0, 2, 1)));
        assert!(slowest.finish().1.is_empty());
    }
}
