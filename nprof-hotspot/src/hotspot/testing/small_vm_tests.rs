//! The inventory of a small VM, whole and damaged, and what a refresh sees when it changes.

use std::cell::Cell;

use super::small_vm::{
    Class, FIELDS, HEAD, IN_LIBJVM, IN_LIBRARY, NATIVE_FUNCTION, OBJECT_KLASS, POOL_ENTRIES, STUB, SmallVm, offset,
};
use crate::hotspot::memory::{MemoryError, RemoteMemory};
use crate::hotspot::{Error, Vm};
use crate::model::{Method, NativeCode, Pid, VirtAddr};

/// `class::name code` of each method, code being `-` for unbound and `*` for an intrinsic.
fn lines(methods: &[Method]) -> Vec<String> {
    let line = |method: &Method| {
        let code = match method.code {
            NativeCode::Bound(addr) => addr.to_string(),
            NativeCode::Unbound => "-".to_owned(),
            NativeCode::Intrinsic => "*".to_owned(),
        };
        format!("{}::{} {code}", method.class, method.name)
    };
    methods.iter().map(line).collect()
}

/// What every VM here has at least.
const BOOT: [&str; 3] = [
    "java.lang.Object::hashCode 0x7f0000002000",
    "java.lang.invoke.MethodHandle::invoke 0x7f0000002000",
    "java.lang.invoke.MethodHandle::linkToStatic *",
];

/// The inventory of `vm` as lines without those of [`BOOT`], and whether it is complete.
fn take(vm: &SmallVm) -> (Vec<String>, bool) {
    let inventory = vm.open().inventory().expect("the VM can be read");
    let mut found = lines(&inventory.methods);
    found.retain(|line| !BOOT.contains(&&line[..]));
    (found, inventory.complete)
}

/// A VM with a second loader that has loaded a class with two natives.
fn with_app() -> (SmallVm, u64, Class) {
    let vm = SmallVm::new();
    let loader = vm.add_loader();
    let natives = [("one", "(I)V", IN_LIBRARY), ("two", "()J", STUB)];
    let class = vm.add_class(loader, "a/App", &natives);
    (vm, loader, class)
}

const APP: [&str; 2] = ["a.App::one 0x7f8000003000", "a.App::two -"];

/// Check that all natives are found with their names and code, and nothing else.
#[test]
fn whole_inventory() {
    let (vm, ..) = with_app();
    let inventory = vm.open().inventory().unwrap();
    assert!(inventory.complete);
    assert_eq!(lines(&inventory.methods), [&APP[..], &BOOT].concat());
    assert_eq!(inventory.methods[0].signature, "(I)V");
}

/// Check that a list of loaders that runs in a circle ends the walk, which is then not complete.
#[test]
fn circle_of_loaders() {
    let (vm, loader, _) = with_app();
    vm.poke(vm.boot + offset("ClassLoaderData", "_next"), loader);
    assert_eq!(take(&vm), (APP.map(str::to_owned).to_vec(), false));
}

/// Check that a list of loaders that ends before the boot loader, or in nowhere, is not complete.
#[test]
fn lost_end_of_the_loaders() {
    for next in [0, 0x10, 0x7777_0000, u64::MAX] {
        let (vm, loader, _) = with_app();
        vm.poke(loader + offset("ClassLoaderData", "_next"), next);
        assert_eq!(take(&vm), (APP.map(str::to_owned).to_vec(), false));
    }
}

/// Check that a list of classes that runs in a circle, or into nowhere, ends, and that what came before is kept.
#[test]
fn damaged_list_of_classes() {
    let (vm, _, class) = with_app();
    for next in [class.klass, 0x10, 0x7777_0000, u64::MAX] {
        vm.poke(class.klass + offset("Klass", "_next_link"), next);
        assert_eq!(take(&vm), (APP.map(str::to_owned).to_vec(), false));
    }
}

/// Check that a class that names another loader is not taken for one of the loader that lists it.
#[test]
fn class_of_another_loader() {
    let (vm, _, class) = with_app();
    vm.poke(class.klass + offset("Klass", "_class_loader_data"), vm.boot);
    assert_eq!(take(&vm), (Vec::new(), false));
}

/// Check that methods whose constant pool belongs to another class are not listed under this one.
#[test]
fn constant_pool_of_another_class() {
    let (vm, _, class) = with_app();
    vm.poke(class.pool + offset("ConstantPool", "_pool_holder"), vm.peek(OBJECT_KLASS));
    assert_eq!(take(&vm), (Vec::new(), true));
}

/// Check that an array longer than a class file allows is not read, and no other class suffers.
#[test]
fn impossible_array_lengths() {
    let (vm, _, class) = with_app();
    for length in [3_000_u32, 65_535, 65_536, 0x7fff_ffff, u32::MAX] {
        vm.poke_field(class.array, "Array<int>", "_length", &length.to_le_bytes());
        assert_eq!(take(&vm), (Vec::new(), true));
    }
}

