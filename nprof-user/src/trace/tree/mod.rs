//! Follows chosen methods of one JVM, invocation by invocation: has them enhanced, and reads what they tell.

use crate::discover::Proc;
use crate::model::{Jvm, TreeEvent, TreePlan, TreeThread};

use super::Error;

/// What to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOptions {
    /// Where trees begin: patterns on class::method, as everywhere.
    pub entries: Vec<String>,
    /// Of which classes methods may be nodes: `com.acme.**`. Without any, those of the entry methods' own packages.
    pub packages: Vec<String>,
    /// How many calls deep.
    pub depth: u32,
    /// The most methods that are enhanced.
    pub most_methods: usize,
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeLosses {
    /// Events for which a thread's ring had no room. Where they are missing, a [`TreeEventKind::Lost`](crate::model::TreeEventKind::Lost)
    /// says so as well.
    pub events: u64,
    /// Invocations of entry methods that were left out as a whole because the ring was nearly full.
    pub invocations: u64,
    /// Events of threads that have no ring: there are more threads than rings.
    pub without_ring: u64,
}

/// How following a JVM has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TreeEnd {
    /// So many classes are as they were before.
    pub restored: u32,
    /// So many could not be restored. Their methods tell nobody anything.
    pub behind: u32,
}

/// A JVM of which chosen methods tell what they do. They do not any more when this is dropped, and when nprof ends in any other way.
#[derive(Debug)]
pub struct TreeTracer {
    jvm: Jvm,
    plan: TreePlan,
}

impl TreeTracer {
    /// Loads the shim, if it is not there, and finds out what to enhance. Nothing is enhanced yet.
    ///
    /// # Errors
    /// If the shim cannot be had, or what is wanted cannot be found.
    pub fn open(_proc: &Proc, jvm: Jvm, _options: &TreeOptions) -> Result<Self, Error> {
        Ok(Self { jvm, plan: TreePlan::default() })
    }

    /// The JVM.
    #[must_use]
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// What is or will be enhanced. After [`Self::begin`] also what could not be.
    #[must_use]
    pub fn plan(&self) -> &TreePlan {
        &self.plan
    }

    /// Has the methods of the plan enhanced. From now on they tell what they do.
    ///
    /// # Errors
    /// If the shim is gone, or nothing can be enhanced.
    pub fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Passes on what threads have told since the last time. To be called every few milliseconds: what finds no room meanwhile is lost.
    ///
    /// # Errors
    /// If the shim is gone. What was told until then has been passed on.
    pub fn tick(&mut self, _consume: &mut dyn FnMut(TreeEvent)) -> Result<(), Error> {
        Ok(())
    }

    /// The class of an exception, dotted, by the number that events have.
    #[must_use]
    pub fn exception_name(&self, _exception: u32) -> Option<&str> {
        None
    }

    /// What a thread is called; `None` if it has ended, or has no name.
    #[must_use]
    pub fn thread_name(&self, _thread: TreeThread) -> Option<String> {
        None
    }

    /// What is missing until now.
    #[must_use]
    pub fn losses(&self) -> TreeLosses {
        TreeLosses::default()
    }

    /// Restores all classes, and passes on what threads have told until then.
    ///
    /// # Errors
    /// As [`Self::tick`].
    pub fn stop(&mut self, _consume: &mut dyn FnMut(TreeEvent)) -> Result<TreeEnd, Error> {
        Ok(TreeEnd::default())
    }
}
