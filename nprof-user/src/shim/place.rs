//! A directory of nprof's own among the target's, for as long as the shim is being loaded: with the library, and with the
//! socket that the shim connects to. When it is dropped, all of it is gone, unless the library is to be loaded again from there.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatVfsMountFlags, fstat, fstatvfs, mkdirat, openat, renameat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::geteuid;

use super::library::{BYTES, NAME};
use super::mounted::Mounted;
use super::target::{Directory, Target, remove};

/// The socket that the shim connects to.
const SOCKET: &str = "nprof";
/// The library is complete before anybody can load it.
const READABLE: Mode = Mode::RUSR;
/// What the names of all such directories begin with.
const PREFIX: &str = ".nprof-";
/// The same of those in which the library stays.
const KEPT: &str = ".nprof.";
/// A directory that is older was left behind by an nprof that was killed: loading takes no more than a few times its
/// patience.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// How such a directory is opened: to work in it, and no link in its place.
const BELOW: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory.
#[derive(Debug)]
pub(super) struct Place<'a> {
    parent: &'a Directory,
    name: String,
    fd: OwnedFd,
    /// What is mounted over it, where that had to be.
    over: Option<Mounted<'a>>,
    is_kept: bool,
}

impl<'a> Place<'a> {
    /// Makes one in the first directory that takes it, with the library if `library` is wanted. The error says for each
    /// directory why it does not.
    pub(super) fn make(directories: impl Iterator<Item = &'a Directory>, library: bool) -> Result<Self, Vec<String>> {
        let mut tried = Vec::new();
        for parent in directories {
            match Self::make_in(parent, library) {
                Ok(place) => return Ok(place),
                Err(error) => tried.push(format!("{}: {error}", parent.inside.display())),
            }
        }
        Err(tried)
    }

    fn make_in(parent: &'a Directory, library: bool) -> io::Result<Self> {
        if library && fstatvfs(&parent.fd)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(io::Error::other("mounted noexec"));
        }
        sweep(parent, FORGOTTEN);
        let name = format!("{PREFIX}{:016x}", RandomState::new().build_hasher().finish());
        mkdirat(&parent.fd, &name, Mode::RWXU)?;
        let fd = openat(&parent.fd, &name, BELOW, Mode::empty())
            .inspect_err(|_| remove(parent.fd.as_fd(), &name, AtFlags::REMOVEDIR))?;
        let place = Self { parent, name, fd, over: None, is_kept: false };
        // Who may write to the directory above could have put another one in its place.
        if fstat(&place.fd)?.st_uid != geteuid().as_raw() {
            return Err(io::Error::other("taken by another user"));
        }
        if library {
            place.write_library()?;
        }
        Ok(place)
    }

    pub(super) fn write_library(&self) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(self.root(), NAME, flags, READABLE)?);
        file.write_all(BYTES)
    }

    /// Mounts a file system over it from which programs may be run. To be called as root.
    pub(super) fn mount(&mut self, target: &'a Target<'_>) -> io::Result<()> {
        let user = (target.standing.euid, target.standing.egid);
        self.over = Some(Mounted::over(&self.fd, target.process.as_fd(), user)?);
        Ok(())
    }

    /// Takes that away again, with what is in it.
    pub(super) fn unmount(&mut self) {
        if let Some(over) = self.over.take() {
            clear_files(over.as_fd());
        }
    }

    /// Where files are made.
    fn root(&self) -> BorrowedFd<'_> {
        self.over.as_ref().map_or_else(|| self.fd.as_fd(), AsFd::as_fd)
    }

    /// The library as the target sees it.
    pub(super) fn library(&self) -> PathBuf {
        self.inside().join(NAME)
    }

    /// The socket as the target sees it.
    pub(super) fn socket(&self) -> PathBuf {
        self.inside().join(SOCKET)
    }

    /// Leaves the library where it is, without the socket, and says where.
    pub(super) fn keep_library(mut self) -> io::Result<PathBuf> {
        remove(self.root(), SOCKET, AtFlags::empty());
        let name = self.name.replacen(PREFIX, KEPT, 1);
        renameat(&self.parent.fd, &self.name, &self.parent.fd, &name)?;
        (self.name, self.is_kept) = (name, true);
        Ok(self.library())
    }

    fn inside(&self) -> PathBuf {
        self.parent.inside.join(&self.name)
    }

    /// Makes the socket and listens at it.
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let outside = Path::new("/proc/self/fd").join(self.root().as_raw_fd().to_string()).join(SOCKET);
        bind(&listener, &SocketAddrUnix::new(outside)?)?;
        listen(&listener, 4)?;
        Ok(listener)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            clear(self.parent, &self.name, &self.fd);
        }
    }
}

