//! The names that fields have had: where versions of the VM differ in nothing but a name, one name is used everywhere else.

/// The name that nprof knows a field by, and the names that it has in other versions.
const ALIASES: [(&str, &[&str]); 12] = [
    // 12 to 14.
    ("ClassLoaderData::_is_anonymous", &["ClassLoaderData::_is_unsafe_anonymous"]),
    // Up to 14.
    ("GrowableArrayBase::_len", &["GenericGrowableArray::_len"]),
    // 26 and later.
    ("nmethod::_deopt_handler_offset", &["nmethod::_deopt_handler_entry_offset"]),
    // 23 and later: there is no other compiled method.
    ("CompiledMethod::_method", &["nmethod::_method"]),
    // 21 and later.
    ("ConstMethod::_flags", &["ConstMethod::_flags._flags"]),
    // 25 and later.
    ("JavaThread::_osthread", &["Thread::_osthread"]),
    // Up to 20.
    ("CollectedHeap::_is_stw_gc_active", &["CollectedHeap::_is_gc_active"]),
    // 27 and later: no class pointer is wide.
    ("oopDesc::_metadata._klass", &["oopDesc::_compressed_klass"]),
    // Up to 24, and up to 12.
    ("CompressedOops::_base", &["CompressedOops::_narrow_oop._base", "Universe::_narrow_oop._base"]),
    ("CompressedOops::_shift", &["CompressedOops::_narrow_oop._shift", "Universe::_narrow_oop._shift"]),
    (
        "CompressedKlassPointers::_base",
        &["CompressedKlassPointers::_narrow_klass._base", "Universe::_narrow_klass._base"],
    ),
    (
        "CompressedKlassPointers::_shift",
        &["CompressedKlassPointers::_narrow_klass._shift", "Universe::_narrow_klass._shift"],
    ),
];

/// All names of the field that nprof knows by `name`, its own first.
pub(super) fn names(name: &str) -> impl Iterator<Item = &str> {
    let others = ALIASES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, others)| *others);
    std::iter::once(name).chain(others.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a field is looked for under its own name first, and that one without others has that alone.
    #[test]
    fn its_own_name_comes_first() {
        let all = |name| names(name).collect::<Vec<_>>();
        assert_eq!(all("GrowableArrayBase::_len"), ["GrowableArrayBase::_len", "GenericGrowableArray::_len"]);
        assert_eq!(all("Klass::_name"), ["Klass::_name"]);
    }
}
