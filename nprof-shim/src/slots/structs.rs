//! Where the VM's structures keep what is read here, as the VM itself says: by the tables that it exports for debuggers.

#![expect(unsafe_code, reason = "reads constant tables of the VM, which say themselves how they are laid out")]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::vm::Vm;

/// More entries than any VM has. One with more has no end that could be found.
const MOST_ENTRIES: usize = 65_536;

/// Distances in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Structs {
    /// The VM's class in a `java.lang.Class`.
    pub(super) class_in_mirror: usize,
    /// The array of a class's methods.
    pub(super) methods: usize,
    /// The array of their ids.
    pub(super) method_ids: usize,
    /// The first element in an array of methods.
    pub(super) first_method: usize,
    /// The constant part of a method.
    pub(super) const_method: usize,
    /// A method's number in its class, in that.
    pub(super) id_number: usize,
}

/// Types and fields in the order of [`Structs`].
const FIELDS: [(&CStr, &CStr); 6] = [
    (c"java_lang_Class", c"_klass_offset"),
    (c"InstanceKlass", c"_methods"),
    (c"InstanceKlass", c"_methods_jmethod_ids"),
    (c"Array<Method*>", c"_data"),
    (c"Method", c"_constMethod"),
    (c"ConstMethod", c"_method_idnum"),
];

impl Structs {
    /// What the VM says; `None` if it does not say all of that.
    pub(super) fn of(vm: Vm) -> Option<Self> {
        Table::find(vm)?.structs()
    }
}

/// The VM's table of fields.
#[derive(Debug, Clone, Copy)]
struct Table {
    first: *const u8,
    /// From one entry to the next.
    stride: usize,
    /// From the beginning of an entry.
    type_name: usize,
    field_name: usize,
    is_static: usize,
    offset: usize,
    address: usize,
}

impl Table {
    fn find(vm: Vm) -> Option<Self> {
        let part = |name: &CStr| {
            let variable = vm.exported(name)?.cast::<u64>();
            // SAFETY: the VM exports it as a constant of 64 bits.
            usize::try_from(unsafe { variable.read() }).ok()
        };
        let first = vm.exported(c"gHotSpotVMStructs")?.cast::<*const u8>();
        Some(Self {
            // SAFETY: the VM exports it as a pointer.
            first: unsafe { first.read() },
            stride: part(c"gHotSpotVMStructEntryArrayStride")?,
            type_name: part(c"gHotSpotVMStructEntryTypeNameOffset")?,
            field_name: part(c"gHotSpotVMStructEntryFieldNameOffset")?,
            is_static: part(c"gHotSpotVMStructEntryIsStaticOffset")?,
            offset: part(c"gHotSpotVMStructEntryOffsetOffset")?,
            address: part(c"gHotSpotVMStructEntryAddressOffset")?,
        })
    }

    fn structs(self) -> Option<Structs> {
        let mut found = [None; FIELDS.len()];
        for number in 0..MOST_ENTRIES {
            let Some(name) = self.name(number) else { break };
            if let Some(place) = FIELDS.iter().position(|&field| field == name) {
                found[place] = self.value(number);
            }
        }
        let [class_in_mirror, methods, method_ids, first_method, const_method, id_number] = found;
        Some(Structs {
            class_in_mirror: class_in_mirror?,
            methods: methods?,
            method_ids: method_ids?,
            first_method: first_method?,
            const_method: const_method?,
            id_number: id_number?,
        })
    }

    /// The type and the field of an entry; `None` behind the last.
    fn name(self, number: usize) -> Option<(&'static CStr, &'static CStr)> {
        let [type_name, field_name] =
            [self.type_name, self.field_name].map(|part| self.part::<*const c_char>(number, part));
        if type_name.is_null() || field_name.is_null() {
            return None;
        }
        // SAFETY: a C string that the VM keeps.
        Some((unsafe { CStr::from_ptr(type_name) }, unsafe { CStr::from_ptr(field_name) }))
    }

    /// Where the field is in its type, or what it holds if it belongs to the type.
    fn value(self, number: usize) -> Option<usize> {
        if self.part::<i32>(number, self.is_static) == 0 {
            return usize::try_from(self.part::<u64>(number, self.offset)).ok();
        }
        let variable = self.part::<*const c_void>(number, self.address);
        // SAFETY: the only such field that is asked for is an int of the VM's.
        usize::try_from((!variable.is_null()).then(|| unsafe { variable.cast::<c_int>().read() })?).ok()
    }

    fn part<T>(self, number: usize, part: usize) -> T {
        let part = self.first.wrapping_add(number * self.stride + part).cast::<T>();
        // SAFETY: an entry up to the first without names is in the table, and has such a part there.
        unsafe { part.read_unaligned() }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;
    use std::ptr::null;

    use super::*;

    #[repr(C)]
    struct Entry {
        type_name: *const c_char,
        field_name: *const c_char,
        is_static: i32,
        offset: u64,
        address: *const c_int,
    }

    fn table(entries: &[Entry]) -> Table {
        Table {
            first: entries.as_ptr().cast(),
            stride: size_of::<Entry>(),
            type_name: offset_of!(Entry, type_name),
            field_name: offset_of!(Entry, field_name),
            is_static: offset_of!(Entry, is_static),
            offset: offset_of!(Entry, offset),
            address: offset_of!(Entry, address),
        }
    }

    /// Check that each distance is found by its names, the first as what a variable holds, and that none may be missing.
    #[test]
    fn by_name() {
        let held: c_int = 96;
        let entry = |(number, (type_name, field_name)): (u64, (&CStr, &CStr))| Entry {
            type_name: type_name.as_ptr(),
            field_name: field_name.as_ptr(),
            is_static: i32::from(number == 0),
            offset: number * 8,
            address: &raw const held,
        };
        let end = || Entry { type_name: null(), field_name: null(), is_static: 0, offset: 0, address: null() };
        let others = [(c"InstanceKlass", c"_method"), (c"Klass", c"_methods")].map(|names| entry((9, names)));
        let mut entries: Vec<Entry> = others.into_iter().chain((0..).zip(FIELDS).map(entry)).collect();
        entries.push(end());
        let expected = Structs {
            class_in_mirror: 96,
            methods: 8,
            method_ids: 16,
            first_method: 24,
            const_method: 32,
            id_number: 40,
        };
        assert_eq!(table(&entries).structs(), Some(expected));
        let last = entries.len() - 2;
        entries[last] = end();
        assert_eq!(table(&entries).structs(), None);
    }
}
