//! ELF files: the one place where their headers, sections and symbols are read, for all stages.
//!
//! A file of a target may be made to harm its reader. It is opened by [`crate::sys::target_file`] alone and read piece by
//! piece: one that is mapped into memory and shrinks would kill nprof. Each size is held against `Limits` before
//! anything of that size is read, and nothing is read that nobody asks for.

mod section;
mod segment;
mod symbol;

use std::io;

use object::elf::{FileHeader64, SHT_DYNSYM, SHT_SYMTAB, SectionType};
use object::read::elf::FileHeader as _;
use object::{LittleEndian, ReadCache, ReadRef};

pub use self::section::Sections;
pub use self::segment::{Segment, address_of, load_bias, offset_of};
pub use self::symbol::Symbols;
use crate::sys::target_file::{Stream, TargetFile};

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    /// It is damaged, or no 64-bit ELF file.
    #[error("it is no 64-bit ELF file, or a damaged one")]
    Parse(#[from] object::read::Error),
    /// It claims a size that no real library has.
    #[error("it claims tables of an absurd size")]
    TooLarge,
}

/// How much a file may claim to have.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Headers of segments, and of sections.
    pub headers: u32,
    /// The names of all sections together, in bytes.
    pub names: u64,
    /// A table of symbols, and their names, in bytes.
    pub symbols: u64,
}

impl Limits {
    /// More than any real library has.
    pub const LIBRARY: Self = Self { headers: 1 << 16, names: 16 << 20, symbols: 128 << 20 };
}

/// A file whose header has been read. The rest is read when it is asked for.
#[derive(Debug)]
pub struct Elf<'data, R> {
    data: R,
    header: &'data FileHeader64<LittleEndian>,
    limits: Limits,
}

/// What [`Elf`] reads a target's file from.
#[must_use]
pub fn pieces(file: &TargetFile) -> ReadCache<Stream<'_>> {
    ReadCache::new(file.stream())
}

impl<'data, R: ReadRef<'data>> Elf<'data, R> {
    /// Reads the header of a file for this processor's byte order.
    ///
    /// # Errors
    /// If it is no 64-bit ELF file of this byte order, or claims more headers than `limits` allow.
    pub fn parse(data: R, limits: Limits) -> Result<Self, Fault> {
        let header = FileHeader64::<LittleEndian>::parse(data)?;
        let counts = [header.phnum(LittleEndian, data)?, header.shnum(LittleEndian, data)?];
        if counts.into_iter().any(|count| count > limits.headers) {
            return Err(Fault::TooLarge);
        }
        Ok(Self { data, header, limits })
    }

    /// The segments that are loaded as code.
    ///
    /// # Errors
    /// If their headers cannot be read, or are more than any real library has.
    pub fn code(&self) -> Result<Vec<Segment>, Fault> {
        segment::code(self.header.program_headers(LittleEndian, self.data)?)
    }

    /// The sections by their names; none in a file that names none.
    ///
    /// # Errors
    /// If their headers or names cannot be read, or the names are larger than [`Limits::names`].
    pub fn sections(&self) -> Result<Sections, Fault> {
        let headers = self.header.section_headers(LittleEndian, self.data)?;
        let names = self.header.shstrndx(LittleEndian, self.data)?;
        Sections::read(headers, names, self.limits.names, self.data)
    }

    /// The symbols for other files; none if there is no such table.
    ///
    /// # Errors
    /// If the table cannot be read, or it or its names are larger than [`Limits::symbols`].
    pub fn dynamic_symbols(&self) -> Result<Symbols<'data>, Fault> {
        self.symbols(SHT_DYNSYM)
    }

    /// The symbols for debuggers, which may be many; none if there is no such table.
    ///
    /// # Errors
    /// As [`Self::dynamic_symbols`].
    pub fn debug_symbols(&self) -> Result<Symbols<'data>, Fault> {
        self.symbols(SHT_SYMTAB)
    }

    fn symbols(&self, kind: SectionType) -> Result<Symbols<'data>, Fault> {
        let sections = self.header.section_headers(LittleEndian, self.data)?;
        Symbols::read(sections, kind, self.limits.symbols, self.data)
    }
}
