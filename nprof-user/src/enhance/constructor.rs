//! Finds where a constructor calls the one of its superclass, or another of its class.
//!
//! Before this call, `this` may not be used, and a handler that is for code before it and after it is not allowed.

use super::Refusal;
use super::layout::Layout;
use crate::classfile::{ClassFile, opcode};

/// The name of constructors.
pub(super) const CONSTRUCTOR: &[u8] = b"<init>";

/// The number of the instruction that calls the other constructor.
///
/// Objects that are made for the arguments are initialised by calls of constructors too, and the compilers write these in order: each `new` has its call. The first
/// call that has no `new` is the one for `this`. If there is another one, there are several ways to it.
pub(super) fn other_call(class: &ClassFile<'_>, layout: &Layout<'_>) -> Result<usize, Refusal> {
    let mut open = 0_u32;
    let mut found = None;
    for (number, placed) in layout.placed.iter().enumerate() {
        let instruction = placed.instruction;
        if instruction.opcode == opcode::NEW {
            open += 1;
        } else if instruction.opcode == opcode::INVOKESPECIAL {
            let called = class.pool.member(instruction.operand(layout.code()));
            if called.is_some_and(|called| called.name == CONSTRUCTOR) {
                match open.checked_sub(1) {
                    Some(rest) => open = rest,
                    None if found.is_some() => {
                        return Err(Refusal::Constructor("it calls another constructor in several places"));
                    }
                    None => found = Some(number),
                }
            }
        }
    }
    found.ok_or(Refusal::Constructor("the call of the other constructor was not found"))
}
