//! The names of what the programs know by number alone: of the classes of objects, with how they are to look at these, and of Java
//! methods that native code calls. They are read while it is loaded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nprof_common::args::HEAD_BYTES;
use nprof_common::{JniHeld, JniPlaces, ObjectHead, Referent, VmPlaces};

use super::Error;
use super::sampling::libjvm_of;
use crate::attach::VmTable;
use crate::discover::Proc;
use crate::model::{Jvm, Method, NativeCode, Pid, VirtAddr, descriptor};
use crate::sys::remote_memory::ProcessMemory;
use crate::unwind::Unwinder;

/// How often a VM is asked that does not say how its heap is laid out: one that has only just been started may before long.
const ASK_AGAIN: u32 = 20;
/// An address for objects of which only the first words are known. It is only kept.
const SOMEWHERE: u64 = 1 << 12;

/// Names the classes of one JVM.
#[derive(Debug)]
pub(super) struct Classes {
    unwinder: Unwinder<ProcessMemory>,
    vms: Arc<VmTable>,
    pid: Pid,
    /// What the programs were told.
    places: VmPlaces,
    /// How often it may still be asked for more.
    asks: u32,
    /// By what the programs know a class by. One that has been named once keeps its name: it may be unloaded later.
    names: HashMap<u64, String>,
    /// Those that were to be named once.
    tried: HashSet<u64>,
    /// By what native code knows them by (`jmethodID`), which never becomes another method's.
    methods: HashMap<u64, Method>,
}

impl Classes {
    /// Tells the programs how to read the classes of objects, and what they look at JNI functions with.
    pub(super) fn begin(proc: &Proc, jvm: &Jvm, vms: &Arc<VmTable>, jni: JniPlaces) -> Result<Self, Error> {
        let unwinder = Unwinder::open(ProcessMemory::new(jvm.pid), &libjvm_of(proc, jvm)?)?;
        let collections = unwinder.collections_place().map_or(0, |place| place.0);
        let places = VmPlaces { collections, jni, ..VmPlaces::default() };
        let (vms, pid, asks) = (Arc::clone(vms), jvm.pid, ASK_AGAIN);
        let (names, tried, methods) = (HashMap::new(), HashSet::new(), HashMap::new());
        let mut classes = Self { unwinder, vms, pid, places, asks, names, tried, methods };
        classes.learn_heap();
        classes.tell();
        Ok(classes)
    }

    /// Asks the VM again how its heap is laid out, if it has not said so.
    pub(super) fn ask_again(&mut self) {
        if self.places.heap.class_mask == 0 && self.asks > 0 {
            self.asks -= 1;
            self.learn_heap();
            if self.places.heap.class_mask != 0 {
                self.tell();
            }
        }
    }

    fn learn_heap(&mut self) {
        // Its end is noticed elsewhere.
        let heap = self.unwinder.heap_places().ok().flatten().filter(|heap| heap.class_mask != 0);
        self.places.heap = heap.unwrap_or_default();
    }

    fn tell(&self) {
        if let Err(error) = self.vms.set_jni(self.pid, &self.places) {
            tracing::warn!("process {}: classes of objects are not read: {error}", self.pid);
        }
    }

    /// Names the class of an object whose first words the programs have packed ([`JniHeld::class_of`]) for later.
    pub(super) fn learn(&mut self, object: u64) {
        let Some(class) = self.key(object).filter(|class| !self.names.contains_key(class)) else { return };
        if let Some(name) = self.name(object) {
            self.names.insert(class, name);
        }
    }

    /// The same, but not again if that has failed.
    pub(super) fn learn_once(&mut self, object: u64) {
        if self.tried.insert(object) {
            self.learn(object);
        }
    }

    /// Whether it will not be named any more, if it has not been.
    pub(super) fn is_settled(&self, object: u64) -> bool {
        self.tried.contains(&object)
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
        let length = match (self.places.heap.class_word, self.places.heap.class_mask) {
            (0, _) => object & u64::from(u32::MAX),
            (_, u64::MAX) => return None,
            _ => object >> 32,
        };
        u32::try_from(length).ok()
    }

    /// What the programs know its class by; nothing if they do not.
    pub(super) fn key(&self, object: u64) -> Option<u64> {
        Some(object & self.places.heap.class_mask).filter(|class| *class != 0)
    }

    /// The name of its class, which is loaded; nothing if that is not certain.
    pub(super) fn name(&mut self, object: u64) -> Option<String> {
        let mut head = ObjectHead { addr: SOMEWHERE, bytes: 16, words: [0; HEAD_BYTES / 8] };
        head.words[..2].copy_from_slice(&JniHeld::words_of(object, self.places.heap.class_word));
        let class = self.unwinder.living_object(&Referent::without_contents(head)).ok().flatten()?.class;
        Some(if class.starts_with('[') { descriptor::java_type(&class) } else { class.replace('/', ".") })
    }

    /// The programs look at nothing there any more.
    pub(super) fn end(&self) {
        self.vms.forget_jni(self.pid, &self.places);
    }
}

impl Drop for Classes {
    fn drop(&mut self) {
        self.end();
    }
}
