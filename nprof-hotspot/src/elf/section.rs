//! Sections: the named parts of a file, and what some of the small ones say.

use std::io;

use object::elf::{SHF_COMPRESSED, SHT_NOBITS, SectionHeader64};
use object::read::elf::SectionHeader as _;
use object::{LittleEndian, ReadRef};

use super::Fault;
use crate::model::ElfAddr;
use crate::sys::target_file::TargetFile;

/// The longest note that is read, in bytes.
const MAX_NOTE: u64 = 1 << 10;
/// A note begins with three sizes and the name `GNU`.
const NOTE_HEADER: usize = 16;
const NT_GNU_BUILD_ID: u32 = 3;

/// The sections of a file. They do not keep it open.
#[derive(Debug, Default)]
pub struct Sections {
    headers: Vec<SectionHeader64<LittleEndian>>,
    names: Vec<u8>,
}

impl Sections {
    /// Keeps the headers and reads the names, which are in the section of this number.
    pub(super) fn read<'data>(
        headers: &[SectionHeader64<LittleEndian>],
        names: u32,
        limit: u64,
        data: impl ReadRef<'data>,
    ) -> Result<Self, Fault> {
        let Some(names) = headers.get(names as usize) else { return Ok(Self::default()) };
        if names.sh_size(LittleEndian) > limit {
            return Err(Fault::TooLarge);
        }
        let names = names.data(LittleEndian, data)?.to_vec();
        Ok(Self { headers: headers.to_vec(), names })
    }

    /// Whether there is a section of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Where a section is loaded, in the file's own numbering; 0 if it is not, or is not there.
    #[must_use]
    pub fn address(&self, name: &str) -> u64 {
        self.find(name).map_or(0, |header| header.sh_addr(LittleEndian))
    }

    /// The bytes of a section; `None` if it is not there, compressed, or larger than `limit` bytes.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn bytes(&self, file: &TargetFile, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let plain = |header: &&SectionHeader64<LittleEndian>| {
            header.sh_type(LittleEndian) != SHT_NOBITS && !header.sh_flags(LittleEndian).contains(SHF_COMPRESSED)
        };
        let Some(header) = self.find(name).filter(plain) else { return Ok(None) };
        let (offset, size) = (header.sh_offset(LittleEndian), header.sh_size(LittleEndian));
        if size > limit || offset.saturating_add(size) > file.about().len {
            return Ok(None);
        }
        let Ok(size) = usize::try_from(size) else { return Ok(None) };
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(Some(bytes))
    }

    /// The build id and where it is loaded; `None` if the file has none, or one that is damaged.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn build_id(&self, file: &TargetFile) -> io::Result<Option<(ElfAddr, Vec<u8>)>> {
        let name = ".note.gnu.build-id";
        let note = self.bytes(file, name, MAX_NOTE)?;
        let address = ElfAddr(self.address(name).saturating_add(NOTE_HEADER as u64));
        Ok(note.as_deref().and_then(build_id).map(|id| (address, id.to_vec())))
    }

    /// The file name in `.gnu_debuglink`; `None` if there is none, or one with a `/`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn debug_link(&self, file: &TargetFile) -> io::Result<Option<String>> {
        let bytes = self.bytes(file, ".gnu_debuglink", MAX_NOTE)?;
        let name = bytes.as_deref().and_then(|bytes| bytes.split(|byte| *byte == 0).next());
        let name = name.and_then(|name| str::from_utf8(name).ok());
        Ok(name.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned))
    }

    /// Looks no further into the names than `name` is long: those of a hostile file may have no end.
    fn find(&self, name: &str) -> Option<&SectionHeader64<LittleEndian>> {
        self.headers.iter().find(|header| {
            let rest = self.names.get(header.sh_name(LittleEndian) as usize..);
            rest.and_then(|rest| rest.strip_prefix(name.as_bytes())).is_some_and(|rest| rest.first() == Some(&0))
        })
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
