//! One library's ELF file, read as far as probing needs it: what it exports under JNI names, and its code.
//!
//! The file belongs to the target, which may be hostile: nothing is mapped into memory (a file that shrinks would
//! kill us), and only a regular file is read (another kind might never answer).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use super::elf::{self, Fault, Segment};
use crate::model::{ElfAddr, FileOffset};
use crate::sys::target_file::TargetFile;

/// Why a library's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// It cannot be opened or read.
    #[error("cannot read {path}")]
    Read {
        /// The path through `/proc`.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is not a 64-bit ELF file, or a damaged one.
    #[error("{path} is no ELF file that nprof can read")]
    Parse {
        /// The path through `/proc`.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: object::read::Error,
    },
    /// It claims tables of a size that no real library has.
    #[error("{path} claims tables or code of an absurd size")]
    TooLarge {
        /// The path through `/proc`.
        path: PathBuf,
    },
}

/// What nprof knows of one library's file.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: TargetFile,
    segments: Vec<Segment>,
    exports: HashMap<String, FileOffset>,
    functions: Vec<FileOffset>,
}

impl Image {
    /// Reads the tables of the library that `path` opens.
    ///
    /// # Errors
    /// If the file cannot be read or is no plausible 64-bit ELF file.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        Self::read(path, open_file(path)?)
    }

    /// As [`Self::open`], from a file that is open already.
    pub(super) fn read(path: &Path, file: TargetFile) -> Result<Self, ImageError> {
        let tables = elf::read(&file).map_err(|fault| fault.of(path))?;
        let elf::Tables { segments, exports, functions } = tables;
        Ok(Self { path: path.to_owned(), file, segments, exports, functions })
    }

    /// Where the function that is exported under a JNI name begins.
    #[must_use]
    pub fn export(&self, jni_name: &str) -> Option<FileOffset> {
        self.exports.get(jni_name).copied()
    }

    /// Where the functions with JNI names begin, in no order.
    pub(super) fn exports(&self) -> impl Iterator<Item = FileOffset> {
        self.exports.values().copied()
    }

    /// Where the exported functions begin, those with other names too; sorted.
    pub(super) fn functions(&self) -> &[FileOffset] {
        &self.functions
    }

    /// The file, to read.
    pub(super) fn file(&self) -> &TargetFile {
        &self.file
    }

    /// A path that opens this very file for as long as the image is kept, whatever the target maps where it was meanwhile.
    #[must_use]
    pub fn open_path(&self) -> PathBuf {
        self.file.own_path()
    }

    /// Hands over where each function begins that has a name in the file, exported or not.
    ///
    /// # Errors
    /// If the file cannot be read or claims absurd tables.
    pub(super) fn named_functions(&self, found: impl FnMut(FileOffset)) -> Result<(), ImageError> {
        elf::named_functions(&self.file, &self.segments, found).map_err(|fault| fault.of(&self.path))
    }

    /// The address, in the file's own numbering, of code at an offset.
    pub(super) fn address_of(&self, offset: FileOffset) -> Option<ElfAddr> {
        let around = |s: &&Segment| s.executable && s.offset <= offset.0 && offset.0 - s.offset < s.file_size;
        let segment = self.segments.iter().find(around)?;
        segment.address.checked_add(offset.0 - segment.offset).map(ElfAddr)
    }

    pub(super) fn read_error(&self, source: io::Error) -> ImageError {
        ImageError::Read { path: self.path.clone(), source }
    }

    /// Up to `length` bytes of code from `offset` on, fewer at the end of the segment. Empty outside of code.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn code(&self, offset: FileOffset, length: usize) -> Result<Vec<u8>, ImageError> {
        let Some((_, end)) = self.code_around(offset) else { return Ok(Vec::new()) };
        let there = usize::try_from(end.0.saturating_sub(offset.0)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(there)];
        self.file.read_exact_at(&mut bytes, offset.0).map_err(|source| self.read_error(source))?;
        Ok(bytes)
    }

    /// First and last-plus-one offset of the executable segment that `offset` lies in.
    #[must_use]
    pub fn code_around(&self, offset: FileOffset) -> Option<(FileOffset, FileOffset)> {
        self.code_segments().find(|(start, end)| *start <= offset && offset < *end)
    }

    /// First and last-plus-one offset of each executable segment.
    pub(super) fn code_segments(&self) -> impl Iterator<Item = (FileOffset, FileOffset)> {
        let executable = self.segments.iter().filter(|segment| segment.executable);
        executable
            .map(|segment| (FileOffset(segment.offset), FileOffset(segment.offset.saturating_add(segment.file_size))))
    }
}

impl Fault {
    fn of(self, path: &Path) -> ImageError {
        match self {
            Self::Parse(source) => ImageError::Parse { path: path.to_owned(), source },
            Self::TooLarge => ImageError::TooLarge { path: path.to_owned() },
        }
    }
}

/// Opens a library's file, unless a program delivers it: the kernel reads the page in which it puts a probe, and who makes
/// it do that waits as long as the program likes.
pub(super) fn open_file(path: &Path) -> Result<TargetFile, ImageError> {
    let read_error = |source| ImageError::Read { path: path.to_owned(), source };
    let file = TargetFile::open(path).map_err(read_error)?;
    if file.about().is_delivered() {
        let why = "a program delivers it (FUSE), which may keep whoever puts a probe in it waiting";
        return Err(read_error(io::Error::new(io::ErrorKind::Unsupported, why)));
    }
    Ok(file)
}
