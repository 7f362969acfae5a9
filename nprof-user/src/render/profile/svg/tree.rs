//! Stacks merged into a tree of boxes: each a frame under its callers, wide as the sum of what lies above it and itself.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::super::captions::share;
use super::super::labels;
use super::{arguments, palette};
use crate::model::{ProfileFrame, ProfileFrameKind, Unit, Weighed};
use crate::render::units;

/// Boxes narrower than one in so many are not drawn, which is an eighth of a pixel before the first click.
const NARROWEST: u64 = 10_000;

/// Whole numbers of so many bits are exact in a script.
const SCRIPT_BITS: u32 = 52;

/// One box.
#[derive(Debug)]
pub(super) struct Node {
    /// What kind of frame it is; `None` for the box below all others.
    pub(super) kind: Option<ProfileFrameKind>,
    /// What is written into it.
    pub(super) label: String,
    /// The arguments of a C++ function, for which the label has no room.
    arguments: Option<String>,
    library: Option<String>,
    /// Index of the frame, for an order where all else is the same.
    frame: u32,
    /// Its value, that of its children included.
    pub(super) value: u64,
    samples: u64,
    children: Vec<usize>,
    parent: usize,
}

/// All boxes, those that are drawn in the order in which they are drawn: each before its children.
#[derive(Debug)]
pub(super) struct Tree {
    unit: Unit,
    nodes: Vec<Node>,
    /// How many boxes are too narrow to be drawn.
    pub(super) narrow: usize,
}

impl Tree {
    /// Merges stacks. Without any there is a single box that says so.
    pub(super) fn of(weighed: &Weighed) -> Self {
        let mut nodes = merge(weighed);
        if nodes[0].value == 0 {
            nodes.truncate(1);
            nodes[0].children = vec![1];
            nodes.push(nothing(weighed.unit));
        }
        let all = nodes.len();
        let nodes = drawn(nodes);
        Self { unit: weighed.unit, narrow: all - nodes.len(), nodes }
    }

    /// The boxes, the one below all others first.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Folded stacks of the boxes' numbers, sorted, for inferno: each number as wide as the last one.
    pub(super) fn lines(&self) -> Vec<String> {
        let digits = self.nodes.len().to_string().len();
        let mut lines = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().skip(1) {
            let above: u64 = node.children.iter().map(|&child| self.width(&self.nodes[child])).sum();
            let own = self.width(node) - above;
            if own > 0 {
                let path: Vec<String> = self.path(at).iter().map(|at| format!("{at:0digits$}")).collect();
                lines.push(format!("{} {own}", path.join(";")));
            }
        }
        lines
    }

    /// The boxes from the bottom to this one, the lowest left out.
    fn path(&self, mut at: usize) -> Vec<usize> {
        let mut path = Vec::new();
        while at > 0 {
            path.push(at);
            at = self.nodes[at].parent;
        }
        path.reverse();
        path
    }

    /// The width of a box. Rounded down where the numbers are too large for the script, so that the sum of some is never
    /// more than that of all.
    fn width(&self, node: &Node) -> u64 {
        let excess = (u64::BITS - self.nodes[0].value.leading_zeros()).saturating_sub(SCRIPT_BITS);
        if self.is_empty() { 1 } else { node.value >> excess }
    }

    /// How wide a box is, as a part of the whole.
    #[expect(clippy::cast_precision_loss, reason = "far finer than a pixel")]
    pub(super) fn part(&self, node: &Node) -> f64 {
        if self.is_empty() { 1.0 } else { node.value as f64 / self.nodes[0].value as f64 }
    }

