//! Where the fields of Java objects lie, by name: from the descriptions that the VM keeps of them, packed or in rows.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::{CodeLayout, field};
use super::object_layout::{ClassLayout, FieldFlags, FieldsLayout};
use super::symbols::read_texts;
use super::unsigned5::Unsigned5;
use crate::hotspot::{Number, Reader, RemoteMemory, at, is_plausible};
use crate::model::VirtAddr;
use crate::sys::remote_memory::MemoryError;

/// `JVM_ACC_STATIC`, from the class file format: such a field is not in the objects.
const ACC_STATIC: u32 = 0x8;
/// The classes of the VM's own threads have fewer above them.
const MAX_PARENTS: usize = 8;
/// More bytes than the descriptions of any of the classes that are met here take.
const MAX_DESCRIPTIONS: u64 = 1 << 14;
/// Bytes of a row with a field, and the bits below its offset that say whether there is one.
const ROW_BYTES: usize = 12;
const ROW_TAG_BITS: u32 = 2;
/// The lowest three bits of a layout helper are no part of the size.
const SIZE_BITS: u64 = 0x7fff_fff8;

/// A class of Java objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Class {
    /// Bytes that the fields of an instance take, header included.
    pub(super) instance_bytes: u64,
    /// Where fields lie in an instance, by class and name (`java/lang/Thread.cont`), those of the classes above included.
    offsets: HashMap<String, u64>,
}

impl Class {
    /// Where a field lies, such as `java/lang/Thread.cont`; `None` if the class has no such field.
    pub(super) fn offset(&self, field: &str) -> Option<u64> {
        self.offsets.get(field).copied()
    }
}

/// What the VM says of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Description {
    /// The number of its name: among the class's constants or, if it is `injected`, among the VM's own names.
    name: u64,
    injected: bool,
    offset: u64,
}

/// Reads a class; `None` if there is none. The layout must describe classes.
pub(super) fn read_class<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
    klass: VirtAddr,
) -> Result<Option<Arc<Class>>, MemoryError> {
    let Some(places) = layout.objects.as_ref().map(|objects| &objects.class) else {
        return Ok(None);
    };
    let helper = layout.names.klass.layout_helper;
    let Some([helper]) = reader.numbers([(at(klass, helper.offset), helper.width)])? else {
        return Ok(None);
    };
    let mut class = Class { instance_bytes: helper & SIZE_BITS, offsets: HashMap::new() };
    let mut next = klass;
    for _ in 0..MAX_PARENTS {
        let wanted = [places.parent, places.constants, places.fields.array(), layout.names.klass.name];
        let Some([parent, pool, fields, name]) = reader.numbers(wanted.map(|field| (at(next, field), 8)))? else {
            return Ok(None);
        };
        let Some(descriptions) = read_descriptions(reader, layout, places, (next, VirtAddr(fields)))? else {
            return Ok(None);
        };
        if !add_fields(reader, layout, [VirtAddr(name), VirtAddr(pool)], &descriptions, &mut class)? {
            return Ok(None);
        }
        next = VirtAddr(parent);
        if next.is_null() {
            return Ok(Some(Arc::new(class)));
        }
    }
    Ok(None)
}

/// Adds the fields of one class, named by its symbol and its constants. Returns whether all made sense.
fn add_fields<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
    [name, pool]: [VirtAddr; 2],
    descriptions: &[Description],
    class: &mut Class,
) -> Result<bool, MemoryError> {
    let vm_symbols = match layout.objects.as_ref().map(|objects| &objects.class.fields) {
        Some(FieldsLayout::Packed { vm_symbols, .. }) => *vm_symbols,
        _ => VirtAddr(0),
    };
    let own = at(pool, layout.names.pool.entries);
    let entry = |field: &Description| {
        let table = if field.injected { vm_symbols } else { own };
        [(at(table, field.name.saturating_mul(8)), 8)]
    };
    let symbols = reader.numbers_of(descriptions, entry)?;
    // The lowest bit of a constant is a tag. What cannot be read is address 0, which has no text.
    let symbols = symbols.into_iter().map(|symbol| VirtAddr(symbol.map_or(0, |[symbol]| symbol & !1)));
    let symbols: Vec<VirtAddr> = std::iter::once(name).chain(symbols).collect();
    let mut texts = read_texts(reader, &layout.names, &symbols)?.into_iter();
    let Some(Some(name)) = texts.next() else {
        return Ok(false);
    };
    for (field, text) in descriptions.iter().zip(texts) {
        let Some(text) = text else {
            return Ok(false);
        };
        class.offsets.insert(format!("{name}.{text}"), field.offset);
    }
    Ok(true)
}

