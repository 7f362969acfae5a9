//! The stacks of sampled calls as a tree: each node a frame that knows the one that called it.

use std::collections::HashMap;
use std::fmt::Write;

use serde::{Serialize, Serializer};

use crate::model::{Profile, ProfileFrame, ProfileStack, TimelineCall};
use crate::render::profile::names;

/// The frames of the tree, and where in it each stack ends.
pub(super) struct StackFrames<'a> {
    nodes: Vec<Node<'a>>,
    /// By the number of the stack.
    innermost: HashMap<u32, usize>,
}

/// One frame below its caller.
#[derive(Serialize)]
struct Node<'a> {
    category: &'a str,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<usize>,
}

impl<'a> StackFrames<'a> {
    /// The tree of the stacks of these calls.
    pub(super) fn of(profile: &'a Profile, calls: &[&TimelineCall]) -> Self {
        let mut tree = Self { nodes: Vec::new(), innermost: HashMap::new() };
        let mut known = HashMap::new();
        for number in calls.iter().filter_map(|call| call.stack) {
            if !tree.innermost.contains_key(&number)
                && let Some(stack) = profile.stacks.get(number as usize)
                && let Some(node) = tree.add(profile, stack, &mut known)
            {
                tree.innermost.insert(number, node);
            }
        }
        tree
    }

    /// Adds what is not there of a stack, and gives its innermost node; `None` if it has no Java frames.
    fn add(
        &mut self,
        profile: &'a Profile,
        stack: &ProfileStack,
        known: &mut HashMap<(Option<usize>, u32), usize>,
    ) -> Option<usize> {
        let mut parent = None;
        for &number in stack.frames.iter().rev() {
            let Some(frame) = profile.frames.get(number as usize).filter(|frame| is_shown(frame)) else { continue };
            let node = *known.entry((parent, number)).or_insert_with(|| {
                self.nodes.push(Node { category: &frame.scope, name: with_line(frame), parent });
                self.nodes.len() - 1
            });
            parent = Some(node);
        }
        parent
    }

    /// The number of the node at which a stack ends.
    pub(super) fn innermost(&self, stack: u32) -> Option<usize> {
        self.innermost.get(&stack).copied()
    }
}

/// The dictionary of nodes by their numbers.
impl Serialize for StackFrames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.nodes.iter().enumerate())
    }
}

/// The callers of a stack as lines of text, the native method itself left out; and why the outer ones are missing.
pub(super) fn callers(profile: &Profile, stack: u32) -> Option<Vec<String>> {
    let stack = profile.stacks.get(stack as usize)?;
    let frames = stack.frames.iter().skip(1).filter_map(|frame| profile.frames.get(*frame as usize));
    let mut lines: Vec<String> = frames.filter(|frame| is_shown(frame)).map(with_line).collect();
    if let Some(reason) = stack.cut {
        lines.push(format!("[stack cut: {reason}]"));
    }
    Some(lines)
}

/// What the VM itself would show of a stack.
fn is_shown(frame: &ProfileFrame) -> bool {
    frame.kind.is_java() && !frame.hidden
}

/// `com.acme.Main.run:12`.
fn with_line(frame: &ProfileFrame) -> String {
    let mut text = names::full(frame).into_owned();
    if let Some(line) = frame.line {
        write!(text, ":{line}").expect("a string takes everything");
    }
    text
}
