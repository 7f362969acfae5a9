//! Checks the names: inlined functions, lines, separate debug files, files that are not the mapped ones.

use std::path::Path;
use std::process::Command;

use super::{FUNCTIONS, Program, USUAL, functions, line_of};
use crate::model::{Pid, VirtAddr};
use crate::native::library_file::vdso;
use crate::native::{CodeAddress, LibraryError, NativeUnwinder, Symbolizer};
use crate::sys::remote_memory::ProcessMemory;

/// Check that each frame has its name, file and line, inlined ones too.
#[test]
fn frames_have_names_and_lines() {
    let waiting = Program::build(USUAL).start(false);
    let frames = waiting.names(&waiting.unwind().frames);
    assert_eq!(functions(&frames[..6]), FUNCTIONS);
    for (frame, remark) in frames.iter().zip(["innermost is here", "inlined is here", "middle is here"]) {
        assert_eq!(frame.line, Some(line_of(remark)), "{frame:?}");
        assert!(frame.file.as_deref().unwrap().ends_with("/frames.c"), "{frame:?}");
        assert_eq!((&*frame.library, frame.inlined, frame.is_vm), ("frames", &*frame.function == "inlined", false));
    }
}

/// Runs one of the tools that come with the compiler.
fn run(tool: &str, arguments: &[&Path]) {
    assert!(Command::new(tool).args(arguments).status().unwrap().success(), "{tool} {arguments:?}");
}

/// Check that a stripped program is named by the debug file that its debug link names, beside it or below `.debug`, and
/// by its library and address without one.
#[test]
fn debug_links_are_followed() {
    let program = Program::build(USUAL);
    let (path, debug) = (program.path(), program.path().with_extension("debug"));
    run("objcopy", &[Path::new("--only-keep-debug"), &path, &debug]);
    run("strip", &[&path]);
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run("objcopy", &[Path::new(&link), &path]);
    let waiting = program.start(false);
    let frames = waiting.unwind().frames;
    assert_eq!(functions(&waiting.names(&frames)[..6]), FUNCTIONS);
    let below = program.directory.path().join(".debug");
    std::fs::create_dir(&below).unwrap();
    std::fs::rename(&debug, below.join("frames.debug")).unwrap();
    assert_eq!(functions(&waiting.names(&frames)[..6]), FUNCTIONS);
    // Another build's debug information would give wrong names.
    let other = Program::build(&["-O1", "-g"]);
    std::fs::copy(other.path(), below.join("frames.debug")).unwrap();
    let names = waiting.names(&frames);
    assert!(names[0].function.starts_with("frames+0x"), "{names:?}");
}

/// Check that a library whose file is another one than the mapped one is not used, and is told.
#[test]
fn other_files_are_refused() {
    let waiting = Program::build(USUAL).start(false);
    let other = Program::build(&["-O1", "-g"]);
    let libraries = waiting.libraries_with(&other.path());
    let frames = waiting.unwind().frames;
    let (mut unwinder, mut symbolizer) = (NativeUnwinder::new(waiting.pid()), Symbolizer::new(waiting.pid()));
    unwinder.set_libraries(&libraries);
    symbolizer.set_libraries(&libraries);
    assert!(symbolizer.name(frames[0])[0].function.starts_with("frames+0x"));
    unwinder.unwind(&waiting.sample(), &|_| false);
    for (library, error) in unwinder.unusable().chain(symbolizer.unusable()) {
        assert_eq!(library.name(), "frames");
        assert!(matches!(error, LibraryError::Replaced { .. }), "{error:?}");
    }
    assert_eq!((unwinder.unusable().count(), symbolizer.unusable().count()), (1, 1));
}

/// Check that a program whose file has been deleted is still named.
#[test]
fn deleted_files_are_named() {
    let program = Program::build(USUAL);
    let waiting = program.start(false);
    std::fs::remove_file(program.path()).unwrap();
    let frames = waiting.unwind().frames;
    assert_eq!(functions(&waiting.names(&frames)[..6]), FUNCTIONS);
}

/// Check that the kernel's own library is known by its names, and addresses outside of all libraries as unknown.
#[test]
fn vdso_is_named() {
    let pid = Pid(std::process::id());
    let mapping = vdso(&ProcessMemory::new(pid)).unwrap().mappings[0].clone();
    let mut symbolizer = Symbolizer::new(pid);
    symbolizer.set_libraries(&[]);
    let places = (mapping.start.0..mapping.end.0).step_by(16).map(VirtAddr);
    let places: Vec<_> = places.map(|address| CodeAddress { address, is_return: false }).collect();
    let names = symbolizer.name_all(&places);
    assert!(names.iter().any(|frames| frames[0].function.contains("clock_gettime")), "{} places", names.len());
    let null = CodeAddress { address: VirtAddr(0), is_return: true };
    assert_eq!(&*symbolizer.name(null)[0].function, "[unknown]");
}

/// Check that what is named once is remembered for as long as its library is mapped.
#[test]
fn names_are_remembered() {
    let waiting = Program::build(USUAL).start(false);
    let frames = waiting.unwind().frames;
    let mut symbolizer = Symbolizer::new(waiting.pid());
    let libraries = waiting.libraries();
    symbolizer.set_libraries(&libraries);
    let first = symbolizer.name_all(&frames);
    let again = symbolizer.name_all(&frames);
    assert!(first.iter().zip(&again).all(|(first, again)| std::sync::Arc::ptr_eq(first, again)));
    symbolizer.set_libraries(&libraries[1..]);
    assert_eq!(&*symbolizer.name(frames[0])[0].function, "[unknown]");
    symbolizer.set_libraries(&libraries);
    assert_eq!(symbolizer.name_all(&frames), first);
}
