//! The VM's flags that are on or off, as it runs with them: from its own list, whoever set them and where.

use super::Error;
use super::exports::Exports;
use super::layout::Lookup;
use super::memory::{MemoryError, Reader, RemoteMemory, at};
use super::tables::Tables;
use crate::model::{Library, VirtAddr};

/// A VM has about 1,400 flags.
const MAX_FLAGS: u64 = 1 << 13;
/// Longer than the names of the flags that are looked for.
const FLAG_NAME_BYTES: usize = 40;
/// The bit of a flag's description that says that the command line set it (`JVMFlag::ORIG_COMMAND_LINE`).
const ON_COMMAND_LINE: u64 = 1 << 17;

/// A flag of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Whether it is on.
    pub is_on: bool,
    /// Whether the command line says so, and not the VM's default, its environment or a file.
    pub on_command_line: bool,
}

/// The VM's list of flags.
#[derive(Debug, Clone)]
pub(crate) struct FlagLayout {
    list: VirtAddr,
    count: VirtAddr,
    /// Of a flag: its name, where its value is, its description, and the size of all.
    name: u64,
    value: u64,
    description: u64,
    size: u64,
}

impl FlagLayout {
    pub(crate) fn of(look: &mut Lookup<'_>) -> Self {
        Self {
            list: look.variable("JVMFlag", "flags"),
            count: look.variable("JVMFlag", "numFlags"),
            name: look.offset("JVMFlag", "_name"),
            value: look.offset("JVMFlag", "_addr"),
            description: look.offset("JVMFlag", "_flags"),
            size: look.size("JVMFlag"),
        }
    }
}

/// Reads flags of the VM whose memory is `memory` and whose library is mapped where `libjvm` says; `None` for those that
/// this VM does not have.
///
/// # Errors
/// As [`super::Vm::open`]; [`Error::MissingEntry`] for a VM before JDK 11.
pub fn flags<M: RemoteMemory, const N: usize>(
    memory: M,
    libjvm: &Library,
    names: [&str; N],
) -> Result<[Option<Flag>; N], Error> {
    flags_with(memory, &Exports::of(libjvm)?, names)
}

fn flags_with<M: RemoteMemory, const N: usize>(
    memory: M,
    exports: &Exports,
    names: [&str; N],
) -> Result<[Option<Flag>; N], Error> {
    let mut reader = Reader::new(memory);
    let tables = Tables::read(&mut reader, exports)?;
    let mut look = Lookup::new(&tables);
    let layout = FlagLayout::of(&mut look);
    look.finish()?;
    read_flags(&mut reader, &layout, names)?.ok_or(Error::NotReady)
}

/// The flags by these names; `None` for all if the list cannot be read, and for those that this VM does not have.
pub(crate) fn read_flags<M: RemoteMemory, const N: usize>(
    reader: &mut Reader<M>,
    layout: &FlagLayout,
    names: [&str; N],
) -> Result<Option<[Option<Flag>; N]>, MemoryError> {
    let Some([list, count]) = reader.numbers([(layout.list, 8), (layout.count, 8)])? else {
        return Ok(None);
    };
    let rows: Vec<VirtAddr> = (0..count.min(MAX_FLAGS)).map(|row| at(VirtAddr(list), row * layout.size)).collect();
    let rows = reader.numbers_of(&rows, |&row| {
        [(at(row, layout.name), 8), (at(row, layout.value), 8), (at(row, layout.description), 4)]
    })?;
    let rows: Vec<[u64; 3]> = rows.into_iter().flatten().collect();
    let mut found = [(VirtAddr(0), 0); N];
    reader.runs_of(
        &rows,
        |[name, ..]| (VirtAddr(*name), FLAG_NAME_BYTES),
        |row, bytes| {
            let name = bytes.and_then(|bytes| bytes.split(|byte| *byte == 0).next());
            if let Some(wanted) = names.iter().position(|wanted| name == Some(wanted.as_bytes())) {
                let [_, value, description] = rows[row];
                found[wanted] = (VirtAddr(value), description);
            }
        },
    )?;
    let values = reader.numbers_of(&found, |&(value, _)| [(value, 1)])?;
    let mut flags = [None; N];
    for ((flag, value), (_, description)) in flags.iter_mut().zip(values).zip(found) {
        let on_command_line = description & ON_COMMAND_LINE != 0;
        *flag = value.map(|[value]| Flag { is_on: value != 0, on_command_line });
    }
    Ok(Some(flags))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotspot::testing::recording::Image;

    const LAYOUT: FlagLayout =
        FlagLayout { list: VirtAddr(0x1000), count: VirtAddr(0x1008), name: 8, value: 0, description: 16, size: 24 };

    /// Check that flags are found by their whole names, with their values and who set them, and those that are not
    /// there, or beyond the end, are not.
    #[test]
    fn reads_flags() {
        let mut image = Image::default();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        image.put(0x1000, &words(&[0x2000, 3]));
        let flags = [("UseZGC", 1, 1 << 17 | 1), ("ReduceSignalUsage", 0, 0), ("UseZ", 1, 0), ("Beyond", 1, 0)];
        for (row, (name, is_on, description)) in (0_u64..).zip(flags) {
            let (name_addr, value_addr) = (0x3000 + row * 64, 0x4000 + row * 8);
            image.put(0x2000 + row * 24, &words(&[value_addr, name_addr, description]));
            image.put(value_addr, &words(&[is_on]));
            let mut text = [0; 64];
            text[..name.len()].copy_from_slice(name.as_bytes());
            image.put(name_addr, &text);
        }
        let names = ["ReduceSignalUsage", "UseZGC", "UseZGCs", "Beyond"];
        let read = read_flags(&mut Reader::new(&image), &LAYOUT, names).unwrap().unwrap();
        let flag = |is_on, on_command_line| Some(Flag { is_on, on_command_line });
        assert_eq!(read, [flag(false, false), flag(true, true), None, None]);
    }
}
