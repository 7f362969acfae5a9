//! Where a result is written to: stdout, or a file that appears whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A result that cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SaveError {
    /// There is a directory of that name.
    #[error("{} is a directory: name a file in it", path.display())]
    Directory {
        /// The name.
        path: PathBuf,
    },
    /// The file would lie in a directory that is not there.
    #[error("{} cannot be written: there is no directory {}", path.display(), directory.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// The file cannot be written.
    #[error("{} cannot be written", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Bytes that would upset the terminal.
    #[error("this is not for a terminal: name a file with --output, or send stdout into one")]
    Terminal,
}

/// Where to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    /// Stdout.
    Stdout,
    /// A file, which is replaced if it is there.
    File(PathBuf),
}

impl Destination {
    /// What `-o PATH` means, `-` being stdout. Finds what cannot work before anything is recorded.
    ///
    /// # Errors
    /// If the path is a directory.
    pub(super) fn of(path: &Path) -> Result<Self, SaveError> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        if path.is_dir() || path.file_name().is_none() {
            return Err(SaveError::Directory { path: path.to_path_buf() });
        }
        Ok(Self::File(path.to_path_buf()))
    }

    /// Finds out whether a file can be made there, and leaves nothing behind.
    ///
    /// # Errors
    /// If it cannot.
    pub(super) fn try_out(&self) -> Result<(), SaveError> {
        let Self::File(path) = self else { return Ok(()) };
        if path.exists() && !path.is_file() {
            return Ok(());
        }
        let directory = directory_of(path);
        if !directory.is_dir() {
            return Err(SaveError::NoDirectory { path: path.clone(), directory: directory.to_path_buf() });
        }
        let result = tempfile::Builder::new().prefix(".nprof-").tempfile_in(directory);
        result.map(drop).map_err(|source| SaveError::Io { path: path.clone(), source })
    }

    /// Refuses bytes that are no text if they would go to a terminal.
    ///
    /// # Errors
    /// If they would.
    pub(super) fn spare_terminal(&self) -> Result<(), SaveError> {
        let is_terminal = *self == Self::Stdout && io::stdout().is_terminal();
        if is_terminal { Err(SaveError::Terminal) } else { Ok(()) }
    }

    /// Writes what `content` writes. A file gets its name when it is complete; what had the name before stays until then,
    /// and stays for good if something fails.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn save(&self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        match self {
            Self::Stdout => {
                let mut out = BufWriter::new(io::stdout().lock());
                content(&mut out)?;
                out.flush()?;
                Ok(())
            }
            Self::File(path) => {
                let named = |source| SaveError::Io { path: path.clone(), source };
                Ok(save_file(path, content).map_err(named)?)
            }
        }
    }
}

fn save_file(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // A link stays one: what it leads to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if fs::metadata(&path).is_ok_and(|about| !about.is_file()) {
        // A pipe or a device is written to, never replaced.
        let mut out = BufWriter::new(File::options().write(true).open(&path)?);
        content(&mut out)?;
        return out.flush();
    }
    let directory = directory_of(&path);
    // As for any new file, the user's umask decides who may read it.
    let mut file =
        tempfile::Builder::new().prefix(".nprof-").permissions(Permissions::from_mode(0o666)).tempfile_in(directory)?;
    let mut out = BufWriter::new(&mut file);
    content(&mut out)?;
    out.flush()?;
    drop(out);
    file.persist(&path)?;
    Ok(())
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn saved(path: &Path, text: &str) -> anyhow::Result<()> {
        Destination::of(path)?.save(|out| out.write_all(text.as_bytes()))
    }

    /// Check that a file is replaced as a whole, through a link too, and that nothing else is left in its directory.
    #[test]
    fn replaces_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("a.svg"), directory.path().join("link.svg"));
        saved(&file, "first, and longer").unwrap();
        symlink(&file, &link).unwrap();
        saved(&link, "second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert!(link.is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    /// Check that what fails half way leaves the file as it was.
    #[test]
    fn failure_leaves_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.svg");
        saved(&file, "old").unwrap();
        let failing = |out: &mut dyn Write| {
            out.write_all(b"new")?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let error = Destination::of(&file).unwrap().save(failing).unwrap_err();
        assert!(error.to_string().contains("a.svg cannot be written"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// Check that a new file has the rights that the user's umask leaves, not those of a temporary one.
    #[test]
    fn new_file_can_be_read_by_others() {
        let directory = tempfile::tempdir().unwrap();
        let (file, usual) = (directory.path().join("a.svg"), directory.path().join("usual"));
        saved(&file, "x").unwrap();
        fs::write(&usual, "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&file), mode(&usual));
    }

    /// Check that a directory is refused with advice, a missing one is named, and that a device is written to.
    #[test]
    fn places_that_are_no_files() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path(), Path::new("/"), Path::new(".."), Path::new("")] {
            let error = Destination::of(path).unwrap_err().to_string();
            assert!(error.contains("is a directory: name a file in it"), "{error}");
        }
        let error = saved(&directory.path().join("no/such.svg"), "").unwrap_err().to_string();
        assert!(error.contains("no/such.svg cannot be written"), "{error}");
        let error = Destination::of(Path::new("no/such.svg")).unwrap().try_out().unwrap_err().to_string();
        assert!(error.ends_with("there is no directory no"), "{error}");
        saved(Path::new("/dev/null"), "x").unwrap();
        assert_eq!(Destination::of(Path::new("-")).unwrap(), Destination::Stdout);
    }
}
