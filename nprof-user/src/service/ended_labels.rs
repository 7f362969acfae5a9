//! The labels of JVMs that have ended lately: their last windows come after them.

use std::sync::Arc;

use crate::aggregate::WindowKey;
use crate::model::{Jvm, JvmLabels};
use crate::trace::TracedJvm;

/// Ended JVMs whose labels are kept for their last window.
const ENDED_KEPT: usize = 256;
/// What names a JVM for good.
pub(super) fn key_of(jvm: &Jvm) -> WindowKey {
    (jvm.pid, jvm.start_time)
}

/// The labels of JVMs that have ended lately, the latest last.
#[derive(Debug, Default)]
pub(super) struct EndedLabels(Vec<(WindowKey, Arc<JvmLabels>)>);

impl EndedLabels {
    pub(super) fn add(&mut self, traced_jvm: &TracedJvm, labels: &Arc<JvmLabels>) {
        self.0.push((key_of(traced_jvm.jvm()), Arc::clone(labels)));
        let surplus = self.0.len().saturating_sub(ENDED_KEPT);
        self.0.drain(..surplus);
    }

    pub(super) fn of(&self, key: WindowKey) -> Option<Arc<JvmLabels>> {
        self.0.iter().rev().find(|(known, _)| *known == key).map(|(_, labels)| Arc::clone(labels))
    }
}
