//! Files of targets: the one way in which they are opened and read.
//!
//! What a target shows under a path may be a pipe, a device, or a file whose contents another program delivers (FUSE):
//! opening, looking at, reading and closing that may never end. So [`super::errand`] opens a path without
//! opening what lies there (`O_PATH`) and looks at it. Only a regular file is read; one on a file system of the
//! kernel's own is opened here, any other is read by errands, each for itself.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::errand::{self, Desk, ErrandError, Place};
use crate::model::{FileId, Pid};

/// What is read at a time by errands, in bytes.
const PART: usize = 256 << 10;
/// The sizes of `struct statx` and `struct statfs`, in bytes, with some to spare.
const STATX: usize = 256;
const STATFS: usize = 128;
/// File systems that the kernel reads from disk or memory without asking a program, by their magic numbers: ext, XFS, Btrfs,
/// tmpfs, ramfs, SquashFS, EROFS, F2FS, ZFS, ISO 9660. Not overlayfs: what lies below it may be any.
const LOCAL: [u64; 10] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x8584_58F6,
    0x7371_7368,
    0xE0F5_E1E2,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0x9660,
];
/// FUSE: a program delivers what a file holds.
const FUSE: u64 = 0x6573_5546;

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Device and inode, as `stat` shows them.
    pub id: FileId,
    /// Its length in bytes.
    pub len: u64,
    /// When its content and its inode were last changed, in nanoseconds.
    pub changed: [i128; 2],
    mode: u32,
    owner: u32,
    file_system: u64,
    mount_flags: u64,
}

impl About {
    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Its kind and permissions, as `stat` shows them.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether the kernel ignores there that a program is to run as its owner. Not known of every file system.
    #[must_use]
    pub fn is_nosuid(&self) -> bool {
        self.mount_flags & libc::ST_NOSUID != 0
    }

    /// Whether a program delivers what it holds, so that a page of it may never come.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        self.file_system == FUSE
    }

    fn is_local(&self) -> bool {
        LOCAL.contains(&self.file_system)
    }
}

/// A regular file of a target, open for reading.
#[derive(Debug)]
pub struct TargetFile {
    target: Pid,
    about: About,
    way: Way,
}

/// How a file is read.
#[derive(Debug)]
enum Way {
    /// Here: the kernel answers.
    Here(File),
    /// By errands, each of which opens it: whoever has it open may wait when it is closed.
    ByErrand(OwnedFd),
}

impl TargetFile {
    /// Opens what a path through `/proc/PID` leads to.
    ///
    /// # Errors
    /// If there is no regular file, or it does not let itself be looked at.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::found(target_of(path), find(target_of(path), None, path, OFlags::empty(), ResolveFlags::empty())?)
    }

    /// Opens a path as the target with this directory under `/proc` sees it. Symbolic links, absolute ones included, stay
    /// inside the target's root: a container cannot point nprof at the host's files. A relative path starts at the
    /// target's working directory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_as_target(process: &Path, path: &Path) -> io::Result<Self> {
        let (start, scope) = if path.is_absolute() {
            (process.join("root"), ResolveFlags::IN_ROOT)
        } else {
            // A path that leaves the working directory upwards is refused rather than followed out of the root.
            (process.join("cwd"), ResolveFlags::BENEATH)
        };
        Self::open_from(&start, path, scope | ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens a path as it leads from the directory `start`, within the bounds that `resolve` sets.
    fn open_from(start: &Path, path: &Path, resolve: ResolveFlags) -> io::Result<Self> {
        let target = target_of(start);
        Self::found(target, find(target, Some(start), path, OFlags::empty(), resolve)?)
    }

    /// A file that is nprof's own.
    ///
    /// # Errors
    /// If it cannot be looked at.
    pub fn own(file: File) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let found = file.metadata()?;
        let device = found.dev();
        let id = FileId { major: rustix::fs::major(device), minor: rustix::fs::minor(device), inode: found.ino() };
        let changed = [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())].map(nanoseconds);
        let (mode, owner, mount_flags) = (found.mode(), found.uid(), rustix::fs::fstatvfs(&file)?.f_flag.bits());
        let about = About { id, len: found.len(), changed, mode, owner, file_system: LOCAL[0], mount_flags };
        Ok(Self { target: Pid(std::process::id()), about, way: Way::Here(file) })
    }

    fn found(target: Pid, (fd, about): (OwnedFd, About)) -> io::Result<Self> {
        if !about.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let way = if about.is_local() {
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            Way::Here(File::options().read(true).custom_flags(flags).open(path)?)
        } else {
            Way::ByErrand(fd)
        };
        Ok(Self { target, about, way })
    }

    /// What it was when it was opened.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// If the file ends before, or cannot be read.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let read = self.read_at(&mut buf[done..], offset.saturating_add(done as u64))?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
        Ok(())
    }

    /// Reads up to as much as `buf` holds from `offset` on.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.way {
            Way::Here(file) => file.read_at(buf, offset),
            Way::ByErrand(fd) => {
                let len = buf.len().min(PART);
                read_by_errand(self.target, fd, &mut buf[..len], offset)
            }
        }
    }

    /// A path that leads to this very file for as long as it is kept.
    #[must_use]
    pub fn own_path(&self) -> PathBuf {
        let fd = match &self.way {
            Way::Here(file) => file.as_raw_fd(),
            Way::ByErrand(fd) => fd.as_raw_fd(),
        };
        format!("/proc/self/fd/{fd}").into()
    }

    /// The file as a stream, from its beginning.
    #[must_use]
    pub fn stream(&self) -> Stream<'_> {
        Stream { file: self, position: 0 }
    }
}