/// Check that an index beyond the constant pool, and the unused index 0, void their method alone, even if a name is there.
#[test]
fn indices_outside_of_the_constant_pool() {
    let (vm, _, class) = with_app();
    let entries = class.pool + POOL_ENTRIES;
    vm.poke(entries, vm.peek(entries + 8));
    let const_method = vm.peek(class.methods[0] + offset("Method", "_constMethod"));
    for index in [0_u16, 5, u16::MAX] {
        let index = index.to_le_bytes();
        vm.poke_field(const_method, "ConstMethod", "_name_index", &index);
        assert_eq!(take(&vm), (vec![APP[1].to_owned()], true));
    }
    let (vm, _, class) = with_app();
    let length = 4_u32.to_le_bytes();
    vm.poke_field(class.pool, "ConstantPool", "_length", &length);
    assert_eq!(take(&vm), (vec![APP[0].to_owned()], true));
}

/// Check that what is no name and what is no descriptor void their method alone.
#[test]
fn symbols_that_are_no_names() {
    for (name, signature) in [("<init>", "(I)V"), ("one", "I"), ("o\u{1}\0", "(I)V"), ("", "(I)V")] {
        let vm = SmallVm::new();
        let natives = [(name, signature, IN_LIBRARY), ("two", "()J", STUB)];
        vm.add_class(vm.boot, "a/App", &natives);
        assert_eq!(take(&vm), (vec![APP[1].to_owned()], true), "{name} {signature}");
    }
}

/// Check that a method is not listed whose code would lie outside of user space.
#[test]
fn impossible_code() {
    let (vm, _, class) = with_app();
    for word in [1, 0xfff, 1 << 47, u64::MAX] {
        vm.bind(class.methods[0], word);
        assert_eq!(take(&vm), (Vec::new(), true));
    }
}

/// Check that a class that is still being loaded is left out until it is complete.
#[test]
fn class_that_is_being_loaded() {
    let (small, _, class) = with_app();
    small.poke_field(class.klass, "InstanceKlass", "_init_state", &[0]);
    small.poke(class.klass + offset("InstanceKlass", "_methods"), 0);
    let mut vm = small.open();
    assert_eq!(lines(&vm.inventory().unwrap().methods), BOOT);
    assert!(vm.refresh().unwrap().is_empty());
    small.poke(class.klass + offset("InstanceKlass", "_methods"), class.array);
    assert!(vm.refresh().unwrap().is_empty());
    small.poke_field(class.klass, "InstanceKlass", "_init_state", &[1]);
    assert_eq!(lines(&vm.refresh().unwrap()), APP);
    assert!(vm.refresh().unwrap().is_empty());
}

/// Check that a refresh reports what is bound, bound again and unbound, once each.
#[test]
fn refresh_reports_changed_code() {
    let (small, _, class) = with_app();
    let mut vm = small.open();
    vm.inventory().unwrap();
    assert!(vm.refresh().unwrap().is_empty());
    for (word, line) in
        [(IN_LIBRARY, "a.App::two 0x7f8000003000"), (IN_LIBJVM, "a.App::two 0x7f0000002000"), (STUB, "a.App::two -")]
    {
        small.bind(class.methods[1], word);
        assert_eq!(lines(&vm.refresh().unwrap()), [line]);
        assert!(vm.refresh().unwrap().is_empty());
    }
}

/// Check that a word that is read once and not again is not believed.
#[test]
fn refresh_does_not_believe_a_single_reading() {
    let (small, _, class) = with_app();
    let memory = Flickering {
        memory: &small.memory,
        addr: VirtAddr(class.methods[1] + NATIVE_FUNCTION),
        word: IN_LIBRARY,
        left: Cell::new(0),
    };
    let mut vm = Vm::with_exports(&memory, small.exports.clone()).unwrap();
    vm.inventory().unwrap();
    memory.left.set(1);
    assert!(vm.refresh().unwrap().is_empty());
    memory.left.set(2);
    assert_eq!(lines(&vm.refresh().unwrap()), ["a.App::two 0x7f8000003000"]);
}

/// Check that a refresh reports the natives of new classes and of new loaders, and only those.
#[test]
fn refresh_reports_new_classes() {
    let (small, loader, _) = with_app();
    let mut vm = small.open();
    vm.inventory().unwrap();
    for index in 0..6 {
        small.add_class(small.boot, &format!("b/Plain{index}"), &[]);
    }
    small.add_class(loader, "b/Late", &[("three", "()V", IN_LIBRARY)]);
    let other = small.add_loader();
    small.add_class(other, "b/Hidden+0x12ab", &[("four", "()V", STUB)]);
    let expected = ["b.Hidden/0x12ab::four -", "b.Late::three 0x7f8000003000"];
    assert_eq!(lines(&vm.refresh().unwrap()), expected);
    assert!(vm.refresh().unwrap().is_empty());
}

