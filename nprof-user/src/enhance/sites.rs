//! The calls of native methods in a method.
//!
//! An exception that comes out of such a call may be caught in the method itself. So that the end of the call is told of all the same, the call gets a handler of
//! its own, which tells and throws the exception on; the method's handlers for the call are for this handler, too. They may read locals, so that
//! the frame of ours keeps what the locals hold at the call.

use std::collections::BTreeSet;

use super::additions::Additions;
use super::frames::{Frame, Type};
use super::layout::Layout;
use super::state::Value;
use super::{NativeCall, Refusal, Wanted, locals};
use crate::classfile::{ClassFile, Code, Handler, MethodInfo};

/// A call of a native method.
#[derive(Debug)]
pub(super) struct Site {
    /// The number of its instruction.
    pub(super) instruction: usize,
    /// Where that is in the old code.
    pub(super) at: usize,
    /// The number of the native method.
    pub(super) native: u32,
    /// What the locals hold there, if it needs a handler.
    pub(super) handled: Option<Vec<Type>>,
}

/// The method in which calls are searched for.
pub(super) struct Searched<'a, 'b> {
    pub(super) class: &'a ClassFile<'b>,
    pub(super) method: &'a MethodInfo<'b>,
    pub(super) code: &'a Code<'b>,
    pub(super) layout: &'a Layout<'b>,
    /// The frames; `None` where the VM does without.
    pub(super) frames: Option<&'a [Frame]>,
    /// From which instruction on the method has a handler for everything.
    pub(super) handled_from: Option<usize>,
}

/// Whether a row of the table of handlers is for the instruction at a place.
pub(super) fn is_for(row: &Handler, at: usize) -> bool {
    (row.start.into()..row.end.into()).contains(&at)
}

impl<'b> Searched<'_, 'b> {
    /// The calls that can be told of, and the places of those that cannot.
    pub(super) fn find(&self, wanted: &Wanted, additions: &mut Additions) -> Result<(Vec<Site>, Vec<usize>), Refusal> {
        let calls = self.calls(wanted);
        let needy: BTreeSet<usize> =
            calls.iter().filter(|(number, at, _)| self.needs_handler(*number, *at)).map(|(_, at, _)| *at).collect();
        let mut known = match self.frames {
            Some(frames) if !needy.is_empty() => {
                let instructions = self.layout.placed.iter().map(|placed| placed.instruction);
                locals::at(self.class, self.method, self.code.bytes, instructions, frames, &needy)
            }
            _ => std::collections::HashMap::new(),
        };
        let (mut sites, mut untold) = (Vec::new(), Vec::new());
        for (instruction, at, native) in calls {
            let handled = match (needy.contains(&at), self.frames, known.remove(&at)) {
                (false, ..) => None,
                (true, None, _) => Some(Vec::new()),
                (true, Some(_), Some(values)) => Some(types(values, additions)?),
                (true, Some(_), None) => {
                    untold.push(at);
                    continue;
                }
            };
            sites.push(Site { instruction, at, native, handled });
        }
        Ok((sites, untold))
    }

    /// Number, place and native method of the calls.
    fn calls(&self, wanted: &Wanted) -> Vec<(usize, usize, u32)> {
        if wanted.native_calls.is_empty() {
            return Vec::new();
        }
        let instructions = self.layout.placed.iter().map(|placed| placed.instruction).enumerate();
        let calls =
            instructions.filter(|(_, instruction)| instruction.is_call()).filter_map(|(number, instruction)| {
                let called = self.class.pool.member(instruction.operand(self.code.bytes))?;
                let is_it = |native: &&NativeCall| {
                    native.class.as_bytes() == called.class
                        && native.name.as_bytes() == called.name
                        && native.signature.as_bytes() == called.descriptor
                };
                let native = wanted.native_calls.iter().find(is_it)?;
                Some((number, instruction.at, native.number))
            });
        calls.collect()
    }

    /// Whether an exception of a call does not come to the method's own handler for everything, which closes what is open.
    fn needs_handler(&self, instruction: usize, at: usize) -> bool {
        let is_handled = self.handled_from.is_some_and(|first| instruction >= first);
        !is_handled || self.code.handlers.iter().any(|row| is_for(row, at))
    }
}

fn types(values: Vec<Value<'_>>, additions: &mut Additions) -> Result<Vec<Type>, Refusal> {
    let one = |value| {
        Ok(match value {
            Value::Plain(kind) => Type::Plain(kind),
            Value::New(at) => Type::New(at),
            Value::Object(name) => Type::Object(additions.class(&name)?),
        })
    };
    values.into_iter().map(one).collect()
}
