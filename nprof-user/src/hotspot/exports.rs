//! Where libjvm's exported variables lie in the target: its dynamic symbols, moved by the distance between the
//! addresses in the file and those in memory.
//!
//! Only headers and `.dynsym` are read (a few hundred symbols of a library of 20 MB), and with plain reads: a mapping
//! would turn a file that is truncated meanwhile into a SIGBUS.

use std::collections::HashMap;
use std::ops::Range;

use object::elf::{FileHeader64, PF_X, PN_XNUM, PT_LOAD, ProgramHeader64, SHT_DYNSYM, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadCache, StringTable};
use object::{LittleEndian, ReadRef, SectionIndex};

use super::Error;
use crate::model::{ElfAddr, Library, Mapping, VirtAddr};
use crate::sys::target_file::TargetFile;

/// Enough for a libjvm that exports all of its 70,000 symbols instead of 300; no hostile file gets more.
const MAX_TABLE_BYTES: u64 = 32 << 20;
/// The pages in which the loader maps a file; segments start anywhere within one.
const PAGE: u64 = 4096;
/// All names of interest start so.
const PREFIX: &[u8] = b"gHotSpot";

/// The exported variables of one libjvm in one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Exports {
    /// Address of each variable, by name.
    pub(crate) variables: HashMap<String, VirtAddr>,
    /// Where libjvm's code lies.
    pub(crate) text: Vec<Range<VirtAddr>>,
}

impl Exports {
    /// Reads them from the file behind `libjvm`.
    pub(crate) fn of(libjvm: &Library) -> Result<Self, Error> {
        let path = || libjvm.path.clone();
        let file = TargetFile::open(&libjvm.open_path).map_err(|source| Error::LibraryFile { path: path(), source })?;
        let elf =
            read_elf(&ReadCache::new(file.stream())).map_err(|source| Error::BadLibrary { path: path(), source })?;
        let bias = load_bias(&elf.code, &libjvm.mappings).ok_or_else(|| Error::NotMapped { path: path() })?;
        Ok(Self {
            variables: elf
                .symbols
                .into_iter()
                .map(|(name, addr)| (name, VirtAddr(addr.0.wrapping_add(bias))))
                .collect(),
            text: libjvm
                .mappings
                .iter()
                .filter(|mapping| mapping.executable)
                .map(|mapping| mapping.start..mapping.end)
                .collect(),
        })
    }

    /// Whether `addr` lies in libjvm's code.
    pub(crate) fn is_text(&self, addr: VirtAddr) -> bool {
        self.text.iter().any(|range| range.contains(&addr))
    }
}

/// What is wanted of the file.
#[derive(Default)]
struct Elf {
    /// The executable segments.
    code: Vec<Segment>,
    symbols: Vec<(String, ElfAddr)>,
}

/// Where a loaded part of the file lies in the file and in its own numbering.
#[derive(Debug, Clone, Copy)]
struct Segment {
    offset: u64,
    file_size: u64,
    addr: ElfAddr,
}

type Header = FileHeader64<LittleEndian>;

fn read_elf<'data>(data: impl ReadRef<'data>) -> object::read::Result<Elf> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    if header.e_phnum(endian) == PN_XNUM || header.e_shnum(endian) == 0 {
        // The real number would stand elsewhere, with 32 bits: more than any library has.
        return Ok(Elf::default());
    }
    let code = header
        .program_headers(endian, data)?
        .iter()
        .filter(|segment| is_code(segment))
        .map(|segment| Segment {
            offset: segment.p_offset(endian),
            file_size: segment.p_filesz(endian),
            addr: ElfAddr(segment.p_vaddr(endian)),
        })
        .collect();
    let symbols = read_symbols(header, data)?;
    Ok(Elf { code, symbols })
}

fn is_code(segment: &ProgramHeader64<LittleEndian>) -> bool {
    let executable = segment.p_flags(LittleEndian).contains(PF_X);
    segment.p_type(LittleEndian) == PT_LOAD && executable
}

