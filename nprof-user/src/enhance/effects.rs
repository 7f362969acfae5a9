//! What an instruction does to the types of locals and operand stack (JVMS 4.10.1.9), for code that is right: nothing is checked
//! but what would make the answer wrong.

use std::borrow::Cow;

use super::state::{DOUBLE, FLOAT, INT, LONG, NULL, State, TOP, UNINITIALISED_THIS, Value, of_method};
use crate::classfile::{ClassFile, Instruction, opcode, tag};

/// The types of loads, stores and arithmetic, in the order of their opcodes.
const NUMBERS: [Value<'static>; 4] = [INT, LONG, FLOAT, DOUBLE];

/// The results of conversions, from `i2l` on.
const CONVERTED: [Value<'static>; 15] =
    [LONG, FLOAT, DOUBLE, INT, FLOAT, DOUBLE, INT, LONG, DOUBLE, INT, LONG, FLOAT, INT, INT, INT];

/// The arrays that `newarray` makes, from `boolean` on, whose number is 4.
const ARRAYS: [&[u8]; 8] = [b"[Z", b"[C", b"[F", b"[D", b"[B", b"[S", b"[I", b"[J"];

/// One of the four numbers.
fn number(place: u8) -> Value<'static> {
    NUMBERS[usize::from(place % 4)].clone()
}

/// Applies an instruction; `None` if its effect is not known.
pub(super) fn apply<'a>(
    state: &mut State<'a>,
    class: &ClassFile<'a>,
    code: &[u8],
    instruction: Instruction,
) -> Option<()> {
    let of = instruction.opcode;
    let byte = code.get(instruction.at + 1).copied().unwrap_or(0);
    match of {
        0x00 | opcode::IINC | 0xa7 | 0xb1 | 0xc8 => {}
        opcode::ACONST_NULL => state.push(NULL),
        0x02..=0x08 | opcode::BIPUSH | opcode::SIPUSH => state.push(INT),
        0x09 | 0x0a => state.push(LONG),
        0x0b..=0x0d => state.push(FLOAT),
        0x0e | 0x0f => state.push(DOUBLE),
        opcode::LDC => state.push(constant(class, u16::from(byte))?),
        opcode::LDC_W | opcode::LDC2_W => state.push(constant(class, instruction.operand(code))?),
        0x15..=0x2d | 0x36..=0x4e => local(state, of, usize::from(byte))?,
        opcode::WIDE if byte == opcode::IINC => {}
        opcode::WIDE => {
            let index = [2, 3].map(|at| code.get(instruction.at + at).copied().unwrap_or(0));
            local(state, byte, usize::from(u16::from_be_bytes(index)))?;
        }
        0x2e..=0x35 => load_element(state, of)?,
        0x4f..=0x56 => state.drop_some(3)?,
        0x57..=0x5f => shuffle(state, of)?,
        0x60..=0x98 => compute(state, of)?,
        0x99..=0x9e | 0xaa..=0xb0 | 0xb3 | opcode::ATHROW | 0xc2 | 0xc3 | 0xc6 | 0xc7 => state.drop_some(1)?,
        0x9f..=0xa6 | 0xb5 => state.drop_some(2)?,
        0xb2 | 0xb4 => {
            state.drop_some(usize::from(of == 0xb4))?;
            let field = class.pool.member(instruction.operand(code))?;
            state.push(Value::of_field(field.descriptor)?.0);
        }
        opcode::INVOKEVIRTUAL..=opcode::INVOKEDYNAMIC => call(state, class, code, instruction)?,
        opcode::NEW..=0xc5 => object(state, class, code, instruction)?,
        // Subroutines are not followed.
        _ => return None,
    }
    Some(())
}

fn constant<'a>(class: &ClassFile<'a>, at: u16) -> Option<Value<'a>> {
    Some(match class.pool.kind(at)? {
        tag::INTEGER => INT,
        tag::FLOAT => FLOAT,
        tag::LONG => LONG,
        tag::DOUBLE => DOUBLE,
        tag::STRING => Value::object(b"java/lang/String"),
        tag::CLASS => Value::object(b"java/lang/Class"),
        tag::METHOD_HANDLE => Value::object(b"java/lang/invoke/MethodHandle"),
        tag::METHOD_TYPE => Value::object(b"java/lang/invoke/MethodType"),
        tag::DYNAMIC => Value::of_field(class.pool.dynamic(at)?.descriptor)?.0,
        _ => return None,
    })
}

/// Loads and stores; `index` is for those whose opcode does not have it.
fn local(state: &mut State<'_>, of: u8, index: usize) -> Option<()> {
    const REFERENCE: u8 = 4;
    let short = |first: u8| ((of - first) / 4, usize::from((of - first) % 4));
    let (kind, index, is_load) = match of {
        0x15..=0x19 => (of - 0x15, index, true),
        0x1a..=0x2d => (short(0x1a).0, short(0x1a).1, true),
        0x36..=0x3a => (of - 0x36, index, false),
        0x3b..=0x4e => (short(0x3b).0, short(0x3b).1, false),
        _ => return None,
    };
    if !is_load {
        state.store(index)
    } else if kind == REFERENCE {
        state.load(index)
    } else {
        state.push(number(kind));
        Some(())
    }
}

