//! A VM of a few classes, put together byte by byte, with offsets that no real VM has: what the inventory does not take
//! from the tables it gets wrong here. It can be changed between two looks.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::recording::Image;
use crate::hotspot::Vm;
use crate::hotspot::exports::Exports;
use crate::hotspot::memory::{MemoryError, RemoteMemory};
use crate::model::VirtAddr;

pub(super) const STUB: u64 = 0x7f00_0000_1000;
pub(super) const IN_LIBJVM: u64 = 0x7f00_0000_2000;
pub(super) const IN_LIBRARY: u64 = 0x7f80_0000_3000;

const PAGE: usize = 4096;
const LIBJVM_TEXT: std::ops::Range<VirtAddr> = VirtAddr(0x7f00_0000_0000)..VirtAddr(0x7f00_0100_0000);
/// The variables `ClassLoaderDataGraph::_head` and `vmClasses::_klasses[...]`.
pub(super) const HEAD: u64 = 0x60_0000;
pub(super) const OBJECT_KLASS: u64 = 0x60_0100;

/// Type, field, type string and offset of every field.
pub(super) const FIELDS: [(&str, &str, &str, u64); 20] = [
    ("ClassLoaderData", "_next", "ClassLoaderData*", 16),
    ("ClassLoaderData", "_klasses", "Klass*", 40),
    ("ClassLoaderData", "_has_class_mirror_holder", "bool", 56),
    ("Klass", "_layout_helper", "jint", 4),
    ("Klass", "_name", "Symbol*", 8),
    ("Klass", "_next_link", "Klass*", 32),
    ("Klass", "_class_loader_data", "ClassLoaderData*", 24),
    ("InstanceKlass", "_methods", "Array<Method*>*", 72),
    ("InstanceKlass", "_init_state", "u1", 81),
    ("Array<int>", "_length", "int", 4),
    ("Array<Method*>", "_data", "Method*", 16),
    ("Method", "_constMethod", "ConstMethod*", 16),
    ("Method", "_access_flags", "AccessFlags", 30),
    ("ConstMethod", "_constants", "ConstantPool*", 8),
    ("ConstMethod", "_name_index", "u2", 20),
    ("ConstMethod", "_signature_index", "u2", 22),
    ("ConstantPool", "_pool_holder", "InstanceKlass*", 8),
    ("ConstantPool", "_length", "int", 24),
    ("Symbol", "_length", "unsigned short", 2),
    ("Symbol", "_body", "u1", 6),
];
const SIZES: [(&str, u64); 2] = [("Method", NATIVE_FUNCTION), ("ConstantPool", POOL_ENTRIES)];
/// Where a constant pool keeps its entries: after the struct.
pub(super) const POOL_ENTRIES: u64 = 32;
/// Where a method keeps its code: after the struct.
pub(super) const NATIVE_FUNCTION: u64 = 48;

impl RemoteMemory for RefCell<Image> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.borrow().read(addr, buf)
    }
}

/// The VM.
#[derive(Debug)]
pub(super) struct SmallVm {
    pub(super) memory: RefCell<Image>,
    pub(super) exports: Exports,
    next_free: Cell<u64>,
    pub(super) boot: u64,
}

/// Where the parts of a class lie.
#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) klass: u64,
    pub(super) array: u64,
    pub(super) pool: u64,
    pub(super) methods: Vec<u64>,
}

impl SmallVm {
    /// A VM with the boot loader, `java.lang.Object` and `java.lang.invoke.MethodHandle`.
    pub(super) fn new() -> Self {
        Self::with_fields(&FIELDS)
    }

    /// The same, with other tables.
    pub(super) fn with_fields(fields: &[(&str, &str, &str, u64)]) -> Self {
        let mut vm =
            Self { memory: RefCell::default(), exports: Exports::default(), next_free: Cell::new(0x10_0000), boot: 0 };
        vm.exports.text.push(LIBJVM_TEXT);
        vm.put_tables(fields);
        vm.put(HEAD, &[0; 8]);
        vm.put(OBJECT_KLASS, &[0; 8]);
        vm.boot = vm.add_loader();
        let object = vm.add_class(vm.boot, "java/lang/Object", &[("hashCode", "()I", IN_LIBJVM)]);
        vm.poke(OBJECT_KLASS, object.klass);
        let holder = "java/lang/invoke/MethodHandle";
        let any = "([Ljava/lang/Object;)Ljava/lang/Object;";
        vm.add_class(vm.boot, holder, &[("linkToStatic", any, STUB), ("invoke", any, IN_LIBJVM)]);
        vm
    }

