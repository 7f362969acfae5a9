//! The frames by which the VM verifies code without guessing types (`StackMapTable`).
//!
//! A frame says what locals and operand stack hold at a place; each is written as the difference from the one before it. As only places
//! change, the differences stay, and only the distances and the places of `new` instructions are written anew.

use super::Refusal;
use crate::classfile::{Malformed, Reader};

const SAME_ONE: u8 = 64;
const SAME_ONE_FAR: u8 = 247;
const SAME_FAR: u8 = 251;
const FULL: u8 = 255;

/// A type as the verifier knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Those that are only a number: nothing known, int, float, double, long, null, and `this` before it is initialised.
    Plain(u8),
    /// An object of the class with this constant.
    Object(u16),
    /// What the `new` at this place, in the old code, has made.
    New(u16),
}

impl Type {
    const OBJECT: u8 = 7;
    const NEW: u8 = 8;

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let wrong = reader.malformed("this is no type");
        match reader.u8()? {
            Self::OBJECT => reader.u16().map(Self::Object),
            Self::NEW => reader.u16().map(Self::New),
            plain if plain < Self::OBJECT => Ok(Self::Plain(plain)),
            _ => Err(wrong),
        }
    }

    fn read_some(count: u16, reader: &mut Reader<'_>) -> Result<Vec<Self>, Malformed> {
        (0..count).map(|_| Self::read(reader)).collect()
    }

    /// Writes it; `place` says where an instruction of the old code is.
    fn write(self, place: Place<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        match self {
            Self::Plain(kind) => out.push(kind),
            Self::Object(class) => {
                out.push(Self::OBJECT);
                out.extend(class.to_be_bytes());
            }
            Self::New(old) => {
                out.push(Self::NEW);
                out.extend(narrow(place(usize::from(old))?)?.to_be_bytes());
            }
        }
        Ok(())
    }
}

/// Where what was at a place is now.
type Place<'a> = &'a dyn Fn(usize) -> Result<usize, Malformed>;

/// The difference of a frame from the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    /// The same locals, nothing on the stack.
    Same,
    /// The same locals, one value on the stack.
    SameOne(Type),
    /// So many locals less.
    Chop(u8),
    /// These locals more: one to three.
    Append(Vec<Type>),
    /// These locals and this stack.
    Full(Vec<Type>, Vec<Type>),
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// For which place.
    pub(super) at: usize,
    pub(super) shape: Shape,
}

/// Reads a `StackMapTable`.
pub(super) fn read(content: &[u8]) -> Result<Vec<Frame>, Malformed> {
    let mut reader = Reader::new(content);
    let count = reader.u16()?;
    let mut next = 0;
    let mut frames = Vec::new();
    for _ in 0..count {
        let (delta, shape) = read_one(&mut reader)?;
        let at = next + usize::from(delta);
        frames.push(Frame { at, shape });
        next = at + 1;
    }
    if reader.is_at_end() { Ok(frames) } else { Err(reader.malformed("there is more than frames")) }
}

fn read_one(reader: &mut Reader<'_>) -> Result<(u16, Shape), Malformed> {
    let wrong = reader.malformed("this is no frame");
    let kind = reader.u8()?;
    if kind < SAME_ONE {
        return Ok((u16::from(kind), Shape::Same));
    }
    if kind < 2 * SAME_ONE {
        return Ok((u16::from(kind - SAME_ONE), Shape::SameOne(Type::read(reader)?)));
    }
    if kind < SAME_ONE_FAR {
        return Err(wrong);
    }
    let delta = reader.u16()?;
    let shape = match kind {
        SAME_ONE_FAR => Shape::SameOne(Type::read(reader)?),
        SAME_FAR => Shape::Same,
        FULL => {
            let count = reader.u16()?;
            let locals = Type::read_some(count, reader)?;
            let count = reader.u16()?;
            Shape::Full(locals, Type::read_some(count, reader)?)
        }
        _ if kind < SAME_FAR => Shape::Chop(SAME_FAR - kind),
        _ => Shape::Append(Type::read_some(u16::from(kind - SAME_FAR), reader)?),
    };
    Ok((delta, shape))
}

/// Writes a table of frames that are at new places already, in order; `place` is for the `new` instructions that they name.
pub(super) fn write(frames: &[Frame], place: Place<'_>) -> Result<Vec<u8>, Refusal> {
    let count = u16::try_from(frames.len()).or(Err(Refusal::TooMany("table of frames")))?;
    let mut out = count.to_be_bytes().to_vec();
    let mut next = 0;
    for frame in frames {
        let wrong = Malformed { what: "frames are not in order", at: frame.at };
        write_one(frame.at.checked_sub(next).ok_or(wrong)?, &frame.shape, place, &mut out)?;
        next = frame.at + 1;
    }
    Ok(out)
}

fn write_one(distance: usize, shape: &Shape, place: Place<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let delta = narrow(distance)?;
    let near = u8::try_from(delta).ok().filter(|near| *near < SAME_ONE);
    let far = |kind: u8, out: &mut Vec<u8>| {
        out.push(kind);
        out.extend(delta.to_be_bytes());
    };
    match (shape, near) {
        (Shape::Same, Some(near)) => out.push(near),
        (Shape::Same, None) => far(SAME_FAR, out),
        (Shape::SameOne(one), near) => {
            match near {
                Some(near) => out.push(SAME_ONE + near),
                None => far(SAME_ONE_FAR, out),
            }
            one.write(place, out)?;
        }
        (Shape::Chop(less), _) => far(SAME_FAR - less, out),
        (Shape::Append(more), _) => {
            let count = u8::try_from(more.len()).unwrap_or(0);
            far(SAME_FAR + count, out);
            more.iter().try_for_each(|one| one.write(place, out))?;
        }
        (Shape::Full(locals, stack), _) => {
            far(FULL, out);
            for list in [locals, stack] {
                let count = u16::try_from(list.len()).or(Err(Refusal::TooMany("frame")))?;
                out.extend(count.to_be_bytes());
                list.iter().try_for_each(|one| one.write(place, out))?;
            }
        }
    }
    Ok(())
}

/// A place in code that has at most 65,535 bytes.
fn narrow(place: usize) -> Result<u16, Refusal> {
    u16::try_from(place).or(Err(Refusal::TooLarge(place)))
}
