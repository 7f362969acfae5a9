//! The constants that everything that is inserted into a class needs.

use super::additions::Additions;
use super::{Hooks, Refusal};
use crate::classfile::ClassFile;

/// The attribute with the frames.
pub(super) const FRAMES: &[u8] = b"StackMapTable";

/// The constants that all methods of a class share.
#[derive(Debug)]
pub(super) struct Names {
    /// The hooks.
    pub(super) enter: u16,
    pub(super) leave: u16,
    pub(super) threw: u16,
    /// The class of all exceptions.
    pub(super) throwable: u16,
    /// The name of the attribute with the frames.
    pub(super) frames: u16,
}

impl Names {
    pub(super) fn add(hooks: &Hooks<'_>, class: &ClassFile<'_>, additions: &mut Additions) -> Result<Self, Refusal> {
        let holder = additions.class(hooks.class.as_bytes())?;
        let number = additions.utf8(b"(I)V")?;
        let both = additions.utf8(b"(Ljava/lang/Throwable;I)V")?;
        Ok(Self {
            enter: additions.method(holder, hooks.enter, number)?,
            leave: additions.method(holder, hooks.leave, number)?,
            threw: additions.method(holder, hooks.threw, both)?,
            throwable: additions.class(b"java/lang/Throwable")?,
            frames: match class.pool.find_utf8(FRAMES) {
                Some(known) => known,
                None => additions.utf8(FRAMES)?,
            },
        })
    }
}
