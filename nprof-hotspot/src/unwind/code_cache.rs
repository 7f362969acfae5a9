//! Finds the piece of code (*blob*) that an address lies in: by the segment maps of the VM's code heaps, and from then on
//! in what is remembered.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::blob::{Blob, Header};
use super::layout::CodeLayout;
use crate::hotspot::{Reader, RemoteMemory, at, is_plausible, read_string};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// There are one to three.
const MAX_HEAPS: u64 = 16;
/// Segments have 64 or 128 bytes.
const SEGMENT_BITS: Range<u64> = 3..20;
/// A byte of a segment map leads at most that far back; 0 is the start of a block.
const FREE_SEGMENT: u64 = 0xff;
/// Enough for a blob of 64 MB in the smallest segments.
const MAX_HOPS: usize = 1 << 12;
/// A JVM has some ten thousand; beyond, the cache starts over.
const MAX_CACHED: usize = 1 << 17;

/// A code heap.
#[derive(Debug, Clone)]
struct Heap {
    memory: Range<VirtAddr>,
    segment_map: VirtAddr,
    log2_segment_size: u64,
}

/// The code heaps and the blobs that have been met in them.
#[derive(Debug, Default)]
pub(super) struct CodeCache {
    heaps: Vec<Heap>,
    blobs: BTreeMap<VirtAddr, Blob>,
    /// What blobs are called, by the address of the text: a few dozen texts for all blobs.
    names: HashMap<VirtAddr, Arc<str>>,
}

impl CodeCache {
    /// The start of the blob that `pc` lies in; `None` if it lies in none.
    pub(super) fn find<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        pc: VirtAddr,
    ) -> Result<Option<VirtAddr>, MemoryError> {
        if let Some((begin, _)) = self.blobs.range(..=pc).next_back().filter(|(_, blob)| pc < blob.end) {
            return Ok(Some(*begin));
        }
        let Some((begin, header)) = self.read_header(reader, layout, pc)? else {
            return Ok(None);
        };
        let Some(blob) = self.read_blob(reader, layout, begin, &header)?.filter(|blob| pc < blob.end) else {
            return Ok(None);
        };
        self.insert(begin, blob);
        Ok(Some(begin))
    }

    pub(super) fn get(&self, begin: VirtAddr) -> Option<&Blob> {
        self.blobs.get(&begin)
    }

    pub(super) fn get_mut(&mut self, begin: VirtAddr) -> Option<&mut Blob> {
        self.blobs.get_mut(&begin)
    }

    pub(super) fn forget(&mut self, begin: VirtAddr) {
        self.blobs.remove(&begin);
    }

    /// Remembers a blob in the place of all that it overlaps with.
    fn insert(&mut self, begin: VirtAddr, blob: Blob) {
        if self.blobs.len() >= MAX_CACHED {
            self.blobs.clear();
        }
        while let Some((&old, _)) = self.blobs.range(..blob.end).next_back().filter(|(_, old)| old.end > begin) {
            self.blobs.remove(&old);
        }
        self.blobs.insert(begin, blob);
    }

    /// Follows the segment map back to the block that `pc` lies in and reads the header of its blob.
    fn read_header<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        pc: VirtAddr,
    ) -> Result<Option<(VirtAddr, Header)>, MemoryError> {
        let Some(heap) = self.heap_of(reader, layout, pc)? else {
            return Ok(None);
        };
        let mut segment = (pc.0 - heap.memory.start.0) >> heap.log2_segment_size;
        for _ in 0..MAX_HOPS {
            match reader.numbers([(at(heap.segment_map, segment), 1)])? {
                Some([0]) => {
                    let block = at(heap.memory.start, segment << heap.log2_segment_size);
                    return read_used_block(reader, layout, block);
                }
                Some([back]) if back != FREE_SEGMENT && back <= segment => segment -= back,
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// The heap that `pc` lies in. Heaps grow, so they are read again if none is found.
    fn heap_of<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        pc: VirtAddr,
    ) -> Result<Option<Heap>, MemoryError> {
        let of_pc = |heaps: &[Heap]| heaps.iter().find(|heap| heap.memory.contains(&pc)).cloned();
        if let Some(heap) = of_pc(&self.heaps) {
            return Ok(Some(heap));
        }
        self.heaps = read_heaps(reader, layout)?;
        Ok(of_pc(&self.heaps))
    }

    fn read_blob<M: RemoteMemory>(
        &mut self,
        reader: &mut Reader<M>,
        layout: &CodeLayout,
        begin: VirtAddr,
        header: &Header,
    ) -> Result<Option<Blob>, MemoryError> {
        let Some(text) = header.name(layout) else {
            return Ok(None);
        };
        let name = match self.names.get(&text) {
            Some(name) => Arc::clone(name),
            None => {
                let Some(name) = read_string(reader, text)? else {
                    return Ok(None);
                };
                let name: Arc<str> = name.into();
                self.names.insert(text, Arc::clone(&name));
                name
            }
        };
        Blob::read(reader, layout, begin, header, &name)
    }
}

/// The header of the blob in the block at `block`, if the block is in use.
fn read_used_block<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
    block: VirtAddr,
) -> Result<Option<(VirtAddr, Header)>, MemoryError> {
    let used = layout.heap.block_used;
    let blob = at(block, layout.heap.block_size);
    let runs = [(at(block, used.offset), used.width), (blob, layout.blob.header_bytes)];
    let mut found = [None, None];
    reader.runs_of(&runs, |run| *run, |index, bytes| found[index] = bytes.map(<[u8]>::to_vec))?;
    let [Some(used), Some(bytes)] = found else {
        return Ok(None);
    };
    Ok((used != [0]).then_some((blob, Header { bytes })))
}

fn read_heaps<M: RemoteMemory>(reader: &mut Reader<M>, layout: &CodeLayout) -> Result<Vec<Heap>, MemoryError> {
    let places = &layout.heap;
    let Some([list]) = reader.numbers([(layout.statics.heaps, 8)])? else {
        return Ok(Vec::new());
    };
    let list = VirtAddr(list);
    let length = (at(list, places.list_length.offset), places.list_length.width);
    let Some([length, data]) = reader.numbers([length, (at(list, places.list_data), 8)])? else {
        return Ok(Vec::new());
    };
    let entries: Vec<VirtAddr> = (0..length.min(MAX_HEAPS)).map(|index| at(VirtAddr(data), 8 * index)).collect();
    let heaps = reader.numbers_of(&entries, |&entry| [(entry, 8)])?;
    let heaps: Vec<VirtAddr> = heaps.into_iter().flatten().map(|[heap]| VirtAddr(heap)).collect();
    let shapes = reader.numbers_of(&heaps, |&heap| {
        let segment = places.log2_segment_size;
        [
            (at(heap, places.low), 8),
            (at(heap, places.high), 8),
            (at(heap, places.segment_map), 8),
            (at(heap, segment.offset), segment.width),
        ]
    })?;
    Ok(shapes.into_iter().flatten().filter_map(heap).collect())
}

fn heap([low, high, segment_map, log2_segment_size]: [u64; 4]) -> Option<Heap> {
    let memory = VirtAddr(low)..VirtAddr(high);
    let good = is_plausible(memory.start) && memory.start < memory.end && SEGMENT_BITS.contains(&log2_segment_size);
    good.then_some(Heap { memory, segment_map: VirtAddr(segment_map), log2_segment_size })
}
