//! Checks the way from a method to its function: by address, by name, and not at all.

use super::super::locate::Libraries;
use super::target::{LATE_AT, Mapped, SITES_AT, method, offset, unbound};
use super::{LATE, SITES};
use crate::model::{Bound, FileOffset, LibraryId, NativeCode, SkipReason, VirtAddr};

fn libraries(mapped: &[&Mapped]) -> Libraries {
    let mut libraries = Libraries::default();
    let mapped: Vec<_> = mapped.iter().map(|one| one.library.clone()).collect();
    assert!(libraries.update(&mapped));
    libraries
}

/// Check that an address is counted from where its mapping lies in the file, for each of several mappings.
#[test]
fn address_in_a_later_mapping() {
    let mut sites = Mapped::sites();
    let page = 0x1000;
    let mut second = sites.library.mappings[0].clone();
    sites.library.mappings[0].end = VirtAddr(SITES_AT + page);
    (second.start, second.offset) = (VirtAddr(LATE_AT), FileOffset(page));
    second.end = VirtAddr(LATE_AT + SITES.len() as u64 - page);
    sites.library.mappings.push(second);
    let entry = offset("movFirst");
    assert!(entry >= page, "the fixture's code is on its second page");
    let found = libraries(&[&sites])
        .locate(&method(1, "Sites", "movFirst", NativeCode::Bound(VirtAddr(LATE_AT + entry - page))))
        .unwrap();
    assert_eq!((found.library, found.entry, found.bound), (LibraryId(0), FileOffset(entry), Bound::Export));
}

/// Check both ends of a mapping: its last byte belongs to it, the next one to no file.
#[test]
fn ends_of_a_mapping() {
    let late = Mapped::late();
    let libraries = libraries(&[&late]);
    let locate = |address| libraries.locate(&method(1, "A", "b", NativeCode::Bound(VirtAddr(address))));
    let end = LATE_AT + LATE.len() as u64;
    assert_eq!(locate(LATE_AT).unwrap().entry, FileOffset(0));
    assert_eq!(locate(end - 1).unwrap().entry, FileOffset(LATE.len() as u64 - 1));
    assert_eq!(locate(end), Err(SkipReason::NoFile));
    assert_eq!(locate(LATE_AT - 1), Err(SkipReason::NoFile));
}

/// Check that a name is looked for in the order of the mappings, in what is mapped alone.
#[test]
fn first_library_with_the_name() {
    let (first, second) = (Mapped::late(), Mapped::new("libcopy.so", 3, &LATE, SITES_AT));
    let mut libraries = libraries(&[&first, &second]);
    let predicted = |libraries: &Libraries| libraries.locate(&unbound(1, "Late", "one")).map(|found| found.library);
    assert_eq!(predicted(&libraries), Ok(LibraryId(0)));
    libraries.update(&[second.library]);
    assert_eq!(predicted(&libraries), Ok(LibraryId(1)));
    libraries.update(&[]);
    assert_eq!(predicted(&libraries), Err(SkipReason::Unbound));
}

/// Check that a change of what is mapped is told only if it can give code to a method: a new library, or one that is
/// back.
#[test]
fn news_of_libraries() {
    let (sites, late) = (Mapped::sites(), Mapped::late());
    let mut libraries = libraries(&[&sites]);
    let both = [sites.library.clone(), late.library];
    assert!(libraries.update(&both));
    assert!(!libraries.update(&both));
    assert!(!libraries.update(&both[..1]));
    assert!(libraries.update(&both));
    assert_eq!(libraries.all().len(), 2);
}
