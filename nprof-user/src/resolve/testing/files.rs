//! Checks what is read of a library's file, and that a file that is none is named as such.

use std::fs::OpenOptions;
use std::process::Command;

use super::super::image::{Image, ImageError};
use super::{LATE, Patched, SITES, TestFile, image_of};
use crate::model::FileOffset;

const SHT_DYNSYM: u32 = 11;
const SHT_STRTAB: u32 = 3;
const PT_LOAD: u32 = 1;
/// Where a section header says how large its section is, and a program header how large its segment is in the file.
const SIZE: usize = 32;
const ABSURD: u64 = 1 << 36;

fn is_too_large(result: &Result<Image, ImageError>) -> bool {
    matches!(result, Err(ImageError::TooLarge { .. }))
}

/// Check that exports lead to their code, and that other names are not taken for natives.
#[test]
fn exports_and_code() {
    let image = image_of(&LATE).unwrap();
    let (one, two) = (image.export("Java_Late_one").unwrap(), image.export("Java_Late_two").unwrap());
    assert_eq!(image.code(one, 3).unwrap(), [0x55, 0x5d, 0xc3]);
    assert_eq!(two, FileOffset(one.0 + 3));
    assert_eq!(image.export("Java_Late_three"), None);
    assert_eq!(image_of(&SITES).unwrap().export("helper"), None);
}

/// Check that code ends with its segment, and that there is none outside.
#[test]
fn code_ends_with_its_segment() {
    let image = image_of(&LATE).unwrap();
    let one = image.export("Java_Late_one").unwrap();
    let (start, end) = image.code_around(one).unwrap();
    assert!(start <= one && one < end);
    assert_eq!(image.code(FileOffset(end.0 - 2), 100).unwrap().len(), 2);
    assert!(image.code(end, 100).unwrap().is_empty());
    assert!(image.code(FileOffset(0), 100).unwrap().is_empty());
}

/// Check that what is no ELF file of 64 bits is an error that names the file.
#[test]
fn no_elf_file() {
    let elf32 = Patched(SITES.clone()).set(Patched::CLASS, &[1]).0;
    let garbage: Vec<u8> = (0..9_000_u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for bytes in [&[][..], b"\x7fELF", &SITES[..63], &elf32, &garbage, b"#!/bin/sh\nexit 0\n"] {
        let error = image_of(bytes).unwrap_err();
        assert!(matches!(error, ImageError::Parse { .. }), "{error:?}");
        assert!(error.to_string().contains("library.so"), "{error}");
    }
}

/// Check that a file cut off anywhere is an error, or has only what is left of it.
#[test]
fn truncated() {
    for length in (0..SITES.len()).step_by(61) {
        let Ok(image) = image_of(&SITES[..length]) else { continue };
        let end = image.code_segments().map(|(_, end)| end.0).max().unwrap_or(0);
        assert!(end <= length as u64, "cut at {length}, code to {end}");
    }
}

/// Check that a missing file, a directory and a pipe are errors at once: opening a pipe waits for a writer.
#[test]
fn no_regular_file() {
    let file = TestFile::new(&[]);
    let pipe = file.path().with_extension("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [file.path().with_extension("missing"), file.path().parent().unwrap().to_owned(), pipe] {
        let error = Image::open(&path).unwrap_err();
        assert!(matches!(error, ImageError::Read { .. }), "{error:?}");
    }
}

/// Check that tables of an absurd size are refused before they are read, in a file that is really that large.
#[test]
fn absurd_tables() {
    let elf = || Patched(SITES.clone());
    let symbols = elf().sections(SHT_DYNSYM)[0];
    let names = elf().sections(SHT_STRTAB)[0];
    let first_section = usize::try_from(elf().word(Patched::SECTION_HEADERS)).unwrap();
    let absurd = [
        elf().set(symbols + SIZE, &ABSURD.to_le_bytes()),
        elf().set(names + SIZE, &ABSURD.to_le_bytes()),
        // More headers than the field can hold: their number is said to be in the first section's header.
        elf().set(Patched::SECTION_HEADER_COUNT, &[0; 2]).set(first_section + SIZE, &(1_u64 << 30).to_le_bytes()),
        elf().set(Patched::PROGRAM_HEADER_COUNT, &[0xff; 2]).set(first_section + 44, &(1_u32 << 30).to_le_bytes()),
    ];
    for (number, Patched(bytes)) in absurd.into_iter().enumerate() {
        let file = TestFile::new(&bytes);
        OpenOptions::new().write(true).open(file.path()).unwrap().set_len(ABSURD * 2).unwrap();
        let result = Image::open(&file.path());
        assert!(is_too_large(&result), "{number}: {result:?}");
    }
}

/// Check that an absurd code segment is refused, and that a smaller lie is cut to the file's size.
#[test]
fn absurd_code() {
    let elf = || Patched(SITES.clone());
    for segment in elf().segments(PT_LOAD) {
        let executable = elf().0[segment + 4] & 1 != 0;
        let result = image_of(&elf().set(segment + SIZE, &ABSURD.to_le_bytes()).0);
        assert_eq!(is_too_large(&result), executable);
        let image = image_of(&elf().set(segment + SIZE, &(1_u64 << 29).to_le_bytes()).0).unwrap();
        assert!(image.code_segments().all(|(_, end)| end.0 <= SITES.len() as u64));
    }
}

/// Check that a library without section headers is read as one without exports.
#[test]
fn no_section_headers() {
    let stripped = Patched(SITES.clone()).set(Patched::SECTION_HEADERS, &[0; 8]);
    let image = image_of(&stripped.set(Patched::SECTION_HEADER_COUNT, &[0; 2]).0).unwrap();
    assert_eq!(image.export("Java_Sites_pushFirst"), None);
    assert_eq!(image.code_segments().count(), 1);
}

/// Check that names without an end are refused instead of being collected.
#[test]
fn endless_names() {
    let elf = Patched(SITES.clone());
    let symbols = elf.sections(SHT_DYNSYM)[0];
    let names = elf.sections(SHT_STRTAB)[0];
    let (first, end) = (elf.0.len() as u64, 100_000_u64);
    let first_symbol = usize::try_from(elf.word(symbols + 24)).unwrap() + 24;
    let mut endless = elf
        .set(names + 24, &first.to_le_bytes())
        .set(names + SIZE, &end.to_le_bytes())
        .set(first_symbol, &0_u32.to_le_bytes());
    endless.0.extend_from_slice(b"Java_");
    endless.0.extend(std::iter::repeat_n(b'a', 100_000));
    let result = image_of(&endless.0);
    assert!(is_too_large(&result), "{result:?}");
}
