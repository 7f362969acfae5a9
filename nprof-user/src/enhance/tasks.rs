//! What is inserted into methods that make tasks, or run them.

use nprof_common::tree::TaskKind;

use super::TaskPart;
use super::names::Names;
use crate::classfile::opcode;

/// What it needs more on the operand stack: an object and a number.
pub(super) const STACK: u16 = 2;

/// What stands at the beginning.
pub(super) fn start(part: TaskPart, names: &Names) -> Vec<u8> {
    match part {
        TaskPart::Hands(kind) => {
            let push = [opcode::ALOAD_0, opcode::ICONST_0 + kind.min(5)];
            [&push[..], &call(names.hands)].concat()
        }
        TaskPart::Runs => [&[opcode::ALOAD_0][..], &call(names.runs)].concat(),
        TaskPart::RunsMany => [&[opcode::ACONST_NULL][..], &call(names.runs)].concat(),
        TaskPart::Next(task) => {
            let push = task.map_or(opcode::ACONST_NULL, |local| opcode::ALOAD_0 + local.min(3));
            [&call(names.ran)[..], &[push], &call(names.runs)].concat()
        }
        TaskPart::Gives => Vec::new(),
    }
}

/// What stands where a lambda is given to an executor, which is on the stack.
pub(super) fn given(names: &Names) -> Vec<u8> {
    let kind = u8::try_from(TaskKind::Again as u32).unwrap_or(0);
    [&[opcode::DUP, opcode::ICONST_0 + kind][..], &call(names.hands)].concat()
}

/// What stands at each end; nothing for those that do not run tasks.
pub(super) fn end(part: TaskPart, names: &Names) -> Vec<u8> {
    match part {
        TaskPart::Hands(_) | TaskPart::Next(_) | TaskPart::Gives => Vec::new(),
        TaskPart::Runs | TaskPart::RunsMany => call(names.ran).to_vec(),
    }
}

fn call(hook: u16) -> [u8; 3] {
    let [high, low] = hook.to_be_bytes();
    [opcode::INVOKESTATIC, high, low]
}
