//! The tables of an ELF file that probing needs: what is loaded where, and which functions it exports.
//!
//! The file may be made to harm its reader: every size is checked before anything of that size is read, and nothing
//! is read that is not needed (the full symbol table, for one).

use std::collections::HashMap;

use object::elf::{
    FileHeader64, PF_X, PT_LOAD, ProgramHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, STT_TLS,
    SectionHeader64, SectionType, Sym64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, ReadCache};

use crate::model::{ElfAddr, FileOffset};
use crate::sys::target_file::{Stream, TargetFile};

/// No symbol or string table of a real library comes near this, in bytes.
const MAX_TABLE: u64 = 128 << 20;
/// No executable segment of a real library comes near this, in bytes.
const MAX_CODE: u64 = 1 << 30;
/// More section or program headers than any real library has.
const MAX_HEADERS: u32 = 1 << 16;
/// More loaded segments than any real library has.
const MAX_SEGMENTS: usize = 64;
/// The longest symbol name that is looked at, in bytes, and what all JNI names of a library may take together.
const MAX_NAME: usize = 16 << 10;
const MAX_NAMES: usize = 64 << 20;
/// JNI's prefixes for functions that the VM finds by name: of ordinary ones and of critical ones.
const JNI_PREFIXES: [&[u8]; 2] = [b"Java_", b"JavaCritical_"];

/// What is wrong with a file.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is damaged, or no 64-bit ELF file.
    Parse(object::read::Error),
    /// It claims a size that no real library has.
    TooLarge,
}

impl From<object::read::Error> for Fault {
    fn from(error: object::read::Error) -> Self {
        Self::Parse(error)
    }
}

/// One segment that is loaded into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub address: u64,
    pub offset: u64,
    /// Bytes that the file really has for it.
    pub file_size: u64,
    pub executable: bool,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub segments: Vec<Segment>,
    /// The functions with JNI names.
    pub exports: HashMap<String, FileOffset>,
    /// Where the exported functions of any name begin, sorted.
    pub functions: Vec<FileOffset>,
}

/// Reads the tables of a file.
pub(super) fn read(file: &TargetFile) -> Result<Tables, Fault> {
    let (cache, length) = (ReadCache::new(file.stream()), file.about().len);
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    if header.phnum(endian, &cache)? > MAX_HEADERS || header.shnum(endian, &cache)? > MAX_HEADERS {
        return Err(Fault::TooLarge);
    }
    let segments = segments(header.program_headers(endian, &cache)?, endian, length)?;
    let sections = header.section_headers(endian, &cache)?;
    let Some(symbols) = Symbols::find(sections, SHT_DYNSYM, endian, &cache)? else {
        return Ok(Tables { segments, ..Tables::default() });
    };
    let (exports, functions) = symbols.functions(&segments)?;
    Ok(Tables { segments, exports, functions })
}

fn segments(headers: &[ProgramHeader64<Endianness>], endian: Endianness, length: u64) -> Result<Vec<Segment>, Fault> {
    let loaded = headers.iter().filter(|header| header.p_type(endian) == PT_LOAD);
    let mut segments = Vec::new();
    for header in loaded {
        let (offset, file_size) = (header.p_offset(endian), header.p_filesz(endian));
        let executable = header.p_flags(endian).0 & PF_X.0 != 0;
        if segments.len() == MAX_SEGMENTS || (executable && file_size > MAX_CODE) {
            return Err(Fault::TooLarge);
        }
        let file_size = file_size.min(length.saturating_sub(offset));
        segments.push(Segment { address: header.p_vaddr(endian), offset, file_size, executable });
    }
    Ok(segments)
}

