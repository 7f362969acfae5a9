//! Finds where a method makes a lambda and gives it to an executor at once: no other submission can be one of that object.
//!
//! A lambda that captures something is a new object each time. One that captures nothing is the same each time, and what a local or a field
//! holds may be anything.

use super::layout::Layout;
use crate::classfile::{ClassFile, Code, ConstantPool, Instruction, Reader, opcode};

/// What takes a task as it is.
const EXECUTE: (&[u8], &[u8]) = (b"execute", b"(Ljava/lang/Runnable;)V");
/// The class whose methods make lambdas.
const FACTORY: &[u8] = b"java/lang/invoke/LambdaMetafactory";
/// The result of a call site that makes a task.
const RESULT: &[u8] = b")Ljava/lang/Runnable;";

/// The numbers of the instructions that give lambdas to executors.
pub(super) fn find(class: &ClassFile<'_>, code: &Code<'_>, layout: &Layout<'_>) -> Vec<usize> {
    let pairs = || layout.placed.windows(2).map(|pair| [0, 1].map(|place| pair[place].instruction));
    let of_lambdas = (1..).zip(pairs()).filter(|(_, [made, given])| {
        executes(&class.pool, code.bytes, *given) && makes_lambda(class, code.bytes, *made)
    });
    let mut found: Vec<(usize, usize)> = of_lambdas.map(|(number, [_, given])| (number, given.at)).collect();
    if !found.is_empty() {
        // Who comes from elsewhere may bring something else.
        let targets = layout.targets(code);
        found.retain(|(_, at)| !targets.contains(at));
    }
    found.into_iter().map(|(number, _)| number).collect()
}

fn executes(pool: &ConstantPool<'_>, code: &[u8], call: Instruction) -> bool {
    matches!(call.opcode, opcode::INVOKEVIRTUAL | opcode::INVOKEINTERFACE)
        && pool.member(call.operand(code)).is_some_and(|called| (called.name, called.descriptor) == EXECUTE)
}

fn makes_lambda(class: &ClassFile<'_>, code: &[u8], made: Instruction) -> bool {
    if made.opcode != opcode::INVOKEDYNAMIC {
        return false;
    }
    let site = class.pool.dynamic(made.operand(code));
    site.is_some_and(|site| {
        let captures = site.descriptor.strip_suffix(RESULT).is_some_and(|captured| captured.len() > 1);
        captures && is_lambda(class, site.bootstrap).unwrap_or(false)
    })
}

/// Whether a bootstrap method of a class is that of lambdas.
fn is_lambda(class: &ClassFile<'_>, bootstrap: u16) -> Option<bool> {
    let is_table = |name: u16| class.pool.utf8(name) == Some(b"BootstrapMethods");
    let table = class.attributes.iter().find(|attribute| is_table(attribute.name))?;
    let mut reader = Reader::new(table.content);
    reader.u16().ok()?;
    for _ in 0..bootstrap {
        reader.u16().ok()?;
        let arguments = reader.u16().ok()?;
        reader.take(2 * usize::from(arguments)).ok()?;
    }
    let handle = class.pool.handle(reader.u16().ok()?)?;
    Some(class.pool.member(handle.member)?.class == FACTORY)
}
