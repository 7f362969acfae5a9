//! The methods that were chosen, and who calls them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::hierarchy::{Hierarchy, MethodId};
use super::question::Limit;
use super::{Planned, PlannedClass};
use crate::enhance::{NativeCall, Wanted};
use crate::model::{LeftOut, TreeCaller, TreeKind, TreeMethod, TreePlan};

/// A chosen method.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) id: MethodId,
    pub(super) kind: TreeKind,
    pub(super) depth: u32,
    pub(super) is_entry: bool,
    callers: BTreeMap<u32, BTreeSet<u16>>,
}

/// The methods that were chosen, by number.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    numbers: HashMap<MethodId, u32>,
    /// The calls of methods that cannot tell of themselves, by the method that makes them: most of these are nodes.
    calls: BTreeMap<MethodId, Vec<NativeCall>>,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn get(&self, number: usize) -> Option<&Node> {
        self.nodes.get(number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(super) fn kind(&self, id: MethodId) -> Option<TreeKind> {
        self.get(self.number(id)? as usize).map(|node| node.kind)
    }

    pub(super) fn number(&self, id: MethodId) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    /// Chooses a method that has not been chosen; its number.
    pub(super) fn add(&mut self, id: MethodId, kind: TreeKind, depth: u32, is_entry: bool) -> u32 {
        let number = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(Node { id, kind, depth, is_entry, callers: BTreeMap::new() });
        self.numbers.insert(id, number);
        number
    }

    /// One chosen method may call another, from a line.
    pub(super) fn connect(&mut self, caller: u32, callee: u32, line: Option<u16>) {
        if let Some(node) = self.nodes.get_mut(callee as usize) {
            node.callers.entry(caller).or_default().extend(line);
        }
    }

    /// A method tells of its calls of one that cannot tell of itself.
    pub(super) fn tell(&mut self, caller: MethodId, call: NativeCall) {
        let calls = self.calls.entry(caller).or_default();
        if !calls.contains(&call) {
            calls.push(call);
        }
    }

    /// The plan, and what to change in which class.
    pub(super) fn finish(self, hierarchy: &Hierarchy, left_out: Vec<LeftOut>, limit: Option<Limit>) -> Planned {
        let classes = self.classes(hierarchy);
        let methods = self.nodes.into_iter().filter_map(|node| {
            let (class, method) = hierarchy.method(node.id)?;
            let lines = |lines: BTreeSet<u16>| lines.into_iter().collect();
            Some(TreeMethod {
                class: class.name.clone(),
                method: method.name.clone(),
                signature: method.signature.clone(),
                kind: node.kind,
                callee: None,
                is_entry: node.is_entry,
                depth: node.depth,
                callers: node
                    .callers
                    .into_iter()
                    .map(|(method, all)| TreeCaller { method, lines: lines(all) })
                    .collect(),
            })
        });
        let limit = limit.map(|limit| limit.to_string());
        let plan = TreePlan { methods: methods.collect(), left_out, limit, ..TreePlan::default() };
        Planned { plan, classes, hands_over: false }
    }

    fn classes(&self, hierarchy: &Hierarchy) -> Vec<PlannedClass> {
        let java = self.nodes.iter().filter(|node| node.kind == TreeKind::Java).map(|node| node.id);
        let changed: BTreeSet<MethodId> = java.chain(self.calls.keys().copied()).collect();
        let mut classes: Vec<PlannedClass> = Vec::new();
        for id in changed {
            let Some((_, method)) = hierarchy.method(id) else { continue };
            let wanted = Wanted {
                name: method.name.to_string(),
                signature: method.signature.to_string(),
                number: self.number(id),
                native_calls: self.calls.get(&id).cloned().unwrap_or_default(),
                task: None,
            };
            match classes.last_mut().filter(|last| last.class == id.0) {
                Some(last) => last.wanted.push(wanted),
                None => classes.push(PlannedClass { class: id.0, wanted: vec![wanted] }),
            }
        }
        classes
    }
}
