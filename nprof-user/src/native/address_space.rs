//! Which library of a process an address lies in, and what is known of that library.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::model::{FileId, FileOffset, Library, VirtAddr};

/// A library and what was made of it.
#[derive(Debug)]
pub(super) struct Known<T> {
    /// Its number: no other library ever has it.
    pub(super) serial: u32,
    pub(super) library: Library,
    /// `None` until somebody asks for it.
    pub(super) content: Option<T>,
}

/// One executable mapping of the library at a place in the list.
#[derive(Debug)]
struct Range {
    start: VirtAddr,
    end: VirtAddr,
    offset: FileOffset,
    library: usize,
}

/// The executable mappings of a process.
#[derive(Debug)]
pub(super) struct AddressSpace<T> {
    libraries: Vec<Known<T>>,
    /// Sorted by `start`.
    ranges: Vec<Range>,
    next_serial: u32,
}

impl<T> Default for AddressSpace<T> {
    fn default() -> Self {
        Self { libraries: Vec::new(), ranges: Vec::new(), next_serial: 0 }
    }
}

impl<T> AddressSpace<T> {
    /// Takes over what is mapped now. A library that was there before keeps what is known of it; those that have gone
    /// are returned.
    pub(super) fn set(&mut self, libraries: impl IntoIterator<Item = Library>) -> Vec<Known<T>> {
        let mut before: HashMap<(FileId, PathBuf), Known<T>> =
            self.libraries.drain(..).map(|known| (key(&known.library), known)).collect();
        for library in libraries {
            let known = match before.remove(&key(&library)) {
                Some(known) => Known { library, ..known },
                None => {
                    self.next_serial += 1;
                    Known { serial: self.next_serial, library, content: None }
                }
            };
            self.libraries.push(known);
        }
        self.ranges = ranges(&self.libraries);
        before.into_values().collect()
    }

    /// The library that an address lies in, and where in its file.
    pub(super) fn locate(&mut self, addr: VirtAddr) -> Option<(&mut Known<T>, FileOffset)> {
        let range = self.ranges[..self.ranges.partition_point(|range| range.start <= addr)].last()?;
        if addr >= range.end {
            return None;
        }
        let offset = range.offset.0.checked_add(addr.0 - range.start.0)?;
        Some((self.libraries.get_mut(range.library)?, FileOffset(offset)))
    }

    /// All libraries.
    pub(super) fn known(&self) -> impl Iterator<Item = &Known<T>> {
        self.libraries.iter()
    }

    /// Whether an address lies in any library.
    pub(super) fn contains(&self, addr: VirtAddr) -> bool {
        let before = &self.ranges[..self.ranges.partition_point(|range| range.start <= addr)];
        before.last().is_some_and(|range| addr < range.end)
    }
}

fn key(library: &Library) -> (FileId, PathBuf) {
    (library.file, library.path.clone())
}

fn ranges<T>(libraries: &[Known<T>]) -> Vec<Range> {
    let mappings = libraries.iter().enumerate().flat_map(|(place, known)| {
        known.library.mappings.iter().filter(|mapping| mapping.executable).map(move |mapping| (place, mapping))
    });
    let mut ranges: Vec<Range> = mappings
        .map(|(library, mapping)| Range { start: mapping.start, end: mapping.end, offset: mapping.offset, library })
        .collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mapping;

    fn library(name: &str, inode: u64, at: u64) -> Library {
        let (file, path) = (FileId { major: 8, minor: 1, inode }, PathBuf::from(name));
        let (start, end) = (VirtAddr(at), VirtAddr(at + 0x1000));
        let mapping = Mapping { start, end, offset: FileOffset(0x3000), executable: true, file, path: path.clone() };
        Library { file, path: path.clone(), deleted: false, open_path: path, mappings: vec![mapping] }
    }

    /// Check that an address is found in its library alone, both ends of the mapping included and excluded.
    #[test]
    fn addresses_belong_to_their_library() {
        let mut space = AddressSpace::<()>::default();
        space.set([library("/b", 2, 0x9000), library("/a", 1, 0x5000)]);
        let mut at = |addr| space.locate(VirtAddr(addr)).map(|(known, offset)| (known.library.name(), offset.0));
        assert_eq!(at(0x5000), Some(("a".into(), 0x3000)));
        assert_eq!(at(0x5fff), Some(("a".into(), 0x3fff)));
        assert_eq!(at(0x9010), Some(("b".into(), 0x3010)));
        for outside in [0, 0x4fff, 0x6000, 0xa000, u64::MAX] {
            assert_eq!(at(outside), None);
        }
    }

    /// Check that what is known of a library lasts as long as it is mapped, wherever that is, and no longer.
    #[test]
    fn knowledge_lasts_as_long_as_the_library() {
        let mut space = AddressSpace::default();
        space.set([library("/a", 1, 0x5000), library("/b", 2, 0x9000)]);
        let (known, _) = space.locate(VirtAddr(0x5000)).unwrap();
        known.content = Some("known");
        let serial = known.serial;
        let gone = space.set([library("/a", 1, 0x7000)]);
        assert_eq!(gone.iter().map(|known| known.library.name()).collect::<Vec<_>>(), ["b"]);
        let (known, _) = space.locate(VirtAddr(0x7000)).unwrap();
        assert_eq!((known.serial, known.content), (serial, Some("known")));
        // Another file under the same name, as after an update.
        assert_eq!(space.set([library("/a", 3, 0x7000)]).len(), 1);
        let (known, _) = space.locate(VirtAddr(0x7000)).unwrap();
        assert!(known.content.is_none() && known.serial > serial);
    }
}
