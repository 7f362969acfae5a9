//! What is inserted into one method.

use super::additions::Additions;
use super::body::Body;
use super::constructor::{self, CONSTRUCTOR};
use super::frames::{self, Frame};
use super::layout::Layout;
use super::names::{FRAMES, Names};
use super::sites::{Searched, Site};
use super::{Refusal, TaskPart, Wanted, executed, tasks};
use crate::classfile::{ClassFile, Code, MethodInfo, opcode};

/// The first version of class files that are verified by frames.
const FIRST_WITH_FRAMES: u16 = 50;

/// The last version in which `jsr` and `ret` may be: where a frame is missing there, the VM verifies as before.
const LAST_WITH_SUBROUTINES: u16 = 50;

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
    Ok([tell(names, number, additions)?, vec![opcode::ATHROW]].concat())
}

fn tell(names: &Names, number: u32, additions: &mut Additions) -> Result<Vec<u8>, Refusal> {
    Ok([vec![opcode::DUP], call(names.threw, number, additions)?].concat())
}

/// What is inserted for the method itself.
#[derive(Debug, Default)]
struct Own {
    start: Vec<u8>,
    /// What a constructor tells as soon as it has an object.
    made: Vec<u8>,
    end: Vec<u8>,
    /// The handler for everything; empty if there is to be none.
    thrown: Vec<u8>,
}

impl Own {
    fn of(wanted: &Wanted, is_constructor: bool, names: &Names, additions: &mut Additions) -> Result<Self, Refusal> {
        let mut own = Self::default();
        if let Some(number) = wanted.number {
            own.start = call(names.enter, number, additions)?;
            own.end = call(names.leave, number, additions)?;
            own.thrown = tell(names, number, additions)?;
        }
        if let Some(part) = wanted.task {
            let start = tasks::start(part, names);
            match part {
                // Before that there is no object.
                _ if is_constructor => own.made = start,
                TaskPart::Hands(_) | TaskPart::Gives => own.start.extend(start),
                // An entry method is entered within its task.
                TaskPart::Runs | TaskPart::RunsMany | TaskPart::Next(_) => own.start = [start, own.start].concat(),
            }
            let end = tasks::end(part, names);
            own.end.extend(&end);
            own.thrown.extend(end);
        }
        if !own.thrown.is_empty() {
            own.thrown.push(opcode::ATHROW);
        }
        Ok(own)
    }
}

/// A method's new code.
pub(super) struct Changed {
    /// The content of its `Code`.
    pub(super) content: Vec<u8>,
    /// Where the calls of native methods are, in the old code, that nothing is told of.
    pub(super) untold: Vec<usize>,
}

/// Changes a method's code.
pub(super) fn enhanced(
    class: &ClassFile<'_>,
    method: &MethodInfo<'_>,
    content: &[u8],
    wanted: &Wanted,
    names: &Names,
    additions: &mut Additions,
) -> Result<Changed, Refusal> {
    let code = Code::parse(content)?;
    let mut layout = Layout::new(code.bytes)?;
    refuse_subroutines(class, &layout)?;
    let frames = old_frames(class, &code, &layout)?;
    let is_constructor = class.pool.utf8(method.name) == Some(CONSTRUCTOR);
    let first = if is_constructor { constructor::other_call(class, &layout)? + 1 } else { 0 };
    let handled_from = wanted.number.map(|_| first);
    let searched = Searched { class, method, code: &code, layout: &layout, frames: frames.as_deref(), handled_from };
    let (sites, untold) = searched.find(wanted, additions)?;
    insert(&mut layout, &sites, names, additions)?;
    let own = Own::of(wanted, is_constructor, names, additions)?;
    insert_own(&mut layout, &own, first);
    if wanted.task == Some(TaskPart::Gives) {
        for number in executed::find(class, &code, &layout) {
            layout.placed[number].before.extend(tasks::given(names));
        }
    }
    let mut body = Body::new(class, &code, names, layout)?;
    for site in &sites {
        if let Some(locals) = &site.handled {
            body.handle_call(site, locals, tell_and_throw(names, site.native, additions)?)?;
        }
    }
    if !own.thrown.is_empty() {
        body.handle_everything(first, own.thrown)?;
    }
    let room = if wanted.task.is_some() { tasks::STACK } else { 1 };
    Ok(Changed { content: body.write(frames, room)?, untold })
}

/// The frames of code that is verified by frames. Without branches and handlers there need be none. A VM keeps none of classes that it does not
/// verify: its own, where they come from no archive.
fn old_frames(class: &ClassFile<'_>, code: &Code<'_>, layout: &Layout<'_>) -> Result<Option<Vec<Frame>>, Refusal> {
    if class.major_version < FIRST_WITH_FRAMES {
        return Ok(None);
    }
    let table = code.attributes.iter().find(|attribute| class.pool.utf8(attribute.name) == Some(FRAMES));
    match table {
        Some(table) => Ok(Some(frames::read(table.content)?)),
        None if code.handlers.is_empty() && !layout.has_branches() => Ok(Some(Vec::new())),
        None => Ok(None),
    }
}

fn refuse_subroutines(class: &ClassFile<'_>, layout: &Layout<'_>) -> Result<(), Refusal> {
    let is_one = |opcode| matches!(opcode, opcode::JSR | opcode::JSR_W | opcode::RET);
    let has_any = layout.placed.iter().any(|placed| is_one(placed.instruction.opcode));
    if has_any && class.major_version > LAST_WITH_SUBROUTINES { Err(Refusal::Subroutines) } else { Ok(()) }
}

/// Inserts what is told of calls of native methods.
fn insert(layout: &mut Layout<'_>, sites: &[Site], names: &Names, additions: &mut Additions) -> Result<(), Refusal> {
    for site in sites {
        if let Some(placed) = layout.placed.get_mut(site.instruction) {
            placed.before = call(names.enter, site.native, additions)?;
            placed.after = call(names.leave, site.native, additions)?;
        }
    }
    Ok(())
}

/// Inserts what is told of the entry and of returns. A constructor's `first` instruction is the one behind the call of another.
fn insert_own(layout: &mut Layout<'_>, own: &Own, first: usize) {
    layout.prologue.clone_from(&own.start);
    for placed in layout.placed.iter_mut().filter(|placed| placed.instruction.is_return()) {
        placed.before.clone_from(&own.end);
    }
    if let Some(placed) = first.checked_sub(1).and_then(|other| layout.placed.get_mut(other)) {
        placed.after.extend(&own.made);
    }
}