/// Check that the natives of a loader that has died are forgotten, also if its address serves a new one.
#[test]
fn refresh_forgets_dead_loaders() {
    let (small, loader, _) = with_app();
    let mut vm = small.open();
    vm.inventory().unwrap();
    assert_eq!(vm.known_methods().count(), 5);
    small.poke(loader + offset("ClassLoaderData", "_klasses"), 0);
    small.add_class(loader, "b/Next", &[("three", "()V", IN_LIBRARY)]);
    assert_eq!(lines(&vm.refresh().unwrap()), ["b.Next::three 0x7f8000003000"]);
    assert_eq!(vm.known_methods().count(), 4);
    small.poke(HEAD, small.boot);
    assert!(vm.refresh().unwrap().is_empty());
    assert_eq!(vm.known_methods().count(), 3);
}

/// Check that a redefined class is read again: its methods are other ones from then on.
#[test]
fn refresh_survives_redefinition() {
    let (small, _, class) = with_app();
    let mut vm = small.open();
    vm.inventory().unwrap();
    // The new version's methods are made with their own class, whose constant pool then changes hands.
    let scratch_loader = small.allocate(64);
    let natives = [("one", "(I)V", IN_LIBRARY), ("two", "()J", IN_LIBRARY)];
    let scratch = small.add_class(scratch_loader, "a/App", &natives);
    small.poke(scratch.pool + offset("ConstantPool", "_pool_holder"), class.klass);
    small.poke(class.klass + offset("InstanceKlass", "_methods"), scratch.array);
    let changed = vm.refresh().unwrap();
    assert_eq!(lines(&changed), [APP[0], "a.App::two 0x7f8000003000"]);
    assert_eq!(changed[0].id, VirtAddr(scratch.methods[0]));
    assert_eq!(vm.known_methods().count(), 5);
}

/// Check that a class whose loading failed and whose address the next class got does not hide that one.
#[test]
fn refresh_sees_a_class_at_a_reused_address() {
    let (small, loader, app) = with_app();
    let failed = small.add_class(loader, "b/Failed", &[]);
    let mut vm = small.open();
    vm.inventory().unwrap();
    let next = small.add_class(loader, "b/Next", &[("three", "()V", IN_LIBRARY)]);
    for at in (0..96).step_by(8) {
        small.poke(failed.klass + at, small.peek(next.klass + at));
    }
    small.poke(failed.klass + offset("Klass", "_next_link"), app.klass);
    small.poke(next.pool + offset("ConstantPool", "_pool_holder"), failed.klass);
    small.poke(loader + offset("ClassLoaderData", "_klasses"), failed.klass);
    assert_eq!(lines(&vm.refresh().unwrap()), ["b.Next::three 0x7f8000003000"]);
}

/// Check that code of libjvm is not called bound before the stub is known, and is reported once it is.
#[test]
fn stub_that_is_known_late() {
    let (small, ..) = with_app();
    let mut vm = small.open();
    let inventory = vm.inventory().unwrap();
    let link = inventory.methods.iter().find(|method| method.name == "linkToStatic").unwrap().id;
    small.bind(link.0, 0);
    let mut vm = small.open();
    let young = [APP[0], APP[1], "java.lang.Object::hashCode -", "java.lang.invoke.MethodHandle::invoke -", BOOT[2]];
    assert_eq!(lines(&vm.inventory().unwrap().methods), young);
    small.bind(link.0, STUB);
    assert_eq!(lines(&vm.refresh().unwrap()), BOOT[..2]);
}

/// Check that a VM without any class yet gives an empty inventory that does not call itself complete.
#[test]
fn vm_without_classes() {
    let vm = SmallVm::new();
    vm.poke(HEAD, 0);
    vm.poke(OBJECT_KLASS, 0);
    assert_eq!(take(&vm), (Vec::new(), false));
}

/// Check that tables that are not filled yet, and tables that are not there, are separate errors.
#[test]
fn tables_that_are_not_there() {
    for name in ["gHotSpotVMStructs", "gHotSpotVMTypes", "gHotSpotVMTypeEntryArrayStride"] {
        let mut small = SmallVm::new();
        small.poke(small.exports.variables[name].0, 0);
        let error = Vm::with_exports(&small.memory, small.exports.clone()).unwrap_err();
        assert!(matches!(error, Error::NotReady), "{error}");
        small.exports.variables.remove(name);
        let error = Vm::with_exports(&small.memory, small.exports.clone()).unwrap_err();
        assert!(matches!(error, Error::NoTables), "{error}");
    }
}

