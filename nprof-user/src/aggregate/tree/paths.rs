//! The different ways from entry methods down, numbered. Their number has a limit.

use std::collections::HashMap;

use crate::model::{Invocation, TreeWay};

/// How many ways are told apart.
pub(super) const MAX_PATHS: usize = 16_384;

/// The numbers of ways.
#[derive(Debug, Default)]
pub(super) struct Paths {
    numbers: HashMap<TreeWay, u32>,
}

impl Paths {
    /// The numbers of the ways to each node of an invocation; `None` where there was no room. Those that are new are added to `ways`.
    pub(super) fn of(&mut self, invocation: &Invocation, ways: &mut Vec<TreeWay>) -> Vec<Option<u32>> {
        let mut numbers = vec![None; invocation.nodes.len()];
        numbers[0] = self.number(TreeWay { before: None, method: invocation.root().method }, ways);
        for (place, node) in invocation.nodes.iter().enumerate() {
            let Some(way) = numbers[place] else { continue };
            for &child in &node.children {
                let next = TreeWay { before: Some(way), method: invocation.nodes[child as usize].method };
                numbers[child as usize] = self.number(next, ways);
            }
        }
        numbers
    }

    fn number(&mut self, way: TreeWay, ways: &mut Vec<TreeWay>) -> Option<u32> {
        if let Some(&known) = self.numbers.get(&way) {
            return Some(known);
        }
        let number = u32::try_from(ways.len()).ok().filter(|_| ways.len() < MAX_PATHS)?;
        ways.push(way);
        self.numbers.insert(way, number);
        Some(number)
    }
}
