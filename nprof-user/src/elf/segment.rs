//! Segments: which part of a file is loaded where.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::ProgramHeader as _;

use super::Fault;
use crate::model::{ElfAddr, FileOffset, Mapping};

/// More loaded segments than any real library has.
const MAX_SEGMENTS: usize = 64;
/// The loader maps whole pages, in bytes.
const PAGE: u64 = 4 << 10;

/// One segment of code that is loaded into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it is loaded, in the file's own numbering.
    pub(crate) address: ElfAddr,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Bytes that the file says it has for it.
    pub(crate) file_size: u64,
}

impl Segment {
    /// Where it begins and ends in the file.
    pub(crate) fn range(&self) -> Range<FileOffset> {
        FileOffset(self.offset)..FileOffset(self.offset.saturating_add(self.file_size))
    }

    /// The address of a place in the file, if this segment were all of it.
    pub(crate) fn address_of(&self, offset: FileOffset) -> ElfAddr {
        ElfAddr(self.address.0.wrapping_add(offset.0).wrapping_sub(self.offset))
    }

    /// Whether a place is in the pages that are mapped for it. They begin with a whole page, the segment maybe later.
    fn maps(&self, offset: FileOffset) -> bool {
        let first = self.offset - self.offset % PAGE;
        self.offset.checked_add(self.file_size).is_some_and(|end| (first..end).contains(&offset.0))
    }
}

pub(super) fn code(headers: &[ProgramHeader64<LittleEndian>]) -> Result<Vec<Segment>, Fault> {
    let loaded = headers.iter().filter(|header| header.p_type(LittleEndian) == PT_LOAD);
    if loaded.clone().count() > MAX_SEGMENTS {
        return Err(Fault::TooLarge);
    }
    let code = loaded.filter(|header| header.p_flags(LittleEndian).contains(PF_X));
    let segment = |header: &ProgramHeader64<LittleEndian>| Segment {
        address: ElfAddr(header.p_vaddr(LittleEndian)),
        offset: header.p_offset(LittleEndian),
        file_size: header.p_filesz(LittleEndian),
    };
    Ok(code.map(segment).collect())
}

/// The address, in the file's own numbering, at which what is mapped of a place in the file is loaded.
pub(crate) fn address_of(code: &[Segment], offset: FileOffset) -> Option<ElfAddr> {
    Some(code.iter().find(|segment| segment.maps(offset))?.address_of(offset))
}

/// Where in the file the byte at an address stands, if it is code.
pub(crate) fn offset_of(code: &[Segment], address: ElfAddr) -> Option<FileOffset> {
    code.iter().find_map(|segment| {
        let distance = address.0.checked_sub(segment.address.0).filter(|distance| *distance < segment.file_size)?;
        segment.offset.checked_add(distance).map(FileOffset)
    })
}

/// What to add to an address of the file to get the address in memory, modulo 2^64, judged by a mapping of its code.
pub(crate) fn load_bias(code: &[Segment], mapping: &Mapping) -> Option<u64> {
    Some(mapping.start.0.wrapping_sub(address_of(code, mapping.offset)?.0))
}