/// Reads what a class says of its fields, by the array of that; `None` if it is none.
fn read_descriptions<M: RemoteMemory>(
    reader: &mut Reader<M>,
    layout: &CodeLayout,
    places: &ClassLayout,
    (klass, array): (VirtAddr, VirtAddr),
) -> Result<Option<Vec<Description>>, MemoryError> {
    let length = places.array_length;
    let length = reader.numbers([(at(array, length.offset), length.width)])?;
    let Some([length]) = length.filter(|[length]| *length <= MAX_DESCRIPTIONS && is_plausible(array)) else {
        return Ok(None);
    };
    let mut found = None;
    let length = usize::try_from(length).unwrap_or_default();
    match &places.fields {
        FieldsLayout::Packed { data, flags, .. } => {
            let excess = layout.versioned.packed_excess;
            let run = [(at(array, *data), length)];
            reader.runs_of(&run, |run| *run, |_, bytes| found = bytes.and_then(|b| unpack(b, excess, *flags)))?;
        }
        FieldsLayout::Rows { data, count, .. } => {
            let count = reader.numbers([(at(klass, count.offset), count.width)])?;
            let bytes = count.map_or(0, |[count]| usize::try_from(count).unwrap_or_default() * ROW_BYTES);
            let run = [(at(array, *data), bytes.min(2 * length))];
            reader.runs_of(&run, |run| *run, |_, bytes| found = bytes.map(rows))?;
        }
    }
    Ok(found)
}

/// Reads the fields that are not static from rows of six numbers: access, name, signature, value, and the offset in two halves,
/// above two bits.
fn rows(bytes: &[u8]) -> Vec<Description> {
    let row = |row: &[u8]| {
        let number = |at: u64| field(row, Number { offset: 2 * at, width: 2 }).unwrap_or_default();
        let is_static = number(0) & u64::from(ACC_STATIC) != 0;
        let offset = (number(5) << 16 | number(4)) >> ROW_TAG_BITS;
        (!is_static).then(|| Description { name: number(1), injected: false, offset })
    };
    bytes.chunks_exact(ROW_BYTES).filter_map(row).collect()
}

/// Unpacks the fields that are not static.
fn unpack(bytes: &[u8], excess: u8, flags: FieldFlags) -> Option<Vec<Description>> {
    let mut stream = Unsigned5::new(bytes, excess);
    let count = stream.number()?.checked_add(stream.number()?)?;
    let mut fields = Vec::new();
    for _ in 0..count {
        let (name, _signature, offset) = (stream.number()?, stream.number()?, stream.number()?);
        let (access, own) = (stream.number()?, stream.number()?);
        for _ in flags.optional.iter().filter(|flag| own & **flag != 0) {
            stream.number()?;
        }
        if access & ACC_STATIC == 0 {
            let injected = own & flags.injected != 0;
            fields.push(Description { name: name.into(), injected, offset: offset.into() });
        }
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that instance fields are found behind static ones and behind what some fields have besides.
    #[test]
    fn unpacks_fields() {
        let flags = FieldFlags { optional: [1, 4, 16, 0, 0], injected: 2 };
        // One field of the class's own, initialised and generic, one static, one injected.
        let bytes = [2, 1, 7, 1, 40, 2, 5, 90, 91, 8, 1, 16, 8, 0, 3, 1, 24, 0, 2, 0];
        let field = |name, injected, offset| Description { name, injected, offset };
        assert_eq!(unpack(&bytes, 0, flags), Some(vec![field(7, false, 40), field(3, true, 24)]));
        assert_eq!(unpack(&bytes[..16], 0, flags), None);
    }

    /// Check that rows say where fields lie, and that static ones are left out.
    #[test]
    fn reads_rows() {
        let bytes: Vec<u8> = [[2, 7, 9, 0, 12 << 2 | 1, 0], [8, 3, 4, 0, 5, 0], [0, 5, 4, 0, 1, 1]]
            .concat()
            .into_iter()
            .flat_map(u16::to_le_bytes)
            .collect();
        let field = |name, offset| Description { name, injected: false, offset };
        assert_eq!(rows(&bytes), [field(7, 12), field(5, 1 << 14)]);
        assert_eq!(rows(&bytes[..23]), [field(7, 12)]);
    }
}
