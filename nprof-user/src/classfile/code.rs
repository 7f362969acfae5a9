//! The attribute that holds a method's bytecode.

use super::class::Attribute;
use super::reader::{Malformed, Reader};

/// A row of the table of exception handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handler {
    /// The first instruction that it is for.
    pub start: u16,
    /// The first after these that it is not for.
    pub end: u16,
    /// Where it begins.
    pub handler: u16,
    /// The class of exceptions; 0 for all.
    pub class: u16,
}

/// A method's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code<'a> {
    /// The most values on the operand stack.
    pub max_stack: u16,
    /// How many places there are for local variables.
    pub max_locals: u16,
    /// The bytecode.
    pub bytes: &'a [u8],
    /// The exception handlers; the first that fits is taken.
    pub handlers: Vec<Handler>,
    /// What else is said of it.
    pub attributes: Vec<Attribute<'a>>,
}

impl<'a> Code<'a> {
    /// Reads the content of a `Code` attribute.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(content: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let [max_stack, max_locals] = [reader.u16()?, reader.u16()?];
        let bytes = reader.sized()?;
        if bytes.is_empty() || bytes.len() > usize::from(u16::MAX) {
            return Err(reader.malformed("a method has from 1 to 65535 bytes of code"));
        }
        let count = reader.u16()?;
        let handlers = (0..count)
            .map(|_| {
                let [start, end, handler, class] = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
                Ok(Handler { start, end, handler, class })
            })
            .collect::<Result<_, _>>()?;
        let attributes = Attribute::read_all(&mut reader)?;
        if !reader.is_at_end() {
            return Err(reader.malformed("there is more than code"));
        }
        Ok(Self { max_stack, max_locals, bytes, handlers, attributes })
    }
}
