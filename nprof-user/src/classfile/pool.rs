//! The constant pool: of a class file, or as JVMTI's `GetConstantPool` gives it, which is the same bytes.

use super::reader::{Malformed, Reader};
use crate::hotspot;

/// The kinds of constants.
pub mod tag {
    /// Text.
    pub const UTF8: u8 = 1;
    /// A number.
    pub const INTEGER: u8 = 3;
    /// A number.
    pub const FLOAT: u8 = 4;
    /// A number, which takes two places.
    pub const LONG: u8 = 5;
    /// A number, which takes two places.
    pub const DOUBLE: u8 = 6;
    /// A class.
    pub const CLASS: u8 = 7;
    /// A string.
    pub const STRING: u8 = 8;
    /// A field.
    pub const FIELD: u8 = 9;
    /// A method of a class.
    pub const METHOD: u8 = 10;
    /// A method of an interface.
    pub const INTERFACE_METHOD: u8 = 11;
    /// A name and a descriptor.
    pub const NAME_AND_TYPE: u8 = 12;
    /// A method handle.
    pub const METHOD_HANDLE: u8 = 15;
    /// A method's type.
    pub const METHOD_TYPE: u8 = 16;
    /// A constant that a bootstrap method computes.
    pub const DYNAMIC: u8 = 17;
    /// A call site that a bootstrap method links.
    pub const INVOKE_DYNAMIC: u8 = 18;
    /// A module.
    pub const MODULE: u8 = 19;
    /// A package.
    pub const PACKAGE: u8 = 20;
}

/// A field or a method that a constant names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The class, with slashes, in the VM's modified UTF-8; so are the others.
    pub class: &'a [u8],
    /// The name.
    pub name: &'a [u8],
    /// The descriptor.
    pub descriptor: &'a [u8],
}

/// What a bootstrap method computes or links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dynamic<'a> {
    /// The number of the bootstrap method in the class's table.
    pub bootstrap: u16,
    /// The name.
    pub name: &'a [u8],
    /// The descriptor.
    pub descriptor: &'a [u8],
}

/// A method handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// What is done with the member: 5 to 9 call it.
    pub kind: u8,
    /// The constant of the member.
    pub member: u16,
}

/// The constants of a class.
#[derive(Debug, Clone)]
pub struct ConstantPool<'a> {
    /// Tag and content of each place; a place without a constant has the tag 0.
    constants: Vec<(u8, &'a [u8])>,
}

impl<'a> ConstantPool<'a> {
    /// Reads the constants behind `constant_pool_count`, which is `count`.
    ///
    /// # Errors
    /// When these are no constants.
    pub fn read(count: u16, reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut constants = vec![(0, &[][..])];
        while constants.len() < usize::from(count) {
            let (kind, content) = constant(reader)?;
            constants.push((kind, content));
            if matches!(kind, tag::LONG | tag::DOUBLE) {
                constants.push((0, &[]));
            }
        }
        Ok(Self { constants })
    }

    /// Reads constants that are not in a file: their `constant_pool_count`, and their bytes.
    ///
    /// # Errors
    /// When these are no constants.
    pub fn parse(count: u16, bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::read(count, &mut Reader::new(bytes))
    }

    /// The places that have a constant, with its tag.
    pub fn tags(&self) -> impl Iterator<Item = (u16, u8)> {
        (0..=u16::MAX).zip(&self.constants).map(|(place, (kind, _))| (place, *kind)).filter(|(_, kind)| *kind != 0)
    }

    /// What kind of constant is at a place.
    #[must_use]
    pub fn kind(&self, at: u16) -> Option<u8> {
        self.constants.get(usize::from(at)).map(|(kind, _)| *kind).filter(|kind| *kind != 0)
    }

    fn content(&self, at: u16, wanted: impl Fn(u8) -> bool) -> Option<Reader<'a>> {
        let (kind, content) = self.constants.get(usize::from(at))?;
        wanted(*kind).then(|| Reader::new(content))
    }

    /// A text.
    #[must_use]
    pub fn utf8(&self, at: u16) -> Option<&'a [u8]> {
        let (kind, content) = self.constants.get(usize::from(at))?;
        (*kind == tag::UTF8).then_some(content)
    }

    /// A text as people read it.
    #[must_use]
    pub fn text(&self, at: u16) -> Option<String> {
        self.utf8(at).and_then(hotspot::decode)
    }

    /// The name of a class, with slashes; an array's is its descriptor.
    #[must_use]
    pub fn class(&self, at: u16) -> Option<&'a [u8]> {
        self.utf8(self.content(at, |kind| kind == tag::CLASS)?.u16().ok()?)
    }

    fn name_and_type(&self, at: u16) -> Option<(&'a [u8], &'a [u8])> {
        let mut content = self.content(at, |kind| kind == tag::NAME_AND_TYPE)?;
        let name = self.utf8(content.u16().ok()?)?;
        Some((name, self.utf8(content.u16().ok()?)?))
    }

    /// A field or a method.
    #[must_use]
    pub fn member(&self, at: u16) -> Option<Member<'a>> {
        let is_member = |kind| matches!(kind, tag::FIELD | tag::METHOD | tag::INTERFACE_METHOD);
        let mut content = self.content(at, is_member)?;
        let class = self.class(content.u16().ok()?)?;
        let (name, descriptor) = self.name_and_type(content.u16().ok()?)?;
        Some(Member { class, name, descriptor })
    }

    /// A call site or a constant that a bootstrap method gives.
    #[must_use]
    pub fn dynamic(&self, at: u16) -> Option<Dynamic<'a>> {
        let mut content = self.content(at, |kind| matches!(kind, tag::DYNAMIC | tag::INVOKE_DYNAMIC))?;
        let bootstrap = content.u16().ok()?;
        let (name, descriptor) = self.name_and_type(content.u16().ok()?)?;
        Some(Dynamic { bootstrap, name, descriptor })
    }

    /// A method handle.
    #[must_use]
    pub fn handle(&self, at: u16) -> Option<Handle> {
        let mut content = self.content(at, |kind| kind == tag::METHOD_HANDLE)?;
        Some(Handle { kind: content.u8().ok()?, member: content.u16().ok()? })
    }

    /// Where this text is.
    #[must_use]
    pub fn find_utf8(&self, text: &[u8]) -> Option<u16> {
        let at = self.constants.iter().position(|(kind, content)| *kind == tag::UTF8 && *content == text)?;
        u16::try_from(at).ok()
    }
}

/// The next constant: its tag and what follows that; of a text, without its length.
fn constant<'a>(reader: &mut Reader<'a>) -> Result<(u8, &'a [u8]), Malformed> {
    let wrong = reader.malformed("this is no kind of constant");
    let kind = reader.u8()?;
    let size = match kind {
        tag::UTF8 => usize::from(reader.u16()?),
        tag::CLASS | tag::STRING | tag::METHOD_TYPE | tag::MODULE | tag::PACKAGE => 2,
        tag::METHOD_HANDLE => 3,
        tag::INTEGER
        | tag::FLOAT
        | tag::FIELD
        | tag::METHOD
        | tag::INTERFACE_METHOD
        | tag::NAME_AND_TYPE
        | tag::DYNAMIC
        | tag::INVOKE_DYNAMIC => 4,
        tag::LONG | tag::DOUBLE => 8,
        _ => return Err(wrong),
    };
    Ok((kind, reader.take(size)?))
}
