//! A class file, taken apart down to the attributes of its methods, each with its place in the file.

use super::pool::ConstantPool;
use super::reader::{Malformed, Reader};

const MAGIC: u32 = 0xcafe_babe;

/// Something named that belongs to a class, a method or its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Where its name is in the constant pool.
    pub name: u16,
    /// Where it begins, with its name, from the start of what it was read from.
    pub at: usize,
    /// What it says.
    pub content: &'a [u8],
}

/// The bytes in front of an attribute's content: its name and its length.
pub(crate) const ATTRIBUTE_HEADER: usize = 6;

impl<'a> Attribute<'a> {
    /// Reads a table of attributes.
    ///
    /// # Errors
    /// When it is none.
    pub fn read_all(reader: &mut Reader<'a>) -> Result<Vec<Self>, Malformed> {
        let count = reader.u16()?;
        (0..count)
            .map(|_| {
                let at = reader.at();
                Ok(Self { name: reader.u16()?, at, content: reader.sized()? })
            })
            .collect()
    }

    /// Where it ends.
    #[must_use]
    pub fn end(&self) -> usize {
        self.at + ATTRIBUTE_HEADER + self.content.len()
    }
}

/// A method, or a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodInfo<'a> {
    /// [`flag`](super::flag)s.
    pub flags: u16,
    /// Where its name is in the constant pool.
    pub name: u16,
    /// Where its descriptor is.
    pub descriptor: u16,
    /// Its attributes.
    pub attributes: Vec<Attribute<'a>>,
}

impl<'a> MethodInfo<'a> {
    fn read_all(reader: &mut Reader<'a>) -> Result<Vec<Self>, Malformed> {
        let count = reader.u16()?;
        (0..count)
            .map(|_| {
                Ok(Self {
                    flags: reader.u16()?,
                    name: reader.u16()?,
                    descriptor: reader.u16()?,
                    attributes: Attribute::read_all(reader)?,
                })
            })
            .collect()
    }

    /// The attribute with a name.
    #[must_use]
    pub fn attribute(&self, pool: &ConstantPool<'_>, name: &[u8]) -> Option<Attribute<'a>> {
        self.attributes.iter().find(|attribute| pool.utf8(attribute.name) == Some(name)).copied()
    }
}

/// A class file.
#[derive(Debug, Clone)]
pub struct ClassFile<'a> {
    /// The version of the format: 61 for Java 17.
    pub major_version: u16,
    /// How many places the constant pool has, plus one.
    pub pool_count: u16,
    /// The constants.
    pub pool: ConstantPool<'a>,
    /// Where they end in the file.
    pub pool_end: usize,
    /// [`flag`](super::flag)s.
    pub flags: u16,
    /// The class itself.
    pub this_class: u16,
    /// The class that it extends; 0 of `java.lang.Object`.
    pub super_class: u16,
    /// The interfaces that it names.
    pub interfaces: Vec<u16>,
    /// Its methods.
    pub methods: Vec<MethodInfo<'a>>,
    /// Its attributes.
    pub attributes: Vec<Attribute<'a>>,
}

impl<'a> ClassFile<'a> {
    /// Where the number of constants is.
    pub const POOL_COUNT_AT: usize = 8;

    /// Takes a class file apart.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u32()? != MAGIC {
            return Err(Malformed { what: "this is no class file", at: 0 });
        }
        reader.u16()?;
        let major_version = reader.u16()?;
        let pool_count = reader.u16()?;
        let pool = ConstantPool::read(pool_count, &mut reader)?;
        let pool_end = reader.at();
        let [flags, this_class, super_class, count] = [reader.u16()?, reader.u16()?, reader.u16()?, reader.u16()?];
        let interfaces = (0..count).map(|_| reader.u16()).collect::<Result<_, _>>()?;
        MethodInfo::read_all(&mut reader)?;
        let methods = MethodInfo::read_all(&mut reader)?;
        let attributes = Attribute::read_all(&mut reader)?;
        if !reader.is_at_end() {
            return Err(reader.malformed("there is more than a class file"));
        }
        Ok(Self {
            major_version,
            pool_count,
            pool,
            pool_end,
            flags,
            this_class,
            super_class,
            interfaces,
            methods,
            attributes,
        })
    }
}
