//! Where libjvm's exported variables lie in the target: its dynamic symbols, moved by the distance between the
//! addresses in the file and those in memory.
//!
//! Only headers and `.dynsym` are read (a few hundred symbols of a library of 20 MB), and with plain reads: a mapping
//! would turn a file that is truncated meanwhile into a SIGBUS.

use std::collections::HashMap;
use std::ops::Range;

use object::ReadRef;

use super::Error;
use crate::elf::{self, Elf, Fault, Limits, Segment};
use crate::model::{ElfAddr, Library, Mapping, VirtAddr};
use crate::sys::target_file::TargetFile;

/// Enough for a libjvm that exports all of its 70,000 symbols instead of 300; no hostile file gets more.
const LIMITS: Limits = Limits { symbols: 32 << 20, ..Limits::LIBRARY };
/// All names of interest start so.
const PREFIX: &str = "gHotSpot";

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
        let (code, variables) =
            read_elf(&elf::pieces(&file)).map_err(|source| Error::BadLibrary { path: path(), source })?;
        let bias = load_bias(&code, &libjvm.mappings).ok_or_else(|| Error::NotMapped { path: path() })?;
        Ok(Self {
            variables: variables.into_iter().map(|(name, addr)| (name, VirtAddr(addr.0.wrapping_add(bias)))).collect(),
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

/// The segments of code, and the addresses of the variables in the file's own numbering.
fn read_elf<'data>(data: impl ReadRef<'data>) -> Result<(Vec<Segment>, HashMap<String, ElfAddr>), Fault> {
    let elf = Elf::parse(data, LIMITS)?;
    let symbols = elf.dynamic_symbols()?;
    let variables = symbols.named(&[PREFIX]).map(|variable| variable.map(|(name, address)| (name.to_owned(), address)));
    Ok((elf.code()?, variables.collect::<Result<_, _>>()?))
}

/// What to add to an address of the file to get the address in memory, modulo 2^64: the same for every executable
/// mapping, or it is not known.
fn load_bias(code: &[Segment], mappings: &[Mapping]) -> Option<u64> {
    let executable = mappings.iter().filter(|mapping| mapping.executable);
    let mut biases = executable.map(|mapping| elf::load_bias(code, mapping));
    let first = biases.next()??;
    biases.all(|bias| bias == Some(first)).then_some(first)
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

    const CODE: Segment = Segment { offset: 0x2a7c0, file_size: 0x10_0000, address: ElfAddr(0x2b7c0) };

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
