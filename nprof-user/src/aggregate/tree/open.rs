//! An invocation that has not ended: its nodes so far, and the calls that are open.
//!
//! Calls of a method from the same calls of another become one node as they end, so that a loop of millions takes no room.

use std::collections::HashMap;

use nprof_common::THREAD_COUNTERS;

use crate::model::{
    Collectors, HandOver, Invocation, Missing, NodeException, NodeUse, TreeCall, TreeEvent, TreeEventKind, TreeNode,
    TreeThread,
};

/// How deep nodes are nested. Two levels of JSON each: many readers give up at 128.
pub(super) const MAX_DEPTH: usize = 48;
/// How many nodes an invocation has.
pub(super) const MAX_NODES: usize = 65_536;
/// How many calls can be open: more than fit on a usual stack.
const MAX_OPEN: usize = 65_536;
/// How many single calls an invocation has.
const MAX_CALLS: usize = 100_000;
/// How many tasks it has made of which it is known where.
const MAX_TASKS: usize = 10_000;

/// An invocation that has not ended.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) number: u64,
    /// The number of the task that it is part of.
    pub(super) task: Option<u64>,
    started_ns: u64,
    nodes: Vec<TreeNode>,
    /// The place of a node, by its parent's and its method's number.
    places: HashMap<(u32, u32), u32>,
    stack: Vec<Frame>,
    /// Calls that are open beyond those on the stack.
    beyond: u64,
    pub(super) missing: Missing,
    calls: Option<Vec<TreeCall>>,
    knows_off: bool,
    collectors: Collectors,
    knows_used: bool,
    handed_over: Vec<HandOver>,
}

/// What is known of an invocation besides its calls.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// How long the thread does not run.
    pub(super) off: bool,
    /// What it consumes of what is collected.
    pub(super) used: bool,
    /// What is collected.
    pub(super) collectors: Collectors,
}

/// A call that is open.
#[derive(Debug)]
struct Frame {
    method: u32,
    /// `None` where it is cut off.
    node: Option<u32>,
    began_ns: u64,
    nested_ns: u64,
    /// How long the thread did not run, without nested calls.
    off_ns: u64,
    /// What else it consumed, likewise.
    used: Vec<NodeUse>,
    /// The method that was called last from here, and its node: in a loop it is the next one as well.
    latest: Option<(u32, u32)>,
    /// The class of the exception that has come last from a nested call, and of which nobody knows yet whether it is caught here.
    pending: Option<u32>,
}

impl Open {
    /// An entry method is entered. `known` says what will be told besides.
    pub(super) fn begin(number: u64, event: &TreeEvent, keeps_calls: bool, known: Known) -> Self {
        let mut open = Self {
            number,
            task: None,
            started_ns: event.at_ns,
            nodes: Vec::new(),
            places: HashMap::new(),
            stack: Vec::new(),
            beyond: 0,
            missing: Missing::default(),
            calls: keeps_calls.then(Vec::new),
            knows_off: known.off,
            collectors: known.collectors,
            knows_used: known.used,
            handed_over: Vec::new(),
        };
        open.enter(event);
        open
    }

    /// Whether the entry method has been left.
    pub(super) fn is_over(&self) -> bool {
        self.stack.is_empty()
    }

    /// The method that the thread is in.
    pub(super) fn innermost(&self) -> Option<u32> {
        self.stack.last().map(|frame| frame.method)
    }

    /// Takes in what the thread tells next.
    pub(super) fn take(&mut self, event: &TreeEvent, is_told_of: impl Fn(u32) -> bool) {
        match event.kind {
            TreeEventKind::Enter => self.enter(event),
            TreeEventKind::Return => self.leave(event, None, is_told_of),
            TreeEventKind::Throw { exception } => self.leave(event, Some(exception), is_told_of),
            TreeEventKind::Lost(events) => self.lose(events),
            TreeEventKind::Waited(Some(off_ns)) => self.add_off(off_ns),
            TreeEventKind::Waited(None) => (self.knows_off, self.knows_used) = (false, false),
            TreeEventKind::Consumed { counter, amount } => self.consume(counter, amount),
            TreeEventKind::LostWithin(calls) => self.missing.lost_calls += calls,
            TreeEventKind::Hands(task) => self.hand_over(task),
            // One that comes later is of the same task, or of one that is run within the invocation.
            TreeEventKind::Comes(task) => _ = self.task.get_or_insert(task),
        }
    }

