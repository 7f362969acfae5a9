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
    /// Those for tasks: [`Hooks::hands`], [`Hooks::runs`], [`Hooks::ran`]; 0 where they are not needed.
    pub(super) hands: u16,
    pub(super) runs: u16,
    pub(super) ran: u16,
    /// The class of all exceptions.
    pub(super) throwable: u16,
    /// The name of the attribute with the frames.
    pub(super) frames: u16,
}

impl Names {
    pub(super) fn add(
        hooks: &Hooks<'_>,
        class: &ClassFile<'_>,
        has_tasks: bool,
        additions: &mut Additions,
    ) -> Result<Self, Refusal> {
        let holder = additions.class(hooks.class.as_bytes())?;
        let number = additions.utf8(b"(I)V")?;
        let both = additions.utf8(b"(Ljava/lang/Throwable;I)V")?;
        let mut of_tasks = |name: &str, descriptor: &[u8]| {
            if !has_tasks {
                return Ok(0);
            }
            let descriptor = additions.utf8(descriptor)?;
            additions.method(holder, name, descriptor)
        };
        let hands = of_tasks(hooks.hands, b"(Ljava/lang/Object;I)V")?;
        let runs = of_tasks(hooks.runs, b"(Ljava/lang/Object;)V")?;
        let ran = of_tasks(hooks.ran, b"()V")?;
        Ok(Self {
            enter: additions.method(holder, hooks.enter, number)?,
            leave: additions.method(holder, hooks.leave, number)?,
            threw: additions.method(holder, hooks.threw, both)?,
            hands,
            runs,
            ran,
            throwable: additions.class(b"java/lang/Throwable")?,
            frames: match class.pool.find_utf8(FRAMES) {
                Some(known) => known,
                None => additions.utf8(FRAMES)?,
            },
        })
    }
}
