//! Natives that compilers know, and natives that are not called as such.
//!
//! A compiler that knows what a native does puts that in its place (`@IntrinsicCandidate` in the JDK's sources):
//! compiled code then never calls it, and its count says nothing. Some are not called as natives at all.

/// The native methods of java.base in JDK 17 and 25 that a compiler may know, by class.
const CANDIDATES: &[(&str, &[&str])] = &[
    (
        "java.lang.Class",
        &[
            "getModifiers",
            "getSuperclass",
            "isArray",
            "isAssignableFrom",
            "isHidden",
            "isInstance",
            "isInterface",
            "isPrimitive",
        ],
    ),
    ("java.lang.Double", &["doubleToRawLongBits", "longBitsToDouble"]),
    ("java.lang.Float", &["floatToRawIntBits", "intBitsToFloat"]),
    ("java.lang.Object", &["clone", "getClass", "hashCode", "notify", "notifyAll"]),
    ("java.lang.StrictMath", &["sqrt"]),
    ("java.lang.System", &["arraycopy", "currentTimeMillis", "identityHashCode", "nanoTime"]),
    (
        "java.lang.Thread",
        &[
            "currentCarrierThread",
            "currentThread",
            "ensureMaterializedForStackWalk",
            "findScopedValueBindings",
            "scopedValueCache",
            "setCurrentThread",
            "setScopedValueCache",
        ],
    ),
    (
        "java.lang.VirtualThread",
        &["notifyJvmtiDisableSuspend", "notifyJvmtiEnd", "notifyJvmtiMount", "notifyJvmtiStart", "notifyJvmtiUnmount"],
    ),
    ("java.lang.ref.PhantomReference", &["clear0", "refersTo0"]),
    ("java.lang.ref.Reference", &["clear0", "refersTo0"]),
    ("java.lang.reflect.Array", &["getLength", "newArray"]),
    ("java.util.zip.Adler32", &["updateByteBuffer", "updateBytes"]),
    ("java.util.zip.CRC32", &["update", "updateByteBuffer0", "updateBytes0"]),
    (
        "jdk.internal.misc.Unsafe",
        &[
            "allocateInstance",
            "compareAndExchangeInt",
            "compareAndExchangeLong",
            "compareAndExchangeReference",
            "compareAndSetInt",
            "compareAndSetLong",
            "compareAndSetReference",
            "copyMemory0",
            "fullFence",
            "getBoolean",
            "getBooleanVolatile",
            "getByte",
            "getByteVolatile",
            "getChar",
            "getCharVolatile",
            "getDouble",
            "getDoubleVolatile",
            "getFloat",
            "getFloatVolatile",
            "getInt",
            "getIntVolatile",
            "getLong",
            "getLongVolatile",
            "getReference",
            "getReferenceVolatile",
            "getShort",
            "getShortVolatile",
            "loadFence",
            "park",
            "putBoolean",
            "putBooleanVolatile",
            "putByte",
            "putByteVolatile",
            "putChar",
            "putCharVolatile",
            "putDouble",
            "putDoubleVolatile",
            "putFloat",
            "putFloatVolatile",
            "putInt",
            "putIntVolatile",
            "putLong",
            "putLongVolatile",
            "putReference",
            "putReferenceVolatile",
            "putShort",
            "putShortVolatile",
            "setMemory0",
            "storeFence",
            "unpark",
            "writeback0",
            "writebackPostSync0",
            "writebackPreSync0",
        ],
    ),
    ("jdk.internal.reflect.Reflection", &["getCallerClass", "getClassAccessFlags"]),
];

/// Classes whose natives the VM links in ways of its own. A stub in front of them would be called by nobody, or by
/// somebody who does not expect it.
const SPECIAL: &[&str] =
    &["java.lang.invoke.MethodHandle", "java.lang.invoke.VarHandle", "jdk.internal.vm.Continuation"];

/// Whether a compiler may replace calls of this native by what it does.
#[must_use]
pub fn is_candidate(class: &str, method: &str) -> bool {
    CANDIDATES.iter().any(|(owner, methods)| *owner == class && methods.contains(&method))
}

/// Whether no stub may stand before the natives of this class.
#[must_use]
pub fn is_special(class: &str) -> bool {
    SPECIAL.contains(&class)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that candidates are told from their neighbours in the same class.
    #[test]
    fn candidates_by_class_and_name() {
        assert!(is_candidate("java.lang.System", "arraycopy"));
        assert!(!is_candidate("java.lang.System", "mapLibraryName"));
        assert!(!is_candidate("com.acme.System", "arraycopy"));
        assert!(is_special("java.lang.invoke.MethodHandle") && !is_special("java.lang.invoke.MethodHandleNatives"));
    }
}
