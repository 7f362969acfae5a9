//! Reads the small files that nprof is set up with: certificates, keys, credentials.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The longest file that is read. A chain of certificates takes some kilobytes.
const MAX_BYTES: u64 = 1 << 20;
/// Reading and writing by others than owner and group.
const OTHERS: u32 = 0o006;

/// Why a file was not read. No message holds a part of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It could not be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The path leads to a directory, a pipe or a device.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is longer than any of its kind should be.
    #[error("{} is longer than {limit} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The longest that is read, in bytes.
        limit: u64,
    },
    /// It has a secret in it and is open to all users of the host.
    #[error("{} holds a secret, but every user may access it (mode {mode:04o}); run `chmod o= {}`", path.display(), path.display())]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// The content of a file that everybody may read.
///
/// # Errors
/// If it cannot be read, is no regular file or is too long.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    read_at_most(path, MAX_BYTES)
}

/// The same of a file of another kind, which may have so many bytes.
///
/// # Errors
/// As [`read`].
pub fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    content(path, &open(path)?, limit)
}

/// The content of a file that others than owner and group may neither read nor write.
///
/// # Errors
/// Those of [`read`], and if others may.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, Error> {
    // The permissions are those of what has been opened: the path may lead elsewhere a moment later.
    let file = open(path)?;
    let mode = file.metadata().map_err(|source| unreadable(path, source))?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(Error::OpenToOthers { path: path.to_path_buf(), mode });
    }
    content(path, &file, MAX_BYTES)
}

/// Opens without waiting for whoever may be at the other end of a pipe.
fn open(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|source| unreadable(path, source))?;
    let regular = file.metadata().map_err(|source| unreadable(path, source))?.is_file();
    if regular { Ok(file) } else { Err(Error::NotAFile { path: path.to_path_buf() }) }
}

fn content(path: &Path, file: &File, limit: u64) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let length = file.take(limit + 1).read_to_end(&mut content).map_err(|source| unreadable(path, source))?;
    if length as u64 > limit {
        return Err(Error::TooLong { path: path.to_path_buf(), limit });
    }
    Ok(content)
}

fn unreadable(path: &Path, source: io::Error) -> Error {
    Error::Read { path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Check that a secret that all may read or write is refused, with the command that mends it.
    #[test]
    fn secret_open_to_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "abc").unwrap();
        for (mode, fine) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_secret(&path).is_ok(), fine, "{mode:o}");
            assert!(read(&path).is_ok(), "{mode:o}");
        }
        let refused = read_secret(&path).unwrap_err().to_string();
        assert!(refused.contains("0602") && refused.contains(&format!("chmod o= {}", path.display())), "{refused}");
    }

    /// Check that what is not a file, and what is too long, is refused without reading it to the end.
    #[test]
    fn only_short_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(read(directory.path()), Err(Error::NotAFile { .. })));
        assert!(matches!(read(Path::new("/dev/zero")), Err(Error::NotAFile { .. })));
        let path = directory.path().join("long");
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(matches!(read(&path), Err(Error::TooLong { .. })));
        assert!(matches!(read(&directory.path().join("none")), Err(Error::Read { .. })));
    }
}