fn load_element(state: &mut State<'_>, of: u8) -> Option<()> {
    state.drop_some(1)?;
    let array = state.pop()?;
    let element = match (of, array) {
        (0x2e..=0x31, _) => number(of - 0x2e),
        (0x32, NULL) => NULL,
        (0x32, Value::Object(name)) => element(name)?,
        (0x32, _) => return None,
        _ => INT,
    };
    state.push(element);
    Some(())
}

/// What is in an array of objects.
fn element(array: Cow<'_, [u8]>) -> Option<Value<'_>> {
    match array {
        Cow::Borrowed(name) => Value::of_field(name.strip_prefix(b"[")?).map(|(value, _)| value),
        Cow::Owned(name) => match Value::of_field(name.strip_prefix(b"[")?)?.0 {
            Value::Object(inner) => Some(Value::Object(Cow::Owned(inner.into_owned()))),
            _ => None,
        },
    }
}

/// `pop` to `swap`. Two places on the stack are two values or one that takes two.
fn shuffle(state: &mut State<'_>, of: u8) -> Option<()> {
    match of {
        0x57 => state.drop_some(1),
        0x58 => take(state, 2).map(drop),
        0x5f => {
            let (top, below) = (state.pop()?, state.pop()?);
            state.stack.extend([top, below]);
            Some(())
        }
        _ => {
            // dup, dup_x1, dup_x2, dup2, dup2_x1, dup2_x2: how many places are copied, and how far down.
            let (copied, below) = ((of - 0x59) / 3 + 1, (of - 0x59) % 3);
            let top = take(state, usize::from(copied))?;
            let under = take(state, usize::from(below))?;
            state.stack.extend(top.iter().cloned().chain(under).chain(top.clone()));
            Some(())
        }
    }
}

/// Takes the values that fill so many places from the stack, in their order there.
fn take<'a>(state: &mut State<'a>, places: usize) -> Option<Vec<Value<'a>>> {
    let mut taken = Vec::new();
    let mut filled = 0;
    while filled < places {
        let value = state.pop()?;
        filled += if value.is_wide() { 2 } else { 1 };
        taken.push(value);
    }
    taken.reverse();
    (filled == places).then_some(taken)
}

/// Arithmetic, shifts, logic, conversions and comparisons.
fn compute(state: &mut State<'_>, of: u8) -> Option<()> {
    let (operands, result) = match of {
        0x60..=0x73 => (2, number(of)),
        0x74..=0x77 => (1, number(of)),
        0x78..=0x83 => (2, number(of % 2)),
        opcode::IINC => (0, TOP),
        0x85..=0x93 => (1, CONVERTED[usize::from(of - 0x85)].clone()),
        _ => (2, INT),
    };
    state.drop_some(operands)?;
    state.push(result);
    Some(())
}

fn call<'a>(state: &mut State<'a>, class: &ClassFile<'a>, code: &[u8], instruction: Instruction) -> Option<()> {
    let constant = instruction.operand(code);
    let (name, descriptor) = match instruction.opcode {
        opcode::INVOKEDYNAMIC => class.pool.dynamic(constant).map(|site| (site.name, site.descriptor))?,
        _ => class.pool.member(constant).map(|member| (member.name, member.descriptor))?,
    };
    let (parameters, result) = of_method(descriptor)?;
    state.drop_some(parameters.len())?;
    if !matches!(instruction.opcode, opcode::INVOKESTATIC | opcode::INVOKEDYNAMIC) {
        let receiver = state.pop()?;
        if instruction.opcode == opcode::INVOKESPECIAL && name == b"<init>" {
            let made = match receiver {
                UNINITIALISED_THIS => class.this_class,
                Value::New(at) => made_at(code, at)?,
                _ => return None,
            };
            state.replace(&receiver, &Value::object(class.pool.class(made)?));
        }
    }
    state.stack.extend(result);
    Some(())
}

/// The class of which the `new` at a place makes an object.
fn made_at(code: &[u8], at: u16) -> Option<u16> {
    let at = usize::from(at);
    let bytes = code.get(at..at + 3).filter(|bytes| bytes[0] == opcode::NEW)?;
    Some(u16::from_be_bytes([bytes[1], bytes[2]]))
}

/// From `new` to `multianewarray`.
fn object<'a>(state: &mut State<'a>, class: &ClassFile<'a>, code: &[u8], instruction: Instruction) -> Option<()> {
    let named = || class.pool.class(instruction.operand(code));
    let (operands, result) = match instruction.opcode {
        opcode::NEW => {
            let new = Value::New(u16::try_from(instruction.at).ok()?);
            state.replace(&new, &TOP);
            (0, new)
        }
        0xbc => {
            let kind = code.get(instruction.at + 1)?.checked_sub(4)?;
            (1, Value::object(ARRAYS.get(usize::from(kind))?))
        }
        0xbd => (1, Value::Object(Cow::Owned(array_of(named()?)))),
        0xbe | 0xc1 => (1, INT),
        0xc0 => (1, Value::object(named()?)),
        0xc5 => (usize::from(*code.get(instruction.at + 3)?), Value::object(named()?)),
        _ => return None,
    };
    state.drop_some(operands)?;
    state.push(result);
    Some(())
}

/// The name of an array of objects of a class, or of arrays.
fn array_of(class: &[u8]) -> Vec<u8> {
    if class.starts_with(b"[") { [b"[", class].concat() } else { [b"[L", class, b";"].concat() }
}