fn read_symbols<'data, R: ReadRef<'data>>(header: &Header, data: R) -> object::read::Result<Vec<(String, ElfAddr)>> {
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let Some(section) = sections.iter().find(|section| section.sh_type(endian) == SHT_DYNSYM) else {
        return Ok(Vec::new());
    };
    let strings = sections.section(SectionIndex(section.sh_link(endian) as usize))?;
    if table_bytes(section) > MAX_TABLE_BYTES || table_bytes(strings) > MAX_TABLE_BYTES {
        return Ok(Vec::new());
    }
    let strings = strings.data(endian, data)?;
    let strings = StringTable::new(strings, 0, strings.len() as u64);
    let mut symbols = Vec::new();
    for symbol in section.data_as_array::<Sym64<LittleEndian>, R>(endian, data)? {
        let name = symbol.name(endian, strings).unwrap_or_default();
        if name.starts_with(PREFIX) && symbol.st_value(endian) != 0 {
            let addr = ElfAddr(symbol.st_value(endian));
            symbols.push((String::from_utf8_lossy(name).into_owned(), addr));
        }
    }
    Ok(symbols)
}

fn table_bytes(section: &SectionHeader64<LittleEndian>) -> u64 {
    section.sh_size(LittleEndian)
}

/// What to add to an address of the file to get the address in memory, modulo 2^64: the same for every executable
/// mapping, or it is not known.
fn load_bias(code: &[Segment], mappings: &[Mapping]) -> Option<u64> {
    let mut biases = mappings.iter().filter(|mapping| mapping.executable).map(|mapping| {
        let segment = code.iter().find(|segment| covers(segment, mapping))?;
        let addr = segment.addr.0.wrapping_sub(segment.offset).wrapping_add(mapping.offset.0);
        Some(mapping.start.0.wrapping_sub(addr))
    });
    let first = biases.next()??;
    biases.all(|bias| bias == Some(first)).then_some(first)
}

/// Whether the mapping begins in `segment`, whose first page is mapped whole.
fn covers(segment: &Segment, mapping: &Mapping) -> bool {
    let first_page = segment.offset & !(PAGE - 1);
    segment.offset.checked_add(segment.file_size).is_some_and(|end| (first_page..end).contains(&mapping.offset.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FileId, FileOffset};

    fn mapping(start: u64, offset: u64) -> Mapping {
        Mapping {
            start: VirtAddr(start),
            end: VirtAddr(start + 0x1000),
            offset: FileOffset(offset),
            executable: true,
            file: FileId { major: 0, minor: 0, inode: 1 },
            path: "libjvm.so".into(),
        }
    }

    const CODE: Segment = Segment { offset: 0x2a7c0, file_size: 0x10_0000, addr: ElfAddr(0x2b7c0) };

    /// Check that the bias takes in that a segment lies elsewhere in the file than in memory and starts mid-page.
    #[test]
    fn bias_of_a_shifted_segment() {
        let bias = load_bias(&[CODE], &[mapping(0x7f00_0002_b000, 0x2a000)]);
        assert_eq!(bias, Some(0x7f00_0000_0000));
    }

    /// Check that mappings that disagree, or that no segment explains, give no bias instead of a wrong one.
    #[test]
    fn no_bias_from_contradictions() {
        let good = mapping(0x7f00_0002_b000, 0x2a000);
        let other = mapping(0x7f10_0003_b000, 0x3a000);
        assert_eq!(load_bias(&[CODE], &[good.clone(), other]), None);
        assert_eq!(load_bias(&[CODE], &[mapping(0x7f00_0000_0000, 0x1000)]), None);
        assert_eq!(load_bias(&[CODE], &[]), None);
        let split = mapping(0x7f00_0003_b000, 0x3a000);
        assert_eq!(load_bias(&[CODE], &[good, split]), Some(0x7f00_0000_0000));
    }

    /// Check that a pipe in the file's place is refused instead of waited for.
    #[test]
    fn waits_for_no_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let open_path = directory.path().join("libjvm.so");
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &open_path, pipe, rustix::fs::Mode::RWXU, 0).unwrap();
        let file = FileId { major: 0, minor: 0, inode: 1 };
        let libjvm = Library { file, path: "libjvm.so".into(), deleted: false, open_path, mappings: Vec::new() };
        assert!(matches!(Exports::of(&libjvm), Err(Error::LibraryFile { .. })));
    }

    /// Check that a file that is no ELF file, or ends early, is an error.
    #[test]
    fn refuses_what_is_no_elf_file() {
        assert!(read_elf(&b"#!/bin/sh"[..]).is_err());
        assert!(read_elf(&b"\x7fELF\x02\x01\x01"[..]).is_err());
    }
}
