//! What the locals hold at places between the frames: from each frame on, instruction by instruction.

use std::collections::{BTreeSet, HashMap};

use super::effects::apply;
use super::frames::{Frame, Shape};
use super::state::{State, Value, at_start};
use crate::classfile::{ClassFile, Instruction, MethodInfo, flag, opcode};

/// The locals at the instructions that begin at `wanted`; those that cannot be known are missing.
pub(super) fn at<'a>(
    class: &ClassFile<'a>,
    method: &MethodInfo<'_>,
    code: &[u8],
    instructions: impl Iterator<Item = Instruction>,
    frames: &[Frame],
    wanted: &BTreeSet<usize>,
) -> HashMap<usize, Vec<Value<'a>>> {
    let mut found = HashMap::new();
    let name = class.pool.utf8(method.name).unwrap_or_default();
    let descriptor = class.pool.utf8(method.descriptor).unwrap_or_default();
    let start = at_start(class, method.flags & flag::STATIC != 0, name, descriptor);
    let Some(mut framed) = start else { return found };
    let mut state = Some(State::new(&framed, Vec::new()));
    let mut frames = frames.iter().peekable();
    for instruction in instructions {
        while let Some(frame) = frames.next_if(|frame| frame.at <= instruction.at) {
            match framed_state(class, &mut framed, frame) {
                Some(new) => state = Some(new),
                // From here on nothing is known, as each frame is the difference from the one before.
                None => return found,
            }
        }
        let Some(now) = &mut state else { continue };
        if wanted.contains(&instruction.at) {
            found.insert(instruction.at, now.compact());
        }
        if apply(now, class, code, instruction).is_none() || ends(instruction) {
            state = None;
        }
    }
    found
}

/// The state that a frame describes; `locals` are those of the frame before it, and then its own.
fn framed_state<'a>(class: &ClassFile<'a>, locals: &mut Vec<Value<'a>>, frame: &Frame) -> Option<State<'a>> {
    let mut stack = Vec::new();
    match &frame.shape {
        Shape::Same => {}
        Shape::SameOne(one) => stack = Value::of_types(&[*one], &class.pool)?,
        Shape::Chop(less) => locals.truncate(locals.len().checked_sub(usize::from(*less))?),
        Shape::Append(more) => locals.extend(Value::of_types(more, &class.pool)?),
        Shape::Full(all, on_stack) => {
            *locals = Value::of_types(all, &class.pool)?;
            stack = Value::of_types(on_stack, &class.pool)?;
        }
    }
    Some(State::new(locals, stack))
}

/// Whether the instruction behind it is reached only by branches.
fn ends(instruction: Instruction) -> bool {
    instruction.is_return()
        || instruction.is_switch()
        || matches!(instruction.opcode, opcode::GOTO | opcode::GOTO_W | opcode::ATHROW | opcode::RET)
}
