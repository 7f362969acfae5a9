//! A native method of a loaded class, as the VM's own tables describe it.

use super::{SharedStr, VirtAddr};

/// What the VM holds as the code of a native method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NativeCode {
    /// Nothing yet: the class is not linked, or the method was never called and never registered.
    Unbound,
    /// The function at this address.
    Bound(VirtAddr),
    /// A method-handle intrinsic: native by its flags, but the VM generates its code and no function stands behind it.
    Intrinsic,
}

/// One native method of one loaded class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// Where the VM keeps it (`Method*`): its identity for as long as its class is loaded.
    pub id: VirtAddr,
    /// The class, dotted, nested classes with `$`: `java.util.zip.Deflater`.
    pub class: SharedStr,
    /// The method's name.
    pub name: SharedStr,
    /// The JVM descriptor, such as `(J[BII)I`.
    pub signature: SharedStr,
    /// What it is bound to.
    pub code: NativeCode,
}

impl Method {
    /// Whether both are the same method, whatever it was bound to when they were read.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.class == other.class && self.name == other.name && self.signature == other.signature
    }
}

/// Every native method of every loaded class of one JVM, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// The methods, sorted by class, name and signature.
    pub methods: Vec<Method>,
    /// Whether the walk reached the boot loader's classes. A walk that did not may have missed methods.
    pub complete: bool,
}
