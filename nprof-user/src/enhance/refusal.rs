//! Why a class, or a method of it, is not changed.

use crate::classfile::Malformed;

/// Why something is left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The class file is none.
    #[error("its class file cannot be read: {0}")]
    Malformed(#[from] Malformed),
    /// The class is that of the hooks.
    #[error("the hooks themselves are not changed")]
    Hook,
    /// The class has no such method.
    #[error("its class file has no such method")]
    Missing,
    /// It was wanted before.
    #[error("it was asked for twice")]
    Twice,
    /// Abstract or native.
    #[error("it has no code")]
    NoCode,
    /// There is no room for more constants.
    #[error("the constant pool of its class is full")]
    Constants,
    /// A method has at most 65,535 bytes of code.
    #[error("its code would have {0} bytes, and a method has at most 65535")]
    TooLarge(usize),
    /// A conditional branch reaches 32 KiB.
    #[error("a conditional branch at {0} would no longer reach its target")]
    OutOfReach(usize),
    /// A table would have more than 65,535 rows.
    #[error("its {0} would have too many rows")]
    TooMany(&'static str),
    /// The operand stack is as deep as it can be.
    #[error("its operand stack has no room left")]
    Stack,
    /// The call of the other constructor was not found.
    #[error("{0}")]
    Constructor(&'static str),
    /// It has `jsr` or `ret`, in a class of a version that must not.
    #[error("it has subroutines, which its class's version does not allow")]
    Subroutines,
}
