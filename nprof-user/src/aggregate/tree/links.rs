//! Which invocation came of which: by the numbers of tasks, who has made them and who was part of them.
//!
//! A number is that of one task. What is not known of it is not guessed.

use std::collections::{HashMap, VecDeque};

use crate::model::{Invocation, Submission};

/// How many tasks are remembered. A task that nobody is followed in is never asked for.
const MOST: usize = 1 << 17;
/// How many invocations of a task are.
const MOST_OF_ONE: usize = 16;

/// What is known of tasks.
#[derive(Debug, Default)]
pub(super) struct Links {
    tasks: HashMap<u64, Task>,
    /// Their numbers, the oldest first.
    order: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Task {
    made_by: Option<Submission>,
    came: Vec<u64>,
}

impl Links {
    /// A task was made.
    pub(super) fn made(&mut self, task: u64, by: Submission) {
        self.task(task).made_by = Some(by);
    }

    /// An invocation is part of a task. That may be seen before it is seen that the task was made, which was in another thread.
    pub(super) fn came(&mut self, task: u64, invocation: u64) {
        let came = &mut self.task(task).came;
        if came.len() < MOST_OF_ONE && !came.contains(&invocation) {
            came.push(invocation);
        }
    }

    /// Says in an invocation that has ended what it came of, and what came of it. Returns whether that was all: otherwise what it came of has
    /// not been seen yet.
    pub(super) fn link(&self, invocation: &mut Invocation) -> bool {
        for handed in &mut invocation.handed_over {
            handed.came = self.tasks.get(&handed.task).map(|task| task.came.clone()).unwrap_or_default();
        }
        let Some(task) = invocation.task else { return true };
        // Events were lost before: it may be part of what the thread has done since then.
        if !invocation.missing.is_after_loss {
            invocation.submitted_by = self.tasks.get(&task).and_then(|task| task.made_by);
        }
        invocation.missing.is_after_loss || invocation.submitted_by.is_some()
    }

    fn task(&mut self, number: u64) -> &mut Task {
        if !self.tasks.contains_key(&number) {
            if self.order.len() >= MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.tasks.remove(&oldest);
            }
            self.order.push_back(number);
        }
        self.tasks.entry(number).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TreeThread;

    fn by(invocation: u64) -> Submission {
        Submission { invocation, thread: TreeThread::Platform(7), method: 1, at_ns: 5, is_thread: false }
    }

    /// Check that the oldest task is forgotten where there are too many, and no other.
    #[test]
    fn has_a_limit() {
        let mut links = Links::default();
        for task in 1..=MOST as u64 + 1 {
            links.made(task, by(task));
            links.came(task, 2 * task);
        }
        assert_eq!((links.tasks.len(), links.order.len()), (MOST, MOST));
        assert!(!links.tasks.contains_key(&1));
        assert_eq!(links.tasks[&2].made_by, Some(by(2)));
        (0..100).for_each(|invocation| links.came(2, invocation));
        assert_eq!((links.tasks[&2].came.len(), links.tasks[&2].came[0]), (MOST_OF_ONE, 4));
    }
}
