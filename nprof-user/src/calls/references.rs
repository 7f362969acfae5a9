//! What the instructions of a method refer to: calls, and the lambdas that it makes.

use crate::classfile::{ConstantPool, Instruction, Instructions, Malformed, Member, Reader, opcode, tag};
use crate::hotspot;

/// A call of a method that may be a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    /// The class as the instruction names it, with dots; of an array, its descriptor.
    pub(super) class: String,
    pub(super) name: String,
    pub(super) signature: String,
    /// Whether the receiver's class decides.
    pub(super) is_virtual: bool,
    /// Whether an instruction calls it, rather than a lambda that was made.
    pub(super) is_direct: bool,
    /// Where, in the code.
    pub(super) at: usize,
}

/// The descriptors of bootstrap methods begin like this.
const BOOTSTRAP: &[u8] = b"(Ljava/lang/invoke/MethodHandles$Lookup;Ljava/lang/String;";

/// The method handles that call something: virtual, static, special, constructor, interface.
const CALLING: std::ops::RangeInclusive<u8> = 5..=9;
const VIRTUAL: [u8; 2] = [5, 9];

/// The attribute that says which bootstrap method links a call site, and with what.
#[derive(Debug)]
pub(super) struct Bootstraps(Vec<Vec<u16>>);

impl Bootstraps {
    /// Reads the content of the attribute.
    pub(super) fn parse(content: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(content);
        let count = reader.u16()?;
        let all = (0..count).map(|_| {
            reader.u16()?;
            let count = reader.u16()?;
            (0..count).map(|_| reader.u16()).collect()
        });
        all.collect::<Result<_, _>>().map(Self)
    }
}

/// What is needed of a class to find the references of its methods.
pub(super) struct Source<'a> {
    pub(super) pool: &'a ConstantPool<'a>,
    pub(super) bootstraps: Option<&'a Bootstraps>,
    /// The method's name.
    pub(super) method: &'a str,
}

impl Source<'_> {
    /// The references of code, in order.
    pub(super) fn references(&self, code: &[u8]) -> Result<Vec<Reference>, Malformed> {
        let mut found = Vec::new();
        for instruction in Instructions::new(code) {
            let instruction = instruction?;
            if instruction.is_call() {
                found.extend(self.call(code, instruction));
            } else if instruction.opcode == opcode::INVOKEDYNAMIC {
                self.made(instruction.operand(code), instruction.at, &mut found);
            }
        }
        Ok(found)
    }

    fn call(&self, code: &[u8], instruction: Instruction) -> Option<Reference> {
        let member = self.pool.member(instruction.operand(code))?;
        let is_virtual = matches!(instruction.opcode, opcode::INVOKEVIRTUAL | opcode::INVOKEINTERFACE);
        reference(member, is_virtual, true, instruction.at)
    }

    /// The methods that a call site may make lambdas of.
    fn made(&self, constant: u16, at: usize, found: &mut Vec<Reference>) {
        let Some(site) = self.pool.dynamic(constant) else { return };
        match self.bootstraps.and_then(|bootstraps| bootstraps.0.get(usize::from(site.bootstrap))) {
            Some(arguments) => found.extend(arguments.iter().filter_map(|handle| self.handle(*handle, at))),
            None => {
                let handles = self.pool.tags().filter(|(_, kind)| *kind == tag::METHOD_HANDLE);
                let all = handles.filter_map(|(handle, _)| self.handle(handle, at));
                found.extend(all.filter(|made| may_be_of(&made.name, self.method)));
            }
        }
    }

    fn handle(&self, handle: u16, at: usize) -> Option<Reference> {
        let handle = self.pool.handle(handle).filter(|handle| CALLING.contains(&handle.kind))?;
        let member = self.pool.member(handle.member).filter(|member| !member.descriptor.starts_with(BOOTSTRAP))?;
        reference(member, VIRTUAL.contains(&handle.kind), false, at)
    }
}

fn reference(member: Member<'_>, is_virtual: bool, is_direct: bool, at: usize) -> Option<Reference> {
    Some(Reference {
        class: hotspot::decode(member.class)?.replace('/', "."),
        name: hotspot::decode(member.name)?,
        signature: hotspot::decode(member.descriptor)?,
        is_virtual,
        is_direct,
        at,
    })
}

/// Whether a method may make a lambda of the method `made`. The compiler names a lambda's body after the method that it is in: `lambda$main$0`.
fn may_be_of(made: &str, method: &str) -> bool {
    let Some((of, _)) = made.strip_prefix("lambda$").and_then(|rest| rest.rsplit_once('$')) else { return true };
    let within = method.strip_prefix("lambda$").and_then(|rest| rest.rsplit_once('$'));
    match (method, within) {
        ("<init>", _) => of == "new",
        ("<clinit>", _) => of == "static",
        (_, Some((outer, _))) => of == outer,
        _ => of == method,
    }
}

#[cfg(test)]
mod tests {
    use super::may_be_of;

    /// Check that a lambda's body belongs to the method it is named after, and a method reference to any.
    #[test]
    fn lambdas_are_named_after_their_methods() {
        for (made, method, expected) in [
            ("lambda$main$0", "main", true),
            ("lambda$main$0", "other", false),
            ("lambda$main$1", "lambda$main$0", true),
            ("lambda$new$0", "<init>", true),
            ("lambda$static$0", "<clinit>", true),
            ("lambda$new$0", "new", true),
            ("lambda$a$b$0", "a$b", true),
            ("compare", "main", true),
        ] {
            assert_eq!(may_be_of(made, method), expected, "{made} in {method}");
        }
    }
}