    fn hand_over(&mut self, task: u64) {
        let node = self.stack.iter().rev().find_map(|frame| frame.node);
        if let Some(node) = node.filter(|_| self.handed_over.len() < MAX_TASKS) {
            self.handed_over.push(HandOver { node, task, came: Vec::new() });
        }
    }

    /// Events are missing: when the calls end that are open now will not be known.
    pub(super) fn lose(&mut self, events: u64) {
        self.missing.lost += events;
        while self.abandon() {}
    }

    /// What it has become.
    pub(super) fn finish(self, thread: TreeThread) -> Invocation {
        let Self {
            number,
            task,
            started_ns,
            nodes,
            missing,
            calls,
            knows_off,
            collectors,
            knows_used,
            handed_over,
            ..
        } = self;
        let calls = calls.unwrap_or_default();
        let one = Invocation::new(thread, nodes);
        Invocation { number, started_ns, knows_off, collectors, knows_used, missing, calls, task, handed_over, ..one }
    }

    fn enter(&mut self, event: &TreeEvent) {
        if self.stack.len() >= MAX_OPEN {
            self.beyond += 1;
            self.missing.cut += 1;
            return;
        }
        let node = self.node(event.method);
        match node {
            Some(node) => self.nodes[node as usize].calls += 1,
            None => self.missing.cut += 1,
        }
        let (method, began_ns) = (event.method, event.at_ns);
        let latest = None;
        self.stack.push(Frame {
            method,
            node,
            began_ns,
            nested_ns: 0,
            off_ns: 0,
            used: Vec::new(),
            latest,
            pending: None,
        });
    }

    /// The node of a method that is called now; `None` where there is no room for it.
    fn node(&mut self, method: u32) -> Option<u32> {
        let new = u32::try_from(self.nodes.len()).ok()?;
        let Some(caller) = self.stack.last() else {
            self.nodes.push(TreeNode { method, ..TreeNode::default() });
            return Some(new);
        };
        if let Some((latest, node)) = caller.latest
            && latest == method
        {
            return Some(node);
        }
        let node = self.child(caller.node?, method, new)?;
        if let Some(caller) = self.stack.last_mut() {
            caller.latest = Some((method, node));
        }
        Some(node)
    }

    /// The node of a method below another, which may be the new one.
    fn child(&mut self, caller: u32, method: u32, new: u32) -> Option<u32> {
        if let Some(&known) = self.places.get(&(caller, method)) {
            return Some(known);
        }
        if self.stack.len() >= MAX_DEPTH || self.nodes.len() >= MAX_NODES {
            return None;
        }
        self.nodes.push(TreeNode { method, ..TreeNode::default() });
        self.nodes[caller as usize].children.push(new);
        self.places.insert((caller, method), new);
        Some(new)
    }

    fn leave(&mut self, event: &TreeEvent, exception: Option<u32>, is_told_of: impl Fn(u32) -> bool) {
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        let Some(place) = self.stack.iter().rposition(|frame| frame.method == event.method) else {
            self.missing.unbegun += 1;
            return;
        };
        while self.stack.len() > place + 1 {
            // A method of which its caller tells does not tell that it is left by an exception.
            match self.stack.last() {
                Some(inner) if exception.is_some() && is_told_of(inner.method) => self.close(event.at_ns, exception),
                _ => {
                    self.abandon();
                }
            }
        }
        self.close(event.at_ns, exception);
    }

