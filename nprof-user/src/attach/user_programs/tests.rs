use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// The object of nprof's own programs, as one that a user might give.
fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../nprof-ebpf/nprof.bpf.o")
}

fn wanted(file: &Path, program: Option<&str>, end: CallEnd) -> WantedProgram {
    WantedProgram { file: file.to_path_buf(), program: program.map(str::to_owned), end }
}

fn refusal(file: &Path, program: Option<&str>, end: CallEnd) -> String {
    ProgramFiles::read(&[wanted(file, program, end)]).unwrap_err().to_string()
}

/// Check that a program is found by its name, and by what its section says if it is the only one; that others are an error which
/// says what there is.
#[test]
fn programs_are_chosen() {
    let own = own();
    let both = [wanted(&own, Some("nprof_enter"), CallEnd::Entry), wanted(&own, Some("nprof_return"), CallEnd::Return)];
    let read = ProgramFiles::read(&both).unwrap();
    assert_eq!((read.files.len(), read.chosen.len()), (1, 2), "a file is read once");
    let several = refusal(&own, None, CallEnd::Entry);
    assert!(several.contains("has several programs for --on-entry: say which, as in `"), "{several}");
    assert!(
        several.contains("`nprof_enter` (uprobe)") && several.contains("`nprof_exit` (for other events)"),
        "{several}"
    );
    let none = refusal(&own, Some("nprof_entre"), CallEnd::Entry);
    assert!(
        none.contains("has no program `nprof_entre`; it has `") && none.contains("`nprof_enter` (uprobe)"),
        "{none}"
    );
    let wrong = refusal(&own, Some("nprof_exit"), CallEnd::Entry);
    assert!(wrong.starts_with("`nprof_exit` of ") && wrong.contains("is a program for other events"), "{wrong}");
}

/// Check that what is no object of programs is refused in words, and that damage anywhere in one never ends nprof.
#[test]
fn damaged_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.bpf.o");
    assert!(refusal(&path, None, CallEnd::Entry).starts_with("cannot read "), "no such file");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        refusal(&path, None, CallEnd::Entry)
    };
    assert!(refused(b"#!/bin/sh").ends_with("is no object of BPF programs: it is not a 64-bit little-endian ELF file"));
    let program = fs::read("/proc/self/exe").unwrap();
    assert!(refused(&program[..4096.min(program.len())]).contains("is no object of BPF programs: "));
    let object = fs::read(own()).unwrap();
    for length in [64, 1_000, object.len() / 2, object.len() - 1] {
        assert!(refused(&object[..length]).contains("is no object of BPF programs: "), "{length}");
    }
    for place in (0..object.len()).step_by(4_099) {
        let mut damaged = object.clone();
        damaged[place..(place + 8).min(object.len())].fill(0xff);
        fs::write(&path, &damaged).unwrap();
        // Where the damage harms nothing that is looked at, the file is as good as it was.
        drop(ProgramFiles::read(&[wanted(&path, Some("nprof_enter"), CallEnd::Entry)]));
    }
}

/// Check that the kernel's words on a program are understood.
#[test]
fn runs_are_read() {
    let said = "pos:\t0\nprog_type:\t2\nprog_id:\t7\nrun_time_ns:\t1500\nrun_cnt:\t12\nrecursion_misses:\t0\n";
    assert_eq!(Runs::of(said), Runs { count: 12, time: Duration::from_nanos(1_500) });
    assert_eq!(Runs::of(""), Runs::default());
}

/// Check that the documentation shows the examples as they are compiled.
#[test]
fn documentation_shows_the_examples() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(workspace.join(path)).unwrap();
    let shown = read("docs/user-programs.md");
    for (language, example) in [("rust", "bytes.rs"), ("c", "bytes.bpf.c")] {
        let source = read(&format!("nprof-ebpf/examples/{example}"));
        assert!(shown.contains(&format!("```{language}\n{source}```\n")), "{example}");
    }
}