/// A [`TargetFile`] that is read from front to back.
#[derive(Debug, Clone)]
pub struct Stream<'a> {
    file: &'a TargetFile,
    position: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for Stream<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.file.about.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// What lies behind a path through `/proc/PID`.
///
/// # Errors
/// If there is nothing, or it does not let itself be looked at.
pub fn look(path: &Path) -> io::Result<About> {
    Ok(find(target_of(path), None, path, OFlags::empty(), ResolveFlags::empty())?.1)
}

/// Opens a directory as a path leads to it from the directory `start`, within the bounds that `resolve` sets: to work in,
/// not to read.
///
/// # Errors
/// If there is no directory, or it does not let itself be looked at.
pub fn directory(start: &Path, path: &Path, resolve: ResolveFlags) -> io::Result<OwnedFd> {
    Ok(find(target_of(start), Some(start), path, OFlags::DIRECTORY, resolve)?.0)
}

/// Whose file is behind a path: the process in `/proc/PID`; nprof itself for others.
fn target_of(path: &Path) -> Pid {
    let pid = path.strip_prefix("/proc").ok().and_then(|below| below.iter().next()?.to_str()?.parse().ok());
    Pid(pid.unwrap_or_else(std::process::id))
}

/// Finds what a path leads to and looks at it, without opening it.
fn find(
    target: Pid,
    start: Option<&Path>,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> io::Result<(OwnedFd, About)> {
    let found = errand::run(
        target,
        |desk| lay_find(desk, start, path, flags, resolve),
        |desk, laid| {
            if let Some(start) = laid.start {
                desk.result(start)?;
            }
            let number = desk.result(laid.found)?;
            desk.result(laid.looked)?;
            let (mut about, mut system) = ([0; STATX], [0; STATFS]);
            desk.copy_to(laid.about, &mut about);
            // Some file systems do not say what they are: then they are not known to be harmless.
            if desk.result(laid.asked).is_ok() {
                desk.copy_to(laid.system, &mut system);
            }
            let opened = format!("/proc/{}/fd/{number}", desk.runner());
            let fd = rustix::fs::open(opened, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            Ok((fd, read_about(&about, &system)))
        },
    );
    found.map_err(given_up)?
}

/// Which steps find a file, and where they put what they find.
struct Find {
    start: Option<usize>,
    found: usize,
    looked: usize,
    asked: usize,
    about: Place,
    system: Place,
}

fn lay_find(desk: &mut Desk, start: Option<&Path>, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Option<Find> {
    let at = i64::from(libc::AT_FDCWD).cast_unsigned();
    let flags = u64::from((OFlags::PATH | OFlags::CLOEXEC | flags).bits());
    let start = match start {
        None => None,
        Some(start) => {
            let start = put_path(desk, start)?;
            let directory = u64::from((OFlags::PATH | OFlags::DIRECTORY).bits());
            Some(desk.step(libc::SYS_openat, [at, start, directory, 0, 0, 0]))
        }
    };
    let path = match start {
        // The runner is another process, in another directory.
        None => put_path(desk, &as_runner_sees(path))?,
        Some(_) => put_path(desk, path)?,
    };
    let how: Vec<u8> = [flags, 0, resolve.bits()].into_iter().flat_map(u64::to_le_bytes).collect();
    let how = desk.put(&how)?;
    let args = [at, path, desk.address(how), 24, 0, 0];
    let found = match start {
        Some(start) => desk.step_with(start, libc::SYS_openat2, args),
        None => desk.step(libc::SYS_openat2, args),
    };
    let nothing = put_path(desk, Path::new(""))?;
    let (about, system) = (desk.reserve(STATX)?, desk.reserve(STATFS)?);
    let flags = u64::from((libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC).cast_unsigned());
    let wanted = u64::from(libc::STATX_BASIC_STATS);
    let looked = desk.step_with(found, libc::SYS_statx, [0, nothing, flags, wanted, desk.address(about), 0]);
    let asked = desk.step_with(found, libc::SYS_fstatfs, [0, desk.address(system), 0, 0, 0, 0]);
    Some(Find { start, found, looked, asked, about, system })
}

/// A path of nprof's, as it leads to the same from elsewhere.
fn as_runner_sees(path: &Path) -> PathBuf {
    match path.strip_prefix("/proc/self") {
        Ok(below) => Path::new(&format!("/proc/{}", std::process::id())).join(below),
        Err(_) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

fn put_path(desk: &mut Desk, path: &Path) -> Option<u64> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    bytes.push(0);
    let place = desk.put(&bytes)?;
    Some(desk.address(place))
}

/// The fields of `struct statx` and the first one of `struct statfs`.
fn read_about(statx: &[u8; STATX], statfs: &[u8; STATFS]) -> About {
    let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| statx[at + byte]));
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| statx[at + byte]));
    let time_at = |at: usize| nanoseconds((u64_at(at).cast_signed(), u32_at(at + 8).into()));
    About {
        id: FileId { major: u32_at(136), minor: u32_at(140), inode: u64_at(32) },
        len: u64_at(40),
        changed: [time_at(112), time_at(96)],
        mode: u32::from(u16::from_le_bytes([statx[28], statx[29]])),
        owner: u32_at(20),
        file_system: u64::from_le_bytes(std::array::from_fn(|byte| statfs[byte])),
        mount_flags: u64::from_le_bytes(std::array::from_fn(|byte| statfs[80 + byte])),
    }
}