/// Hands over where the functions begin that the file names, in its dynamic symbols and in those for debuggers. Names of
/// something else, such as labels, are left out.
pub(super) fn named_functions(
    file: &TargetFile,
    segments: &[Segment],
    mut found: impl FnMut(FileOffset),
) -> Result<(), Fault> {
    let cache = ReadCache::new(file.stream());
    let header = FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    if header.shnum(endian, &cache)? > MAX_HEADERS {
        return Err(Fault::TooLarge);
    }
    let sections = header.section_headers(endian, &cache)?;
    for table_type in [SHT_DYNSYM, SHT_SYMTAB] {
        let Some(symbols) = Symbols::find(sections, table_type, endian, &cache)? else { continue };
        let functions = symbols
            .symbols
            .iter()
            .filter(|symbol| symbol.st_type() == STT_FUNC && symbol.st_shndx(endian) != SHN_UNDEF);
        functions.filter_map(|symbol| offset_of(ElfAddr(symbol.st_value(endian)), segments)).for_each(&mut found);
    }
    Ok(())
}

/// The symbols of one table and their names.
struct Symbols<'a> {
    endian: Endianness,
    symbols: &'a [Sym64<Endianness>],
    names: &'a [u8],
}

impl<'a> Symbols<'a> {
    fn find(
        sections: &'a [SectionHeader64<Endianness>],
        table_type: SectionType,
        endian: Endianness,
        cache: &'a ReadCache<Stream<'_>>,
    ) -> Result<Option<Self>, Fault> {
        let Some(table) = sections.iter().find(|section| section.sh_type(endian) == table_type) else {
            return Ok(None);
        };
        let Some(names) = sections.get(table.sh_link(endian) as usize) else { return Ok(None) };
        if table.sh_size(endian).max(names.sh_size(endian)) > MAX_TABLE {
            return Err(Fault::TooLarge);
        }
        let symbols = table.data_as_array(endian, cache)?;
        Ok(Some(Self { endian, symbols, names: names.data(endian, cache)? }))
    }

    /// The functions with JNI names, and the places of all functions, sorted.
    fn functions(&self, segments: &[Segment]) -> Result<(HashMap<String, FileOffset>, Vec<FileOffset>), Fault> {
        let (mut exports, mut functions) = (HashMap::new(), Vec::new());
        let mut bytes = 0;
        for symbol in self.symbols.iter().filter(|symbol| is_defined(symbol, self.endian)) {
            let address = ElfAddr(symbol.st_value(self.endian));
            let Some(place) = offset_of(address, segments) else { continue };
            functions.push(place);
            if let Some(name) = self.jni_name(symbol)? {
                bytes += name.len();
                if bytes > MAX_NAMES {
                    return Err(Fault::TooLarge);
                }
                exports.insert(name.to_owned(), place);
            }
        }
        functions.sort_unstable();
        functions.dedup();
        Ok((exports, functions))
    }

    /// The name of a symbol, if it is one that the VM would look for.
    fn jni_name(&self, symbol: &Sym64<Endianness>) -> Result<Option<&'a str>, Fault> {
        let rest = self.names.get(symbol.st_name(self.endian) as usize..).unwrap_or_default();
        if !JNI_PREFIXES.iter().any(|prefix| rest.starts_with(prefix)) {
            return Ok(None);
        }
        let name = &rest[..rest.len().min(MAX_NAME)];
        let end = name.iter().position(|&byte| byte == 0).ok_or(Fault::TooLarge)?;
        Ok(str::from_utf8(&name[..end]).ok())
    }
}

/// Whether this is the address of something in the file: not of another file's, of a thread's variable or of a
/// function that chooses the function.
fn is_defined(symbol: &Sym64<Endianness>, endian: Endianness) -> bool {
    symbol.st_shndx(endian) != SHN_UNDEF && !matches!(symbol.st_type(), STT_TLS | STT_GNU_IFUNC)
}

/// Where in the file the byte at an address stands, if it is code.
fn offset_of(address: ElfAddr, segments: &[Segment]) -> Option<FileOffset> {
    let inside = |s: &&Segment| s.executable && s.address <= address.0 && address.0 - s.address < s.file_size;
    let segment = segments.iter().find(inside)?;
    segment.offset.checked_add(address.0 - segment.address).map(FileOffset)
}
