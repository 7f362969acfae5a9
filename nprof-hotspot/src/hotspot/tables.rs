//! The tables in which HotSpot describes itself to debuggers (`gHotSpotVMStructs` and its companions): which struct
//! has which field at which offset, how large each type is, and named constants.
//!
//! Each is an array of C structs in libjvm's data, whose own layout is exported beside it. An entry without a name
//! ends it.

use std::collections::HashMap;

use super::Error;
use super::exports::Exports;
use super::memory::{MemoryError, Reader, RemoteMemory, at, distance, number};
use crate::model::VirtAddr;

/// More rows than any VM has (25: 585 fields; 17: 788), few enough to read in a blink.
const MAX_ROWS: usize = 1 << 14;
/// Every column is read as eight bytes.
const MIN_STRIDE: u64 = 8;
/// No row is larger (they have 16 to 48 bytes).
const MAX_STRIDE: u64 = 256;
/// Names and type strings are short; the longest is below 100 bytes.
const MAX_STRING: usize = 512;
/// How much of a string is read at first.
const STRING_PIECE: usize = 64;
/// Strings never cross it in one read, so that a string at the end of a mapping is found.
const PAGE: usize = 4096;

/// A field of a struct or a static variable of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldEntry {
    /// Its C++ type, such as `u2` or `Klass*`.
    pub(crate) type_string: String,
    pub(crate) is_static: bool,
    /// Bytes from the start of the struct, if it is not static.
    pub(crate) offset: u64,
    /// Where it lies, if it is static.
    pub(crate) address: VirtAddr,
}

/// All tables, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    /// By `type::field`.
    pub(crate) fields: HashMap<String, FieldEntry>,
    /// Size in bytes by type.
    pub(crate) sizes: HashMap<String, u64>,
}

impl Tables {
    /// Reads them.
    ///
    /// # Errors
    /// [`Error::NoTables`] if this VM has none, [`Error::NotReady`] if they are not filled yet.
    pub(crate) fn read<M: RemoteMemory>(reader: &mut Reader<M>, exports: &Exports) -> Result<Self, Error> {
        let structs = Shape::read(
            reader,
            exports,
            "gHotSpotVMStructs",
            [
                "gHotSpotVMStructEntryTypeNameOffset",
                "gHotSpotVMStructEntryFieldNameOffset",
                "gHotSpotVMStructEntryTypeStringOffset",
                "gHotSpotVMStructEntryIsStaticOffset",
                "gHotSpotVMStructEntryOffsetOffset",
                "gHotSpotVMStructEntryAddressOffset",
            ],
            "gHotSpotVMStructEntryArrayStride",
        )?;
        let types = Shape::read(
            reader,
            exports,
            "gHotSpotVMTypes",
            ["gHotSpotVMTypeEntryTypeNameOffset", "gHotSpotVMTypeEntrySizeOffset"],
            "gHotSpotVMTypeEntryArrayStride",
        )?;
        Ok(Self { fields: read_fields(reader, &structs)?, sizes: read_sizes(reader, &types)? })
    }
}

/// The named integer constants of the VM (`gHotSpotVMIntConstants`).
///
/// # Errors
/// As [`Tables::read`].
pub(crate) fn read_int_constants<M: RemoteMemory>(
    reader: &mut Reader<M>,
    exports: &Exports,
) -> Result<HashMap<String, i32>, Error> {
    let shape = Shape::read(
        reader,
        exports,
        "gHotSpotVMIntConstants",
        ["gHotSpotVMIntConstantEntryNameOffset", "gHotSpotVMIntConstantEntryValueOffset"],
        "gHotSpotVMIntConstantEntryArrayStride",
    )?;
    // An int32_t: what follows it in the row is padding.
    read_constants(reader, &shape, |value| Some(u32::try_from(value & 0xffff_ffff).ok()?.cast_signed()))
}

