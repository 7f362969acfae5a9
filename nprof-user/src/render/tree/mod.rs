//! Invocations as trees: for people, for programs, for Perfetto; the plan before, and the summary at the end.

mod diff;
mod handed;
mod json;
mod names;
mod paragraph;
mod perfetto;
mod plan;
mod recorded;
mod summary;
mod text;

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

pub use self::diff::{tree_difference, tree_difference_notes};
pub use self::json::{step, tree_json, tree_plan_json, tree_summary_json};
pub use self::perfetto::TreeTimeline;
pub use self::plan::{left_out_words, tree_plan};
pub use self::recorded::ShownTrees;
pub use self::summary::{tree_notes, tree_summary, tree_title};
pub use self::text::tree_text;

use self::names::Names;
use super::names::printable;
use crate::model::{Invocation, Losses, SharedStr, TreeClock, TreeMethod, TreePlan, TreeSummary, TreeThread};

/// What is known of all invocations of a run: their methods, and what their numbers mean.
#[derive(Debug)]
pub struct TreeContext {
    plan: TreePlan,
    names: Names,
    clock: TreeClock,
    exceptions: HashMap<u32, SharedStr>,
}

/// An invocation that is shown.
#[derive(Debug, Clone, Copy)]
pub struct ShownInvocation<'a> {
    /// Its number, from 1 on.
    pub number: u64,
    /// The invocation.
    pub invocation: &'a Invocation,
    /// The name of its thread, if there is one.
    pub thread: Option<&'a str>,
    /// Calls that took so many nanoseconds are marked, instead of the slow path.
    pub marked_ns: Option<u64>,
}

/// The limits that invocations were beyond which are not shown; of each limit nothing if there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShownLimits {
    /// The least time, in nanoseconds.
    pub min_ns: Option<u64>,
    /// The most altogether.
    pub most: Option<u64>,
    /// The most in a second.
    pub most_in_second: Option<u32>,
}

/// How a run went.
#[derive(Debug)]
pub struct TreeRun<'a> {
    /// The JVM's process id.
    pub pid: u32,
    /// Its main class, or the jar's file name.
    pub main: &'a str,
    /// What all invocations have in common.
    pub summary: &'a TreeSummary,
    /// How long it was.
    pub elapsed: std::time::Duration,
    /// How many invocations were shown.
    pub shown: u64,
    /// The least time of those, in nanoseconds.
    pub min_ns: Option<u64>,
    /// The limits by which others were not.
    pub reached: ShownLimits,
    /// The methods that tell no more, since they were called too often for the budget.
    pub silenced: &'a [u32],
    /// By what fewer would be followed.
    pub fewer: &'static str,
    /// What else there is to say of its times.
    pub remark: Option<&'a str>,
    /// What was lost.
    pub losses: &'a Losses,
}

impl TreeContext {
    /// What is known at the start.
    #[must_use]
    pub fn new(plan: TreePlan, clock: TreeClock) -> Self {
        let names = Names::of(&plan.methods);
        Self { plan, names, clock, exceptions: HashMap::new() }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &TreePlan {
        &self.plan
    }

    /// The methods are these from now on: those that were known before, and perhaps more.
    pub fn learn_methods(&mut self, methods: &[TreeMethod]) {
        self.names = Names::of(methods);
        self.plan.methods = methods.to_vec();
    }

    /// A class of exceptions has this number.
    pub fn learn_exception(&mut self, number: u32, class: SharedStr) {
        self.exceptions.insert(number, class);
    }

    fn method(&self, number: u32) -> Option<&TreeMethod> {
        self.plan.methods.get(usize::try_from(number).ok()?)
    }

    /// The shortest name of a method that no other has.
    fn short(&self, number: u32) -> &str {
        self.names.short(number)
    }

    /// `class::method`, in full.
    fn full(&self, number: u32) -> String {
        self.method(number).map_or_else(|| format!("method {number}"), |of| format!("{}::{}", of.class, of.method))
    }

    fn exception(&self, number: u32) -> &str {
        self.exceptions.get(&number).map_or("(a class that is not known)", |class| class)
    }

    /// The lines of a caller's source where it may call a method.
    fn lines(&self, method: u32, caller: u32) -> &[u16] {
        let callers = self.method(method).map_or(&[][..], |method| &method.callers);
        callers.iter().find(|known| known.method == caller).map_or(&[], |known| &known.lines)
    }

    /// A time of the monotonic clock on the wall.
    fn moment(&self, at_ns: u64) -> Timestamp {
        let since = i128::from(at_ns) - i128::from(self.clock.monotonic_ns);
        let since = i64::try_from(since).unwrap_or_default();
        self.clock.wall.checked_add(SignedDuration::from_nanos(since)).unwrap_or(self.clock.wall)
    }
}

/// What a thread is called.
fn thread_label(thread: TreeThread, name: Option<&str>) -> String {
    match (thread, name) {
        (TreeThread::Platform(tid), Some(name)) => format!("thread {} ({tid})", printable(name)),
        (TreeThread::Platform(tid), None) => format!("thread {tid}"),
        (TreeThread::Contained(tid), _) => format!("thread {tid} of the container"),
        (TreeThread::Virtual(id), _) => format!("virtual thread {id}"),
    }
}

#[cfg(test)]
mod tests;