fn nanoseconds((seconds, rest): (i64, i64)) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

/// Opens, reads and closes the file, all of which may wait.
fn read_by_errand(target: Pid, fd: &OwnedFd, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let len = buf.len();
    let read = errand::run(
        target,
        |desk| {
            let path = put_path(desk, Path::new(&path))?;
            let found = desk.reserve(len)?;
            let at = i64::from(libc::AT_FDCWD).cast_unsigned();
            let flags = u64::from((OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits());
            let opened = desk.step(libc::SYS_openat, [at, path, flags, 0, 0, 0]);
            let args = [0, desk.address(found), len as u64, offset, 0, 0];
            let read = desk.step_with(opened, libc::SYS_pread64, args);
            desk.close(opened);
            Some((opened, read, found))
        },
        |desk, (opened, read, found)| {
            desk.result(opened)?;
            let read = usize::try_from(desk.result(read)?).map_or(len, |read| read.min(len));
            desk.copy_to(found, &mut buf[..read]);
            Ok(read)
        },
    );
    read.map_err(given_up)?
}

fn given_up(error: ErrandError) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// Check that what is seen of a file is what the standard library sees, however it is read.
    #[test]
    fn sees_what_is_there() {
        let path = Path::new("/proc/self/exe");
        let (file, expected) = (TargetFile::open(path).unwrap(), std::fs::metadata(path).unwrap());
        let own = TargetFile::own(File::open(path).unwrap()).unwrap();
        assert_eq!((file.about.id, file.about.len), (own.about.id, expected.len()));
        assert_eq!((file.about.changed, file.about.mode), (own.about.changed, expected.mode()));
        assert_eq!((file.about.owner, file.about.is_nosuid()), (own.about.owner, own.about.is_nosuid()));
        assert!(!file.about.is_delivered());
        let fd = OwnedFd::from(File::open(path).unwrap());
        let by_errand = TargetFile { way: Way::ByErrand(fd), ..TargetFile::open(path).unwrap() };
        let whole = std::fs::read(path).unwrap();
        for file in [file, by_errand] {
            let mut bytes = Vec::new();
            file.stream().read_to_end(&mut bytes).unwrap();
            assert!(bytes == whole);
            let mut last = [0; 5];
            file.read_exact_at(&mut last, expected.len() - 5).unwrap();
            assert!(whole.ends_with(&last));
            let kind = file.read_exact_at(&mut last, expected.len() - 4).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::UnexpectedEof);
        }
    }

    /// Check that a pipe, a device and a directory are refused without being opened, and that what is missing is said.
    #[test]
    fn refuses_what_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/null"), directory.path()] {
            assert_eq!(TargetFile::open(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert!(!look(path).unwrap().is_file());
        }
        let missing = TargetFile::open(&directory.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let outside = TargetFile::open_from(directory.path(), Path::new("/../etc/passwd"), ResolveFlags::BENEATH);
        assert_eq!(outside.unwrap_err().kind(), io::ErrorKind::CrossesDevices);
    }
}