    pub(super) fn open(&self) -> Vm<&RefCell<Image>> {
        Vm::with_exports(&self.memory, self.exports.clone()).expect("the tables are whole")
    }

    pub(super) fn put(&self, addr: u64, bytes: &[u8]) {
        self.memory.borrow_mut().put(addr, bytes);
    }

    /// Writes a word.
    pub(super) fn poke(&self, addr: u64, word: u64) {
        self.put(addr, &word.to_le_bytes());
    }

    pub(super) fn peek(&self, addr: u64) -> u64 {
        let mut word = [0; 8];
        let read = self.memory.read(VirtAddr(addr), &mut word);
        read.map(|()| u64::from_le_bytes(word)).expect("the word is there")
    }

    /// Writes the field of the struct at `base`.
    pub(super) fn poke_field(&self, base: u64, type_name: &str, field: &str, bytes: &[u8]) {
        self.put(base + offset(type_name, field), bytes);
    }

    /// Adds a loader before all others.
    pub(super) fn add_loader(&self) -> u64 {
        let loader = self.allocate(64);
        self.link_loader(loader);
        loader
    }

    /// Puts a loader before all others.
    pub(super) fn link_loader(&self, loader: u64) {
        self.poke(loader + offset("ClassLoaderData", "_next"), self.peek(HEAD));
        self.poke(HEAD, loader);
    }

    /// Takes a loader out of the list. Its memory stays as it is.
    pub(super) fn unlink_loader(&self, loader: u64) {
        let next = offset("ClassLoaderData", "_next");
        let mut link = HEAD;
        while self.peek(link) != loader {
            link = self.peek(link) + next;
        }
        self.poke(link, self.peek(loader + next));
    }

    /// Adds a hidden class with a loader for it alone, before all others.
    pub(super) fn add_hidden(&self, name: &str, natives: &[(&str, &str, u64)]) -> (u64, Class) {
        let loader = self.add_loader();
        self.hide(loader);
        (loader, self.add_class(loader, name, natives))
    }

    /// Says of a loader that it is for one hidden class alone.
    pub(super) fn hide(&self, loader: u64) {
        self.poke_field(loader, "ClassLoaderData", "_has_class_mirror_holder", &[1]);
    }

    /// Adds a class before all others of its loader. Its methods are native, given as name, signature and word; there
    /// is one more that is not.
    pub(super) fn add_class(&self, loader: u64, name: &str, natives: &[(&str, &str, u64)]) -> Class {
        let klass = self.allocate(96);
        let names: Vec<u64> =
            natives.iter().flat_map(|(name, signature, _)| [self.symbol(name), self.symbol(signature)]).collect();
        let pool = self.pool(klass, &names);
        let mut methods = vec![self.allocate(48)];
        for (index, (.., word)) in (0_u16..).zip(natives) {
            methods.push(self.method(pool, 1 + 2 * index, *word));
        }
        let array = self.array(&methods);
        self.poke_field(klass, "Klass", "_layout_helper", &64_i32.to_le_bytes());
        self.poke(klass + offset("Klass", "_name"), self.symbol(name));
        self.poke(klass + offset("Klass", "_class_loader_data"), loader);
        self.poke(klass + offset("InstanceKlass", "_methods"), array);
        self.poke_field(klass, "InstanceKlass", "_init_state", &[4]);
        let newest = loader + offset("ClassLoaderData", "_klasses");
        self.poke(klass + offset("Klass", "_next_link"), self.peek(newest));
        self.poke(newest, klass);
        Class { klass, array, pool, methods: methods.split_off(1) }
    }

    /// Binds a method.
    pub(super) fn bind(&self, method: u64, word: u64) {
        self.poke(method + NATIVE_FUNCTION, word);
    }

    pub(super) fn array(&self, methods: &[u64]) -> u64 {
        let array = self.allocate(16 + 8 * methods.len());
        let length = u32::try_from(methods.len()).expect("few methods");
        self.poke_field(array, "Array<int>", "_length", &length.to_le_bytes());
        for (index, method) in (0..).zip(methods) {
            self.poke(array + offset("Array<Method*>", "_data") + 8 * index, *method);
        }
        array
    }

    fn method(&self, pool: u64, name_index: u16, word: u64) -> u64 {
        let method = self.allocate(64);
        let const_method = self.allocate(40);
        self.poke(method + offset("Method", "_constMethod"), const_method);
        self.poke_field(method, "Method", "_access_flags", &0x101_u16.to_le_bytes());
        self.bind(method, word);
        self.poke(const_method + offset("ConstMethod", "_constants"), pool);
        let index = name_index.to_le_bytes();
        self.poke_field(const_method, "ConstMethod", "_name_index", &index);
        let index = (name_index + 1).to_le_bytes();
        self.poke_field(const_method, "ConstMethod", "_signature_index", &index);
        method
    }

