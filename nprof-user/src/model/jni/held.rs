//! What native code has made and not let go.

use std::sync::Arc;
use std::time::Duration;

use super::{JniLocalsSnapshot, JniResource};

/// Everything that is held, and was made while nprof looked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JniHeldSnapshot {
    /// What is older than is asked for, the most first.
    pub groups: Vec<JniHeldGroup>,
    /// How many of each are held, of any age.
    pub live: Vec<(JniResource, u64)>,
    /// The age from which on something is in `groups`.
    pub older_than: Duration,
    /// Calls that held too many local references.
    pub locals: JniLocalsSnapshot,
}

impl JniHeldSnapshot {
    /// How many of one kind are held.
    #[must_use]
    pub fn live(&self, resource: JniResource) -> u64 {
        self.live.iter().find(|(kind, _)| *kind == resource).map_or(0, |(_, count)| *count)
    }
}

/// Things of one kind and class that the same native method has made by the same function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JniHeldGroup {
    /// What they are.
    pub resource: JniResource,
    /// As in [`super::JniUse`].
    pub method: Option<usize>,
    /// As there; `None` if its row is gone.
    pub function: Option<usize>,
    /// Of which class the object is that they were made of, as Java names it; `None` if that is not certain.
    pub class: Option<String>,
    /// How many.
    pub count: u64,
    /// Of elements of arrays and critical holds of these, how many elements they have together, as far as that is known.
    pub elements: u64,
    /// How long the oldest has been held.
    pub oldest: Duration,
    /// The same of the youngest.
    pub youngest: Duration,
    /// From where in Java they were made, as far as stacks were taken: the most frequent first.
    pub paths: Vec<JniCallPath>,
}

impl JniHeldGroup {
    /// Of how many of them the stack was taken in which they were made.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.paths.iter().map(|path| path.seen).sum()
    }
}

/// Java methods that had called one another, and at last native code, when things were made that are still held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JniCallPath {
    /// The innermost first: `java.util.zip.Deflater::deflate:420`.
    pub frames: Arc<[String]>,
    /// Of how many things this is the stack, among those whose stack was taken.
    pub seen: u64,
}
