//! The names of what the programs know by number alone: of the classes of objects, with how they are to look at these, and of Java
//! methods that native code calls. They are read while it is loaded.

use std::collections::HashMap;

use nprof_common::{HeapPlaces, JniHeld, Referent, VmPlaces};
use zerocopy::FromZeros as _;

use super::Error;
use super::sampling::libjvm_of;
use crate::attach::VmTable;
use crate::discover::Proc;
use crate::model::{Jvm, Method, NativeCode, VirtAddr, descriptor};
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Unwinder;

/// An address for objects of which only the first words are known. It is only kept.
const SOMEWHERE: u64 = 1 << 12;

/// Names the classes of one JVM.
#[derive(Debug)]
pub(super) struct Classes {
    unwinder: Unwinder<ProcessMemory>,
    heap: HeapPlaces,
    /// By what the programs know a class by. One that has been named once keeps its name: it may be unloaded later.
    names: HashMap<u64, String>,
    /// By what native code knows them by (`jmethodID`), which never becomes another method's.
    methods: HashMap<u64, Method>,
}

impl Classes {
    /// Tells the programs how to read the classes of objects.
    pub(super) fn begin(proc: &Proc, jvm: &Jvm, vms: &VmTable) -> Result<Self, Error> {
        let mut unwinder = Unwinder::open(ProcessMemory::new(jvm.pid), &libjvm_of(proc, jvm)?)?;
        // Its end is noticed elsewhere.
        let heap = unwinder.heap_places().ok().flatten().filter(|heap| heap.class_mask != 0).unwrap_or_default();
        let collections = unwinder.collections_place().map_or(0, |place| place.0);
        // Who reads stacks tells the same again, and more.
        if let Err(error) = vms.set(jvm.pid, &VmPlaces { collections, heap, ..VmPlaces::default() }) {
            tracing::warn!("process {}: classes of objects are not read: {error}", jvm.pid);
        }
        Ok(Self { unwinder, heap, names: HashMap::new(), methods: HashMap::new() })
    }

    /// Names the class of an object whose first words the programs have packed ([`JniHeld::class_of`]) for later.
    pub(super) fn learn(&mut self, object: u64) {
        let Some(class) = self.key(object).filter(|class| !self.names.contains_key(class)) else { return };
        if let Some(name) = self.name(object) {
            self.names.insert(class, name);
        }
    }

    /// The name of a class that has been learnt.
    pub(super) fn learnt(&self, object: u64) -> Option<&str> {
        self.names.get(&self.key(object)?).map(String::as_str)
    }

    /// Names the Java method with this id for later, if it is loaded.
    pub(super) fn learn_method(&mut self, id: u64) {
        if self.methods.contains_key(&id) {
            return;
        }
        // The JVM's end is noticed elsewhere.
        if let Some(name) = self.unwinder.method_by_id(VirtAddr(id)).ok().flatten() {
            let (class, name, signature) = (&*name.class, &*name.name, &*name.signature);
            let code = NativeCode::Unbound;
            let (class, name, signature) = (class.into(), name.into(), signature.into());
            self.methods.insert(id, Method { id: VirtAddr(id), class, name, signature, code });
        }
    }

    /// A Java method that has been learnt.
    pub(super) fn learnt_method(&self, id: u64) -> Option<&Method> {
        self.methods.get(&id)
    }

    /// The length of an array, where it is told.
    pub(super) fn length(&self, object: u64) -> Option<u32> {
        let length = match (self.heap.class_word, self.heap.class_mask) {
            (0, _) => object & u64::from(u32::MAX),
            (_, u64::MAX) => return None,
            _ => object >> 32,
        };
        u32::try_from(length).ok()
    }

    /// What the programs know its class by; nothing if they do not.
    pub(super) fn key(&self, object: u64) -> Option<u64> {
        Some(object & self.heap.class_mask).filter(|class| *class != 0)
    }

    /// The name of its class, which is loaded; nothing if that is not certain.
    pub(super) fn name(&mut self, object: u64) -> Option<String> {
        let mut copied = Referent { addr: SOMEWHERE, head_bytes: 16, ..Referent::new_zeroed() };
        copied.head[..2].copy_from_slice(&JniHeld::words_of(object, self.heap.class_word));
        let class = self.unwinder.living_object(&copied).ok().flatten()?.class;
        Some(if class.starts_with('[') { descriptor::java_type(&class) } else { class.replace('/', ".") })
    }
}