    /// Whether there is nothing but the box that says so.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes[0].value == 0
    }

    /// What is said of a box: its name, and in one pair of round brackets, which the script takes off to get the name
    /// again, what it is, its value and what that rests on.
    pub(super) fn tooltip(&self, node: &Node) -> String {
        if self.is_empty() {
            return node.label.clone();
        }
        let mut parts = Vec::new();
        parts.extend(node.kind.map(|kind| palette::description(kind).to_owned()));
        parts.extend(node.arguments.as_ref().map(|arguments| format!("of {arguments}")));
        parts.extend(node.library.clone());
        parts.push(match self.unit {
            Unit::Nanoseconds => units::duration(node.value),
            Unit::Calls if node.value == 1 => "1 call".to_owned(),
            Unit::Calls => format!("{} calls", units::count(node.value)),
        });
        parts.push(share(node.value, self.nodes[0].value));
        match node.samples {
            0 => {}
            1 => parts.push("1 sample".to_owned()),
            samples => parts.push(format!("{} samples", units::count(samples))),
        }
        format!("{} ({})", node.label, parts.join(", ").replace('(', "[").replace(')', "]"))
    }
}

/// What is drawn where there are no stacks.
fn nothing(unit: Unit) -> Node {
    let label = match unit {
        Unit::Calls => "No native method was called.",
        Unit::Nanoseconds => "There is nothing to draw: no time was measured.",
    };
    Node { kind: Some(ProfileFrameKind::Marker), ..root(label) }
}

fn root(label: &str) -> Node {
    let label = label.to_owned();
    Node {
        kind: None,
        label,
        arguments: None,
        library: None,
        frame: 0,
        value: 0,
        samples: 0,
        children: Vec::new(),
        parent: 0,
    }
}

/// All boxes, the lowest first, each before its children.
fn merge(weighed: &Weighed) -> Vec<Node> {
    let mut nodes = vec![root("all")];
    let mut known: HashMap<(usize, u32), usize> = HashMap::new();
    for stack in weighed.stacks.iter().filter(|stack| stack.value > 0) {
        let frames = || stack.frames.iter().filter_map(|&index| Some((index, weighed.frames.get(index as usize)?)));
        // Centuries of time, or a stack of nothing, are left out as a whole, so that widths stay those of a tree.
        if nodes[0].value.checked_add(stack.value).is_none() || frames().next().is_none() {
            continue;
        }
        add(&mut nodes[0], stack.value, stack.samples);
        let mut at = 0;
        for (index, frame) in frames() {
            let next = *known.entry((at, index)).or_insert_with(|| {
                let next = nodes.len();
                nodes.push(new_node(frame, index, at));
                nodes[at].children.push(next);
                next
            });
            add(&mut nodes[next], stack.value, stack.samples);
            at = next;
        }
    }
    nodes
}

fn new_node(frame: &ProfileFrame, index: u32, parent: usize) -> Node {
    let name = labels::label(frame);
    let split = if frame.kind.is_java() { None } else { arguments::split(&name) };
    let (label, arguments) = split.map_or((name.as_str(), None), |(label, arguments)| (label, Some(arguments)));
    let arguments = arguments.filter(|text| !text.is_empty()).map(str::to_owned);
    Node { kind: Some(frame.kind), arguments, library: labels::library(frame), frame: index, parent, ..root(label) }
}

fn add(node: &mut Node, value: u64, samples: u64) {
    node.value += value;
    node.samples = node.samples.saturating_add(samples);
}

/// The boxes that are wide enough, each before its children and these by name.
fn drawn(mut nodes: Vec<Node>) -> Vec<Node> {
    let all = nodes[0].value;
    let mut drawn: Vec<Node> = Vec::new();
    // Where a box was, and where its parent is now.
    let mut waiting = vec![(0, 0)];
    while let Some((at, parent)) = waiting.pop() {
        let place = drawn.len();
        let mut children = std::mem::take(&mut nodes[at].children);
        // Those directly on the lowest box stay, as that one has no width of its own.
        children.retain(|&child| at == 0 || nodes[child].value > all / NARROWEST);
        // The last is taken first.
        children.sort_by(|&a, &b| order(&nodes[b], &nodes[a]));
        waiting.extend(children.iter().map(|&child| (child, place)));
        if place > 0 {
            drawn[parent].children.push(place);
        }
        drawn.push(Node { parent, children: Vec::new(), ..std::mem::replace(&mut nodes[at], root("")) });
    }
    drawn
}

fn order(a: &Node, b: &Node) -> Ordering {
    (&a.label, a.kind, &a.library, a.frame).cmp(&(&b.label, b.kind, &b.library, b.frame))
}
