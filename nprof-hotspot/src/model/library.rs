//! A mapped file and its identity.

use std::fmt;
use std::path::PathBuf;

use super::{FileOffset, VirtAddr};

/// What a file is, however it is named: its device and inode, as `/proc/PID/maps` prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode on that device.
    pub inode: u64,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.major, self.minor, self.inode)
    }
}

/// One line of `/proc/PID/maps` that is backed by a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: VirtAddr,
    /// The address after the last.
    pub end: VirtAddr,
    /// Where in the file `start` lies.
    pub offset: FileOffset,
    /// Whether it can be executed.
    pub executable: bool,
    /// The file that is mapped.
    pub file: FileId,
    /// The path that the target shows. Only for people: it may be deleted, replaced or chosen to mislead.
    pub path: PathBuf,
}

impl Mapping {
    /// Whether `addr` lies in this mapping.
    #[must_use]
    pub fn contains(&self, addr: VirtAddr) -> bool {
        self.start <= addr && addr < self.end
    }
}

/// An executable file mapped by the target: where native methods live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Its identity.
    pub file: FileId,
    /// The path that the target shows, without ` (deleted)`. Only for people.
    pub path: PathBuf,
    /// Whether the file has been unlinked or replaced since it was mapped.
    pub deleted: bool,
    /// A path through `/proc` that opens exactly this file, whatever the target calls it.
    pub open_path: PathBuf,
    /// The executable mappings of the file, in order of address.
    pub mappings: Vec<Mapping>,
}

impl Library {
    /// The file name, for tables: `libzip.so`.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| self.path.display().to_string(), |n| n.to_string_lossy().into_owned())
    }

    /// Whether an address is in one of its mappings.
    #[must_use]
    pub fn holds(&self, address: VirtAddr) -> bool {
        self.mappings.iter().any(|mapping| mapping.contains(address))
    }
}
