//! Where the fields that the inventory reads lie in this VM: looked up once in its tables, so that the walk is plain
//! arithmetic. Offsets and widths change between versions; none is assumed.

use super::aliases;
use super::memory::is_plausible;
use super::tables::{FieldEntry, Tables};
use super::{Error, TableEntry};
use crate::model::VirtAddr;

/// No struct of the VM that is read here is larger.
const MAX_OFFSET: u64 = 1 << 16;

/// What the field is called that says of a loader that it is for one hidden class; before JDK 15 and before 12.
const FOR_ONE_CLASS: [&str; 3] = ["_has_class_mirror_holder", "_is_unsafe_anonymous", "_is_anonymous"];

/// A number inside a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    /// Bytes from the start of the struct.
    pub(crate) offset: u64,
    /// Bytes that it takes.
    pub(crate) width: usize,
}

/// Everything that the walk has to know; offsets in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Static: the first `ClassLoaderData`.
    pub(crate) first_loader: VirtAddr,
    /// Static: the `Klass` of `java.lang.Object`.
    pub(crate) object_klass: VirtAddr,
    pub(crate) loader: LoaderLayout,
    pub(crate) klass: KlassLayout,
    pub(crate) array: ArrayLayout,
    pub(crate) method: MethodLayout,
    pub(crate) pool: PoolLayout,
    pub(crate) symbol: SymbolLayout,
}

/// `ClassLoaderData`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoaderLayout {
    pub(crate) next: u64,
    pub(crate) klasses: u64,
    /// A byte that is 1 where the loader is for one hidden class alone, if the VM tells.
    pub(crate) for_one_class: Option<u64>,
}

/// `Klass` and `InstanceKlass`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KlassLayout {
    pub(crate) layout_helper: Number,
    pub(crate) name: u64,
    pub(crate) next_link: u64,
    pub(crate) loader: u64,
    pub(crate) methods: u64,
    pub(crate) init_state: u64,
}

/// `Array<Method*>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArrayLayout {
    pub(crate) length: Number,
    pub(crate) data: u64,
}

/// `Method` and `ConstMethod`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MethodLayout {
    pub(crate) const_method: u64,
    /// Two bytes hold the Java flags in every version, whether the field has two or four.
    pub(crate) access_flags: u64,
    /// The word after the struct of a native method: its code.
    pub(crate) native_function: u64,
    pub(crate) constants: u64,
    pub(crate) name_index: Number,
    pub(crate) signature_index: Number,
}

/// `ConstantPool`, whose entries follow the struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolLayout {
    pub(crate) holder: u64,
    pub(crate) length: Number,
    pub(crate) entries: u64,
}

/// `Symbol`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SymbolLayout {
    pub(crate) length: Number,
    pub(crate) body: u64,
}

#[cfg(test)]
impl Layout {
    /// A layout in which everything lies at the start, to be filled in by a test.
    pub(crate) fn empty() -> Self {
        let number = Number { offset: 0, width: 1 };
        Self {
            first_loader: VirtAddr(0),
            object_klass: VirtAddr(0),
            loader: LoaderLayout { next: 0, klasses: 0, for_one_class: None },
            klass: KlassLayout { layout_helper: number, name: 0, next_link: 0, loader: 0, methods: 0, init_state: 0 },
            array: ArrayLayout { length: number, data: 0 },
            method: MethodLayout {
                const_method: 0,
                access_flags: 0,
                native_function: 0,
                constants: 0,
                name_index: number,
                signature_index: number,
            },
            pool: PoolLayout { holder: 0, length: number, entries: 0 },
            symbol: SymbolLayout { length: number, body: 0 },
        }
    }
}

