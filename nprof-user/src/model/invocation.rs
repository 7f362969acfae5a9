//! Invocations as trees: what one call of an entry method did, and what all of them have in common.

use nprof_common::{Consumed, Counters};

use super::{Collectors, Histogram, TreeThread};

/// One invocation of an entry method: everything that its thread told from entering it to leaving it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Which one it is, counted from 1 on as they were seen to begin.
    pub number: u64,
    /// Which thread made it.
    pub thread: TreeThread,
    /// When it began, in nanoseconds of the kernel's monotonic clock.
    pub started_ns: u64,
    /// Its nodes, parents before their children; the first is the entry method. Never empty.
    pub nodes: Vec<TreeNode>,
    /// Whether it is known how long its thread did not run.
    pub knows_off: bool,
    /// What was collected besides time.
    pub collectors: Collectors,
    /// Whether that is known of its thread.
    pub knows_used: bool,
    /// What is not in the numbers.
    pub missing: Missing,
    /// Its single calls as they ended, where they were asked for.
    pub calls: Vec<TreeCall>,
    /// The number of the task that it is part of, if that was told.
    pub task: Option<u64>,
    /// Who has made that task, if that is known.
    pub submitted_by: Option<Submission>,
    /// The tasks that it has made, as far as there was room for them.
    pub handed_over: Vec<HandOver>,
}

/// Who has made a task, or started a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submission {
    /// The number of the invocation.
    pub invocation: u64,
    /// Its thread.
    pub thread: TreeThread,
    /// The number of the method in which it was.
    pub method: u32,
    /// When that was, in nanoseconds of the kernel's monotonic clock.
    pub at_ns: u64,
    /// Whether it is a thread that was started.
    pub is_thread: bool,
}

/// A task that an invocation has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The place of the node that it was in.
    pub node: u32,
    /// The number of the task.
    pub task: u64,
    /// The numbers of the invocations that were part of it until the end of this one, as far as there was room.
    pub came: Vec<u64>,
}

impl Invocation {
    /// One of a thread of which nothing is known but its nodes.
    #[must_use]
    pub fn new(thread: TreeThread, nodes: Vec<TreeNode>) -> Self {
        Self {
            number: 0,
            thread,
            started_ns: 0,
            nodes,
            knows_off: false,
            collectors: Collectors::default(),
            knows_used: false,
            missing: Missing::default(),
            calls: Vec::new(),
            task: None,
            submitted_by: None,
            handed_over: Vec::new(),
        }
    }

    /// The entry method.
    #[must_use]
    pub fn root(&self) -> &TreeNode {
        &self.nodes[0]
    }

    /// How long it took; `None` if its end was not seen.
    #[must_use]
    pub fn total_ns(&self) -> Option<u64> {
        (self.root().unended == 0).then_some(self.root().total_ns)
    }

    /// For each node how long the thread did not run in it, nested calls included, in nanoseconds; `None` if that is not known.
    #[must_use]
    pub fn off_ns(&self) -> Option<Vec<u64>> {
        if !self.knows_off {
            return None;
        }
        let mut off_ns: Vec<u64> = self.nodes.iter().map(TreeNode::self_off_ns).collect();
        // Children come behind their parents.
        for (place, node) in self.nodes.iter().enumerate().rev() {
            let nested: u64 = node.children.iter().map(|&child| off_ns[child as usize]).sum();
            off_ns[place] = (off_ns[place] + nested).min(node.total_ns);
        }
        Some(off_ns)
    }

    /// For each node what it consumed; `None` if that is not known.
    #[must_use]
    pub fn consumed(&self) -> Option<Vec<Consumed>> {
        if !self.knows_used {
            return None;
        }
        let of_node = |node: &TreeNode| {
            let mut own = Counters::default();
            for used in &node.used {
                own[used.counter as usize] = own[used.counter as usize].saturating_add(used.amount);
            }
            Consumed { own, total: own }
        };
        let mut consumed: Vec<Consumed> = self.nodes.iter().map(of_node).collect();
        // Children come behind their parents.
        for (place, node) in self.nodes.iter().enumerate().rev() {
            for &child in &node.children {
                let nested = consumed[child as usize].total;
                let total = consumed[place].total.iter_mut();
                total.zip(nested).for_each(|(total, nested)| *total = total.saturating_add(nested));
            }
        }
        Some(consumed)
    }

