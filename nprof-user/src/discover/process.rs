//! One directory under `/proc`: bounded reads whose failures become [`Error`]s that name the process.
//!
//! Nothing here interprets a file beyond its fields; that is the business of the modules next to it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use procfs::FromRead;
use procfs::process::Stat;
use rustix::io::Errno;

use super::Error;
use super::status::Status;
use crate::model::{Pid, StartTime};
use crate::sys::target_file::TargetFile;

/// Small files: `status`, `stat`, `cgroup`, `comm`.
const SMALL_BYTES: u64 = 64 << 10;
/// Arguments and environment together may be as long as the kernel's limit for them, 6 MiB.
const CMDLINE_BYTES: u64 = 6 << 20;
/// Half a million mappings; a process at the default `vm.max_map_count` (65,530) stays far below.
const MAPS_BYTES: u64 = 64 << 20;

/// The flag of a thread of the kernel in `stat` (`PF_KTHREAD`).
const PF_KTHREAD: u32 = 0x0020_0000;

/// What a process runs: changes with every program that it starts, which leaves its pid and its start time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    pub(super) start_time: StartTime,
    /// Where its stack begins: elsewhere in each program, unless address randomisation is off. Zero for those who may
    /// not look.
    stack: u64,
}

impl Program {
    /// Whether the same process runs it, before or after.
    #[must_use]
    pub fn is_of_same_process(self, other: Self) -> bool {
        self.start_time == other.start_time
    }
}

/// The directory of one process.
#[derive(Debug, Clone)]
pub(super) struct ProcessDir {
    pid: Pid,
    path: PathBuf,
}

impl ProcessDir {
    pub(super) fn new(proc_root: &Path, pid: Pid) -> Self {
        let path = proc_root.join(pid.to_string());
        Self { pid, path }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// The path of a file in the directory.
    pub(super) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn status(&self) -> Result<Status, Error> {
        let bytes = self.read("status", SMALL_BYTES)?;
        Status::parse(&bytes).ok_or_else(|| self.malformed("status", &bytes))
    }

    pub(super) fn start_time(&self) -> Result<StartTime, Error> {
        Ok(StartTime(self.stat()?.starttime))
    }

    /// When it started, and whether it is a thread of the kernel, which has no memory of its own.
    pub(super) fn start_time_and_kernel_thread(&self) -> Result<(StartTime, bool), Error> {
        let stat = self.stat()?;
        Ok((StartTime(stat.starttime), stat.flags & PF_KTHREAD != 0))
    }

    /// What it runs at the moment.
    pub(super) fn program(&self) -> Result<Program, Error> {
        let stat = self.stat()?;
        Ok(Program { start_time: StartTime(stat.starttime), stack: stat.startstack })
    }

    /// Time on CPUs, in clock ticks.
    pub(super) fn cpu_ticks(&self) -> Result<u64, Error> {
        let stat = self.stat()?;
        Ok(stat.utime.saturating_add(stat.stime))
    }

    /// Whether it has exactly one thread: a file system that does not count links says `false`. Nothing is opened, and no lock is
    /// taken that the process could hold: its directory of threads has a link for each, and two of its own.
    pub(super) fn has_one_thread(&self) -> io::Result<bool> {
        std::fs::metadata(self.join("task")).map(|task| task.nlink() == 3)
    }

    /// How many threads it has.
    pub(super) fn threads(&self) -> Result<u32, Error> {
        Ok(u32::try_from(self.stat()?.num_threads).unwrap_or(0))
    }

    fn stat(&self) -> Result<Stat, Error> {
        let bytes = self.read("stat", SMALL_BYTES)?;
        Stat::from_read(bytes.as_slice()).ok().ok_or_else(|| self.malformed("stat", &bytes))
    }

    pub(super) fn maps(&self) -> Result<Vec<u8>, Error> {
        self.read("maps", MAPS_BYTES)
    }

    pub(super) fn cgroup(&self) -> Result<Vec<u8>, Error> {
        self.read("cgroup", SMALL_BYTES)
    }

    /// The environment that its program was started with: `NAME=value`, each with a zero byte behind it.
    pub(super) fn environ(&self) -> Result<Vec<u8>, Error> {
        self.read("environ", CMDLINE_BYTES)
    }

    /// The arguments, as far as they are text; empty for a kernel thread or a zombie.
    pub(super) fn arguments(&self) -> Result<Vec<String>, Error> {
        let bytes = self.read("cmdline", CMDLINE_BYTES)?;
        let mut args: Vec<String> =
            bytes.split(|b| *b == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
        // The last argument ends with a zero byte too.
        if args.last().is_some_and(String::is_empty) {
            args.pop();
        }
        Ok(args)
    }

    /// The file name of the executable, without the mark of a deleted one.
    pub(super) fn exe_name(&self) -> Option<String> {
        let target = std::fs::read_link(self.join("exe")).ok()?;
        let name = target.file_name()?.to_string_lossy().into_owned();
        Some(name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned))
    }

    /// The path by which the target sees a file that `maps` shows under `shown`. The two differ in a plain chroot,
    /// where the kernel shows paths from the root of the mount namespace; a container's root is that root.
    pub(super) fn as_target_sees(&self, shown: &Path) -> Option<PathBuf> {
        let root = std::fs::read_link(self.join("root")).unwrap_or_else(|_| PathBuf::from("/"));
        let inside = shown.strip_prefix(root).ok()?;
        Some(Path::new("/").join(inside))
    }

    /// Opens a file by a path as the target sees it.
    pub(super) fn open_as_target(&self, path: &Path) -> io::Result<TargetFile> {
        TargetFile::open_as_target(&self.path, path)
    }

    fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let path = self.join(name);
        read_bounded(&path, limit).map_err(|source| self.error(path, source))
    }

    /// Names what an I/O error on a file of this process means.
    pub(super) fn error(&self, path: PathBuf, source: io::Error) -> Error {
        let gone = source.raw_os_error() == Some(Errno::SRCH.raw_os_error());
        match source.kind() {
            io::ErrorKind::NotFound => Error::NoSuchProcess { pid: self.pid },
            _ if gone => Error::NoSuchProcess { pid: self.pid },
            io::ErrorKind::PermissionDenied => Error::PermissionDenied { pid: self.pid, path, source },
            _ => Error::Io { path, source },
        }
    }

    pub(super) fn malformed(&self, name: &str, what: &[u8]) -> Error {
        let what = &what[..what.len().min(200)];
        Error::Malformed { path: self.join(name), what: String::from_utf8_lossy(what).into_owned() }
    }
}

/// What most files of a process fit into. They say no size, and a vector that begins with nothing asks for it in eight pieces.
const USUAL_BYTES: usize = 4096;

/// Reads a whole file of at most `limit` bytes; a longer one is an error, never a silent cut.
pub(super) fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_to_limit(File::open(path)?, limit)
}

/// Reads all of an open file of at most `limit` bytes.
pub(super) fn read_to_limit(file: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    let read = file.take(limit + 1).read_to_end(&mut bytes)?;
    if u64::try_from(read).is_ok_and(|read| read > limit) {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes")));
    }
    Ok(bytes)
}