impl Layout {
    /// Looks everything up.
    ///
    /// # Errors
    /// [`Error::MissingEntry`] with all entries that are not there, [`Error::BadEntry`] for one that makes no sense.
    pub(crate) fn of(tables: &Tables) -> Result<Self, Error> {
        let mut look = Lookup::new(tables);
        let method_size = look.size("Method");
        let layout = Self {
            first_loader: look.variable("ClassLoaderDataGraph", "_head"),
            object_klass: look.object_klass(),
            loader: LoaderLayout {
                next: look.offset("ClassLoaderData", "_next"),
                klasses: look.offset("ClassLoaderData", "_klasses"),
                for_one_class: FOR_ONE_CLASS.iter().find_map(|field| look.optional_offset("ClassLoaderData", field)),
            },
            klass: KlassLayout {
                layout_helper: look.number("Klass", "_layout_helper"),
                name: look.offset("Klass", "_name"),
                next_link: look.offset("Klass", "_next_link"),
                loader: look.offset("Klass", "_class_loader_data"),
                methods: look.offset("InstanceKlass", "_methods"),
                init_state: look.offset("InstanceKlass", "_init_state"),
            },
            array: ArrayLayout {
                length: look.number("Array<int>", "_length"),
                data: look.offset("Array<Method*>", "_data"),
            },
            method: MethodLayout {
                const_method: look.offset("Method", "_constMethod"),
                access_flags: look.offset("Method", "_access_flags"),
                native_function: method_size,
                constants: look.offset("ConstMethod", "_constants"),
                name_index: look.number("ConstMethod", "_name_index"),
                signature_index: look.number("ConstMethod", "_signature_index"),
            },
            pool: PoolLayout {
                holder: look.offset("ConstantPool", "_pool_holder"),
                length: look.number("ConstantPool", "_length"),
                entries: look.size("ConstantPool"),
            },
            symbol: SymbolLayout { length: look.symbol_length(), body: look.offset("Symbol", "_body") },
        };
        look.finish()?;
        Ok(layout)
    }
}

/// Collects what is missing or wrong while a layout is put together, so that one message names all of it.
pub(crate) struct Lookup<'a> {
    tables: &'a Tables,
    missing: Vec<TableEntry>,
    bad: Option<TableEntry>,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(tables: &'a Tables) -> Self {
        Self { tables, missing: Vec::new(), bad: None }
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        if !self.missing.is_empty() {
            return Err(Error::MissingEntry { missing: self.missing }.logged());
        }
        match self.bad {
            Some(entry) => Err(Error::BadEntry { entry }.logged()),
            None => Ok(()),
        }
    }

    /// The entry of a field, under whatever name this version has it.
    pub(crate) fn find(&self, type_name: &str, field: &str) -> Option<&'a FieldEntry> {
        aliases::names(&format!("{type_name}::{field}")).find_map(|name| self.tables.fields.get(name))
    }

    fn missing(&mut self, type_name: &str, field: &str) {
        self.missing.push(TableEntry::new(type_name, field));
    }

    fn check(&mut self, good: bool, type_name: &str, field: &str) {
        if !good && self.bad.is_none() {
            self.bad = Some(TableEntry::new(type_name, field));
        }
    }

    /// The offset of a field that is not static.
    pub(crate) fn offset(&mut self, type_name: &str, field: &str) -> u64 {
        let Some(entry) = self.find(type_name, field) else {
            self.missing(type_name, field);
            return 0;
        };
        self.check(!entry.is_static && entry.offset < MAX_OFFSET, type_name, field);
        entry.offset.min(MAX_OFFSET)
    }

    /// The offset of a field that not every version has.
    fn optional_offset(&mut self, type_name: &str, field: &str) -> Option<u64> {
        self.find(type_name, field)?;
        Some(self.offset(type_name, field))
    }

    /// A field that holds a number, with the width of its type.
    pub(crate) fn number(&mut self, type_name: &str, field: &str) -> Number {
        let offset = self.offset(type_name, field);
        let width = self.find(type_name, field).and_then(|entry| self.width(&entry.type_string));
        if self.find(type_name, field).is_some() {
            self.check(width.is_some(), type_name, field);
        }
        Number { offset, width: width.unwrap_or_default() }
    }

    /// How many bytes a value of an integer type takes, if it is one.
    fn width(&self, type_string: &str) -> Option<usize> {
        let by_name = match type_string {
            "u1" | "jbyte" | "uint8_t" | "int8_t" | "char" => Some(1),
            "u2" | "jshort" | "uint16_t" | "int16_t" | "unsigned short" | "short" => Some(2),
            "u4" | "jint" | "int" | "uint" | "uint32_t" | "int32_t" | "unsigned int" => Some(4),
            _ => None,
        };
        by_name.or_else(|| match self.tables.sizes.get(type_string) {
            Some(&size @ (1 | 2 | 4 | 8)) => usize::try_from(size).ok(),
            _ => None,
        })
    }

    /// The address of a static field.
    pub(crate) fn variable(&mut self, type_name: &str, field: &str) -> VirtAddr {
        let Some(entry) = self.find(type_name, field) else {
            self.missing(type_name, field);
            return VirtAddr::default();
        };
        let good = entry.is_static && is_plausible(entry.address);
        self.check(good, type_name, field);
        entry.address
    }

    pub(crate) fn size(&mut self, type_name: &str) -> u64 {
        let Some(&size) = self.tables.sizes.get(type_name) else {
            self.missing(type_name, "(size)");
            return 0;
        };
        let good = size > 0 && size < MAX_OFFSET && size.is_multiple_of(8);
        self.check(good, type_name, "(size)");
        size
    }

    /// The variable that holds the `Klass` of `java.lang.Object`. Its field is written as the C++ expression that
    /// picks it from an array, which differs between versions; its class too.
    fn object_klass(&mut self) -> VirtAddr {
        const TYPES: [&str; 2] = ["vmClasses", "SystemDictionary"];
        let found =
            self.tables.fields.iter().find(|(name, entry)| {
                TYPES.iter().any(|&type_name| is_object_klass(name, type_name)) && entry.is_static
            });
        let Some((_, entry)) = found else {
            self.missing(TYPES[0], "Object_klass");
            return VirtAddr::default();
        };
        self.check(is_plausible(entry.address), TYPES[0], "Object_klass");
        entry.address
    }

    /// The length of a symbol. Some builds of JDK 12 to 15 keep it in the upper half of a word that it shares with the
    /// reference count.
    fn symbol_length(&mut self) -> Number {
        match self.find("Symbol", "_length_and_refcount") {
            Some(_) => Number { offset: self.offset("Symbol", "_length_and_refcount") + 2, width: 2 },
            None => self.number("Symbol", "_length"),
        }
    }
}