    /// The number of the exception that it was left by.
    #[must_use]
    pub fn failed_by(&self) -> Option<u32> {
        self.root().exceptions.iter().find(|sum| sum.left > 0).map(|sum| sum.exception)
    }
}

/// All calls of one method from the same calls of another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeNode {
    /// The method's number.
    pub method: u32,
    /// The places of those that were called from here, as they were first called.
    pub children: Vec<u32>,
    /// How many calls there were.
    pub calls: u64,
    /// Of these, those whose end was not seen: they are in none of the times.
    pub unended: u64,
    /// The time of the others, nested calls included.
    pub total_ns: u64,
    /// The shortest of them.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// What nested calls took of their time.
    pub nested_ns: u64,
    /// How long the thread did not run, without nested calls.
    pub off_ns: u64,
    /// What else it consumed, without nested calls.
    pub used: Vec<NodeUse>,
    /// What was thrown here and caught here, by class.
    pub exceptions: Vec<NodeException>,
}

impl TreeNode {
    /// The time without nested calls.
    #[must_use]
    pub fn self_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.nested_ns)
    }

    /// How much of that the thread did not run. The clocks of both differ by some nanoseconds.
    #[must_use]
    pub fn self_off_ns(&self) -> u64 {
        self.off_ns.min(self.self_ns())
    }
}

/// By how much a counter of the thread has grown at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeUse {
    /// The number of the counter ([`nprof_common::Counter`]).
    pub counter: u32,
    /// By how much.
    pub amount: u64,
}

/// What became of exceptions of one class at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeException {
    /// The number of the class.
    pub exception: u32,
    /// How many calls were left by one.
    pub left: u64,
    /// Of these, how many had none from a nested call: it began here, as far as is seen.
    pub threw: u64,
    /// How many came here from a nested call and went no further.
    pub caught: u64,
}

/// A single call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeCall {
    /// The place of its node.
    pub node: u32,
    /// When it began, in nanoseconds from the start of the invocation.
    pub start_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
}

/// What the numbers of an invocation lack. All are zero where they are whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Missing {
    /// Events for which there was no room. What came behind them is not in the tree.
    pub lost: u64,
    /// Whole calls for which there was no room.
    pub lost_calls: u64,
    /// Ends of calls whose beginning was not seen.
    pub unbegun: u64,
    /// Calls whose end was not seen.
    pub unended: u64,
    /// Calls that were nested too deep, or of which there were too many different ones: their time is that of their caller.
    pub cut: u64,
    /// Single calls that are not in [`Invocation::calls`].
    pub calls_left_out: u64,
    /// Events of the same thread were lost before: this may have been called from within another invocation.
    pub is_after_loss: bool,
}

impl Missing {
    /// Whether times of calls are missing, or may belong to others.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.lost > 0 || self.lost_calls > 0 || self.unbegun > 0 || self.unended > 0 || self.is_after_loss
    }
}

/// What did not become an invocation that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unfinished {
    /// Invocations that were under way when following began: only their ends were seen.
    pub begun_before: u64,
    /// Invocations in which their threads still were at the end.
    pub still_inside: u64,
    /// Invocations in which their threads ended.
    pub died_inside: u64,
    /// Invocations of which only the ends were seen, because events were lost.
    pub lost_beginnings: u64,
    /// Invocations that were not followed, because too many threads were in others.
    pub crowded: u64,
    /// Events of numbers that no method has: a defect.
    pub unknown: u64,
}

/// All invocations together, whether they were shown or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeSummary {
    /// By entry method, the one that took the most time first.
    pub entries: Vec<EntrySummary>,
    /// What did not become one.
    pub unfinished: Unfinished,
    /// Calls that were beyond the limit of different paths: they are in no comparison.
    pub paths_left_out: u64,
}

