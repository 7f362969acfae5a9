//! Where the VM keeps what is needed to find the frames of virtual threads that are frozen in the heap.

use super::entered_layout::EnteredLayout;
use super::object_layout::ObjectsLayout;
use crate::hotspot::{Lookup, Tables};

/// Everything that [`super::frozen`] has to know besides [`ObjectsLayout`]; offsets in bytes.
#[derive(Debug, Clone)]
pub(super) struct FrozenLayout {
    pub(super) entered: EnteredLayout,
    /// Of a `JavaThread`: a handle of its `java.lang.Thread`, and its stack.
    pub(super) thread_object: u64,
    pub(super) stack_base: u64,
    pub(super) stack_size: u64,
}

impl FrozenLayout {
    /// Looks everything up; `None` for a VM without virtual threads, or one whose tables do not describe them.
    pub(super) fn of(tables: &Tables, objects: Option<&ObjectsLayout>) -> Option<Self> {
        objects?.class.fields.are_packed().then_some(())?;
        let mut look = Lookup::new(tables);
        let layout = Self {
            entered: EnteredLayout::of(&mut look),
            thread_object: look.offset("JavaThread", "_threadObj"),
            stack_base: look.offset("JavaThread", "_stack_base"),
            stack_size: look.offset("JavaThread", "_stack_size"),
        };
        look.finish().ok()?;
        Some(layout)
    }
}
