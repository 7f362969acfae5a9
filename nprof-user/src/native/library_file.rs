//! Opens the file of a library and makes sure that it is what the process has mapped.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::MemfdFlags;

use crate::elf::{self, Elf, Fault, Limits, Sections, Segment, load_bias};
use crate::model::{FileId, FileOffset, Library, Mapping, VirtAddr};
use crate::sys::remote_memory::ProcessMemory;
use crate::sys::target_file::TargetFile;

/// The name under which the kernel shows its own library, which no file backs.
const VDSO: &str = "[vdso]";
/// The entry of `/proc/PID/auxv` that says where it is (`AT_SYSINFO_EHDR`).
const AUXV_VDSO: u64 = 33;
/// More than it has ever been, in bytes.
const MAX_VDSO: usize = 64 << 10;
/// The auxiliary vector has some twenty entries of 16 bytes.
const MAX_AUXV: usize = 16 << 10;

/// Why a library's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// It cannot be opened.
    #[error("cannot open {path}")]
    Open {
        /// The path through `/proc`.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is not what nprof can read.
    #[error("cannot use {path}")]
    Elf {
        /// The path through `/proc`.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Fault,
    },
    /// What stands in the file is not what stands in the process.
    #[error("{path} has been overwritten since it was mapped")]
    Replaced {
        /// The path through `/proc`.
        path: PathBuf,
    },
}

/// An open library and what its headers say.
#[derive(Debug)]
pub(super) struct LibraryFile {
    pub(super) file: TargetFile,
    pub(super) code: Vec<Segment>,
    pub(super) sections: Sections,
    pub(super) build_id: Option<Vec<u8>>,
}

impl LibraryFile {
    /// Opens the file behind a library of the process with this memory.
    pub(super) fn open(library: &Library, memory: &ProcessMemory) -> Result<Self, LibraryError> {
        let path = || library.open_path.clone();
        let file = if is_vdso(library) { copy_vdso(library, memory) } else { TargetFile::open(&library.open_path) };
        let file = file.map_err(|source| LibraryError::Open { path: path(), source })?;
        let unfit = |source| LibraryError::Elf { path: path(), source };
        let (code, sections) = read_headers(&file).map_err(unfit)?;
        let build_id = sections.build_id(&file).map_err(|source| unfit(source.into()))?;
        let bias = library.mappings.first().and_then(|mapping| load_bias(&code, mapping));
        if let Some(((address, id), bias)) = build_id.as_ref().zip(bias)
            && is_other(memory, VirtAddr(address.0.wrapping_add(bias)), id)
        {
            return Err(LibraryError::Replaced { path: path() });
        }
        Ok(Self { file, code, sections, build_id: build_id.map(|(_, id)| id) })
    }
}

/// The segments of code and the sections of a file.
pub(super) fn read_headers(file: &TargetFile) -> Result<(Vec<Segment>, Sections), Fault> {
    let pieces = elf::pieces(file);
    let elf = Elf::parse(&pieces, Limits::LIBRARY)?;
    Ok((elf.code()?, elf.sections()?))
}

/// Whether the build id in the file differs from the one in memory. Where either has none, the path has to do, which
/// opens the very file that is mapped.
fn is_other(memory: &ProcessMemory, loaded: VirtAddr, expected: &[u8]) -> bool {
    let mut found = vec![0; expected.len()];
    memory.read_exact(loaded, &mut found).is_ok() && found != expected
}

/// The kernel's library in a process, if it has one.
pub(super) fn vdso(memory: &ProcessMemory) -> Option<Library> {
    let auxv = format!("/proc/{}/auxv", memory.pid());
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(&auxv).ok()?, MAX_AUXV as u64), &mut bytes).ok()?;
    let start = bytes.as_chunks::<16>().0.iter().find_map(|entry| {
        let (kind, value) = (entry.first_chunk::<8>()?, entry.last_chunk::<8>()?);
        (u64::from_le_bytes(*kind) == AUXV_VDSO).then(|| VirtAddr(u64::from_le_bytes(*value)))
    })?;
    let size = read_image(memory, start)?.len() as u64;
    let (file, path) = (FileId { major: 0, minor: 0, inode: 0 }, PathBuf::from(VDSO));
    let end = start.checked_add(size).filter(|end| *end > start)?;
    let mapping = Mapping { start, end, offset: FileOffset(0), executable: true, file, path: path.clone() };
    Some(Library { file, path: path.clone(), deleted: false, open_path: path, mappings: vec![mapping] })
}

fn is_vdso(library: &Library) -> bool {
    library.file.inode == 0 && library.path == Path::new(VDSO)
}

/// A file with what stands in memory.
fn copy_vdso(library: &Library, memory: &ProcessMemory) -> io::Result<TargetFile> {
    let start = library.mappings.first().ok_or_else(|| io::Error::other("not mapped"))?.start;
    let mut file = memory_file()?;
    file.write_all(&read_image(memory, start).ok_or_else(|| io::Error::other("no longer there"))?)?;
    TargetFile::own(file)
}

/// A file that is in memory only and that nobody else can change.
pub(super) fn memory_file() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("nprof-library", MemfdFlags::CLOEXEC)?))
}

/// The kernel's library from its first byte to the end of its section headers, which are its last. How much that is, it
/// says itself; the copy is then read as any other file.
fn read_image(memory: &ProcessMemory, start: VirtAddr) -> Option<Vec<u8>> {
    let mut header = [0; 64];
    memory.read_exact(start, &mut header).ok()?;
    let sections = u64::from_le_bytes(*header[40..].first_chunk()?);
    let [size, count] = [58, 60].map(|at| u64::from(u16::from_le_bytes([header[at], header[at + 1]])));
    let end = usize::try_from(sections.checked_add(size * count)?).ok().filter(|end| *end <= MAX_VDSO)?;
    let mut bytes = vec![0; end];
    memory.read_exact(start, &mut bytes).ok()?;
    Some(bytes)
}
