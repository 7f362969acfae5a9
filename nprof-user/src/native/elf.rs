//! What native frames need of an ELF file: where it is loaded, its build id, and where some of its sections are.
//!
//! The file may be made to harm its reader: every size is checked before anything of that size is read.

use std::collections::HashMap;
use std::io;

use object::elf::{FileHeader64, PF_X, PT_LOAD, ProgramHeader64, SHF_COMPRESSED, SHT_NOBITS, SectionHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache};

use crate::model::{ElfAddr, FileOffset};
use crate::sys::target_file::{Stream, TargetFile};

/// More section or program headers than any real library has.
const MAX_HEADERS: u32 = 1 << 16;
/// More loaded segments than any real library has.
const MAX_SEGMENTS: usize = 64;
/// No table of section names of a real library comes near this, in bytes.
const MAX_NAMES: u64 = 16 << 20;
/// The longest note that is read, in bytes.
const MAX_NOTE: u64 = 1 << 10;
/// The loader maps whole pages, in bytes.
const PAGE: u64 = 4 << 10;
/// A note begins with three sizes and the name `GNU`.
const NOTE_HEADER: usize = 16;
const NT_GNU_BUILD_ID: u32 = 3;
/// The sections whose places are kept.
const SECTIONS: [&str; 8] = [
    ".eh_frame",
    ".eh_frame_hdr",
    ".debug_frame",
    ".text",
    ".got",
    ".note.gnu.build-id",
    ".gnu_debuglink",
    ".debug_info",
];

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElfFault {
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

/// One segment of code that is loaded into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    file_size: u64,
}

/// Where a section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    /// Where it is loaded; 0 if it is not.
    pub(super) address: u64,
    offset: u64,
    size: u64,
    /// Whether its bytes stand in the file as they are.
    plain: bool,
}

/// What was read of a file.
#[derive(Debug, Default)]
pub(super) struct Layout {
    segments: Vec<Segment>,
    sections: HashMap<&'static str, Section>,
    /// The build id and where it is loaded.
    pub(super) build_id: Option<(ElfAddr, Vec<u8>)>,
}

impl Layout {
    /// Reads the headers of a file.
    pub(super) fn read(file: &TargetFile) -> Result<Self, ElfFault> {
        let cache = ReadCache::new(file.stream());
        let header = FileHeader64::<Endianness>::parse(&cache)?;
        let endian = header.endian()?;
        if header.phnum(endian, &cache)? > MAX_HEADERS || header.shnum(endian, &cache)? > MAX_HEADERS {
            return Err(ElfFault::TooLarge);
        }
        let segments = segments(header.program_headers(endian, &cache)?, endian)?;
        let sections = sections(header, endian, &cache)?;
        let mut layout = Self { segments, sections, build_id: None };
        layout.build_id = layout.read_build_id(file)?;
        Ok(layout)
    }

    /// The place of one of [`SECTIONS`].
    pub(super) fn section(&self, name: &str) -> Option<Section> {
        self.sections.get(name).copied()
    }

    /// The bytes of one of [`SECTIONS`]; `None` if it is not there, compressed, or larger than `limit` bytes.
    pub(super) fn bytes(&self, file: &TargetFile, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(section) = self.section(name).filter(|section| section.plain && section.size <= limit) else {
            return Ok(None);
        };
        let end = section.offset.saturating_add(section.size);
        if end > file.about().len {
            return Ok(None);
        }
        let Ok(size) = usize::try_from(section.size) else { return Ok(None) };
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, section.offset)?;
        Ok(Some(bytes))
    }

    /// The address, in the file's own numbering, at which code at an offset is loaded. What is mapped begins at a page,
    /// the segment maybe later: the bytes between have an address too.
    pub(super) fn address_of(&self, offset: FileOffset) -> Option<ElfAddr> {
        let inside = |s: &&Segment| {
            let first = s.offset - s.offset % PAGE;
            first <= offset.0 && offset.0 - first < s.file_size.saturating_add(s.offset - first)
        };
        let segment = self.segments.iter().find(inside)?;
        Some(ElfAddr(segment.address.wrapping_add(offset.0).wrapping_sub(segment.offset)))
    }

    /// The file name in `.gnu_debuglink`.
    pub(super) fn debug_link(&self, file: &TargetFile) -> io::Result<Option<String>> {
        let bytes = self.bytes(file, ".gnu_debuglink", MAX_NOTE)?;
        let name = bytes.as_deref().and_then(|bytes| bytes.split(|byte| *byte == 0).next());
        let name = name.and_then(|name| str::from_utf8(name).ok());
        Ok(name.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned))
    }

    fn read_build_id(&self, file: &TargetFile) -> io::Result<Option<(ElfAddr, Vec<u8>)>> {
        let name = ".note.gnu.build-id";
        let (Some(section), Some(note)) = (self.section(name), self.bytes(file, name, MAX_NOTE)?) else {
            return Ok(None);
        };
        Ok(build_id(&note).map(|id| (ElfAddr(section.address.saturating_add(NOTE_HEADER as u64)), id.to_vec())))
    }
}

/// The build id in a note: sizes of name and content, type, name, content.
fn build_id(note: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| note.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    let (name_size, size, kind) = (number(0)?, number(4)?, number(8)?);
    if name_size != 4 || kind != NT_GNU_BUILD_ID || note.get(12..NOTE_HEADER)? != b"GNU\0" {
        return None;
    }
    let end = NOTE_HEADER.checked_add(usize::try_from(size).ok()?)?;
    note.get(NOTE_HEADER..end).filter(|id| id.len() >= 4)
}

fn segments(headers: &[ProgramHeader64<Endianness>], endian: Endianness) -> Result<Vec<Segment>, ElfFault> {
    let is_code = |header: &&ProgramHeader64<Endianness>| {
        header.p_type(endian) == PT_LOAD && header.p_flags(endian).0 & PF_X.0 != 0
    };
    let loaded = headers.iter().filter(is_code);
    let segments: Vec<Segment> = loaded
        .map(|header| Segment {
            address: header.p_vaddr(endian),
            offset: header.p_offset(endian),
            file_size: header.p_filesz(endian),
        })
        .take(MAX_SEGMENTS + 1)
        .collect();
    if segments.len() > MAX_SEGMENTS { Err(ElfFault::TooLarge) } else { Ok(segments) }
}

fn sections(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    cache: &ReadCache<Stream<'_>>,
) -> Result<HashMap<&'static str, Section>, ElfFault> {
    let headers = header.section_headers(endian, cache)?;
    let names = header.shstrndx(endian, cache)?;
    let Some(names) = headers.get(names as usize).filter(|_| names != 0) else { return Ok(HashMap::new()) };
    if names.sh_size(endian) > MAX_NAMES {
        return Err(ElfFault::TooLarge);
    }
    let names = names.data(endian, cache)?;
    let kept = headers.iter().filter_map(|header| {
        let name = names.get(header.sh_name(endian) as usize..)?;
        let name =
            SECTIONS.into_iter().find(|kept| name.starts_with(kept.as_bytes()) && name.get(kept.len()) == Some(&0))?;
        Some((name, place(header, endian)))
    });
    Ok(kept.collect())
}

fn place(header: &SectionHeader64<Endianness>, endian: Endianness) -> Section {
    let plain = header.sh_type(endian) != SHT_NOBITS && header.sh_flags(endian).0 & SHF_COMPRESSED.0 == 0;
    let (address, offset, size) = (header.sh_addr(endian), header.sh_offset(endian), header.sh_size(endian));
    Section { address, offset, size, plain }
}
