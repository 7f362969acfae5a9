//! How much room the VM has for compiled code, from the bounds of its code heaps.

use super::Error;
use super::exports::Exports;
use super::layout::{Lookup, Number};
use super::memory::{MemoryError, Reader, RemoteMemory, at, is_plausible};
use super::tables::Tables;
use crate::model::{Library, VirtAddr};

/// There are one to three.
const MAX_HEAPS: u64 = 16;

/// The room for compiled code, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CodeRoom {
    /// All of it, as it was set aside when the VM started.
    pub reserved: u64,
    /// What has been taken into use so far; some of it may be free again.
    pub taken: u64,
}

/// Where the bounds of code heaps are.
#[derive(Debug, Clone)]
struct RoomLayout {
    heaps: VirtAddr,
    list_length: Number,
    list_data: u64,
    /// Of a heap: where its memory begins and ends, and up to where it is in use.
    begin: u64,
    end: u64,
    used_end: u64,
}

impl RoomLayout {
    fn of(look: &mut Lookup<'_>) -> Self {
        let memory = look.offset("CodeHeap", "_memory");
        Self {
            heaps: look.variable("CodeCache", "_heaps"),
            list_length: look.number("GrowableArrayBase", "_len"),
            list_data: look.offset("GrowableArray<int>", "_data"),
            begin: memory + look.offset("VirtualSpace", "_low_boundary"),
            end: memory + look.offset("VirtualSpace", "_high_boundary"),
            used_end: memory + look.offset("VirtualSpace", "_high"),
        }
    }
}

/// Reads the room for compiled code of the VM whose memory is `memory` and whose library is mapped where `libjvm` says.
///
/// # Errors
/// As [`super::Vm::open`]; [`Error::MissingEntry`] for a VM that does not say.
pub fn code_room<M: RemoteMemory>(memory: M, libjvm: &Library) -> Result<CodeRoom, Error> {
    let exports = Exports::of(libjvm)?;
    let mut reader = Reader::new(memory);
    let tables = Tables::read(&mut reader, &exports)?;
    let mut look = Lookup::new(&tables);
    let layout = RoomLayout::of(&mut look);
    look.finish()?;
    read_room(&mut reader, &layout)?.ok_or(Error::NotReady)
}

/// `None` before the VM has set it aside.
fn read_room<M: RemoteMemory>(reader: &mut Reader<M>, layout: &RoomLayout) -> Result<Option<CodeRoom>, MemoryError> {
    let Some([list]) = reader.numbers([(layout.heaps, 8)])? else { return Ok(None) };
    let list = VirtAddr(list);
    let length = (at(list, layout.list_length.offset), layout.list_length.width);
    let Some([length, data]) = reader.numbers([length, (at(list, layout.list_data), 8)])? else { return Ok(None) };
    let entries: Vec<VirtAddr> = (0..length.min(MAX_HEAPS)).map(|index| at(VirtAddr(data), 8 * index)).collect();
    let heaps = reader.numbers_of(&entries, |&entry| [(entry, 8)])?;
    let heaps: Vec<VirtAddr> = heaps.into_iter().flatten().map(|[heap]| VirtAddr(heap)).collect();
    let bounds =
        reader.numbers_of(&heaps, |&heap| [layout.begin, layout.end, layout.used_end].map(|o| (at(heap, o), 8)))?;
    let mut room = CodeRoom::default();
    for [begin, end, used_end] in bounds.into_iter().flatten() {
        if is_plausible(VirtAddr(begin)) && (begin..=end).contains(&used_end) {
            room.reserved = room.reserved.saturating_add(end - begin);
            room.taken = room.taken.saturating_add(used_end - begin);
        }
    }
    Ok((room.reserved > 0).then_some(room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotspot::testing::recording::Image;

    const LAYOUT: RoomLayout = RoomLayout {
        heaps: VirtAddr(0x1000),
        list_length: Number { offset: 0, width: 4 },
        list_data: 8,
        begin: 0,
        end: 8,
        used_end: 16,
    };

    /// Check that the heaps are added up, and that one whose bounds contradict each other is left out.
    #[test]
    fn adds_up_heaps() {
        let mut image = Image::default();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        image.put(0x1000, &words(&[0x2000]));
        image.put(0x2000, &words(&[3, 0x3000]));
        image.put(0x3000, &words(&[0x4000, 0x5000, 0x6000]));
        image.put(0x4000, &words(&[0x7f00_0000_0000, 0x7f00_0000_9000, 0x7f00_0000_1000]));
        image.put(0x5000, &words(&[0x7f00_0001_0000, 0x7f00_0001_1000, 0x7f00_0001_1000]));
        image.put(0x6000, &words(&[0x7f00_0002_0000, 0x7f00_0002_1000, 0x7f00_0002_2000]));
        let room = read_room(&mut Reader::new(&image), &LAYOUT).unwrap();
        assert_eq!(room, Some(CodeRoom { reserved: 0xa000, taken: 0x2000 }));
    }

    /// Check that a VM that has not set anything aside is not ready.
    #[test]
    fn nothing_yet() {
        let mut image = Image::default();
        image.put(0x1000, &[0; 8]);
        assert_eq!(read_room(&mut Reader::new(&image), &LAYOUT).unwrap(), None);
    }
}
