//! Which virtual machine a process runs, from the files it has mapped.

use std::path::Path;

use super::maps;
use crate::model::{JvmKind, Library, Mapping};

/// The VM whose library is mapped to be run. A debugger or a profiler maps the same files only to read them.
pub(super) fn kind_of(mappings: &[Mapping]) -> Option<JvmKind> {
    let paths = || mappings.iter().filter(|m| m.executable).map(|m| &*m.path);
    // First, because OpenJ9 brings its own libjvm.so, which forwards to this one.
    if paths().any(is_openj9) {
        return Some(JvmKind::OpenJ9);
    }
    let libjvm = paths().find(|path| is_libjvm(path))?;
    Some(if is_minimal(libjvm) { JvmKind::HotSpotMinimal } else { JvmKind::HotSpot })
}

/// Whether a VM's library is mapped to be run, from the text of `/proc/PID/maps`. Only the lines that name one are
/// parsed: this is asked of every program that starts on the host.
pub(super) fn maps_a_vm(maps: &[u8]) -> bool {
    let names_one = |line: &&[u8]| {
        let name = line.rsplit(|b| *b == b'/').next().unwrap_or_default();
        name.starts_with(b"libjvm.so") || name.starts_with(b"libj9vm")
    };
    let mut lines = maps.split(|b| *b == b'\n').filter(names_one);
    lines.any(|line| maps::parse(line).is_ok_and(|mappings| kind_of(&mappings).is_some()))
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

    /// Check that the quick look at the text agrees: a VM that is run counts, deleted or not, one that is read, or a
    /// file that is only called alike, does not.
    #[test]
    fn quick_look_agrees() {
        let line = |permissions: &str, path: &str| format!("1000-2000 {permissions} 00000000 08:01 7   {path}\n");
        let libc = line("r-xp", "/lib/libc.so.6");
        for (permissions, path, is_vm) in [
            ("r-xp", "/jdk/lib/server/libjvm.so", true),
            ("r-xp", "/jdk/lib/server/libjvm.so (deleted)", true),
            ("r-xp", "/jdk/lib/default/libj9vm29.so", true),
            ("r--p", "/jdk/lib/server/libjvm.so", false),
            ("r-xp", "/jdk/lib/server/libjvm.so.debug", false),
            ("r-xp", "/libjvm.so/notes", false),
        ] {
            let text = format!("{libc}{}{libc}", line(permissions, path));
            assert_eq!(maps_a_vm(text.as_bytes()), is_vm, "{permissions} {path}");
        }
        assert!(!maps_a_vm(b""));
        assert!(!maps_a_vm(b"nonsense/libjvm.so"));
    }

    /// Check that a process that only reads libjvm.so is no JVM.
    #[test]
    fn ignores_readers_of_the_library() {
        let files = mapped(&[("/jdk/lib/server/libjvm.so", false)]);
        assert_eq!(kind_of(&files), None);
    }
}
