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
pub struct Segment {
    /// Where it is loaded, in the file's own numbering.
    pub address: ElfAddr,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Bytes that the file says it has for it.
    pub file_size: u64,
}

impl Segment {
    /// Where it begins and ends in the file.
    #[must_use]
    pub fn range(&self) -> Range<FileOffset> {
        FileOffset(self.offset)..FileOffset(self.offset.saturating_add(self.file_size))
    }

    /// The address of a place in the file, if this segment were all of it.
    #[must_use]
    pub fn address_of(&self, offset: FileOffset) -> ElfAddr {
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
#[must_use]
pub fn address_of(code: &[Segment], offset: FileOffset) -> Option<ElfAddr> {
    Some(code.iter().find(|segment| segment.maps(offset))?.address_of(offset))
}

/// Where in the file the byte at an address stands, if it is code.
#[must_use]
pub fn offset_of(code: &[Segment], address: ElfAddr) -> Option<FileOffset> {
    code.iter().find_map(|segment| {
        let distance = address.0.checked_sub(segment.address.0).filter(|distance| *distance < segment.file_size)?;
        segment.offset.checked_add(distance).map(FileOffset)
    })
}

/// What to add to an address of the file to get the address in memory, modulo 2^64, judged by a mapping of its code; `None` if
/// that maps no segment.
#[must_use]
pub fn load_bias(code: &[Segment], mapping: &Mapping) -> Option<u64> {
    Some(mapping.start.0.wrapping_sub(address_of(code, mapping.offset)?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(address: u64, offset: u64, file_size: u64) -> Segment {
        Segment { address: ElfAddr(address), offset, file_size }
    }

    /// Check that the page before a segment has addresses, as it is mapped too, and that the byte behind it has none.
    #[test]
    fn first_page_is_mapped_whole() {
        let code = [segment(0x2b7c0, 0x2a7c0, 0x100)];
        let address = |offset| address_of(&code, FileOffset(offset)).map(|address| address.0);
        assert_eq!([address(0x29fff), address(0x2a000)], [None, Some(0x2b000)]);
        assert_eq!([address(0x2a8bf), address(0x2a8c0)], [Some(0x2b8bf), None]);
    }

    /// Check that only bytes of the segment itself are code, and that the way back leads to the same place.
    #[test]
    fn offsets_are_inside() {
        let code = [segment(0x2b7c0, 0x2a7c0, 0x100)];
        for (address, place) in [(0x2b7bf, None), (0x2b7c0, Some(0x2a7c0)), (0x2b8bf, Some(0x2a8bf)), (0x2b8c0, None)] {
            let found = offset_of(&code, ElfAddr(address));
            assert_eq!(found, place.map(FileOffset));
            assert!(found.is_none_or(|place| address_of(&code, place) == Some(ElfAddr(address))));
        }
    }

    /// Check that a segment that claims to end beyond all files holds nothing.
    #[test]
    fn overflow_is_nowhere() {
        let code = [segment(0x1000, u64::MAX - 1, 0x10)];
        assert_eq!(address_of(&code, FileOffset(u64::MAX - 1)), None);
        assert_eq!(offset_of(&code, ElfAddr(0x1004)), None);
    }
}