/// Removes a directory with what nprof puts into one.
fn clear(parent: &Directory, name: &str, fd: &OwnedFd) {
    clear_files(fd.as_fd());
    remove(parent.fd.as_fd(), name, AtFlags::REMOVEDIR);
}

fn clear_files(directory: BorrowedFd<'_>) {
    for file in [NAME, SOCKET] {
        remove(directory, file, AtFlags::empty());
    }
}

/// Removes this user's directories that have not been changed for `age`.
fn sweep(parent: &Directory, age: Duration) {
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // What cannot be read holds nothing of ours that could be removed.
    let Ok(mut entries) = openat(&parent.fd, ".", readable, Mode::empty()).and_then(Dir::new) else { return };
    while let Some(Ok(entry)) = entries.read() {
        let Some(name) = entry.file_name().to_str().ok().filter(|name| name.starts_with(PREFIX)) else { continue };
        let Ok(fd) = openat(&parent.fd, name, BELOW, Mode::empty()) else { continue };
        if fstat(&fd).is_ok_and(|found| found.st_uid == geteuid().as_raw() && is_older(found.st_mtime, age)) {
            clear(parent, name, &fd);
        }
    }
}

/// Whether a time in seconds since 1970 is so long ago.
fn is_older(time: i64, age: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time).is_ok_and(|time| now.saturating_sub(Duration::from_secs(time)) > age)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::net::connect;

    use super::*;

    fn directory(path: &Path) -> Directory {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        Directory { fd: rustix::fs::open(path, flags, Mode::empty()).unwrap(), inside: path.to_owned() }
    }

    /// Check that library and socket are there as long as the place is, for their owner alone, and that nothing stays.
    #[test]
    fn nothing_stays() {
        let base = tempfile::tempdir().unwrap();
        let parent = directory(base.path());
        let place = Place::make([&parent].into_iter(), true).unwrap();
        assert_eq!(std::fs::read(place.library()).unwrap(), BYTES);
        let listener = place.listen().unwrap();
        let client = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&client, &SocketAddrUnix::new(place.socket()).unwrap()).unwrap();
        let mode = std::fs::metadata(place.inside()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop((place, listener));
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }

    /// Check that a library that is to stay does, without the socket, also when others are removed.
    #[test]
    fn library_stays() {
        let base = tempfile::tempdir().unwrap();
        let parent = directory(base.path());
        let place = Place::make([&parent].into_iter(), true).unwrap();
        let _listener = place.listen().unwrap();
        let library = place.keep_library().unwrap();
        sweep(&parent, Duration::ZERO);
        assert_eq!(std::fs::read(&library).unwrap(), BYTES);
        assert_eq!(std::fs::read_dir(library.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
    }

    /// Check that a directory that cannot take it is passed over, with its reason.
    #[test]
    fn next_directory() {
        let base = tempfile::tempdir().unwrap();
        let [full, good] = ["full", "good"].map(|name| base.path().join(name));
        for path in [&full, &good] {
            std::fs::create_dir(path).unwrap();
        }
        // Of /proc nobody can make anything a part.
        let (bad, good) = (directory(Path::new("/proc/self/fd")), directory(&good));
        let place = Place::make([&bad, &good].into_iter(), false).unwrap();
        assert!(place.socket().starts_with(&good.inside));
        assert!(!place.library().exists());
        let tried = Place::make([&bad].into_iter(), true).unwrap_err();
        assert!(tried.len() == 1 && tried[0].starts_with("/proc/self/fd: "), "{tried:?}");
    }

    /// Check that what a killed nprof left is removed, and nothing that is in use, another's, or only called alike.
    #[test]
    fn sweeps() {
        let base = tempfile::tempdir().unwrap();
        let parent = directory(base.path());
        let place = Place::make([&parent].into_iter(), true).unwrap();
        let name = place.name.clone();
        // Killed: nothing is dropped.
        std::mem::forget(place);
        let others = ["nprof-1", ".nprof-file"].map(|name| base.path().join(name));
        std::fs::create_dir(&others[0]).unwrap();
        std::fs::write(&others[1], "").unwrap();
        sweep(&parent, FORGOTTEN);
        assert!(base.path().join(&name).exists());
        let time = SystemTime::now() - 2 * FORGOTTEN;
        for path in [&base.path().join(&name), &others[0], &others[1]] {
            File::open(path).unwrap().set_modified(time).unwrap();
        }
        sweep(&parent, FORGOTTEN);
        assert!(!base.path().join(&name).exists() && others.iter().all(|path| path.exists()));
    }
}