    fn pool(&self, holder: u64, symbols: &[u64]) -> u64 {
        let pool = self.allocate(32 + 8 * (symbols.len() + 1));
        self.poke(pool + offset("ConstantPool", "_pool_holder"), holder);
        let length = u32::try_from(symbols.len() + 1).expect("few symbols");
        self.poke_field(pool, "ConstantPool", "_length", &length.to_le_bytes());
        for (index, symbol) in (1..).zip(symbols) {
            self.poke(pool + POOL_ENTRIES + 8 * index, *symbol | 1);
        }
        pool
    }

    fn symbol(&self, text: &str) -> u64 {
        let symbol = self.allocate(8 + text.len());
        let length = u16::try_from(text.len()).expect("a short name");
        self.poke_field(symbol, "Symbol", "_length", &length.to_le_bytes());
        self.poke_field(symbol, "Symbol", "_body", text.as_bytes());
        symbol
    }

    /// Zeroed memory with a hole after it.
    pub(super) fn allocate(&self, size: usize) -> u64 {
        let addr = self.next_free.get();
        let size_and_hole = (size as u64 + 16).next_multiple_of(16);
        self.next_free.set(addr + size_and_hole);
        self.put(addr, &vec![0; size]);
        addr
    }

    fn put_tables(&mut self, fields: &[(&str, &str, &str, u64)]) {
        let mut strings = Strings::default();
        let mut rows = Vec::new();
        for (type_name, field, type_string, offset) in fields {
            let names = [type_name, field, type_string].map(|text| strings.add(text));
            rows.push([names[0], names[1], names[2], 0, *offset, 0]);
        }
        for (type_name, field, addr) in [
            ("ClassLoaderDataGraph", "_head", HEAD),
            ("vmClasses", "_klasses[static_cast<int>(vmClassID::Object_klass_knum)]", OBJECT_KLASS),
        ] {
            rows.push([strings.add(type_name), strings.add(field), 0, 1, 0, addr]);
        }
        let structs = self.put_table(0x40_0000, rows.as_flattened());
        let sizes: Vec<[u64; 2]> = SIZES.iter().map(|(type_name, size)| [strings.add(type_name), *size]).collect();
        let types = self.put_table(0x48_0000, sizes.as_flattened());
        self.put(Strings::BASE, &padded(strings.bytes));
        let columns = |names: &[&str]| {
            let offsets = (0..).step_by(8);
            names.iter().map(|name| (*name).to_owned()).zip(offsets).collect::<Vec<_>>()
        };
        let mut variables = columns(&[
            "gHotSpotVMStructEntryTypeNameOffset",
            "gHotSpotVMStructEntryFieldNameOffset",
            "gHotSpotVMStructEntryTypeStringOffset",
            "gHotSpotVMStructEntryIsStaticOffset",
            "gHotSpotVMStructEntryOffsetOffset",
            "gHotSpotVMStructEntryAddressOffset",
            "gHotSpotVMStructEntryArrayStride",
        ]);
        variables.extend(columns(&[
            "gHotSpotVMTypeEntryTypeNameOffset",
            "gHotSpotVMTypeEntrySizeOffset",
            "gHotSpotVMTypeEntryArrayStride",
        ]));
        variables.push(("gHotSpotVMStructs".to_owned(), structs));
        variables.push(("gHotSpotVMTypes".to_owned(), types));
        for (name, value) in variables {
            let addr = self.allocate(8);
            self.poke(addr, value);
            self.exports.variables.insert(name, VirtAddr(addr));
        }
    }

    /// Writes a table, which ends with a row of zeros.
    fn put_table(&self, addr: u64, words: &[u64]) -> u64 {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(addr, &padded(bytes));
        addr
    }
}

/// Fills up to the end of a page, with at least one row of zeros.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize((bytes.len() + 64).next_multiple_of(PAGE), 0);
    bytes
}

/// C strings, each once.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    addresses: HashMap<String, u64>,
}

impl Strings {
    const BASE: u64 = 0x50_0000;

    fn add(&mut self, text: &str) -> u64 {
        if let Some(addr) = self.addresses.get(text) {
            return *addr;
        }
        let addr = Self::BASE + self.bytes.len() as u64;
        self.bytes.extend(text.bytes().chain([0]));
        self.addresses.insert(text.to_owned(), addr);
        addr
    }
}

pub(super) fn offset(type_name: &str, field: &str) -> u64 {
    let field = FIELDS.iter().find(|entry| entry.0 == type_name && entry.1 == field);
    field.expect("the field is in the tables").3
}
