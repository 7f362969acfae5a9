//! The new content of a method's `Code`: its instructions in their new places, handlers, and tables.

use super::frames::{self, Frame, Shape, Type};
use super::layout::Layout;
use super::names::{FRAMES, Names};
use super::sites::{Site, is_for};
use super::{Refusal, tables};
use crate::classfile::{ATTRIBUTE_HEADER, ClassFile, Code, Handler};

/// What the handlers need on the operand stack: an exception, the same again, and a number.
const HANDLER_STACK: u16 = 3;

/// Code whose insertions are complete.
pub(super) struct Body<'a, 'b> {
    class: &'a ClassFile<'b>,
    code: &'a Code<'b>,
    names: &'a Names,
    layout: Layout<'b>,
    /// Handlers of ours that come before all others: each is for a single call.
    of_calls: Vec<Handler>,
    /// Those of the method itself that are for the handlers of calls, and then ours for everything that nothing else catches.
    last: Vec<Handler>,
    /// The code of ours that stands behind the method's, and the frame in front of each piece.
    appended: Vec<(Frame, Vec<u8>)>,
    /// Where that ends.
    end: usize,
}

impl<'a, 'b> Body<'a, 'b> {
    pub(super) fn new(
        class: &'a ClassFile<'b>,
        code: &'a Code<'b>,
        names: &'a Names,
        mut layout: Layout<'b>,
    ) -> Result<Self, Refusal> {
        layout.settle()?;
        let end = layout.end();
        Ok(Self { class, code, names, layout, of_calls: Vec::new(), last: Vec::new(), appended: Vec::new(), end })
    }

    /// Puts a handler behind the code, which begins with these locals and the exception.
    fn append(&mut self, locals: Vec<Type>, code: Vec<u8>) -> usize {
        let at = self.end;
        self.end += code.len();
        let shape = Shape::Full(locals, vec![Type::Object(self.names.throwable)]);
        self.appended.push((Frame { at, shape }, code));
        at
    }

    /// Adds a handler for a call of a native method, and for this handler those that the method has for the call.
    pub(super) fn handle_call(&mut self, site: &Site, locals: &[Type], code: Vec<u8>) -> Result<(), Refusal> {
        let handler = self.append(locals.to_vec(), code);
        let (own, end) = self.layout.own(site.instruction);
        self.of_calls.push(row(own, end, handler, 0)?);
        for old in self.code.handlers.iter().filter(|old| is_for(old, site.at)) {
            let outer = self.layout.place(usize::from(old.handler))?;
            self.last.push(row(handler, self.end, outer, old.class)?);
        }
        Ok(())
    }

    /// Adds a handler for what nothing else catches from the instruction `first` on, and in the handlers of calls. What was told of as a return is not under it: an
    /// exception that comes then, of a monitor that was never left, is not told of twice.
    pub(super) fn handle_everything(&mut self, first: usize, code: Vec<u8>) -> Result<(), Refusal> {
        let end = self.end;
        let handler = self.append(Vec::new(), code);
        let mut ranges = self.ranges(first)?;
        ranges.extend(self.of_calls_from(first)?);
        for (start, end) in ranges.into_iter().filter(|(start, to)| start < to && *to <= end) {
            self.last.push(row(start, end, handler, 0)?);
        }
        Ok(())
    }

    /// Where the method's code from the instruction `first` on is now, without the returns.
    fn ranges(&self, first: usize) -> Result<Vec<(usize, usize)>, Refusal> {
        let mut ranges = Vec::new();
        let mut start = None;
        for placed in self.layout.placed.iter().skip(first) {
            let new = self.layout.place(placed.instruction.at)?;
            if placed.instruction.is_return() {
                ranges.extend(start.take().map(|start| (start, new)));
            } else {
                start.get_or_insert(new);
            }
        }
        ranges.extend(start.map(|start| (start, self.layout.end())));
        Ok(ranges)
    }

