//! What nprof and the shim in a JVM say to each other.
//!
//! One packet of a `SOCK_SEQPACKET` socket is one message: a head of eight bytes (kind: 16 bits, zero: 16 bits, length
//! of the rest: 32 bits), then the message's fields in order, all little-endian. A text is its length in 32 bits and its
//! bytes; those that come from the VM are in its modified UTF-8.
//!
//! Neither side trusts the other: a packet is one whole message of a known kind or an [`Error`]. Nothing is allocated;
//! a message borrows its texts from the packet.

mod bytes;
mod from_shim;
mod layout;
mod to_shim;
mod trees;

pub use from_shim::{Applied, Bound, FromShim, Hello, How, IdCaller, IdFunction, IdsForgotten, Scanned, Stubbed};
pub use layout::{COUNTS_STRIDE, Layout, PAGE, StubCounts};
pub use to_shim::{ToShim, Watch, Welcome};
pub use trees::{ClassFile, ClassesListed, Enhanced, ExceptionClass, TreesEnded};

use bytes::{Reader, Writer};

/// The version of this protocol: of all that is in this module, of what the fields mean, and of what stubs do
/// ([`crate::switch::mark`], [`Layout`]).
pub const VERSION: u32 = 13;

/// The longest packet, in bytes. A method with names that do not fit is left out by the shim and counted.
pub const MAX_PACKET: usize = 192 << 10;

/// The stubs of a shim, and the methods that it can keep records of: no shim has more.
pub const MOST_STUBS: u32 = 16_384;

/// The number of the function at the first place of the VM's table of JNI functions; those of the others follow. No method has as high a
/// one. They are watched as methods are: a `Bound` never tells of them.
pub const FIRST_FUNCTION: u32 = 1 << 31;

/// Stands for the record of a method that has none.
pub const NO_INDEX: u32 = u32::MAX;

/// Stands for the shim's own file where the shim could not open it.
pub const NO_LIBRARY: u32 = u32::MAX;

/// The number of the mode in which calls are counted, and timed by chance. The others are those of [`crate::Mode`].
pub const SAMPLE: u32 = 3;

/// The chance with which one call of so many is timed, of 2^32. From two on: one of one has a mode of its own.
#[must_use]
pub const fn probability_of(every: u32) -> u32 {
    let every = if every < 2 { 2 } else { every };
    u32::MAX / every + 1
}

/// The length of the head.
const HEAD: usize = 8;

/// Why a packet is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// It ends before the message does, or after it.
    Length,
    /// No message has this kind.
    Kind(u16),
    /// A field has a value that it cannot have.
    Value,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length => f.write_str("a message has the wrong length"),
            Self::Kind(kind) => write!(f, "there is no message {kind}"),
            Self::Value => f.write_str("a message has a value that means nothing"),
        }
    }
}

impl core::error::Error for Error {}

/// What a message consists of.
trait Part<'a>: Sized {
    fn write(&self, to: &mut Writer<'_>);
    fn read(from: &mut Reader<'a>) -> Result<Self, Error>;
}

/// Defines a struct that is written and read field by field.
macro_rules! parts {
    ($(#[$about:meta])* pub struct $name:ident<$life:lifetime> { $($(#[$doc:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<$life> { $($(#[$doc])* pub $field: $kind,)* }

        impl<$life> crate::wire::Part<$life> for $name<$life> {
            parts!(@functions $life $($field)*);
        }
    };
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name { $($(#[$doc])* pub $field: $kind,)* }

        impl<'packet> crate::wire::Part<'packet> for $name {
            parts!(@functions 'packet $($field)*);
        }
    };
    (@functions $life:lifetime $($field:ident)*) => {
        fn write(&self, to: &mut crate::wire::bytes::Writer<'_>) {
            $(self.$field.write(to);)*
        }

        fn read(from: &mut crate::wire::bytes::Reader<$life>) -> Result<Self, crate::wire::Error> {
            Ok(Self { $($field: crate::wire::Part::read(from)?,)* })
        }
    };
}
use parts;

/// The packet of a message in the buffer; `None` if it does not fit.
fn packet(buffer: &mut [u8], kind: u16, write_body: impl FnOnce(&mut Writer<'_>)) -> Option<&[u8]> {
    let limit = buffer.len().min(MAX_PACKET);
    let (head, body) = buffer.get_mut(..limit)?.split_at_mut_checked(HEAD)?;
    let mut writer = Writer::new(body);
    write_body(&mut writer);
    let length = writer.written()?;
    let mut writer = Writer::new(head);
    u32::from(kind).write(&mut writer);
    u32::try_from(length).ok()?.write(&mut writer);
    buffer.get(..HEAD + length)
}

/// The kind of the message in a packet, and its body.
fn open(packet: &[u8]) -> Result<(u16, Reader<'_>), Error> {
    if packet.len() > MAX_PACKET {
        return Err(Error::Length);
    }
    let mut reader = Reader::new(packet);
    let kind = u32::read(&mut reader)?;
    let length = u32::read(&mut reader)?;
    if usize::try_from(length) != Ok(reader.left()) {
        return Err(Error::Length);
    }
    // The upper half is zero, until a version gives it a meaning.
    Ok((u16::try_from(kind).or(Err(Error::Value))?, reader))
}

#[cfg(test)]
mod tests;
