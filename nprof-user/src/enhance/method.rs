//! The new code of one method.

use super::additions::Additions;
use super::constructor::{self, CONSTRUCTOR};
use super::frames::{self, Frame, Shape, Type};
use super::layout::Layout;
use super::{Hooks, Refusal, Wanted, tables};
use crate::classfile::{ATTRIBUTE_HEADER, ClassFile, Code, Handler, MethodInfo, opcode};

const FRAMES: &[u8] = b"StackMapTable";

/// The first version of class files that are verified by frames.
const FIRST_WITH_FRAMES: u16 = 50;

/// The last version in which `jsr` and `ret` may be: where a frame is missing there, the VM verifies as before.
const LAST_WITH_SUBROUTINES: u16 = 50;

/// What the handlers need on the operand stack: an exception, the same again, and a number.
const HANDLER_STACK: u16 = 3;

/// The constants that all methods of a class share.
#[derive(Debug)]
pub(super) struct Names {
    enter: u16,
    leave: u16,
    threw: u16,
    throwable: u16,
    frames: u16,
}

impl Names {
    pub(super) fn add(hooks: &Hooks<'_>, class: &ClassFile<'_>, additions: &mut Additions) -> Result<Self, Refusal> {
        let holder = additions.class(hooks.class)?;
        let number = additions.utf8(b"(I)V")?;
        let both = additions.utf8(b"(Ljava/lang/Throwable;I)V")?;
        Ok(Self {
            enter: additions.method(holder, hooks.enter, number)?,
            leave: additions.method(holder, hooks.leave, number)?,
            threw: additions.method(holder, hooks.threw, both)?,
            throwable: additions.class("java/lang/Throwable")?,
            frames: match class.pool.find_utf8(FRAMES) {
                Some(known) => known,
                None => additions.utf8(FRAMES)?,
            },
        })
    }
}

/// Pushes a number and calls a hook with it.
fn call(hook: u16, number: u32, additions: &mut Additions) -> Result<Vec<u8>, Refusal> {
    let mut code = match (u8::try_from(number), i16::try_from(number)) {
        (Ok(small @ 0..=5), _) => vec![opcode::ICONST_0 + small],
        (Ok(small @ 0..=0x7f), _) => vec![opcode::BIPUSH, small],
        (_, Ok(short)) => [&[opcode::SIPUSH][..], &short.to_be_bytes()].concat(),
        _ => [&[opcode::LDC_W][..], &additions.integer(number)?.to_be_bytes()].concat(),
    };
    code.push(opcode::INVOKESTATIC);
    code.extend(hook.to_be_bytes());
    Ok(code)
}

/// What a handler does with an exception that is on the stack.
fn tell_and_throw(names: &Names, number: u32, additions: &mut Additions) -> Result<Vec<u8>, Refusal> {
    let mut code = vec![opcode::DUP];
    code.extend(call(names.threw, number, additions)?);
    code.push(opcode::ATHROW);
    Ok(code)
}

/// The content of a method's `Code`, changed.
pub(super) fn enhanced(
    class: &ClassFile<'_>,
    method: &MethodInfo<'_>,
    content: &[u8],
    wanted: &Wanted,
    names: &Names,
    additions: &mut Additions,
) -> Result<Vec<u8>, Refusal> {
    let code = Code::parse(content)?;
    let mut layout = Layout::new(code.bytes)?;
    refuse_subroutines(class, &layout)?;
    let mut body = Body { class, code: &code, names, layout: &mut layout, handlers: Vec::new(), appended: Vec::new() };
    let is_constructor = class.pool.utf8(method.name) == Some(CONSTRUCTOR);
    let first = if is_constructor { constructor::other_call(class, body.layout)? + 1 } else { 0 };
    body.wrap_calls(wanted, additions)?;
    if let Some(number) = wanted.number {
        body.tell_of_entry_and_returns(number, additions)?;
    }
    body.layout.settle()?;
    if let Some(number) = wanted.number {
        body.tell_of_exceptions(first, number, additions)?;
    }
    body.write()
}

fn refuse_subroutines(class: &ClassFile<'_>, layout: &Layout<'_>) -> Result<(), Refusal> {
    let is_one = |opcode| matches!(opcode, opcode::JSR | opcode::JSR_W | opcode::RET);
    let has_any = layout.placed.iter().any(|placed| is_one(placed.instruction.opcode));
    if has_any && class.major_version > LAST_WITH_SUBROUTINES { Err(Refusal::Subroutines) } else { Ok(()) }
}

/// The code that is being changed.
struct Body<'a, 'b> {
    class: &'a ClassFile<'b>,
    code: &'a Code<'b>,
    names: &'a Names,
    layout: &'a mut Layout<'b>,
    /// Handlers of ours, for places in the new code.
    handlers: Vec<Handler>,
    /// Their code, and the frame in front of each.
    appended: Vec<(Frame, Vec<u8>)>,
}

