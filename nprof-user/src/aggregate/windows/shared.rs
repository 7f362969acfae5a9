//! Values that many windows have, each kept once, for as long as one of them has it.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// What a place in a table takes besides its value: a pointer, two counters, and room that is free.
const ENTRY_BYTES: usize = 40;

/// A value that is shared. Two are the same if they are at the same place.
#[derive(Debug)]
pub(super) struct Shared<T>(Arc<T>);

/// What a value takes.
pub(super) trait Bytes {
    /// In bytes, itself included.
    fn bytes(&self) -> usize;
}

/// The values.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: HashSet<Arc<T>>,
    bytes: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), bytes: 0 }
    }
}

impl<T: Hash + Eq + Bytes> Table<T> {
    /// The value, shared with all that are equal.
    pub(super) fn share(&mut self, value: T) -> Shared<T> {
        if let Some(known) = self.values.get(&value) {
            return Shared(Arc::clone(known));
        }
        self.bytes += value.bytes() + ENTRY_BYTES;
        let value = Arc::new(value);
        self.values.insert(Arc::clone(&value));
        Shared(value)
    }

    /// Forgets what nobody has any more.
    pub(super) fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.values.retain(|value| {
            let is_used = Arc::strong_count(value) > 1;
            if !is_used {
                *bytes -= value.bytes() + ENTRY_BYTES;
            }
            is_used
        });
        if self.values.capacity() > 4 * self.values.len() {
            self.values.shrink_to_fit();
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).addr().hash(state);
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