/// The named constants of the VM that are declared as wide (`gHotSpotVMLongConstants`), those of them that fit an `i32`.
///
/// # Errors
/// As [`Tables::read`].
pub(crate) fn read_long_constants<M: RemoteMemory>(
    reader: &mut Reader<M>,
    exports: &Exports,
) -> Result<HashMap<String, i32>, Error> {
    let shape = Shape::read(
        reader,
        exports,
        "gHotSpotVMLongConstants",
        ["gHotSpotVMLongConstantEntryNameOffset", "gHotSpotVMLongConstantEntryValueOffset"],
        "gHotSpotVMLongConstantEntryArrayStride",
    )?;
    read_constants(reader, &shape, |value| i32::try_from(value).ok())
}

/// The constants of a table by name, without those whose value `number` does not take.
fn read_constants<M: RemoteMemory>(
    reader: &mut Reader<M>,
    shape: &Shape<2>,
    number: impl Fn(u64) -> Option<i32>,
) -> Result<HashMap<String, i32>, Error> {
    let rows = shape.rows(reader)?;
    let strings = Strings::read(reader, rows.iter().map(|row| row[0]))?;
    let constant = |&[name, value]: &[u64; 2]| Some((strings.at(name).to_owned(), number(value)?));
    Ok(rows.iter().filter_map(constant).collect())
}

fn read_fields<M: RemoteMemory>(
    reader: &mut Reader<M>,
    shape: &Shape<6>,
) -> Result<HashMap<String, FieldEntry>, Error> {
    let rows = shape.rows(reader)?;
    let strings = Strings::read(reader, rows.iter().flat_map(|row| row[..3].to_vec()))?;
    let entry = |row: &[u64; 6]| {
        let [type_name, field_name, type_string, is_static, offset, address] = *row;
        let name = format!("{}::{}", strings.at(type_name), strings.at(field_name));
        let entry = FieldEntry {
            type_string: strings.at(type_string).to_owned(),
            // An int32_t: what follows it in the row is padding.
            is_static: is_static & 0xffff_ffff != 0,
            offset,
            address: VirtAddr(address),
        };
        (name, entry)
    };
    Ok(rows.iter().map(entry).collect())
}

fn read_sizes<M: RemoteMemory>(reader: &mut Reader<M>, shape: &Shape<2>) -> Result<HashMap<String, u64>, Error> {
    let rows = shape.rows(reader)?;
    let strings = Strings::read(reader, rows.iter().map(|row| row[0]))?;
    let size = |&[name, size]: &[u64; 2]| (strings.at(name).to_owned(), size);
    Ok(rows.iter().map(size).collect())
}

/// Where a table lies and how its rows are laid out; the first column is the name whose absence ends the table.
struct Shape<const N: usize> {
    base: VirtAddr,
    stride: usize,
    columns: [usize; N],
}

impl<const N: usize> Shape<N> {
    fn read<M: RemoteMemory>(
        reader: &Reader<M>,
        exports: &Exports,
        base: &str,
        columns: [&str; N],
        stride: &str,
    ) -> Result<Self, Error> {
        let value = |name: &str| -> Result<u64, Error> {
            let addr = exports.variables.get(name).ok_or(Error::NoTables)?;
            Ok(reader.pointer(*addr)?.0)
        };
        let base = VirtAddr(value(base)?);
        let stride = value(stride)?;
        // The variables are set after the tables by the same initialiser, so a stride says that the table is filled.
        if base.is_null() || stride == 0 {
            return Err(Error::NotReady);
        }
        if !(MIN_STRIDE..=MAX_STRIDE).contains(&stride) {
            return Err(Error::BadTables);
        }
        let mut offsets = [0; N];
        for (offset, name) in offsets.iter_mut().zip(columns) {
            let read = value(name)?;
            if read > stride - MIN_STRIDE {
                return Err(Error::BadTables);
            }
            *offset = usize::try_from(read).map_err(|_error| Error::BadTables)?;
        }
        Ok(Self { base, stride: usize::try_from(stride).map_err(|_error| Error::BadTables)?, columns: offsets })
    }

