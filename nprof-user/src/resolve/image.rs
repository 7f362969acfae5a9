//! One library's ELF file, read as far as probing needs it: what it exports under JNI names, and its code.
//!
//! The file belongs to the target, which may be hostile: nothing is mapped into memory (a file that shrinks would
//! kill us), and only a regular file is read (another kind might never answer).

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::elf::{self, Elf, Fault, Limits, Segment};
use crate::model::{ElfAddr, FileOffset};
use crate::sys::target_file::TargetFile;

/// No executable segment of a real library comes near this, in bytes.
const MAX_CODE: u64 = 1 << 30;
/// JNI's prefixes for functions that the VM finds by name: of ordinary ones and of critical ones.
const JNI_PREFIXES: [&str; 2] = ["Java_", "JavaCritical_"];

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
    tables: Tables,
}

/// What is read at once.
#[derive(Debug)]
struct Tables {
    /// The segments of code, no longer than what the file really has for them.
    code: Vec<Segment>,
    /// The functions with JNI names.
    exports: HashMap<String, FileOffset>,
    /// Where the exported functions of any name begin, sorted.
    functions: Vec<FileOffset>,
}

impl Tables {
    fn read(file: &TargetFile) -> Result<Self, Fault> {
        let pieces = elf::pieces(file);
        let elf = Elf::parse(&pieces, Limits::LIBRARY)?;
        let (mut code, symbols) = (elf.code()?, elf.dynamic_symbols()?);
        if code.iter().any(|segment| segment.file_size > MAX_CODE) {
            return Err(Fault::TooLarge);
        }
        for segment in &mut code {
            segment.file_size = segment.file_size.min(file.about().len.saturating_sub(segment.offset));
        }
        let mut functions: Vec<_> = symbols.addresses().filter_map(|at| elf::offset_of(&code, at)).collect();
        functions.sort_unstable();
        functions.dedup();
        let mut exports = HashMap::new();
        for export in symbols.named(&JNI_PREFIXES) {
            let (name, address) = export?;
            exports.extend(elf::offset_of(&code, address).map(|place| (name.to_owned(), place)));
        }
        Ok(Self { code, exports, functions })
    }

    /// Hands over where the functions begin that are named in a table of any kind.
    fn named_functions(&self, file: &TargetFile, found: impl FnMut(FileOffset)) -> Result<(), Fault> {
        let pieces = elf::pieces(file);
        let elf = Elf::parse(&pieces, Limits::LIBRARY)?;
        let (exported, all) = (elf.dynamic_symbols()?, elf.debug_symbols()?);
        let functions = exported.functions().chain(all.functions());
        functions.filter_map(|address| elf::offset_of(&self.code, address)).for_each(found);
        Ok(())
    }
}

impl Image {
    /// The code of the exported functions with these names, in their order; `None` of those that it has not.
    ///
    /// # Errors
    /// If the file cannot be read or claims absurd tables.
    pub(super) fn exported(&self, names: &[&str]) -> Result<Vec<Option<Range<FileOffset>>>, ImageError> {
        self.functions_of(names, false)
    }

    /// The same of functions that are exported or not, if the file still has their names.
    ///
    /// # Errors
    /// As [`Self::exported`].
    pub(super) fn internal(&self, names: &[&str]) -> Result<Vec<Option<Range<FileOffset>>>, ImageError> {
        self.functions_of(names, true)
    }

    fn functions_of(&self, names: &[&str], internal: bool) -> Result<Vec<Option<Range<FileOffset>>>, ImageError> {
        let read = || -> Result<_, Fault> {
            let pieces = elf::pieces(&self.file);
            let elf = Elf::parse(&pieces, Limits::LIBRARY)?;
            let symbols = if internal { elf.debug_symbols()? } else { elf.dynamic_symbols()? };
            let code = |(address, size): (ElfAddr, u64)| {
                let start = elf::offset_of(&self.tables.code, address)?;
                Some(start..FileOffset(start.0.saturating_add(size)))
            };
            names.iter().map(|name| Ok(symbols.function(name)?.and_then(code))).collect()
        };
        read().map_err(|fault| ImageError::of(&self.path, fault))
    }

    /// Reads the tables of the library that `path` opens.
    ///
    /// # Errors
    /// If the file cannot be read or is no plausible 64-bit ELF file.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        Self::read(path, open_file(path)?)
    }

    /// As [`Self::open`], from a file that is open already.
    pub(super) fn read(path: &Path, file: TargetFile) -> Result<Self, ImageError> {
        let tables = Tables::read(&file).map_err(|fault| ImageError::of(path, fault))?;
        Ok(Self { path: path.to_owned(), file, tables })
    }

    /// Where the function that is exported under a JNI name begins.
    #[must_use]
    pub fn export(&self, jni_name: &str) -> Option<FileOffset> {
        self.tables.exports.get(jni_name).copied()
    }

    /// Where the functions with JNI names begin, in no order.
    pub(super) fn exports(&self) -> impl Iterator<Item = FileOffset> {
        self.tables.exports.values().copied()
    }

    /// Where the exported functions begin, those with other names too; sorted.
    pub(super) fn functions(&self) -> &[FileOffset] {
        &self.tables.functions
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
        self.tables.named_functions(&self.file, found).map_err(|fault| ImageError::of(&self.path, fault))
    }

    /// The address, in the file's own numbering, of code at an offset.
    pub(super) fn address_of(&self, offset: FileOffset) -> Option<ElfAddr> {
        let around = self.tables.code.iter().find(|segment| segment.range().contains(&offset));
        around.map(|segment| segment.address_of(offset))
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
        self.tables.code.iter().map(|segment| (segment.range().start, segment.range().end))
    }
}

impl ImageError {
    fn of(path: &Path, fault: Fault) -> Self {
        let path = path.to_owned();
        match fault {
            Fault::Read(source) => Self::Read { path, source },
            Fault::Parse(source) => Self::Parse { path, source },
            Fault::TooLarge => Self::TooLarge { path },
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
