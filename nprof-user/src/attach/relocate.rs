//! What aya has made of an object, put into the programs that aya does not load: the descriptors of the maps, and the places of the
//! functions that they call.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya_obj::Object;
use aya_obj::relocation::EbpfRelocationError;

/// Has the programs of an object use the maps that were made of it, and call its functions.
///
/// # Errors
/// If a program refers to what is not in the object.
pub(super) fn relocate(object: &mut Object, ebpf: &Ebpf) -> Result<(), EbpfRelocationError> {
    let definitions = object.maps.clone();
    let made = ebpf.maps().filter_map(|(name, map)| Some((name, data(map)?.fd().as_fd().as_raw_fd())));
    let text: HashSet<usize> = object.functions.keys().map(|&(section, _)| section).collect();
    object.relocate_maps(
        made.filter_map(|(name, fd)| definitions.get(name).map(|definition| (name, fd, definition))),
        &text,
    )?;
    object.relocate_calls(&text)
}

/// What stands behind a map, whatever aya thinks of its type.
pub(super) fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::ArrayOfMaps(data)
        | Map::BloomFilter(data)
        | Map::CgroupArray(data)
        | Map::CgrpStorage(data)
        | Map::CpuMap(data)
        | Map::DevMap(data)
        | Map::DevMapHash(data)
        | Map::HashMap(data)
        | Map::HashOfMaps(data)
        | Map::InodeStorage(data)
        | Map::LpmTrie(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::PerCpuLruHashMap(data)
        | Map::PerfEventArray(data)
        | Map::ProgramArray(data)
        | Map::Queue(data)
        | Map::RingBuf(data)
        | Map::SockHash(data)
        | Map::SockMap(data)
        | Map::SkStorage(data)
        | Map::Stack(data)
        | Map::StackTraceMap(data)
        | Map::Unsupported(data)
        | Map::XskMap(data) => Some(data),
        _ => None,
    }
}
