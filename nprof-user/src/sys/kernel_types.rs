//! Where the fields of the kernel's own structures lie, from its type information (BTF).
//!
//! The programs read fields of the running kernel, which lie elsewhere in each build of it. aya does not look them up for
//! others, and the crates that do are under licences that nprof cannot be linked with.

use std::collections::HashMap;
use std::{fs, io};

/// The type information of the running kernel.
const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u32 = 0xeb9f;
const HEADER_BYTES: usize = 24;
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
/// How deep structures without a name may be nested in each other.
const MAX_NESTING: usize = 8;

const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// The kernel's types.
#[derive(Debug)]
pub struct KernelTypes {
    bytes: Vec<u8>,
    strings: usize,
    /// Where each type begins, by its number less one.
    types: Vec<usize>,
    /// The structures by name.
    structures: HashMap<u32, usize>,
}

/// The first words of a type.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    info: u32,
    size_or_type: u32,
}

impl Type {
    fn kind(self) -> u32 {
        self.info >> 24 & 0x1f
    }

    fn members(self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Whether offsets of members have the size of a bit field in their upper bits.
    fn has_bit_fields(self) -> bool {
        self.info >> 31 == 1
    }

    /// The bytes that follow its first words.
    fn more_bytes(self) -> usize {
        match self.kind() {
            INT | VAR | DECL_TAG => 4,
            ARRAY => 12,
            STRUCT | UNION | DATASEC | ENUM64 => self.members() * 12,
            ENUM | FUNC_PROTO => self.members() * 8,
            _ => 0,
        }
    }
}

impl KernelTypes {
    /// Those of the running kernel.
    ///
    /// # Errors
    /// If the kernel has none, or they cannot be read.
    pub fn read() -> io::Result<Self> {
        Self::parse(fs::read(PATH)?)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{PATH} is no BTF")))
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        if word(&bytes, 0)? & 0xffff != MAGIC {
            return None;
        }
        let header = word(&bytes, 4)? as usize;
        let at = |place: usize| header.checked_add(word(&bytes, place)? as usize);
        let (mut place, strings) = (at(8)?, at(16)?);
        let end = place.checked_add(word(&bytes, 12)? as usize)?;
        if header < HEADER_BYTES || end > bytes.len() || strings > bytes.len() {
            return None;
        }
        let (mut types, mut structures) = (Vec::new(), HashMap::new());
        while place < end {
            let found = type_at(&bytes, place)?;
            if found.kind() == STRUCT {
                structures.entry(found.name).or_insert(place);
            }
            types.push(place);
            place = place.checked_add(TYPE_BYTES + found.more_bytes())?;
        }
        Some(Self { bytes, strings, types, structures })
    }

