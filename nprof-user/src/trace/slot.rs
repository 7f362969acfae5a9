//! One JVM of a host in the course of its stay: what it has to do, and what becomes of it at the end.

use std::sync::Arc;

use super::event::Event;
use super::{Options, TracedJvm, Tracer};
use crate::govern::Budget;
use crate::model::Snapshot;
use crate::resolve::select::Selection;

/// A JVM that is traced, or was.
pub(super) struct Slot {
    pub traced_jvm: Arc<TracedJvm>,
    /// Not there while it is worked on.
    pub tracer: Option<Tracer>,
    /// What is to be done next, ahead of what is due by time.
    pub task: Option<Task>,
    /// It is not traced any more, or will not be in a moment.
    pub is_leaving: bool,
    /// Its last results have been told.
    pub is_told: bool,
    /// Its process has ended. As long as it has not, what it has in the kernel cannot be given to others.
    pub is_gone: bool,
}

/// Work on a JVM.
#[derive(Debug, Clone)]
pub(super) enum Task {
    Tick,
    Reselect(Box<Selection>, Option<usize>, Option<Budget>),
    Stop,
}

impl Task {
    pub(super) fn reselect(options: &Options) -> Self {
        Self::Reselect(Box::new(options.selection.clone()), options.max_functions, options.budget)
    }

    pub(super) fn run(self, tracer: &mut Tracer) {
        match self {
            Self::Tick => tracer.tick(),
            Self::Stop => tracer.stop(),
            Self::Reselect(selection, max_functions, budget) => {
                tracer.set_budget(budget);
                if let Err(error) = tracer.reselect(*selection, max_functions) {
                    tracing::debug!("process {}: not selected again: {error}", tracer.jvm().pid);
                }
            }
        }
    }
}

impl Slot {
    pub(super) fn new(tracer: Tracer) -> Self {
        let traced_jvm = Arc::clone(tracer.traced_jvm());
        Self { traced_jvm, tracer: Some(tracer), task: None, is_leaving: false, is_told: false, is_gone: false }
    }

    /// The JVM is not to be traced any more.
    pub(super) fn leave(&mut self) {
        (self.is_leaving, self.task) = (true, Some(Task::Stop));
    }

    /// The tracer and what it has to do, if it is there and has.
    pub(super) fn take_up(&mut self) -> Option<(Tracer, Task)> {
        let tracer = self.tracer.as_mut()?;
        let is_leaving = self.is_leaving;
        let due = || (!is_leaving && tracer.is_due()).then_some(Task::Tick);
        let task = self.task.take().or_else(due)?;
        Some((self.tracer.take()?, task))
    }

    /// The last results, once, when it has left.
    pub(super) fn last_results(&mut self) -> Option<Event> {
        if !self.is_leaving || self.task.is_some() || self.is_told {
            return None;
        }
        self.is_told = true;
        let snapshot = Snapshot { ended: true, ..self.traced_jvm.snapshot() };
        Some(Event::Ended(Arc::clone(&self.traced_jvm), Box::new(snapshot)))
    }
}