    /// Where the handlers of those calls are that come from the instruction `first` on.
    fn of_calls_from(&self, first: usize) -> Result<Vec<(usize, usize)>, Refusal> {
        let Some(placed) = self.layout.placed.get(first) else { return Ok(Vec::new()) };
        let first = self.layout.place(placed.instruction.at)?;
        let late = self.of_calls.iter().zip(&self.appended).filter(|(row, _)| usize::from(row.start) >= first);
        Ok(late.map(|(_, (frame, code))| (frame.at, frame.at + code.len())).collect())
    }

    /// The content of the attribute, with so much more room on the operand stack than the method itself needs.
    pub(super) fn write(self, old_frames: Option<Vec<Frame>>, room: u16) -> Result<Vec<u8>, Refusal> {
        let mut code = self.layout.emit()?;
        self.appended.iter().for_each(|(_, bytes)| code.extend(bytes));
        let length = narrow(code.len())?;
        let stack = self.code.max_stack.checked_add(room).ok_or(Refusal::Stack)?.max(HANDLER_STACK);
        let mut out = [stack.to_be_bytes(), self.code.max_locals.to_be_bytes()].concat();
        out.extend(u32::from(length).to_be_bytes());
        out.extend(code);
        self.write_handlers(&mut out)?;
        self.write_attributes(old_frames, &mut out)?;
        Ok(out)
    }

    /// What the method itself catches, it catches as before.
    fn write_handlers(&self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let place = |old: u16| self.layout.place(usize::from(old));
        let mut rows = self.of_calls.clone();
        for old in &self.code.handlers {
            rows.push(row(place(old.start)?, place(old.end)?, place(old.handler)?, old.class)?);
        }
        rows.extend(&self.last);
        let count = u16::try_from(rows.len()).or(Err(Refusal::TooMany("table of handlers")))?;
        out.extend(count.to_be_bytes());
        for row in rows {
            out.extend([row.start, row.end, row.handler, row.class].iter().flat_map(|number| number.to_be_bytes()));
        }
        Ok(())
    }

    fn write_attributes(&self, old_frames: Option<Vec<Frame>>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut attributes: Vec<(u16, Vec<u8>)> = Vec::new();
        for attribute in &self.code.attributes {
            let content = match self.class.pool.utf8(attribute.name) {
                Some(FRAMES) if old_frames.is_some() => continue,
                // The VM does not keep these of code, and what is made here goes to the VM.
                Some(b"RuntimeVisibleTypeAnnotations" | b"RuntimeInvisibleTypeAnnotations") => continue,
                Some(b"LineNumberTable") => tables::lines(attribute.content, &self.layout)?,
                Some(b"LocalVariableTable" | b"LocalVariableTypeTable") => {
                    tables::variables(attribute.content, &self.layout)?
                }
                _ => attribute.content.to_vec(),
            };
            attributes.push((attribute.name, content));
        }
        if let Some(old) = old_frames.filter(|old| !old.is_empty() || !self.appended.is_empty()) {
            attributes.push((self.names.frames, self.frames(old)?));
        }
        let count = u16::try_from(attributes.len()).or(Err(Refusal::TooMany("list of attributes")))?;
        out.extend(count.to_be_bytes());
        for (name, content) in attributes {
            out.reserve(ATTRIBUTE_HEADER + content.len());
            out.extend(name.to_be_bytes());
            out.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend(content);
        }
        Ok(())
    }

    fn frames(&self, old: Vec<Frame>) -> Result<Vec<u8>, Refusal> {
        let moved = old.into_iter().map(|frame| Ok(Frame { at: self.layout.place(frame.at)?, shape: frame.shape }));
        let mut all = moved.collect::<Result<Vec<Frame>, Refusal>>()?;
        all.extend(self.appended.iter().map(|(frame, _)| frame.clone()));
        frames::write(&all, &|old| self.layout.place(old))
    }
}

/// A row of the table of handlers, for places in the new code.
fn row(start: usize, end: usize, handler: usize, class: u16) -> Result<Handler, Refusal> {
    Ok(Handler { start: narrow(start)?, end: narrow(end)?, handler: narrow(handler)?, class })
}

/// A place in code that has at most 65,535 bytes.
fn narrow(place: usize) -> Result<u16, Refusal> {
    u16::try_from(place).or(Err(Refusal::TooLarge(place)))
}
