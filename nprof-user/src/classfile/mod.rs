//! Reads Java class files, and the pieces of them that a VM hands out: constant pools and bytecode.
//!
//! Why not by a crate: what is read here is changed in a few places and must stay byte for byte as it was everywhere else, so
//! that each piece has to say where in the file it is. noak and ristretto_classfile, the two that are kept well, give values without
//! places; neither reads a constant pool without its class, which is what JVMTI gives; and ristretto_classfile writes what it understood,
//! not what was there. The format itself has been the same for decades.
//!
//! Nothing of a target is trusted: each read is bounded, and what is impossible is [`Malformed`], never a panic.

mod annotations;
mod class;
mod code;
mod instruction;
pub mod opcode;
mod pool;
mod reader;
#[cfg(test)]
pub(crate) mod testing;

pub use annotations::is_intrinsic;
pub(crate) use class::ATTRIBUTE_HEADER;
pub use class::{Attribute, ClassFile, MethodInfo};
pub use code::{Code, Handler};
pub(crate) use instruction::padding;
pub use instruction::{Instruction, Instructions, switch_targets};
pub use pool::{ConstantPool, Dynamic, Handle, Member, tag};
pub use reader::{Malformed, Reader};

/// The name of the attribute that holds a method's bytecode.
pub const CODE: &[u8] = b"Code";

/// Flags of methods and classes, as the JVM specification numbers them.
pub mod flag {
    /// `private`.
    pub const PRIVATE: u16 = 0x0002;
    /// `static`.
    pub const STATIC: u16 = 0x0008;
    /// `final`.
    pub const FINAL: u16 = 0x0010;
    /// `native`.
    pub const NATIVE: u16 = 0x0100;
    /// `interface`, of a class.
    pub const INTERFACE: u16 = 0x0200;
    /// `abstract`.
    pub const ABSTRACT: u16 = 0x0400;
}
