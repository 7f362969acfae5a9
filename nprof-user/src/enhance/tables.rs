//! The tables by which debuggers and stack traces find lines and variables.
//!
//! They are for people, and a VM takes them as they come, so that what is odd in them is kept as well as it can be and refuses nothing.

use super::layout::Layout;
use crate::classfile::{Malformed, Reader};

/// Where a row begins. What begins with the method includes what was put in front of it: a stack trace from there has a line.
fn start(layout: &Layout<'_>, old: u16) -> u16 {
    if old == 0 { 0 } else { layout.near(usize::from(old)).and_then(|new| u16::try_from(new).ok()).unwrap_or(old) }
}

/// A `LineNumberTable`.
pub(super) fn lines(content: &[u8], layout: &Layout<'_>) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(content);
    let count = reader.u16()?;
    let mut out = count.to_be_bytes().to_vec();
    for _ in 0..count {
        out.extend(start(layout, reader.u16()?).to_be_bytes());
        out.extend(reader.take(2)?);
    }
    Ok(out)
}

/// A `LocalVariableTable` or `LocalVariableTypeTable`.
pub(super) fn variables(content: &[u8], layout: &Layout<'_>) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(content);
    let count = reader.u16()?;
    let mut out = count.to_be_bytes().to_vec();
    for _ in 0..count {
        let [first, length] = [reader.u16()?, reader.u16()?];
        let end = layout.near(usize::from(first) + usize::from(length)).unwrap_or(layout.end());
        let first = start(layout, first);
        let length = u16::try_from(end).unwrap_or(u16::MAX).saturating_sub(first);
        out.extend(first.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend(reader.take(6)?);
    }
    Ok(out)
}
