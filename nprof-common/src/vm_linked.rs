//! Natives that the VM links in ways of its own instead of calling what they are bound to.

/// The classes that have such natives.
const CLASSES: &[&str] =
    &["java.lang.invoke.MethodHandle", "java.lang.invoke.VarHandle", "jdk.internal.vm.Continuation"];

/// Whether no stub may stand before the natives of this class: nobody would call it, or somebody who does not expect it.
#[must_use]
pub fn is_vm_linked(class: &str) -> bool {
    CLASSES.contains(&class)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that classes are told from others whose names begin so.
    #[test]
    fn classes_by_whole_name() {
        assert!(is_vm_linked("java.lang.invoke.MethodHandle") && !is_vm_linked("java.lang.invoke.MethodHandleNatives"));
    }
}