/// All invocations of one entry method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrySummary {
    /// Its number.
    pub method: u32,
    /// How many were seen from their beginning to their end.
    pub invocations: u64,
    /// Of these, those whose tree lacks something within.
    pub incomplete: u64,
    /// Of these, those that were left by an exception.
    pub failed: u64,
    /// How many more there were, the end of which was not seen because events were lost.
    pub endless: u64,
    /// The sum of their times.
    pub total_ns: u64,
    /// How much of it their threads did not run; `None` if that is not known of all.
    pub off_ns: Option<u64>,
    /// Their times.
    pub histogram: Histogram,
    /// The slowest.
    pub slowest: Option<SlowestInvocation>,
    /// Where the time of slow ones goes that quick ones do not need; `None` where there is no telling them apart.
    pub difference: Option<Difference>,
}

/// The slowest invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowestInvocation {
    /// Which one it was, counted from 1 on as they were seen to begin.
    pub number: u64,
    /// How long it took.
    pub total_ns: u64,
    /// Its thread.
    pub thread: TreeThread,
    /// When it began.
    pub started_ns: u64,
}

/// Two groups of invocations compared: slow ones with quick ones, or those of a recording with those of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Those whose time is to be explained.
    pub these: InvocationGroup,
    /// Those that they are compared with.
    pub others: InvocationGroup,
    /// Paths from the entry method down, those first that explain the most. Their differences add up to the whole one.
    pub paths: Vec<PathDifference>,
}

/// Some invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InvocationGroup {
    /// How many.
    pub invocations: u64,
    /// The sum of their times.
    pub total_ns: u64,
    /// The shortest of them.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// How long their threads did not run.
    pub off_ns: u64,
    /// Of how many that is not known.
    pub unknown_off: u64,
}

impl InvocationGroup {
    /// A single one.
    #[must_use]
    pub fn one(total_ns: u64, off_ns: Option<u64>) -> Self {
        let unknown_off = u64::from(off_ns.is_none());
        Self { invocations: 1, total_ns, min_ns: total_ns, max_ns: total_ns, off_ns: off_ns.unwrap_or(0), unknown_off }
    }

    /// Both.
    #[must_use]
    pub fn with(self, more: Self) -> Self {
        let min_ns = match (self.invocations, more.invocations) {
            (0, _) => more.min_ns,
            (_, 0) => self.min_ns,
            _ => self.min_ns.min(more.min_ns),
        };
        Self {
            invocations: self.invocations + more.invocations,
            total_ns: self.total_ns.saturating_add(more.total_ns),
            min_ns,
            max_ns: self.max_ns.max(more.max_ns),
            off_ns: self.off_ns.saturating_add(more.off_ns),
            unknown_off: self.unknown_off + more.unknown_off,
        }
    }

    /// How long their threads did not run, if that is known of all.
    #[must_use]
    pub fn known_off_ns(&self) -> Option<u64> {
        (self.unknown_off == 0).then_some(self.off_ns)
    }

    /// The mean of that.
    #[must_use]
    pub fn mean_off_ns(&self) -> Option<u64> {
        self.known_off_ns()?.checked_div(self.invocations)
    }

    /// The mean time.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.invocations).unwrap_or(0)
    }
}

/// What both groups did on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathDifference {
    /// The methods' numbers, the entry method first.
    pub path: Vec<u32>,
    /// In those whose time is to be explained.
    pub these: PathSum,
    /// In the others.
    pub others: PathSum,
}

/// What happened on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathSum {
    /// Calls.
    pub calls: u64,
    /// Their time without nested calls.
    pub self_ns: u64,
    /// How much of it their threads did not run, as far as that is known.
    pub off_ns: u64,
}

impl PathSum {
    /// Adds another one.
    pub fn add(&mut self, more: Self) {
        self.calls += more.calls;
        self.self_ns += more.self_ns;
        self.off_ns += more.off_ns;
    }
}
