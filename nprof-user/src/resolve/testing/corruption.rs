//! Checks that no damage to a library's file makes its reader panic, hang or read without bound.

use super::super::code::Kept;
use super::super::image::Image;
use super::super::site::choose;
use super::{Patched, SITES, TestFile};
use crate::model::FileOffset;

const ROUNDS: u64 = 4_000;

/// The same numbers in every run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).expect("less than `end`")
    }
}

/// Overwrites a few fields, most of them in the tables that are parsed, with values that are likely to hurt.
fn damage(bytes: &mut Vec<u8>, tables: &[(usize, usize)], numbers: &mut Numbers) {
    for _ in 0..=numbers.below(6) {
        let (start, length) = match numbers.below(4) {
            0 => (0, bytes.len()),
            _ => tables[numbers.below(tables.len())],
        };
        let value = match numbers.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << numbers.below(64),
            3 => bytes.len() as u64,
            4 => (bytes.len() as u64).wrapping_neg(),
            _ => numbers.next(),
        };
        let width = [1, 2, 4, 8][numbers.below(4)];
        let at = start + numbers.below(length) / width * width;
        if let Some(field) = bytes.get_mut(at..at + width) {
            field.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
    if numbers.below(8) == 0 {
        bytes.truncate(numbers.below(bytes.len()));
    }
}

/// The headers and the dynamic symbols: places and sizes in bytes.
fn tables() -> Vec<(usize, usize)> {
    let elf = Patched(SITES.clone());
    let place = |at: usize| usize::try_from(elf.word(at)).expect("a small file");
    let symbols = elf.sections(11)[0];
    vec![
        (0, 64),
        (place(Patched::PROGRAM_HEADERS), elf.half(Patched::PROGRAM_HEADER_COUNT) * 56),
        (place(Patched::SECTION_HEADERS), elf.half(Patched::SECTION_HEADER_COUNT) * 64),
        (place(symbols + 24), place(symbols + 32)),
    ]
}

/// Check, with the same few thousand damaged files in every run, that the reader ends with an image or an error, and
/// that what it chooses lies where it may.
#[test]
fn damaged_files() {
    let file = TestFile::new(&[]);
    let (tables, mut numbers) = (tables(), Numbers(1));
    let mut read = 0;
    for round in 0..ROUNDS {
        let mut bytes = SITES.clone();
        damage(&mut bytes, &tables, &mut numbers);
        file.write(&bytes);
        let Ok(image) = Image::open(&file.path()) else { continue };
        read += 1;
        let mut entries = image.functions().to_vec();
        entries.extend([0, numbers.next(), bytes.len() as u64 - 1].map(FileOffset));
        let Ok(choices) = choose(&image, &entries, Kept::Always) else { continue };
        assert_eq!(choices.len(), entries.len(), "round {round}");
        for choice in choices {
            let Some((place, _)) = choice.probe else { continue };
            assert!(image.code_around(place).is_some(), "round {round}: {choice:?}");
            assert!((choice.entry.0..choice.entry.0 + 64).contains(&place.0), "round {round}: {choice:?}");
        }
    }
    assert!(read > ROUNDS / 10 && read < ROUNDS, "{read} of {ROUNDS} were read: the damage is too heavy or too light");
}
