//! Checks how functions are told apart that nothing names: a library with static functions, stripped.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object as _, ObjectSymbol as _};
use tempfile::TempDir;

use super::{CodeAddress, NativeFrame, Symbolizer};
use crate::model::{FileId, FileOffset, Library, Mapping, Pid, VirtAddr};

/// Where the library would be, if it were in a process.
const BASE: u64 = 0x10_0000_0000;

/// The library, and where its functions are, as its symbols had them at first.
struct Statics {
    directory: TempDir,
    symbols: Vec<(String, std::ops::Range<u64>)>,
}

impl Statics {
    fn build(flags: &[&str]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/native/testing/fixtures/statics.c");
        let mut library = Self { directory: TempDir::new().unwrap(), symbols: Vec::new() };
        let mut command = Command::new("cc");
        command.args(flags).args(["-O2", "-fno-toplevel-reorder", "-shared", "-fPIC", "-o"]);
        command.arg(library.path()).arg(source);
        assert!(command.status().unwrap().success(), "{command:?}");
        let bytes = std::fs::read(library.path()).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let place = |symbol: object::Symbol<'_, '_>| {
            Some((symbol.name().ok()?.to_owned(), symbol.address()..symbol.address() + symbol.size()))
        };
        library.symbols = elf.symbols().filter_map(place).collect();
        library
    }

    /// Takes symbols out of it.
    fn strip(self, flag: &str) -> Self {
        let mut command = Command::new("strip");
        assert!(command.arg(flag).arg(self.path()).status().unwrap().success(), "{command:?}");
        self
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("libstatics.so")
    }

    /// The addresses of a function.
    fn addresses(&self, function: &str) -> std::ops::Range<u64> {
        let found = self.symbols.iter().find(|(name, _)| name == function);
        found.unwrap_or_else(|| panic!("no {function} in {:?}", self.symbols)).1.clone()
    }

    fn start(&self, function: &str) -> u64 {
        self.addresses(function).start
    }

    /// What each of these addresses is called, where all are called the same.
    fn only_name(&self, addresses: std::ops::Range<u64>) -> String {
        assert!(!addresses.is_empty(), "{addresses:x?}");
        let mut symbolizer = Symbolizer::new(Pid(std::process::id()));
        let (path, file) = (self.path(), FileId { major: 0, minor: 1, inode: 1 });
        // The linker gives code the same place in the file as in memory.
        let (start, end, offset) = (VirtAddr(BASE), VirtAddr(BASE + (1 << 20)), FileOffset(0));
        let mapping = Mapping { start, end, offset, executable: true, file, path: path.clone() };
        let library = Library { file, path: path.clone(), deleted: false, open_path: path, mappings: vec![mapping] };
        symbolizer.set_libraries(&[library]);
        let place = |address| CodeAddress { address: VirtAddr(BASE + address), is_return: false };
        let named = symbolizer.name_all(&addresses.map(place).collect::<Vec<_>>());
        let outermost = |frames: &[NativeFrame]| frames.last().unwrap().function.to_string();
        let mut names: Vec<String> = named.iter().map(|frames| outermost(frames)).collect();
        names.dedup();
        let [name] = &names[..] else { panic!("{names:?}") };
        name.clone()
    }
}

/// Check that all addresses of a function without a symbol are called by where it begins, and that it is told apart from
/// the functions around it.
#[test]
fn functions_without_symbols_have_one_name() {
    let library = Statics::build(&[]).strip("--strip-all");
    for function in ["first", "second", "rare", "pieces.cold"] {
        let expected = format!("libstatics.so+{:#x}", library.start(function));
        assert_eq!(library.only_name(library.addresses(function)), expected, "{function}");
    }
    assert_eq!(library.only_name(library.addresses("exported")), "exported");
}

/// Check that addresses keep their own names where neither symbols nor unwind information tell of functions.
#[test]
fn addresses_have_to_do_without_unwind_information() {
    let flags = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let library = Statics::build(&flags).strip("--strip-all");
    let start = library.start("first");
    for inside in [start + 1, start + 2] {
        assert_eq!(library.only_name(inside..inside + 1), format!("libstatics.so+{inside:#x}"));
    }
}

/// Check that a symbol without a size names its own function and not those behind it.
#[test]
fn symbols_do_not_name_the_functions_behind_them() {
    // Keeps the symbols of a table that has gaps.
    let library = Statics::build(&[]).strip("--strip-symbol=follower").strip("--strip-symbol=follower_end");
    let (sizeless, exported) = (library.start("sizeless"), library.start("exported"));
    let (follower, end) = (library.start("follower"), library.start("follower_end"));
    assert!(sizeless < follower && end <= exported, "{:x?}", library.symbols);
    assert_eq!(library.only_name(sizeless..follower), "sizeless");
    assert_eq!(library.only_name(follower..end), format!("libstatics.so+{follower:#x}"));
}

/// Check that debug information still names all pieces of a function, those too that have their own unwind information.
#[test]
fn pieces_of_functions_keep_their_name() {
    let library = Statics::build(&["-g"]);
    for piece in ["pieces", "pieces.cold"] {
        assert_eq!(library.only_name(library.addresses(piece)), "pieces", "{piece}");
    }
}
