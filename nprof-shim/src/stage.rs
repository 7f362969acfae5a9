//! How far the VM has come.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How far the VM has come.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    reached: Mutex<Reached>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reached {
    #[default]
    Starting,
    Live,
    Over,
}

impl Stage {
    /// The VM runs Java code.
    pub(crate) fn begin(&self) {
        self.reach(Reached::Live);
    }

    /// The VM is about to end.
    pub(crate) fn end(&self) {
        self.reach(Reached::Over);
    }

    /// Whether the VM runs Java code, and is not about to end.
    pub(crate) fn is_live(&self) -> bool {
        *self.lock() == Reached::Live
    }

    /// Waits until the VM runs Java code.
    pub(crate) fn wait_until_live(&self) {
        drop(self.changed.wait_while(self.lock(), |reached| *reached == Reached::Starting));
    }

    fn reach(&self, reached: Reached) {
        *self.lock() = reached;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
