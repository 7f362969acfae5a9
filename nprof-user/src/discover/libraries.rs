//! Groups the executable mappings of a process into libraries, and finds a path that opens exactly the file that is
//! mapped.

use std::collections::HashMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::process::ProcessDir;
use crate::model::{FileId, Library, Mapping};
use crate::sys::target_file;

const DELETED: &[u8] = b" (deleted)";

/// The libraries behind the mappings, in order of their first executable mapping.
pub(super) fn libraries(process: &ProcessDir, mappings: Vec<Mapping>) -> Vec<Library> {
    let mut grouped: Vec<Vec<Mapping>> = Vec::new();
    let mut places: HashMap<FileId, usize> = HashMap::new();
    for mapping in mappings.into_iter().filter(|m| m.executable) {
        let place = *places.entry(mapping.file).or_insert(grouped.len());
        match grouped.get_mut(place) {
            Some(group) => group.push(mapping),
            None => grouped.push(vec![mapping]),
        }
    }
    grouped.into_iter().filter_map(|mappings| library(process, mappings)).collect()
}

/// One library; `None` for a mapped device, which holds no code that a probe could be placed in and which must not
/// be opened.
fn library(process: &ProcessDir, mappings: Vec<Mapping>) -> Option<Library> {
    let first = mappings.first()?;
    let map_file = process.join(format!("map_files/{:x}-{:x}", first.start.0, first.end.0));
    let (path, deleted) = shown_path(process, first);
    let open_path = match target_file::look(&map_file) {
        Ok(found) if found.is_file() => map_file,
        Ok(_) => return None,
        // Not permitted, or the mapping has gone. The path in the target's root will do if it is the same file;
        // where it is not, the opener meets the error that belongs to the exact path.
        Err(_) => in_root(process, &path, first.file).unwrap_or(map_file),
    };
    Some(Library { file: first.file, path, deleted, open_path, mappings })
}

/// The path without the kernel's mark, and whether the file is deleted. A file may really be called
/// `x (deleted)`: then it is found under that name.
fn shown_path(process: &ProcessDir, mapping: &Mapping) -> (PathBuf, bool) {
    let bytes = mapping.path.as_os_str().as_bytes();
    match bytes.strip_suffix(DELETED) {
        Some(plain) if in_root(process, &mapping.path, mapping.file).is_none() => {
            let plain = std::ffi::OsString::from_vec(plain.to_vec());
            (PathBuf::from(plain), true)
        }
        _ => (mapping.path.clone(), false),
    }
}

/// The path of a file through the target's root, if it is the very file that is mapped. Some file systems (btrfs,
/// overlays) show `stat` another device number than `maps`: there only the exact path of `map_files` will do.
fn in_root(process: &ProcessDir, path: &Path, file: FileId) -> Option<PathBuf> {
    let seen = process.as_target_sees(path)?;
    let inside = process.join("root").join(seen.strip_prefix("/").ok()?);
    let found = target_file::look(&inside).ok()?;
    (found.is_file() && found.id == file).then_some(inside)
}
