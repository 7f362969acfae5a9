//! What the nodes of an invocation have handed to other threads.

use std::collections::HashMap;

use nprof_common::tree::TaskKind;
use serde::Serialize;

use crate::model::Invocation;
use crate::render::notes::plural;
use crate::render::units;

/// How many invocations are named in a line.
const NAMED: usize = 5;

/// By the places of the nodes.
#[derive(Debug)]
pub(super) struct HandedOver(HashMap<u32, Handed>);

/// What one node has handed over.
#[derive(Debug, Default, Serialize)]
pub(super) struct Handed {
    tasks: u64,
    threads: u64,
    /// The numbers of the invocations that were part of these, as far as there were any until then.
    invocations: Vec<u64>,
}

impl HandedOver {
    pub(super) fn of(invocation: &Invocation) -> Self {
        let mut nodes: HashMap<u32, Handed> = HashMap::new();
        for handed in &invocation.handed_over {
            let kind = TaskKind::of(handed.task);
            // What is done when something else is, may be done by whoever asks for it; and of a lambda a task may be made that counts itself.
            if matches!(kind, TaskKind::Stage | TaskKind::Again) && handed.came.is_empty() {
                continue;
            }
            let node = nodes.entry(handed.node).or_default();
            *(if kind == TaskKind::Thread { &mut node.threads } else { &mut node.tasks }) += 1;
            node.invocations.extend(&handed.came);
        }
        nodes.values_mut().for_each(|node| node.invocations.sort_unstable());
        Self(nodes)
    }

    pub(super) fn at(&self, node: u32) -> Option<&Handed> {
        self.0.get(&node)
    }
}

impl Handed {
    /// `handed over 3 tasks: #4, #7`.
    pub(super) fn words(&self) -> String {
        let counts = [(self.tasks, "task"), (self.threads, "thread")].into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| plural(count, what)).collect();
        let mut named: Vec<String> =
            self.invocations.iter().take(NAMED).map(|number| format!("#{}", units::count(*number))).collect();
        if self.invocations.len() > NAMED {
            named.push(format!("… ({} in all)", units::count(self.invocations.len() as u64)));
        }
        let came = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
        format!("handed over {}{came}", counts.join(" and "))
    }

    /// Whether invocations came of it.
    pub(super) fn has_invocations(&self) -> bool {
        !self.invocations.is_empty()
    }
}
