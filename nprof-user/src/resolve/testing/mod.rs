//! What the tests of this stage share: libraries that are assembled when the tests run, and ways to damage them.

mod corruption;
mod files;
mod guarding;
mod jdks;
mod lasting;
mod locating;
mod planning;
mod sites;
mod target;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;

use super::image::{Image, ImageError};

/// `fixtures/sites.S`, assembled and linked.
static SITES: LazyLock<Vec<u8>> = LazyLock::new(|| assemble("sites.S"));
/// `fixtures/late.S`, assembled and linked.
static LATE: LazyLock<Vec<u8>> = LazyLock::new(|| assemble("late.S"));
/// `fixtures/guarded.S`, assembled and linked.
static GUARDED: LazyLock<Vec<u8>> = LazyLock::new(|| assemble("guarded.S"));

fn assemble(name: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/resolve/testing/fixtures").join(name);
    let directory = TempDir::new().expect("a temporary directory");
    let library = directory.path().join("library.so");
    let status = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&library).arg(source).status();
    assert!(status.expect("cc runs").success(), "cc cannot build {name}");
    std::fs::read(library).expect("cc has written the library")
}

/// A file with any content, for as long as this lives.
struct TestFile {
    directory: TempDir,
}

impl TestFile {
    fn new(bytes: &[u8]) -> Self {
        let file = Self { directory: TempDir::new().expect("a temporary directory") };
        file.write(bytes);
        file
    }

    fn write(&self, bytes: &[u8]) {
        std::fs::write(self.path(), bytes).expect("a temporary file can be written");
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("library.so")
    }
}

/// The image of a file with this content. It keeps its file open, so that the path need not stay.
fn image_of(bytes: &[u8]) -> Result<Image, ImageError> {
    Image::open(&TestFile::new(bytes).path())
}

/// An ELF file whose header fields can be overwritten.
struct Patched(Vec<u8>);

impl Patched {
    /// Offsets of the ELF header's fields.
    const CLASS: usize = 4;
    const PROGRAM_HEADERS: usize = 32;
    const SECTION_HEADERS: usize = 40;
    const PROGRAM_HEADER_COUNT: usize = 56;
    const SECTION_HEADER_COUNT: usize = 60;

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn half(&self, at: usize) -> usize {
        usize::from(u16::from_le_bytes(self.0[at..at + 2].try_into().expect("two bytes")))
    }

    fn set(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Where the headers of the sections of one type stand.
    fn sections(&self, of_type: u32) -> Vec<usize> {
        self.headers(Self::SECTION_HEADERS, Self::SECTION_HEADER_COUNT, 64, 4, of_type)
    }

    /// Where the headers of the segments of one type stand.
    fn segments(&self, of_type: u32) -> Vec<usize> {
        self.headers(Self::PROGRAM_HEADERS, Self::PROGRAM_HEADER_COUNT, 56, 0, of_type)
    }

    fn headers(&self, first: usize, count: usize, size: usize, type_at: usize, of_type: u32) -> Vec<usize> {
        let first = usize::try_from(self.word(first)).expect("a small file");
        let all = (0..self.half(count)).map(|number| first + number * size);
        all.filter(|header| self.0[header + type_at..header + type_at + 4] == of_type.to_le_bytes()).collect()
    }
}
