//! The ranges of code that unwind information speaks of, mostly a function each.
//!
//! They lead to the rules for unwinding; and where nothing names a function, its beginning tells it from others.

use crate::model::ElfAddr;

/// A range of code and where its program stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Covered {
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) program: u32,
}

/// What one section covers, sorted by `start`.
#[derive(Debug, Default)]
pub(super) struct Ranges(Box<[Covered]>);

impl Ranges {
    pub(super) fn new(mut covered: Vec<Covered>) -> Self {
        covered.sort_unstable_by_key(|covered| covered.start);
        Self(covered.into())
    }

    /// The range that an address lies in.
    pub(super) fn at(&self, address: ElfAddr) -> Option<&Covered> {
        let wanted = u32::try_from(address.0).ok()?;
        let covered = self.0[..self.0.partition_point(|covered| covered.start <= wanted)].last()?;
        (wanted - covered.start < covered.len).then_some(covered)
    }
}

/// Where the functions of a library begin, as its unwind information has it.
#[derive(Debug, Default)]
pub(crate) struct FunctionStarts {
    /// The ranges of each section, the one to ask first first.
    sections: Vec<Ranges>,
}

impl FunctionStarts {
    pub(super) fn new(sections: impl IntoIterator<Item = Ranges>) -> Self {
        Self { sections: sections.into_iter().collect() }
    }

    /// Where the function begins that an address lies in; `None` if nothing is said about it.
    pub(crate) fn of(&self, address: ElfAddr) -> Option<ElfAddr> {
        let covered = self.sections.iter().find_map(|ranges| ranges.at(address))?;
        Some(ElfAddr(covered.start.into()))
    }

    /// What it takes, in bytes: never more than the sections that it was made of, as an entry of them is larger.
    pub(super) fn size(&self) -> u64 {
        self.sections.iter().map(|ranges| size_of_val(&*ranges.0) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(start: u32, len: u32) -> Covered {
        Covered { start, len, program: 0 }
    }

    /// Check that an address belongs to the function around it, both ends included and excluded, in the first section
    /// that has one.
    #[test]
    fn addresses_belong_to_functions() {
        let first = Ranges::new(vec![covered(0x50, 0x10), covered(0x20, 0x10)]);
        let second = Ranges::new(vec![covered(0x28, 0x18), covered(u32::MAX - 1, 2)]);
        let starts = FunctionStarts::new([first, second]);
        for (address, start) in [
            (0x1f, None),
            (0x20, Some(0x20)),
            (0x2f, Some(0x20)),
            (0x30, Some(0x28)),
            (0x40, None),
            (0x5f, Some(0x50)),
            (u64::from(u32::MAX), Some(0xffff_fffe)),
            (0x1_0000_0020, None),
            (u64::MAX, None),
        ] {
            assert_eq!(starts.of(ElfAddr(address)), start.map(ElfAddr), "{address:#x}");
        }
        assert_eq!(starts.size(), 4 * 12);
    }
}
