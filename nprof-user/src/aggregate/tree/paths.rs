//! The different ways from entry methods down, numbered. Their number has a limit.

use std::collections::HashMap;

use crate::model::Invocation;

/// How many ways are told apart.
const MAX_PATHS: usize = 16_384;

/// The ways.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// The way that each goes on, if it is not an entry method's, and its last method.
    steps: Vec<(Option<u32>, u32)>,
    numbers: HashMap<(Option<u32>, u32), u32>,
}

impl Paths {
    /// The numbers of the ways to each node of an invocation; `None` where there was no room.
    pub(super) fn of(&mut self, invocation: &Invocation) -> Vec<Option<u32>> {
        let mut numbers = vec![None; invocation.nodes.len()];
        numbers[0] = self.number(None, invocation.root().method);
        for (place, node) in invocation.nodes.iter().enumerate() {
            let Some(way) = numbers[place] else { continue };
            for &child in &node.children {
                numbers[child as usize] = self.number(Some(way), invocation.nodes[child as usize].method);
            }
        }
        numbers
    }

    /// The methods on a way, the entry method first.
    pub(super) fn methods(&self, way: u32) -> Vec<u32> {
        let mut methods = Vec::new();
        let mut next = Some(way);
        while let Some(&(before, method)) = next.and_then(|way| self.steps.get(way as usize)) {
            methods.push(method);
            next = before;
        }
        methods.reverse();
        methods
    }

    fn number(&mut self, before: Option<u32>, method: u32) -> Option<u32> {
        let step = (before, method);
        if let Some(&known) = self.numbers.get(&step) {
            return Some(known);
        }
        let number = u32::try_from(self.steps.len()).ok().filter(|_| self.steps.len() < MAX_PATHS)?;
        self.steps.push(step);
        self.numbers.insert(step, number);
        Some(number)
    }
}
