//! What all invocations of entry methods add up to, and what a recording keeps of them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::{Difference, Invocation, InvocationGroup, Losses, PathSum, SlowestInvocation, TreeMethod, Unfinished};

/// Sums of invocations, in room that does not grow with their number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeTotals {
    /// The different ways from entry methods down. The place of each is its number; each is behind the one that it goes on.
    pub ways: Vec<TreeWay>,
    /// By the number of the entry method.
    pub entries: BTreeMap<u32, EntryTotals>,
    /// How many invocations there were.
    pub seen: u64,
    /// Calls that were beyond the limit of different ways: they are in no sum of a way.
    pub ways_left_out: u64,
}

/// A way from an entry method to another method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeWay {
    /// The number of the way that it goes on; `None` for an entry method.
    pub before: Option<u32>,
    /// The number of its last method.
    pub method: u32,
}

/// All invocations of an entry method.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryTotals {
    /// Those whose tree lacks something within.
    pub incomplete: u64,
    /// Those that were left by an exception.
    pub failed: u64,
    /// Those whose end was not seen: they are in no other number.
    pub endless: u64,
    /// The slowest.
    pub slowest: Option<SlowestInvocation>,
    /// By the bucket of their times, as in histograms.
    pub alike: BTreeMap<u32, AlikeTotals>,
}

/// Invocations that took about the same time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlikeTotals {
    /// Their times.
    pub group: InvocationGroup,
    /// What they did, by the number of the way.
    pub ways: HashMap<u32, PathSum>,
}

impl EntryTotals {
    /// All of them together.
    #[must_use]
    pub fn group(&self) -> InvocationGroup {
        self.alike.values().fold(InvocationGroup::default(), |sum, alike| sum.with(alike.group))
    }
}

impl TreeTotals {
    /// The methods on a way, the entry method first.
    #[must_use]
    pub fn path(&self, way: u32) -> Vec<u32> {
        let mut methods = Vec::new();
        let mut next = Some(way);
        while let Some(way) = next.and_then(|way| self.ways.get(way as usize)) {
            methods.push(way.method);
            next = way.before;
        }
        methods.reverse();
        methods
    }

    /// What all invocations did on each way, by its number.
    #[must_use]
    pub fn by_way(&self) -> BTreeMap<u32, PathSum> {
        let mut sums: BTreeMap<u32, PathSum> = BTreeMap::new();
        for (way, more) in self.entries.values().flat_map(|of| of.alike.values()).flat_map(|alike| &alike.ways) {
            sums.entry(*way).or_default().add(*more);
        }
        sums
    }
}

/// A moment by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeClock {
    /// By the wall.
    pub wall: Timestamp,
    /// By the kernel's monotonic clock, in nanoseconds.
    pub monotonic_ns: u64,
}

/// What is missing of what threads told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeLosses {
    /// Events for which a thread's ring had no room. Where they are missing, a [`TreeEventKind::Lost`](super::TreeEventKind::Lost)
    /// says so as well.
    pub events: u64,
    /// Invocations of entry methods that were left out as a whole because the ring was nearly full.
    pub invocations: u64,
    /// Events of threads that have no ring: there are more threads than rings.
    pub without_ring: u64,
    /// Times that threads did not run, of which the kernel did not tell how long.
    pub waits: u64,
}

impl TreeLosses {
    /// By their names.
    #[must_use]
    pub fn named(self) -> Losses {
        let Self { events, invocations, without_ring, waits } = self;
        let of_rings = [("tree-events", events), ("tree-invocations", invocations), ("tree-no-ring", without_ring)];
        Losses { counts: of_rings.into_iter().chain([("tree-waits", waits)]).collect() }
    }
}

/// Invocations of entry methods as a recording has them: the sums of all, and the slowest as whole trees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedTrees {
    /// When following began.
    pub began: TreeClock,
    /// How long it went on.
    pub elapsed: Duration,
    /// The methods of the plan. The place of each is its number.
    pub methods: Vec<TreeMethod>,
    /// Classes of exceptions, by the numbers that the trees have.
    pub exceptions: BTreeMap<u32, String>,
    /// The sums of all invocations.
    pub totals: TreeTotals,
    /// What did not become an invocation.
    pub unfinished: Unfinished,
    /// What was lost.
    pub losses: TreeLosses,
    /// The methods that told no more, since they were called too often for the budget.
    pub silenced: Vec<u32>,
    /// The slowest invocations, as they ended.
    pub kept: Vec<KeptInvocation>,
}

/// An invocation that is kept as a whole tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptInvocation {
    /// Which one it was, counted from 1 on as they were seen to begin.
    pub number: u64,
    /// The name of its thread, if it was known.
    pub thread: Option<String>,
    /// The invocation, without its single calls.
    pub invocation: Invocation,
}

/// The trees of two recordings compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeComparison {
    /// The methods of both. The place of each is its number.
    pub methods: Vec<TreeMethod>,
    /// By entry method, the one that took the most time first.
    pub entries: Vec<EntryComparison>,
    /// The methods that were not followed to the end before, and after.
    pub silenced: [Vec<u32>; 2],
    /// What was lost before, and after.
    pub losses: [TreeLosses; 2],
}

/// All invocations of an entry method in two recordings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryComparison {
    /// Its number.
    pub method: u32,
    /// How many were left by an exception before, and after.
    pub failed: [u64; 2],
    /// The later recording's invocations compared with the earlier one's.
    pub difference: Difference,
}
