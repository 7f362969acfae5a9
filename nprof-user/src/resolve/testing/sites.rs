//! Checks where probes are placed: one function per reason to move or to stay.

use super::super::code::Kept;
use super::super::image::Image;
use super::super::site::{Choice, choose};
use super::{Patched, SITES, image_of};
use crate::model::FileOffset;
use crate::model::ProbeCost::{self, Emulated, SingleStepped};

/// Every function of `fixtures/sites.S`: how many bytes behind the entry its probe belongs, and what a hit costs there;
/// `None` if the kernel takes no probe.
const EXPECTED: &[(&str, Option<(u64, ProbeCost)>)] = &[
    ("pushFirst", Some((0, Emulated))),
    ("movFirst", Some((3, Emulated))),
    ("endbrFirst", Some((4, Emulated))),
    ("nothingCheap", Some((0, SingleStepped))),
    ("branchFirst", Some((3, Emulated))),
    ("loopBehind", Some((3, Emulated))),
    ("callsItself", Some((3, Emulated))),
    ("shortBranchBack", Some((0, SingleStepped))),
    ("branchToThePlace", Some((0, SingleStepped))),
    ("branchFromColdPart", Some((0, SingleStepped))),
    ("calledInTheMiddle", Some((0, SingleStepped))),
    ("addressTaken", Some((0, SingleStepped))),
    ("jumpTable", Some((0, SingleStepped))),
    ("jumpTableFarAway", Some((0, SingleStepped))),
    ("linkageStub", Some((3, Emulated))),
    ("changesEnvironment", Some((0, SingleStepped))),
    ("changesOtherArgument", Some((3, Emulated))),
    ("changesReturnAddress", Some((0, SingleStepped))),
    ("movesStack", Some((0, SingleStepped))),
    ("longWay", Some((0, SingleStepped))),
    ("justNear", Some((63, Emulated))),
    ("lockFirst", Some((3, SingleStepped))),
    ("lockThenPush", Some((6, Emulated))),
    ("lockInLoop", None),
    ("trapFirst", None),
    ("outer", Some((0, SingleStepped))),
    ("inner", Some((0, Emulated))),
    ("outerOfHelper", Some((0, SingleStepped))),
    ("outerOfUnnamed", Some((5, Emulated))),
    ("atTheEnd", Some((3, Emulated))),
    ("cutOff", None),
];

fn entry(image: &Image, name: &str) -> FileOffset {
    image.export(&format!("Java_Sites_{name}")).unwrap_or_else(|| panic!("{name} is in the fixture"))
}

/// A choice, its place counted from the entry.
fn relative(choice: Choice) -> Option<(u64, ProbeCost)> {
    choice.probe.map(|(place, cost)| (place.0 - choice.entry.0, cost))
}

/// Check the place and the cost for every sort of function, all chosen together.
#[test]
fn every_function_where_it_belongs() {
    let image = image_of(&SITES).unwrap();
    let entries: Vec<FileOffset> = EXPECTED.iter().map(|(name, _)| entry(&image, name)).collect();
    let choices = choose(&image, &entries, Kept::Always).unwrap();
    assert_eq!(choices.iter().map(|choice| choice.entry).collect::<Vec<_>>(), entries);
    for ((name, expected), choice) in EXPECTED.iter().zip(choices) {
        assert_eq!(relative(choice), *expected, "{name}");
    }
}

/// Check that a function gets the same place alone as among others.
#[test]
fn every_function_alone() {
    let image = image_of(&SITES).unwrap();
    for (name, expected) in EXPECTED {
        let choices = choose(&image, &[entry(&image, name)], Kept::Always).unwrap();
        assert_eq!(choices.iter().map(|choice| relative(*choice)).collect::<Vec<_>>(), [*expected], "{name}");
    }
}

/// Check that the probe of one function is not moved behind the entry of another that is known only by its address:
/// two probes at one place would count every call twice.
#[test]
fn not_behind_another_entry() {
    let image = image_of(&SITES).unwrap();
    let outer = entry(&image, "outerOfUnnamed");
    let choices = choose(&image, &[outer, FileOffset(outer.0 + 5)], Kept::Always).unwrap();
    assert_eq!(choices.into_iter().map(relative).collect::<Vec<_>>(), [Some((0, SingleStepped)), Some((0, Emulated))]);
}

/// Check that nothing is moved in a library with code in two segments: how far these are apart in memory is not how
/// far they are in the file, so branches between them cannot be followed.
#[test]
fn stays_where_code_has_two_segments() {
    const LOAD: u32 = 1;
    const READ_EXECUTE: u32 = 5;
    let patched = Patched(SITES.clone());
    let first = patched.segments(LOAD)[0];
    let image = image_of(&patched.set(first + 4, &READ_EXECUTE.to_le_bytes()).0).unwrap();
    let names = ["pushFirst", "movFirst", "endbrFirst", "lockFirst"];
    let entries = names.map(|name| entry(&image, name));
    let choices = choose(&image, &entries, Kept::Always).unwrap();
    assert_eq!(
        choices.into_iter().map(relative).collect::<Vec<_>>(),
        [Some((0, Emulated)), Some((0, SingleStepped)), Some((0, SingleStepped)), None]
    );
}

/// Check that an offset that is no code gets no probe, and no error.
#[test]
fn no_probe_outside_of_code() {
    let image = image_of(&SITES).unwrap();
    let outside = [0, 1, SITES.len() as u64, u64::MAX].map(FileOffset);
    assert!(choose(&image, &outside, Kept::Always).unwrap().into_iter().all(|choice| choice.probe.is_none()));
    assert_eq!(choose(&image, &[], Kept::Always).unwrap(), []);
}

/// A library whose code is larger than what is searched at once: two megabytes of nothing behind one function, and
/// before the end of the first megabyte the bytes of a branch, counted from there.
fn large_library(branch: &[u8], before_the_end: usize) -> (Image, FileOffset) {
    const MEGABYTE: usize = 1 << 20;
    let elf = Patched(SITES.clone());
    let code = elf.segments(1).into_iter().find(|segment| elf.0[segment + 4] & 1 != 0).expect("code");
    let start = elf.0.len();
    let mut elf = elf.set(code + 8, &start.to_le_bytes()).set(code + 32, &(2 * MEGABYTE).to_le_bytes());
    elf.0.extend([0x48, 0x89, 0xf8, 0x55, 0x5d, 0xc3]); // mov rax, rdi; push rbp; pop rbp; ret
    elf.0.resize(start + 2 * MEGABYTE, 0x90);
    let at = start + MEGABYTE - before_the_end;
    elf.0[at..at + branch.len()].copy_from_slice(branch);
    (image_of(&elf.0).expect("a library"), FileOffset(start as u64))
}

/// Check that a branch is found wherever it lies across the border of what is searched at once.
#[test]
fn branch_across_windows() {
    for before_the_end in 0..=5_u32 {
        // Leads to the push: back over the megabyte, less what lies before its end, and over the branch itself.
        let distance = i32::try_from(3 + before_the_end).unwrap() - (1 << 20) - 5;
        let branch = [&[0xe9][..], &distance.to_le_bytes()].concat();
        let chosen = |branch: &[u8]| {
            let (image, entry) = large_library(branch, usize::try_from(before_the_end).unwrap());
            relative(choose(&image, &[entry], Kept::Always).unwrap()[0])
        };
        assert_eq!(chosen(&branch), Some((0, SingleStepped)), "{before_the_end}");
        assert_eq!(chosen(&[]), Some((3, Emulated)), "{before_the_end}");
    }
}