    /// The innermost call ends.
    fn close(&mut self, at_ns: u64, exception: Option<u32>) {
        let Some(mut frame) = self.stack.pop() else { return };
        let took_ns = at_ns.saturating_sub(frame.began_ns);
        if let Some(place) = frame.node {
            let node = &mut self.nodes[place as usize];
            // A node has one open call at a time.
            let is_first = node.calls - node.unended == 1;
            node.min_ns = if is_first { took_ns } else { node.min_ns.min(took_ns) };
            node.max_ns = node.max_ns.max(took_ns);
            node.total_ns += took_ns;
            node.nested_ns += frame.nested_ns;
            node.off_ns += frame.off_ns;
            add(&mut node.used, std::mem::take(&mut frame.used));
            throw(node, frame.pending, exception);
            self.keep(place, &frame, took_ns);
        }
        let Some(caller) = self.stack.last_mut() else { return };
        if frame.node.is_some() {
            caller.nested_ns += took_ns;
        } else {
            caller.off_ns += frame.off_ns;
            add(&mut caller.used, frame.used);
        }
        if exception.is_some()
            && let Some(earlier) = std::mem::replace(&mut caller.pending, exception)
            && let Some(place) = caller.node
        {
            // Its caller went on after that one.
            sum(&mut self.nodes[place as usize], earlier).caught += 1;
        }
    }

    /// The innermost call has not been running for so long.
    fn add_off(&mut self, off_ns: u64) {
        if let Some(frame) = self.stack.last_mut() {
            frame.off_ns += off_ns;
        }
    }

    /// A counter of the thread has grown in the innermost call.
    fn consume(&mut self, counter: u32, amount: u64) {
        if let Some(frame) = self.stack.last_mut().filter(|_| (counter as usize) < THREAD_COUNTERS) {
            add(&mut frame.used, vec![NodeUse { counter, amount }]);
        }
    }

    fn keep(&mut self, node: u32, frame: &Frame, duration_ns: u64) {
        let Some(calls) = &mut self.calls else { return };
        if calls.len() >= MAX_CALLS {
            self.missing.calls_left_out += 1;
            return;
        }
        let start_ns = frame.began_ns.saturating_sub(self.started_ns);
        calls.push(TreeCall { node, start_ns, duration_ns });
    }

    /// The end of the innermost call was not seen. Returns whether there was a call.
    fn abandon(&mut self) -> bool {
        let Some(frame) = self.stack.pop() else { return false };
        if let Some(node) = frame.node {
            self.nodes[node as usize].unended += 1;
        }
        self.missing.unended += 1;
        self.add_off(frame.off_ns);
        if let Some(caller) = self.stack.last_mut() {
            add(&mut caller.used, frame.used);
        }
        true
    }
}

/// Adds what was consumed to what was before.
fn add(to: &mut Vec<NodeUse>, more: Vec<NodeUse>) {
    if to.is_empty() {
        *to = more;
        return;
    }
    for NodeUse { counter, amount } in more {
        match to.iter_mut().find(|used| used.counter == counter) {
            Some(used) => used.amount = used.amount.saturating_add(amount),
            None => to.push(NodeUse { counter, amount }),
        }
    }
}

/// What a call that ends makes of the exception that a nested one has left to it, and by which one it is left itself.
///
/// Exceptions are known by their class alone: one of the same class is taken for the same.
fn throw(node: &mut TreeNode, pending: Option<u32>, exception: Option<u32>) {
    if let Some(pending) = pending
        && exception != Some(pending)
    {
        sum(node, pending).caught += 1;
    }
    if let Some(exception) = exception {
        let sum = sum(node, exception);
        sum.left += 1;
        sum.threw += u64::from(pending != Some(exception));
    }
}

/// The exceptions of a class at a node.
fn sum(node: &mut TreeNode, exception: u32) -> &mut NodeException {
    let sums = &mut node.exceptions;
    let place = sums.iter().position(|sum| sum.exception == exception).unwrap_or_else(|| {
        sums.push(NodeException { exception, ..NodeException::default() });
        sums.len() - 1
    });
    &mut sums[place]
}
