//! The images of all JVMs together: those that run the same libraries share what was read of them, and the descriptor.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::image::{Image, ImageError, open_file};
use crate::sys::target_file::About;

/// What tells one state of a file from all others: device, inode, size, and the times of the last change of content and
/// of inode.
///
/// An image keeps its file open, so that no other file gets its inode.
type Version = [i128; 5];

/// The image of the library that `path` opens: a new one only if no other JVM has it.
pub(super) fn open(path: &Path) -> Result<Arc<Image>, ImageError> {
    let file = open_file(path)?;
    let version = version(file.about());
    if let Some(image) = with(|known| known.get(&version).and_then(Weak::upgrade)) {
        return Ok(image);
    }
    // Not under the lock: others would wait for this file. Two that read the same one at once both keep what they read.
    let image = Arc::new(Image::read(path, file)?);
    with(|known| {
        known.retain(|_, image| image.strong_count() > 0);
        known.insert(version, Arc::downgrade(&image));
    });
    Ok(image)
}

fn with<T>(f: impl FnOnce(&mut HashMap<Version, Weak<Image>>) -> T) -> T {
    static KNOWN: OnceLock<Mutex<HashMap<Version, Weak<Image>>>> = OnceLock::new();
    // Whoever panicked here left a map of images that are good.
    f(&mut KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner))
}

fn version(about: &About) -> Version {
    let (id, [content, inode]) = (about.id, about.changed);
    let device = i128::from(id.major) << 32 | i128::from(id.minor);
    [device, id.inode.into(), about.len.into(), content, inode]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a file is read once for as long as anybody has its image, and again when it has changed.
    #[test]
    fn shared_until_it_changes() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("a.so"), directory.path().join("b.so"));
        std::fs::copy("/proc/self/exe", &path).unwrap();
        std::fs::hard_link(&path, &link).unwrap();
        let first = open(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &open(&path).unwrap()));
        assert!(Arc::ptr_eq(&first, &open(&link).unwrap()), "another name of the same file");
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let changed = open(&path);
        assert!(changed.is_err() || !Arc::ptr_eq(&first, &changed.unwrap()));
    }
}
