//! Methods that must not tell of themselves, because telling takes them.
//!
//! What an enhanced method calls asks which thread it is on. Were that enhanced, too, it would call itself until the stack is full, in
//! the target. Nor is code enhanced that moves virtual threads from one thread to another: in between the two are not what they seem.

use super::{DeclaredMethod, LoadedClass};

/// The class that enhanced methods call, and those of virtual threads: all their methods.
const CLASSES: [&str; 6] = [
    "java.lang.NprofTree",
    "java.lang.VirtualThread",
    "java.lang.BaseVirtualThread",
    "java.lang.ThreadBuilders$BoundVirtualThread",
    "jdk.internal.vm.Continuation",
    "jdk.internal.vm.StackChunk",
];
/// What is asked of a thread.
const OF_THREAD: (&str, [&str; 3]) = ("java.lang.Thread", ["currentThread", "isVirtual", "threadId"]);

/// Whether a method is one of them.
pub(super) fn is_reserved(class: &LoadedClass, method: &DeclaredMethod) -> bool {
    let (thread, asked) = OF_THREAD;
    CLASSES.contains(&&*class.name) || *class.name == *thread && asked.contains(&&*method.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SharedStr;

    /// Check that what telling takes is told from the rest of the same class, and from other classes with such methods.
    #[test]
    fn what_telling_takes() {
        let is_reserved = |class: &str, method: &str| {
            let class = LoadedClass {
                name: SharedStr::from(class),
                loader: 0,
                superclass: None,
                interfaces: Vec::new(),
                flags: 0,
                is_modifiable: true,
            };
            let (name, signature) = (SharedStr::from(method), SharedStr::from("()Z"));
            is_reserved(&class, &DeclaredMethod { name, signature, flags: 0 })
        };
        assert!(is_reserved("java.lang.Thread", "isVirtual") && is_reserved("java.lang.VirtualThread", "run"));
        assert!(!is_reserved("java.lang.Thread", "start") && !is_reserved("com.acme.Thread", "isVirtual"));
    }
}
