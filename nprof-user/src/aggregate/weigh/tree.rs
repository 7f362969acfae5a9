//! Stacks that are the same for a reader become one: frames are merged by method and place.
//!
//! A compiled and an interpreted frame of one method at the same place are one frame here, of the kind that most of its
//! weight has. Otherwise a picture would split a method by how the VM happened to run it.

use std::collections::HashMap;

use crate::model::{ProfileFrame, ProfileFrameKind, Unit, Weighed, WeighedStack};

/// The kinds that are one for a reader, in the order of preference where their weights are equal.
const COMPILED: [ProfileFrameKind; 4] =
    [ProfileFrameKind::C2, ProfileFrameKind::C1, ProfileFrameKind::Inlined, ProfileFrameKind::Interpreted];

/// The root, which is no frame.
const ROOT: u32 = u32::MAX;

/// What a tree tells apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key<'a> {
    /// `None` for the kinds of [`COMPILED`].
    kind: Option<ProfileFrameKind>,
    scope: &'a str,
    name: &'a str,
    signature: &'a str,
    line: Option<u32>,
}

/// A frame at one place: below it all that called it.
#[derive(Debug)]
struct Node {
    parent: u32,
    key: u32,
    /// What ends here.
    value: u64,
    samples: u64,
    /// The weight of each of [`COMPILED`], what lies above included.
    kinds: [u64; COMPILED.len()],
}

/// Stacks with a common beginning share it.
#[derive(Debug, Default)]
pub(super) struct Tree<'a> {
    lines: bool,
    keys: HashMap<Key<'a>, u32>,
    /// For each key the first frame that has it.
    named: Vec<&'a ProfileFrame>,
    nodes: Vec<Node>,
    children: HashMap<(u32, u32), u32>,
}

impl<'a> Tree<'a> {
    /// An empty tree; with `lines`, frames of a method at different lines are different.
    pub(super) fn new(lines: bool) -> Self {
        Self { lines, ..Self::default() }
    }

    /// Adds a stack, the outermost frame first. One without value or without frames leaves no trace.
    pub(super) fn add(&mut self, frames: &[&'a ProfileFrame], value: u64, samples: u64) {
        if value == 0 {
            return;
        }
        let mut at = ROOT;
        for frame in frames {
            at = self.child(at, frame);
            let node = &mut self.nodes[index(at)];
            if let Some(kind) = COMPILED.iter().position(|kind| *kind == frame.kind) {
                node.kinds[kind] = node.kinds[kind].saturating_add(value);
            }
        }
        if at != ROOT {
            let node = &mut self.nodes[index(at)];
            node.value = node.value.saturating_add(value);
            node.samples = node.samples.saturating_add(samples);
        }
    }

    fn child(&mut self, parent: u32, frame: &'a ProfileFrame) -> u32 {
        let key = self.key(frame);
        let next = number(self.nodes.len());
        let child = *self.children.entry((parent, key)).or_insert(next);
        if child == next {
            self.nodes.push(Node { parent, key, value: 0, samples: 0, kinds: [0; COMPILED.len()] });
        }
        child
    }

    fn key(&mut self, frame: &'a ProfileFrame) -> u32 {
        let key = Key {
            kind: (!COMPILED.contains(&frame.kind)).then_some(frame.kind),
            scope: &frame.scope,
            name: &frame.name,
            signature: &frame.signature,
            line: frame.line.filter(|_| self.lines),
        };
        let next = number(self.named.len());
        let known = *self.keys.entry(key).or_insert(next);
        if known == next {
            self.named.push(frame);
        }
        known
    }

    /// The stacks in the order in which they were first added.
    pub(super) fn weighed(self, unit: Unit) -> Weighed {
        let mut weighed = Weighed { unit, ..Weighed::default() };
        let mut interned = HashMap::new();
        let mut frame_of = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let kind = self.kind(node);
            let next = number(weighed.frames.len());
            let frame = *interned.entry((node.key, kind)).or_insert(next);
            if frame == next {
                let first = self.named[index(node.key)];
                weighed.frames.push(ProfileFrame { kind, line: first.line.filter(|_| self.lines), ..first.clone() });
            }
            frame_of.push(frame);
        }
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.value > 0) {
            let frames = self.path(number(at)).map(|node| frame_of[index(node)]).collect::<Vec<u32>>();
            let frames = frames.into_iter().rev().collect();
            weighed.stacks.push(WeighedStack { frames, value: node.value, samples: node.samples });
            weighed.total = weighed.total.saturating_add(node.value);
        }
        weighed
    }

    /// The kind that most of a node's weight has.
    fn kind(&self, node: &Node) -> ProfileFrameKind {
        let heaviest = node.kinds.iter().copied().max().unwrap_or_default();
        match node.kinds.iter().position(|weight| *weight == heaviest) {
            Some(kind) if heaviest > 0 => COMPILED[kind],
            _ => self.named[index(node.key)].kind,
        }
    }

    /// A node and all below it, outwards.
    fn path(&self, node: u32) -> impl Iterator<Item = u32> {
        let below = |at: &u32| Some(self.nodes[index(*at)].parent).filter(|parent| *parent != ROOT);
        std::iter::successors(Some(node), below)
    }
}

/// A number of this tree as an index.
fn index(number: u32) -> usize {
    number as usize
}

/// The next number. A recording is read with a limit on its size, far below what `u32` can number.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(ROOT - 1)
}
