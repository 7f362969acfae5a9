//! How Java objects lie in the heap, and how their classes describe them: where the VM says so.

use std::collections::HashMap;

use crate::hotspot::{FlagLayout, Lookup, Number, Tables};
use crate::model::VirtAddr;

/// Everything that [`super::objects`] and [`super::classes`] have to know; offsets in bytes.
#[derive(Debug, Clone)]
pub(super) struct ObjectsLayout {
    pub(super) class: ClassLayout,
    pub(super) flags: FlagLayout,
    pub(super) objects: ObjectLayout,
}

/// How a `Klass` describes the fields of its instances.
#[derive(Debug, Clone)]
pub(super) struct ClassLayout {
    pub(super) parent: u64,
    pub(super) constants: u64,
    pub(super) fields: FieldsLayout,
    pub(super) array_length: Number,
}

/// The descriptions of the fields.
#[derive(Debug, Clone)]
pub(super) enum FieldsLayout {
    /// Packed (`Array<u1>`).
    Packed {
        array: u64,
        data: u64,
        /// The VM's own names, by number.
        vm_symbols: VirtAddr,
        flags: FieldFlags,
    },
    /// Six numbers of two bytes each (`Array<u2>`), up to JDK 20.
    Rows { array: u64, data: u64, count: Number },
}

/// Bits that say what follows in the description of a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldFlags {
    /// Each of these means one more number. Bits that a version does not have are 0.
    pub(super) optional: [u32; 5],
    /// The name is one of the VM's own.
    pub(super) injected: u32,
}

/// Variables with the parameters of compressed and coloured pointers.
#[derive(Debug, Clone)]
pub(super) struct ObjectLayout {
    pub(super) klass_offset: u64,
    pub(super) narrow_oop: [VirtAddr; 2],
    pub(super) narrow_klass: [VirtAddr; 2],
    /// The bit that a class begins at in the mark word of an object without another header; JDKs before 24 have none.
    pub(super) klass_in_mark: Option<u32>,
    pub(super) colours: Option<ColourLayout>,
}

/// What the collector Z exports; each field points to the value.
#[derive(Debug, Clone)]
pub(super) struct ColourLayout {
    pub(super) instance: VirtAddr,
    pub(super) bad_mask: u64,
    pub(super) shift: u64,
}

impl ObjectsLayout {
    /// Looks everything up; `None` for a VM whose tables do not describe objects.
    pub(super) fn of(tables: &Tables, constants: &HashMap<String, i32>) -> Option<Self> {
        let mut look = Lookup::new(tables);
        let layout = Self {
            class: ClassLayout {
                parent: look.offset("Klass", "_super"),
                constants: look.offset("InstanceKlass", "_constants"),
                fields: FieldsLayout::of(&mut look, constants)?,
                array_length: look.number("Array<int>", "_length"),
            },
            flags: FlagLayout::of(&mut look),
            objects: ObjectLayout::of(&mut look, constants),
        };
        look.finish().ok()?;
        Some(layout)
    }
}

impl FieldsLayout {
    fn of(look: &mut Lookup<'_>, constants: &HashMap<String, i32>) -> Option<Self> {
        if look.find("InstanceKlass", "_fieldinfo_stream").is_none() {
            return Some(Self::Rows {
                array: look.offset("InstanceKlass", "_fields"),
                data: look.offset("Array<u2>", "_data"),
                count: look.number("InstanceKlass", "_java_fields_count"),
            });
        }
        Some(Self::Packed {
            array: look.offset("InstanceKlass", "_fieldinfo_stream"),
            data: look.offset("Array<u1>", "_data"),
            vm_symbols: look.variable("Symbol", "_vm_symbols[0]"),
            flags: FieldFlags::of(constants)?,
        })
    }

    /// Whether they are packed, as in VMs with virtual threads.
    pub(super) fn are_packed(&self) -> bool {
        matches!(self, Self::Packed { .. })
    }

    /// Of a `Klass`: where the array is.
    pub(super) fn array(&self) -> u64 {
        match self {
            Self::Packed { array, .. } | Self::Rows { array, .. } => *array,
        }
    }
}

impl FieldFlags {
    fn of(constants: &HashMap<String, i32>) -> Option<Self> {
        let bit = |name: &str| {
            let position = constants.get(&format!("FieldInfo::FieldFlags::_ff_{name}"))?;
            1_u32.checked_shl(u32::try_from(*position).ok()?)
        };
        // Of 28 and later.
        let [flat, null_marker] = ["flat", "null_marker"].map(|name| bit(name).unwrap_or_default());
        let optional = [bit("initialized")?, bit("generic")?, bit("contended")?, flat, null_marker];
        Some(Self { optional, injected: bit("injected")? })
    }
}

impl ObjectLayout {
    fn of(look: &mut Lookup<'_>, constants: &HashMap<String, i32>) -> Self {
        let mut pair = |type_name: &str, prefix: &str| {
            ["_base", "_shift"].map(|field| look.variable(type_name, &format!("{prefix}{field}")))
        };
        let narrow_klass = pair("CompressedKlassPointers", "");
        let narrow_oop = pair("CompressedOops", "");
        let colours = look.find("ZGlobalsForVMStructs", "_ZPointerLoadBadMask").is_some().then(|| ColourLayout {
            instance: look.variable("ZGlobalsForVMStructs", "_instance_p"),
            bad_mask: look.offset("ZGlobalsForVMStructs", "_ZPointerLoadBadMask"),
            shift: look.offset("ZGlobalsForVMStructs", "_ZPointerLoadShift"),
        });
        Self {
            klass_offset: look.offset("oopDesc", "_metadata._klass"),
            narrow_oop,
            narrow_klass,
            klass_in_mark: constants.get("markWord::klass_shift").and_then(|shift| u32::try_from(*shift).ok()),
            colours,
        }
    }
}
