//! Where the separate debug information of a library is, if there is any: by its build id or by the name in its
//! `.gnu_debuglink`, on the host or in the target's own file system.
//!
//! Only a file with the library's build id is taken.

use std::path::{Path, PathBuf};

use super::library_file::{LibraryFile, read_headers};
use crate::model::{Library, Pid};
use crate::sys::target_file::TargetFile;

/// Where distributions install it.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// A file with debug information.
#[derive(Debug)]
pub(super) enum DebugFile {
    /// The host's own, under this path.
    Host(PathBuf),
    /// The target's, which may change under our hands.
    Target(TargetFile),
}

/// Looks for the debug information of a library of the process `pid`.
pub(super) fn find(pid: Pid, library: &Library, opened: &LibraryFile) -> Option<DebugFile> {
    let build_id = opened.build_id.as_ref()?;
    let by_id = by_build_id(build_id)?;
    if TargetFile::open(&by_id).is_ok_and(|file| has_build_id(&file, build_id)) {
        return Some(DebugFile::Host(by_id));
    }
    let link = opened.sections.debug_link(&opened.file).ok().flatten();
    let by_name = link.map(|name| by_debug_link(&library.path, &name)).unwrap_or_default();
    let process = PathBuf::from(format!("/proc/{pid}"));
    let paths = [by_id].into_iter().chain(by_name);
    let mut in_target = paths.filter_map(|path| TargetFile::open_as_target(&process, &path).ok());
    in_target.find(|file| has_build_id(file, build_id)).map(DebugFile::Target)
}

/// The path that a build id stands for.
fn by_build_id(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Path::new(DEBUG_DIRECTORY).join(format!(".build-id/{first:02x}/{rest}.debug")))
}

/// The paths that a debug link of a library may mean.
fn by_debug_link(library: &Path, name: &str) -> Vec<PathBuf> {
    let Some(directory) = library.parent().filter(|directory| directory.is_absolute()) else { return Vec::new() };
    let installed = directory.strip_prefix("/").map(|below| Path::new(DEBUG_DIRECTORY).join(below).join(name));
    [directory.join(name), directory.join(".debug").join(name)].into_iter().chain(installed).collect()
}

fn has_build_id(file: &TargetFile, expected: &[u8]) -> bool {
    let found = read_headers(file).ok().and_then(|(_, sections)| sections.build_id(file).ok().flatten());
    found.is_some_and(|(_, found)| found == expected)
}
