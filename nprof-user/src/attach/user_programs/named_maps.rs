//! The maps of an object that nprof knows by their names: the methods' names, which it writes, and a value of each method, which it
//! shows.

use std::fmt;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, PerCpuHashMap};
use aya_obj::generated::bpf_map_type;

use crate::model::Method;

/// The names of methods by dense index. See `docs/user-programs.md` for the layout.
pub(super) const METHODS: &str = "nprof_methods";
/// What the programs have counted, by dense index.
pub(super) const VALUES: &str = "nprof_values";

/// Class, name and signature, each with zeros behind it.
const PARTS: [usize; 3] = [128, 64, 64];
const ROW: usize = 256;
type Row = [u8; ROW];

/// What one of these maps has to be, and how that is said.
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) expected: &'static str,
    types: &'static [bpf_map_type],
    value_size: usize,
}

/// Both.
pub(super) const LAYOUTS: [Layout; 2] = [
    Layout {
        name: METHODS,
        expected: "an array with values of 256 bytes: class (128), name (64) and signature (64)",
        types: &[bpf_map_type::BPF_MAP_TYPE_ARRAY],
        value_size: ROW,
    },
    Layout {
        name: VALUES,
        expected: "an array or hash map, per CPU or not, with keys of 4 bytes and values of 8",
        types: &[
            bpf_map_type::BPF_MAP_TYPE_ARRAY,
            bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY,
            bpf_map_type::BPF_MAP_TYPE_HASH,
            bpf_map_type::BPF_MAP_TYPE_PERCPU_HASH,
        ],
        value_size: size_of::<u64>(),
    },
];

impl Layout {
    /// The layout of the map with this name, in small or large letters.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        LAYOUTS.iter().find(|layout| layout.name.eq_ignore_ascii_case(name))
    }

    /// Whether a map is declared like this.
    pub(super) fn fits(&self, map: &aya_obj::Map) -> bool {
        self.types.iter().any(|of| *of as u32 == map.map_type())
            && (map.key_size() as usize, map.value_size() as usize) == (size_of::<u32>(), self.value_size)
    }
}

/// The names of methods, for programs to read.
pub(super) struct Names(Array<MapData, Row>);

impl Names {
    /// Takes the map out of the maps of an object; `None` if it has none.
    pub(super) fn take(maps: &mut Ebpf) -> Option<Self> {
        Array::try_from(take(maps, METHODS)?).ok().map(Self)
    }

    /// Names a function.
    pub(super) fn set(&mut self, index: u32, method: &Method) {
        if let Err(error) = self.0.set(index, row([&*method.class, &*method.name, &*method.signature]), 0) {
            tracing::warn!("{METHODS} does not have the name of function {index}: {error}");
        }
    }
}

/// What programs have counted.
pub(super) enum Values {
    Array(Array<MapData, u64>),
    PerCpuArray(PerCpuArray<MapData, u64>),
    Hash(HashMap<MapData, u32, u64>),
    PerCpuHash(PerCpuHashMap<MapData, u32, u64>),
}

impl Values {
    /// Takes the map out of the maps of an object; `None` if it has none.
    pub(super) fn take(maps: &mut Ebpf) -> Option<Self> {
        match take(maps, VALUES)? {
            map @ Map::Array(_) => Array::try_from(map).ok().map(Self::Array),
            map @ Map::PerCpuArray(_) => PerCpuArray::try_from(map).ok().map(Self::PerCpuArray),
            map @ Map::HashMap(_) => HashMap::try_from(map).ok().map(Self::Hash),
            map => PerCpuHashMap::try_from(map).ok().map(Self::PerCpuHash),
        }
    }

    /// The value of a function, of all CPUs together; 0 if there is none.
    pub(super) fn get(&self, index: u32) -> u64 {
        let sum = |values: &[u64]| values.iter().copied().fold(0, u64::wrapping_add);
        let value = match self {
            Self::Array(values) => values.get(&index, 0),
            Self::Hash(values) => values.get(&index, 0),
            Self::PerCpuArray(values) => values.get(&index, 0).map(|each| sum(&each)),
            Self::PerCpuHash(values) => values.get(&index, 0).map(|each| sum(&each)),
        };
        value.unwrap_or(0)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(METHODS)
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(VALUES)
    }
}

fn take(maps: &mut Ebpf, name: &str) -> Option<Map> {
    let found = maps.maps().map(|(found, _)| found.to_owned()).find(|found| found.eq_ignore_ascii_case(name))?;
    maps.take_map(&found)
}

/// A row of names: what does not fit is cut off between two characters, and a zero is left behind each.
fn row(names: [&str; 3]) -> Row {
    let (mut row, mut start) = ([0; ROW], 0);
    for (name, size) in names.into_iter().zip(PARTS) {
        let kept = &name.as_bytes()[..name.floor_char_boundary(size - 1)];
        row[start..start + kept.len()].copy_from_slice(kept);
        start += size;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each name stands at its place with a zero behind it, and that long ones are cut between characters.
    #[test]
    fn names_have_their_places() {
        let row = row([&"ä".repeat(100), "read", &"I".repeat(64)]);
        assert_eq!(std::str::from_utf8(&row[..128]).unwrap(), format!("{}\0\0", "ä".repeat(63)));
        assert_eq!(
            (&row[128..133], row[192..255].iter().all(|byte| *byte == b'I'), row[255]),
            (&b"read\0"[..], true, 0)
        );
        assert_eq!(PARTS.iter().sum::<usize>(), ROW);
    }

    /// Check that a map is known in small and in large letters, as C and Rust write it.
    #[test]
    fn maps_are_known_in_both_languages() {
        let name = |name| Layout::of(name).map(|layout| layout.name);
        assert_eq!([name("nprof_values"), name("NPROF_VALUES"), name("values")], [Some(VALUES), Some(VALUES), None]);
    }
}
