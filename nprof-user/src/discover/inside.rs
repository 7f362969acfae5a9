//! Directories and descriptors of a process, as it sees them itself.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::ResolveFlags;

use super::{Error, Proc};
use crate::model::Pid;
use crate::sys::target_file::{self, About};

impl Proc {
    /// Opens a directory by its absolute path as the target sees it, to work in, not to read. Symbolic links, absolute
    /// ones included, stay inside the target's root.
    ///
    /// # Errors
    /// If there is no such directory, or it may not be looked into.
    pub fn directory_inside(&self, pid: Pid, path: &Path) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        target_file::directory(&self.process(pid).join("root"), path, resolve)
    }

    /// Opens the target's working directory, to work in.
    ///
    /// # Errors
    /// If it may not be looked into.
    pub fn working_directory(&self, pid: Pid) -> io::Result<OwnedFd> {
        target_file::directory(&self.process(pid).join("cwd"), Path::new("."), ResolveFlags::empty())
    }

    /// The number of a descriptor by which the target has the file behind `file` open; `None` if it has none.
    ///
    /// # Errors
    /// If the process is gone or may not be looked into.
    pub fn descriptor_of(&self, pid: Pid, file: &Path) -> Result<Option<u32>, Error> {
        let process = self.process(pid);
        let wanted = target_file::look(file).map_err(|source| process.error(file.to_owned(), source))?;
        let directory = process.join("fd");
        let entries = std::fs::read_dir(&directory).map_err(|source| process.error(directory.clone(), source))?;
        let number = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry.ok()?;
            // Follows the link to whatever is open, which may have been deleted.
            let found = target_file::look(&entry.path()).ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            is_same_file(&found, &wanted).then_some(number)
        };
        Ok(entries.filter_map(number).next())
    }

    /// Whether the target finds the file behind `file` under `path`.
    #[must_use]
    pub fn finds(&self, pid: Pid, path: &Path, file: &Path) -> bool {
        let found = self.process(pid).open_as_target(path).ok();
        found.zip(target_file::look(file).ok()).is_some_and(|(found, wanted)| is_same_file(found.about(), &wanted))
    }

    /// The path by which the target sees a file that `maps` shows under `shown`.
    #[must_use]
    pub fn path_inside(&self, pid: Pid, shown: &Path) -> Option<std::path::PathBuf> {
        self.process(pid).as_target_sees(shown)
    }
}

fn is_same_file(one: &About, other: &About) -> bool {
    one.id == other.id && one.is_file()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{AtFlags, statat};

    use super::*;
    use crate::discover::test_proc::TestProc;

    const PID: Pid = Pid(7);

    /// Check that links of the target's making stay inside its root, and that what is no directory is refused.
    #[test]
    fn directories_stay_inside() {
        let host = TestProc::new();
        host.process(PID).add();
        host.link("proc/7/root", host.path("inside"));
        host.file("inside/real/here", "");
        host.link("inside/tmp", "/real");
        let opened = host.proc().directory_inside(PID, Path::new("/tmp")).unwrap();
        assert!(statat(&opened, "here", AtFlags::empty()).is_ok());
        assert!(host.proc().directory_inside(PID, Path::new("/real/here")).is_err());
        host.link("inside/tmp", "/../../proc");
        assert!(host.proc().directory_inside(PID, Path::new("/tmp")).is_err());
    }

    /// Check that an open file is found by what it is, and a path only if it still leads to the same file.
    #[test]
    fn files_are_known_by_what_they_are() {
        let host = TestProc::new();
        host.process(PID).add();
        for (name, contents) in [("inside/lib.so", "1"), ("inside/other.so", "1")] {
            host.file(name, contents);
        }
        host.link("proc/7/root", host.path("inside"));
        host.link("proc/7/fd/3", host.path("inside/other.so"));
        let library = host.path("inside/lib.so");
        assert_eq!(host.proc().descriptor_of(PID, &library).unwrap(), None);
        host.link("proc/7/fd/5", &library);
        assert_eq!(host.proc().descriptor_of(PID, &library).unwrap(), Some(5));
        assert!(host.proc().finds(PID, Path::new("/lib.so"), &library));
        assert!(!host.proc().finds(PID, Path::new("/other.so"), &library));
        assert!(!host.proc().finds(PID, Path::new("/gone.so"), &library));
    }
}
