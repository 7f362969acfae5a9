//! Checks the placing of probes on the libraries of every JDK of this machine, against another disassembler.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::code::Kept;
use super::super::image::Image;
use super::super::site::{Choice, choose};
use crate::model::{FileOffset, ProbeCost};

const JDKS: &str = "/usr/lib/jvm";
const LIBRARIES: &[&str] = &["libjava.so", "libnio.so", "libzip.so", "libnet.so"];

/// The libraries of these names in all JDKs, each once.
fn libraries(names: &[&str]) -> BTreeSet<PathBuf> {
    let jdks = std::fs::read_dir(JDKS).into_iter().flatten().flatten();
    let places = jdks.flat_map(|jdk| names.iter().map(move |name| jdk.path().join("lib").join(name)));
    places.filter_map(|place| place.canonicalize().ok()).collect()
}

/// A file's code as `objdump` decodes it, numbered as in the ELF file: name and operands of each instruction.
struct Listing(BTreeMap<u64, String>);

impl Listing {
    fn of(library: &Path) -> Self {
        let objdump = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(library).output();
        let text = String::from_utf8(objdump.expect("objdump runs").stdout).expect("objdump writes text");
        let instructions = text.lines().filter_map(|line| {
            let (address, instruction) = line.split_once(":\t")?;
            Some((u64::from_str_radix(address.trim(), 16).ok()?, instruction.to_owned()))
        });
        Self(instructions.collect())
    }

    /// Where the direct branches lead.
    fn targets(&self) -> BTreeSet<u64> {
        let branches = self.0.values().filter(|text| is_branch(text));
        branches.filter_map(|text| u64::from_str_radix(text.split_whitespace().nth(1)?, 16).ok()).collect()
    }
}

fn is_branch(text: &str) -> bool {
    text.starts_with('j') || text.starts_with("call") || text.starts_with("loop") || text.starts_with("notrack")
}

/// Checks that every call, and nothing but a call, passes a place behind its entry.
fn assert_same_meaning(listing: &Listing, targets: &BTreeSet<u64>, entry: u64, place: u64) {
    assert!(listing.0.contains_key(&place), "{place:#x} is no start of an instruction");
    for (at, text) in listing.0.range(entry..place) {
        let ends = ["ret", "hlt", "ud2", "int3", "(bad)"].iter().any(|name| text.starts_with(name));
        assert!(!is_branch(text) && !ends, "{at:#x}: {text}");
        let stack = ["push", "pop", "enter", "leave"].iter().any(|name| text.starts_with(name));
        assert!(!stack && !text.ends_with(",%rsp") && !text.ends_with("(%rsp)"), "{at:#x}: {text}");
        let kept = ["rdi", "edi", "rbp", "ebp"];
        let compares = text.starts_with("test") || text.starts_with("cmp");
        let changed = kept.iter().find(|register| !compares && text.ends_with(&format!(",%{register}")));
        assert_eq!(changed, None, "{at:#x}: {text}");
    }
    assert_eq!(targets.range(entry + 1..=place).next(), None, "a branch leads behind {entry:#x}");
}

/// How far the code of a library is moved from its place in the file.
fn shift(library: &Path, image: &Image) -> u64 {
    let headers = Command::new("objdump").args(["-h", "-j", ".text"]).arg(library).output().expect("objdump runs");
    let text = String::from_utf8(headers.stdout).expect("objdump writes text");
    let fields: Vec<&str> =
        text.lines().find(|line| line.contains(" .text ")).expect("code").split_whitespace().collect();
    let number = |place: usize| u64::from_str_radix(fields[place], 16).expect("a number");
    assert!(image.code_around(FileOffset(number(5))).is_some());
    number(3) - number(5)
}

/// Counts choices: at the entry and emulated, moved, single-stepped, refused.
fn count(choices: &[Choice]) -> [usize; 4] {
    let mut counts = [0; 4];
    for choice in choices {
        counts[match choice.probe {
            Some((place, _)) if place != choice.entry => 1,
            Some((_, ProbeCost::Emulated)) => 0,
            Some((_, ProbeCost::SingleStepped)) => 2,
            None => 3,
        }] += 1;
    }
    counts
}

/// Check that every moved probe of every native of the JDKs' libraries means what one at the entry would, and that
/// most natives are cheap to probe.
#[test]
fn moved_probes_mean_the_same() {
    let libraries = libraries(LIBRARIES);
    if libraries.is_empty() {
        println!("skipped: no JDK in {JDKS}");
    }
    for library in libraries {
        let image = Image::open(&library).unwrap();
        let mut entries: Vec<FileOffset> = image.exports().collect();
        entries.sort_unstable();
        entries.dedup();
        let choices = choose(&image, &entries, Kept::Always).unwrap();
        let [emulated, moved, stepped, refused] = count(&choices);
        println!(
            "{}: {emulated} emulated at the entry, {moved} moved, {stepped} single-stepped, {refused} refused",
            library.display()
        );
        assert_eq!(refused, 0);
        assert!(emulated + moved > stepped);
        let (listing, shift) = (Listing::of(&library), shift(&library, &image));
        let targets = listing.targets();
        for choice in choices {
            let Some((place, _)) = choice.probe.filter(|(place, _)| *place != choice.entry) else { continue };
            assert_same_meaning(&listing, &targets, choice.entry.0 + shift, place.0 + shift);
        }
    }
}