    /// The rows of the table, reduced to the columns.
    fn rows<M: RemoteMemory>(&self, reader: &Reader<M>) -> Result<Vec<[u64; N]>, Error> {
        let mut bytes = Vec::new();
        let mut rows = Vec::new();
        while rows.len() < MAX_ROWS {
            read_to_page_end(reader, self.base, &mut bytes)?;
            while let Some(row) = bytes.get(rows.len() * self.stride..).and_then(|rest| rest.get(..self.stride)) {
                let row = self.columns.map(|column| number(&row[column..column + 8]));
                if row[0] == 0 {
                    return if rows.is_empty() { Err(Error::NotReady) } else { Ok(rows) };
                }
                rows.push(row);
            }
        }
        Err(Error::BadTables)
    }
}

/// Appends to `bytes`, which start at `base`, what follows them up to the end of the page: a table may be the last
/// thing that is mapped.
fn read_to_page_end<M: RemoteMemory>(
    reader: &Reader<M>,
    base: VirtAddr,
    bytes: &mut Vec<u8>,
) -> Result<(), MemoryError> {
    let old = bytes.len();
    let next = at(base, old as u64);
    bytes.resize(old + to_page_end(next), 0);
    reader.bytes(next, &mut bytes[old..])
}

/// How many bytes are left of the page in which `addr` lies.
fn to_page_end(addr: VirtAddr) -> usize {
    let page_start = VirtAddr(addr.0 - addr.0 % PAGE as u64);
    PAGE - distance(page_start, addr)
}

/// C strings of the target, each read once however many rows share it.
struct Strings {
    by_address: HashMap<u64, String>,
}

impl Strings {
    fn read<M: RemoteMemory>(
        reader: &mut Reader<M>,
        addresses: impl Iterator<Item = u64>,
    ) -> Result<Self, MemoryError> {
        let mut wanted: Vec<u64> = addresses.collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut by_address = HashMap::new();
        let mut open: Vec<(u64, Vec<u8>)> = wanted.into_iter().map(|addr| (addr, Vec::new())).collect();
        while !open.is_empty() {
            open = read_round(reader, open, &mut by_address)?;
        }
        Ok(Self { by_address })
    }

    /// The string at an address; empty if there is none that can be read.
    fn at(&self, addr: u64) -> &str {
        self.by_address.get(&addr).map_or("", String::as_str)
    }
}

/// Reads one more piece of every string that has not ended yet; returns those that still have not.
fn read_round<M: RemoteMemory>(
    reader: &mut Reader<M>,
    open: Vec<(u64, Vec<u8>)>,
    done: &mut HashMap<u64, String>,
) -> Result<Vec<(u64, Vec<u8>)>, MemoryError> {
    let mut pieces: Vec<Option<Vec<u8>>> = Vec::with_capacity(open.len());
    let next = |(addr, read): &(u64, Vec<u8>)| {
        let next = at(VirtAddr(*addr), read.len() as u64);
        (next, STRING_PIECE.min(to_page_end(next)))
    };
    reader.runs_of(&open, next, |_, piece| pieces.push(piece.map(<[u8]>::to_vec)))?;
    let mut still_open = Vec::new();
    for ((addr, mut read), piece) in open.into_iter().zip(pieces) {
        let Some(piece) = piece else { continue };
        let end = piece.iter().position(|&byte| byte == 0);
        read.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if end.is_some() {
            done.insert(addr, String::from_utf8_lossy(&read).into_owned());
        } else if read.len() < MAX_STRING {
            still_open.push((addr, read));
        }
    }
    Ok(still_open)
}

/// Reads the C string at `addr`; `None` if there is none of a sensible length.
pub(crate) fn read_string<M: RemoteMemory>(
    reader: &mut Reader<M>,
    addr: VirtAddr,
) -> Result<Option<String>, MemoryError> {
    let mut strings = Strings::read(reader, std::iter::once(addr.0))?;
    Ok(strings.by_address.remove(&addr.0))
}
