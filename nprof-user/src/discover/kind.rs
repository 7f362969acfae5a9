//! Which virtual machine a process runs, from the files it has mapped.

use std::path::Path;

use crate::model::{JvmKind, Library, Mapping};

/// The VM whose library is mapped to be run. A debugger or a profiler maps the same files only to read them.
pub(super) fn kind_of(mappings: &[Mapping]) -> Option<JvmKind> {
    let paths = || mappings.iter().filter(|m| m.executable).map(|m| &*m.path);
    // First, because OpenJ9 brings a libjvm.so of its own that forwards to this one.
    if paths().any(is_openj9) {
        return Some(JvmKind::OpenJ9);
    }
    let libjvm = paths().find(|path| is_libjvm(path))?;
    Some(if is_minimal(libjvm) { JvmKind::HotSpotMinimal } else { JvmKind::HotSpot })
}

/// The library that holds the HotSpot VM.
#[must_use]
pub fn libjvm(libraries: &[Library]) -> Option<&Library> {
    libraries.iter().find(|library| is_libjvm(&library.path))
}

/// Whether a path, with or without the mark of a deleted file, names HotSpot's library.
pub(super) fn is_libjvm(path: &Path) -> bool {
    file_name(path) == "libjvm.so"
}

fn is_openj9(path: &Path) -> bool {
    let name = file_name(path);
    name.starts_with("libj9vm") && name.ends_with(".so")
}

fn is_minimal(libjvm: &Path) -> bool {
    libjvm.parent().is_some_and(|directory| directory.ends_with("minimal"))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FileId, FileOffset, VirtAddr};

    fn mapped(paths: &[(&str, bool)]) -> Vec<Mapping> {
        paths
            .iter()
            .map(|(path, executable)| Mapping {
                start: VirtAddr(0x1000),
                end: VirtAddr(0x2000),
                offset: FileOffset(0),
                executable: *executable,
                file: FileId { major: 8, minor: 1, inode: 1 },
                path: path.into(),
            })
            .collect()
    }

    /// Check that each VM is told by its library, deleted or not.
    #[test]
    fn tells_the_vms_apart() {
        let kind = |path| kind_of(&mapped(&[("/lib/libc.so.6", true), (path, true)]));
        assert_eq!(kind("/jdk/lib/server/libjvm.so"), Some(JvmKind::HotSpot));
        let deleted = "/jdk/lib/server/libjvm.so (deleted)";
        assert_eq!(kind(deleted), Some(JvmKind::HotSpot));
        let minimal = "/jdk/lib/minimal/libjvm.so";
        assert_eq!(kind(minimal), Some(JvmKind::HotSpotMinimal));
        assert_eq!(kind("/jdk/lib/libjava.so"), None);
        assert_eq!(kind("/jdk/libjvm.so/notes"), None);
    }

    /// Check that OpenJ9 is not taken for HotSpot because of the libjvm.so that it ships.
    #[test]
    fn sees_openj9_behind_its_libjvm() {
        let files = mapped(&[("/jdk/lib/server/libjvm.so", true), ("/jdk/lib/default/libj9vm29.so", true)]);
        assert_eq!(kind_of(&files), Some(JvmKind::OpenJ9));
    }

    /// Check that a process that only reads libjvm.so is no JVM.
    #[test]
    fn ignores_readers_of_the_library() {
        let files = mapped(&[("/jdk/lib/server/libjvm.so", false)]);
        assert_eq!(kind_of(&files), None);
    }
}