/// Whether the field `name` (`type::field`) is the well-known class `java.lang.Object` of `type_name`.
fn is_object_klass(name: &str, type_name: &str) -> bool {
    let Some(field) = name.strip_prefix(type_name).and_then(|rest| rest.strip_prefix("::")) else {
        return false;
    };
    field.match_indices("Object_klass").any(|(position, _)| {
        // Not `WeakObject_klass`: the name starts here.
        !field[..position].ends_with(|before: char| before.is_alphanumeric() || before == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the class of `java.lang.Object` is found in the spellings of several versions, and no other class.
    #[test]
    fn recognises_object_klass() {
        let old = "SystemDictionary::_well_known_klasses[SystemDictionary::Object_klass_knum]";
        assert!(is_object_klass(old, "SystemDictionary"));
        let new = "vmClasses::_klasses[static_cast<int>(vmClassID::Object_klass_knum)]";
        assert!(is_object_klass(new, "vmClasses"));
        assert!(!is_object_klass(new, "SystemDictionary"));
        for other in ["vmClasses::_klasses[WeakObject_klass_knum]", "vmClasses::_klasses[String_klass]"] {
            assert!(!is_object_klass(other, "vmClasses"), "{other}");
        }
    }

    /// Check that the length of a symbol is found in the upper half of a shared word too.
    #[test]
    fn finds_a_shared_symbol_length() {
        let mut tables = Tables::default();
        let entry = FieldEntry { type_string: "u4".into(), is_static: false, offset: 4, address: VirtAddr(0) };
        let field = "Symbol::_length_and_refcount".to_owned();
        tables.fields.insert(field, entry);
        let length = Lookup::new(&tables).symbol_length();
        assert_eq!(length, Number { offset: 6, width: 2 });
    }
}
