//! Changes class files so that chosen methods tell when they are entered and left. Bytes in, bytes out.
//!
//! What is inserted are calls of static methods, the [`Hooks`]: at a method's start, before each of its returns, and in a handler for
//! all exceptions that nothing else in the method catches. Everything that was in the file keeps its bytes, apart from the code
//! of these methods: it is copied instruction by instruction, and what names places in it (`layout`, `frames`, `tables`) follows. The
//! constant pool only grows at its end. So what other agents have done, and what a VM adds of its own, is still there.
//!
//! A method that cannot be changed rightly is refused with the reason ([`Refusal`]), and the rest of its class is changed without it.

mod additions;
mod body;
mod constructor;
mod effects;
mod executed;
mod frames;
mod layout;
mod locals;
mod method;
mod names;
mod refusal;
mod sites;
mod state;
mod tables;
mod tasks;
#[cfg(test)]
mod tests;

pub use refusal::Refusal;

use crate::classfile::{CODE, ClassFile, MethodInfo};
use additions::Additions;
use method::Changed;
use names::Names;

/// The static methods that enhanced methods call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hooks<'a> {
    /// Their class, with slashes. It must be visible from everywhere.
    pub class: &'a str,
    /// The name of the one with the descriptor `(I)V` that a method calls first, with its number.
    pub enter: &'a str,
    /// That with `(I)V` which it calls before it returns.
    pub leave: &'a str,
    /// That with `(Ljava/lang/Throwable;I)V` which it calls when an exception leaves it.
    pub threw: &'a str,
    /// That with `(Ljava/lang/Object;I)V` which it calls with its own object if it makes a task of that.
    pub hands: &'a str,
    /// That with `(Ljava/lang/Object;)V` which it calls first with its own object, or null, if it runs tasks.
    pub runs: &'a str,
    /// That with `()V` which it calls at its end then, however that comes.
    pub ran: &'a str,
}

/// A method that is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its descriptor.
    pub signature: String,
    /// The number that it gives to the hooks; `None` where only its calls of native methods are wanted.
    pub number: Option<u32>,
    /// The native methods whose calls it tells of.
    pub native_calls: Vec<NativeCall>,
    /// What it has to do with tasks, if that is wanted.
    pub task: Option<TaskPart>,
}

/// What a method, which but for [`TaskPart::Gives`] is not static, has to do with tasks that one thread hands to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskPart {
    /// Its object becomes a task of this kind. A constructor tells as soon as another one has been called.
    Hands(u8),
    /// It runs its object.
    Runs,
    /// It runs tasks, one after another.
    RunsMany,
    /// The task that is run next is the object in this local, or none is. One of `RunsMany` calls it.
    Next(Option<u8>),
    /// It may give lambdas to executors as they are, which become tasks then.
    Gives,
}

/// A method as call instructions name it. Each call of it is told of like the entry into a method and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeCall {
    /// The class, with slashes, as the instruction names it: a subclass of the one that declares it, perhaps.
    pub class: String,
    /// The name.
    pub name: String,
    /// The descriptor.
    pub signature: String,
    /// The number that is given to the hooks.
    pub number: u32,
}

/// A changed class file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enhanced {
    /// The file; as it was, if no method was changed.
    pub class_file: Vec<u8>,
    /// How many methods were changed.
    pub changed: usize,
    /// The methods that were not, by their place in what was wanted.
    pub refused: Vec<(usize, Refusal)>,
    /// How many calls of native methods nothing is told of, by the same place: what the locals hold there could not be found out.
    pub untold: Vec<(usize, usize)>,
}

/// Changes the wanted methods of a class file.
///
/// # Errors
/// When nothing in the class can be changed. What holds for a single method is in [`Enhanced::refused`].
pub fn enhance(class_file: &[u8], wanted: &[Wanted], hooks: &Hooks<'_>) -> Result<Enhanced, Refusal> {
    let class = ClassFile::parse(class_file)?;
    if class.pool.class(class.this_class) == Some(hooks.class.as_bytes()) {
        return Err(Refusal::Hook);
    }
    let mut additions = Additions::behind(&class);
    let has_tasks = wanted.iter().any(|wanted| wanted.task.is_some());
    let names = Names::add(hooks, &class, has_tasks, &mut additions)?;
    let mut changes: Vec<Change> = Vec::new();
    let (mut refused, mut untold) = (Vec::new(), Vec::new());
    for (place, wanted) in wanted.iter().enumerate() {
        let before = additions.mark();
        match change(&class, wanted, &names, &mut additions) {
            Ok(change) if changes.iter().any(|other| other.at == change.at) => refused.push((place, Refusal::Twice)),
            Ok(change) => {
                untold.extend(Some((place, change.untold)).filter(|(_, calls)| *calls > 0));
                changes.push(change);
            }
            Err(refusal) => {
                additions.back_to(before);
                refused.push((place, refusal));
            }
        }
    }
    changes.sort_by_key(|change| change.at);
    let changed = changes.len();
    let class_file =
        if changed == 0 { class_file.to_vec() } else { assemble(class_file, &class, &additions, &changes) };
    Ok(Enhanced { class_file, changed, refused, untold })
}

/// The new code of a method.
struct Change {
    /// Where the content of its `Code` begins in the file.
    at: usize,
    /// Where it ends.
    end: usize,
    content: Vec<u8>,
    /// How many calls of native methods nothing is told of.
    untold: usize,
}

fn change(class: &ClassFile<'_>, wanted: &Wanted, names: &Names, additions: &mut Additions) -> Result<Change, Refusal> {
    let method = find(class, wanted).ok_or(Refusal::Missing)?;
    let code = method.attribute(&class.pool, CODE).ok_or(Refusal::NoCode)?;
    let Changed { content, untold } = method::enhanced(class, method, code.content, wanted, names, additions)?;
    Ok(Change { at: code.end() - code.content.len(), end: code.end(), content, untold: untold.len() })
}

fn find<'a, 'b>(class: &'b ClassFile<'a>, wanted: &Wanted) -> Option<&'b MethodInfo<'a>> {
    class.methods.iter().find(|method| {
        class.pool.text(method.name).as_deref() == Some(&wanted.name)
            && class.pool.text(method.descriptor).as_deref() == Some(&wanted.signature)
    })
}

/// The file with more constants and the new code, whose parts come in the order of the file.
fn assemble(file: &[u8], class: &ClassFile<'_>, additions: &Additions, changes: &[Change]) -> Vec<u8> {
    let more: usize = changes.iter().map(|change| change.content.len()).sum();
    let mut out = Vec::with_capacity(file.len() + additions.bytes().len() + more);
    let (head, rest) = file.split_at(ClassFile::POOL_COUNT_AT);
    out.extend(head);
    out.extend(additions.count().to_be_bytes());
    out.extend(&rest[2..class.pool_end - ClassFile::POOL_COUNT_AT]);
    out.extend(additions.bytes());
    let mut at = class.pool_end;
    for change in changes {
        // The length of the attribute stands in front of its content.
        out.extend(&file[at..change.at - 4]);
        out.extend(u32::try_from(change.content.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(&change.content);
        at = change.end;
    }
    out.extend(&file[at..]);
    out
}