    /// Where a field lies in a structure, in bytes: `["ioac", "rchar"]` is the field of a field. `None` if there is none.
    #[must_use]
    pub fn offset_of(&self, structure: &str, path: &[&str]) -> Option<u32> {
        let name = |name: &&u32| self.string(**name) == Some(structure.as_bytes());
        let mut place = *self.structures.get(self.structures.keys().find(name)?)?;
        let mut bits = 0u32;
        for field in path {
            let (offset, of_type) = self.member(place, field, MAX_NESTING)?;
            bits = bits.checked_add(offset)?;
            place = self.resolved(of_type)?;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// A member's offset in bits, and its type; also of those in structures without a name.
    fn member(&self, place: usize, field: &str, nesting: usize) -> Option<(u32, u32)> {
        let structure = type_at(&self.bytes, place).filter(|known| [STRUCT, UNION].contains(&known.kind()))?;
        (0..structure.members()).find_map(|n| {
            let at = place + TYPE_BYTES + n * MEMBER_BYTES;
            let [name, of_type, offset] = [0, 4, 8].map(|more| word(&self.bytes, at + more));
            let offset = if structure.has_bit_fields() { offset? & 0x00ff_ffff } else { offset? };
            if name? == 0 && nesting > 0 {
                let (inner, of_type) = self.member(self.resolved(of_type?)?, field, nesting - 1)?;
                return Some((offset.checked_add(inner)?, of_type));
            }
            (self.string(name?) == Some(field.as_bytes())).then_some((offset, of_type?))
        })
    }

    /// Where a type begins, behind its other names.
    fn resolved(&self, mut number: u32) -> Option<usize> {
        for _ in 0..MAX_NESTING {
            let place = *self.types.get((number as usize).checked_sub(1)?)?;
            let found = type_at(&self.bytes, place)?;
            if found.kind() != TYPEDEF {
                return Some(place);
            }
            number = found.size_or_type;
        }
        None
    }

    fn string(&self, offset: u32) -> Option<&[u8]> {
        let rest = self.bytes.get(self.strings.checked_add(offset as usize)?..)?;
        rest.split(|byte| *byte == 0).next()
    }
}

fn type_at(bytes: &[u8], place: usize) -> Option<Type> {
    let [name, info, size_or_type] = [0, 4, 8].map(|more| word(bytes, place + more));
    Some(Type { name: name?, info: info?, size_or_type: size_or_type? })
}

fn word(bytes: &[u8], place: usize) -> Option<u32> {
    bytes.get(place..)?.first_chunk().copied().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information with `struct outer { int first; struct { size_t second; }; struct inner third; }`, where the second
    /// field of `inner` is `deep`.
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0first\0second\0third\0inner\0deep\0int\0size_t\0";
        let at = |name: &str| {
            let wanted = format!("\0{name}\0");
            let found = strings.windows(wanted.len()).position(|window| window == wanted.as_bytes()).unwrap();
            u32::try_from(found + 1).unwrap()
        };
        let structure = |members: u32| STRUCT << 24 | members;
        let types: Vec<u32> = [
            &[at("int"), INT << 24, 4, 32][..],
            &[at("size_t"), TYPEDEF << 24, 1],
            &[at("inner"), structure(2), 16, at("first"), 1, 0, at("deep"), 2, 64],
            &[0, structure(1), 8, at("second"), 2, 0],
            &[at("outer"), structure(3), 32, at("first"), 1, 0, 0, 4, 64, at("third"), 3, 128],
        ]
        .concat();
        let (types_bytes, strings_bytes) =
            (u32::try_from(types.len() * 4).unwrap(), u32::try_from(strings.len()).unwrap());
        let header = [MAGIC | 1 << 16, 24, 0, types_bytes, types_bytes, strings_bytes];
        let words = header.into_iter().chain(types).flat_map(u32::to_le_bytes);
        words.chain(strings.iter().copied()).collect()
    }

    /// Check that fields are found: plain ones, those of nameless structures, and fields of fields behind a typedef.
    #[test]
    fn finds_fields() {
        let types = KernelTypes::parse(sample()).unwrap();
        let of = |path: &[&str]| types.offset_of("outer", path);
        assert_eq!([of(&["first"]), of(&["second"]), of(&["third", "deep"])], [Some(0), Some(8), Some(24)]);
        assert_eq!([of(&["deep"]), of(&["first", "deep"]), types.offset_of("none", &["first"])], [None; 3]);
    }

    /// Check that damaged information is refused or finds nothing, whatever is cut off or changed.
    #[test]
    fn damage_is_survived() {
        let whole = sample();
        for length in 0..whole.len() {
            if let Some(types) = KernelTypes::parse(whole[..length].to_vec()) {
                let _found = types.offset_of("outer", &["third", "deep"]);
            }
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            if let Some(types) = KernelTypes::parse(damaged) {
                let _found = types.offset_of("outer", &["third", "deep"]);
            }
        }
    }

    /// Check that the running kernel's fields are found: those that are read.
    #[test]
    fn fields_of_this_kernel() {
        let Ok(types) = KernelTypes::read() else { return println!("not run: this kernel has no BTF") };
        let of = |path: &[&str]| types.offset_of("task_struct", path);
        let (minor, major) = (of(&["min_flt"]).unwrap(), of(&["maj_flt"]).unwrap());
        assert_eq!(major, minor + 8);
        assert!(of(&["ioac", "wchar"]).is_none_or(|written| Some(written - 8) == of(&["ioac", "rchar"])));
    }
}