/// Check that a table whose rows are too short or too long, or whose columns lie outside of them, is refused.
#[test]
fn tables_of_impossible_shape() {
    let stride = "gHotSpotVMStructEntryArrayStride";
    let column = "gHotSpotVMStructEntryAddressOffset";
    for (name, value) in [(stride, 1), (stride, 7), (stride, 257), (column, 41), (column, u64::MAX)] {
        let small = SmallVm::new();
        small.poke(small.exports.variables[name].0, value);
        let error = Vm::with_exports(&small.memory, small.exports.clone()).unwrap_err();
        assert!(matches!(error, Error::BadTables), "{name} {value}: {error}");
    }
}

/// Check that an entry whose offset or type cannot be right is refused by name.
#[test]
fn entries_that_cannot_be_right() {
    for (field, type_string, offset) in [
        ("_methods", "Array<Method*>*", 1 << 16),
        ("_methods", "Array<Method*>*", u64::MAX),
        ("_name_index", "Quux", 20),
    ] {
        let fields = FIELDS.map(|entry| match entry.1 == field {
            true => (entry.0, entry.1, type_string, offset),
            false => entry,
        });
        let small = SmallVm::with_fields(&fields);
        let error = Vm::with_exports(&small.memory, small.exports.clone()).unwrap_err();
        let named = matches!(&error, Error::BadEntry { entry } if entry.field == field);
        assert!(named, "{field} {type_string} {offset}: {error}");
    }
}

/// Check that all missing entries are named, as those are that JDK 8 lacks.
#[test]
fn tables_of_jdk_8() {
    let fields = FIELDS.map(|entry| match entry.1 {
        "_next_link" | "_klasses" => ("", "", "", 0),
        _ => entry,
    });
    let small = SmallVm::with_fields(&fields);
    let error = Vm::with_exports(&small.memory, small.exports.clone()).unwrap_err();
    assert!(error.is_unsupported());
    assert_eq!(error.to_string(), "the VM does not publish what is needed");
    let Error::MissingEntry { missing } = error else { panic!("{error}") };
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["ClassLoaderData::_klasses", "Klass::_next_link"]);
}

/// Check that a target that ends at any read is an error that says so, and nothing worse.
#[test]
fn target_that_ends_at_any_read() {
    let (small, ..) = with_app();
    let mut fatal = 0;
    for left in 0.. {
        let memory =
            Ending { memory: &small.memory, left: Cell::new(left), error: |_| MemoryError::TargetGone { pid: Pid(1) } };
        let result = Vm::with_exports(&memory, small.exports.clone()).and_then(|mut vm| {
            vm.inventory()?;
            vm.refresh()
        });
        match result {
            Ok(_) => break,
            Err(error) => {
                let gone = matches!(error, Error::Memory(MemoryError::TargetGone { .. }));
                assert!(gone, "{error}");
                fatal += 1;
            }
        }
    }
    assert!(fatal > 100, "only {fatal} reads");
}

/// Check that memory that cannot be read from some point on hides methods but never invents any.
#[test]
fn memory_that_vanishes_at_any_read() {
    let (small, ..) = with_app();
    let whole = small.open().inventory().unwrap().methods;
    for left in 0..400 {
        let memory = Ending {
            memory: &small.memory,
            left: Cell::new(left),
            error: |addr| MemoryError::Unreadable { addr, len: 0 },
        };
        let vm = Vm::with_exports(&memory, small.exports.clone());
        let Ok(inventory) = vm.and_then(|mut vm| vm.inventory()) else {
            continue;
        };
        for method in &inventory.methods {
            let known = whole.iter().find(|known| known.id == method.id).unwrap();
            let names = |method: &Method| (method.class.clone(), method.name.clone());
            assert_eq!(names(known), names(method));
            assert!(method.code == known.code || method.code == NativeCode::Unbound);
        }
    }
}

/// A memory that fails after a number of reads.
struct Ending<M, F> {
    memory: M,
    left: Cell<u32>,
    error: F,
}

impl<M: RemoteMemory, F: Fn(VirtAddr) -> MemoryError> RemoteMemory for Ending<M, F> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                self.memory.read(addr, buf)
            }
            None => Err((self.error)(addr)),
        }
    }
}

/// A memory in which one word reads differently for a number of times.
struct Flickering<M> {
    memory: M,
    addr: VirtAddr,
    word: u64,
    left: Cell<u32>,
}

impl<M: RemoteMemory> RemoteMemory for Flickering<M> {
    fn read(&self, addr: VirtAddr, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read(addr, buf)?;
        if addr == self.addr && self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            buf.copy_from_slice(&self.word.to_le_bytes());
        }
        Ok(())
    }
}