impl Body<'_, '_> {
    /// Puts `enter` and `leave` around the calls of native methods.
    fn wrap_calls(&mut self, wanted: &Wanted, additions: &mut Additions) -> Result<(), Refusal> {
        for placed in self.layout.placed.iter_mut().filter(|placed| placed.instruction.is_call()) {
            let Some(called) = self.class.pool.member(placed.instruction.operand(self.code.bytes)) else { continue };
            let native = wanted.native_calls.iter().find(|native| {
                native.class.as_bytes() == called.class
                    && native.name.as_bytes() == called.name
                    && native.signature.as_bytes() == called.descriptor
            });
            let at = placed.instruction.at;
            let is_caught = |handler: &Handler| (handler.start.into()..handler.end.into()).contains(&at);
            if let Some(native) = native.filter(|_| !self.code.handlers.iter().any(is_caught)) {
                placed.before = call(self.names.enter, native.number, additions)?;
                placed.after = call(self.names.leave, native.number, additions)?;
            }
        }
        Ok(())
    }

    fn tell_of_entry_and_returns(&mut self, number: u32, additions: &mut Additions) -> Result<(), Refusal> {
        self.layout.prologue = call(self.names.enter, number, additions)?;
        let leave = call(self.names.leave, number, additions)?;
        for placed in self.layout.placed.iter_mut().filter(|placed| placed.instruction.is_return()) {
            placed.before.clone_from(&leave);
        }
        Ok(())
    }

    /// Adds a handler for what nothing else catches from the instruction `first` on. What was told of as a return is not under it: an exception that
    /// comes then, of a monitor that was never left, is not told of twice.
    fn tell_of_exceptions(&mut self, first: usize, number: u32, additions: &mut Additions) -> Result<(), Refusal> {
        let code = tell_and_throw(self.names, number, additions)?;
        let at = self.layout.end();
        for (start, end) in self.ranges(first, at)? {
            let narrow = |place: usize| u16::try_from(place).or(Err(Refusal::TooLarge(place)));
            let row = Handler { start: narrow(start)?, end: narrow(end)?, handler: narrow(at)?, class: 0 };
            self.handlers.push(row);
        }
        let exception = Type::Object(self.names.throwable);
        self.appended.push((Frame { at, shape: Shape::Full(Vec::new(), vec![exception]) }, code));
        Ok(())
    }

    /// Where the code from the instruction `first` to the `end` is now, without the returns.
    fn ranges(&self, first: usize, end: usize) -> Result<Vec<(usize, usize)>, Refusal> {
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
        ranges.extend(start.map(|start| (start, end)));
        Ok(ranges)
    }

    /// The content of the attribute.
    fn write(&self) -> Result<Vec<u8>, Refusal> {
        let mut code = self.layout.emit()?;
        self.appended.iter().for_each(|(_, bytes)| code.extend(bytes));
        let length = u16::try_from(code.len()).or(Err(Refusal::TooLarge(code.len())))?;
        let stack = self.code.max_stack.checked_add(1).ok_or(Refusal::Stack)?.max(HANDLER_STACK);
        let mut out = [stack.to_be_bytes(), self.code.max_locals.to_be_bytes()].concat();
        out.extend(u32::from(length).to_be_bytes());
        out.extend(code);
        self.write_handlers(&mut out)?;
        self.write_attributes(&mut out)?;
        Ok(out)
    }

    /// Ours come last: what the method itself catches, it catches as before.
    fn write_handlers(&self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let place = |old: u16| {
            let new = self.layout.place(usize::from(old))?;
            u16::try_from(new).or(Err(Refusal::TooLarge(new)))
        };
        let old = self.code.handlers.iter().map(|row| {
            Ok(Handler {
                start: place(row.start)?,
                end: place(row.end)?,
                handler: place(row.handler)?,
                class: row.class,
            })
        });
        let rows = old.chain(self.handlers.iter().copied().map(Ok)).collect::<Result<Vec<Handler>, Refusal>>()?;
        let count = u16::try_from(rows.len()).or(Err(Refusal::TooMany("table of handlers")))?;
        out.extend(count.to_be_bytes());
        for row in rows {
            out.extend([row.start, row.end, row.handler, row.class].iter().flat_map(|number| number.to_be_bytes()));
        }
        Ok(())
    }

    fn write_attributes(&self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut attributes: Vec<(u16, Vec<u8>)> = Vec::new();
        let with_frames = self.class.major_version >= FIRST_WITH_FRAMES;
        let mut old_frames = None;
        for attribute in &self.code.attributes {
            let content = match self.class.pool.utf8(attribute.name) {
                Some(FRAMES) if with_frames => {
                    old_frames = Some(attribute.content);
                    continue;
                }
                // The VM does not keep these of code, and what is made here goes to the VM.
                Some(b"RuntimeVisibleTypeAnnotations" | b"RuntimeInvisibleTypeAnnotations") => continue,
                Some(b"LineNumberTable") => tables::lines(attribute.content, self.layout)?,
                Some(b"LocalVariableTable" | b"LocalVariableTypeTable") => {
                    tables::variables(attribute.content, self.layout)?
                }
                _ => attribute.content.to_vec(),
            };
            attributes.push((attribute.name, content));
        }
        if with_frames && (old_frames.is_some() || !self.appended.is_empty()) {
            attributes.push((self.names.frames, self.frames(old_frames)?));
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

    fn frames(&self, old: Option<&[u8]>) -> Result<Vec<u8>, Refusal> {
        let old = old.map(frames::read).transpose()?.unwrap_or_default();
        let moved = old.into_iter().map(|frame| Ok(Frame { at: self.layout.place(frame.at)?, shape: frame.shape }));
        let mut all = moved.collect::<Result<Vec<Frame>, Refusal>>()?;
        all.extend(self.appended.iter().map(|(frame, _)| frame.clone()));
        frames::write(&all, &|old| self.layout.place(old))
    }
}
