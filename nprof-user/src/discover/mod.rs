//! Finds the JVMs of this host and what they have mapped, and says what kernel and permissions allow.
//!
//! Everything comes from `/proc`, `/etc/passwd` and `/sys` below one injected directory, so that a test can lay out a
//! host of its own. What flows out are the plain values of [`crate::model`]. Nothing here reads the memory of a
//! process, and nothing trusts what a process shows: names, paths and arguments are the target's to choose.

mod activity;
mod at_once;
mod checks;
mod container;
mod environ;
mod error;
mod files;
mod filter;
mod first_thread;
mod inside;
mod kernel;
mod kind;
mod label;
mod launch;
mod libraries;
mod maps;
mod native_image;
mod permissions;
mod pod;
mod power;
mod process;
mod release;
mod sharers;
mod standing;
mod status;
mod template;
#[cfg(test)]
pub(crate) mod test_proc;
#[cfg(test)]
mod tests;
mod threads;
mod users;
mod watch;
#[cfg(test)]
mod watch_tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

pub use activity::Activity;
pub use error::Error;
pub use filter::{FilterError, JvmFilter};
pub use first_thread::FirstThread;
pub use kernel::{KernelVersion, uretprobe_killed_by_seccomp};
pub use kind::libjvm;
pub use label::{LabelError, Labels};
pub use process::Program;
pub use standing::{Halted, OnQuit, Standing};
pub use template::{LabelTemplate, TEMPLATE_HELP, TemplateError};
pub use threads::Thread;
pub use watch::JvmWatch;

use crate::model::{FileId, Jvm, JvmKind, Library, Mapping, Pid, StartTime};
use crate::sys::target_file::{self, TargetFile};
use at_once::at_once;
use process::ProcessDir;
use release::Release;
use status::Status;
use users::Users;

/// An argument file longer than this is not the launcher's.
const ARGFILE_BYTES: u64 = 1 << 20;

/// The processes of a host.
#[derive(Debug, Clone)]
pub struct Proc {
    /// The directory that holds `proc`, `etc` and `sys`.
    host_root: PathBuf,
    root: PathBuf,
}

/// The JVMs that a look at all processes found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scan {
    /// The JVMs, by rising pid.
    pub jvms: Vec<Jvm>,
    /// Processes that could not be looked into, usually for lack of permission, and why; any of them may be a JVM.
    pub unreadable: Vec<String>,
}

/// Answers that hold for all processes of one look, so that nothing is asked twice.
struct Look {
    users: Users,
    /// Whether an executable, by device and inode, is a native image.
    native_images: HashMap<FileId, bool>,
}

impl Proc {
    /// This host.
    #[must_use]
    pub fn host() -> Self {
        Self::at("/")
    }

    /// A host whose `proc`, `etc` and `sys` lie under `host_root`.
    #[must_use]
    pub fn at(host_root: impl Into<PathBuf>) -> Self {
        let host_root = host_root.into();
        let root = host_root.join("proc");
        Self { host_root, root }
    }

    /// Every JVM. Processes that end meanwhile are passed over; those that cannot be looked into are counted.
    ///
    /// # Errors
    /// Only if `/proc` itself cannot be listed.
    pub fn jvms(&self) -> Result<Scan, Error> {
        let mut scan = Scan::default();
        for found in at_once(self.pids()?, || self.look(), |look, pid| self.find_jvm(pid, look)) {
            match found {
                Ok(jvm) => scan.jvms.push(jvm),
                Err(Error::NotAJvm { .. }) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => scan.unreadable.push(error.to_string()),
            }
        }
        Ok(scan)
    }

    /// The JVM with this process id.
    ///
    /// # Errors
    /// If there is no such process, if it is no JVM, if the id is a thread's, or if it may not be looked into.
    pub fn jvm(&self, pid: Pid) -> Result<Jvm, Error> {
        self.find_jvm(pid, &mut self.look())
    }

    /// The file-backed mappings of a process, in order of address.
    ///
    /// # Errors
    /// If the process is gone or may not be looked into.
    pub fn mappings(&self, pid: Pid) -> Result<Vec<Mapping>, Error> {
        self.read_mappings(&self.process(pid))
    }

    /// The files that a process has mapped as code, each with a path that opens exactly that file.
    ///
    /// # Errors
    /// If the process is gone or may not be looked into.
    pub fn libraries(&self, pid: Pid) -> Result<Vec<Library>, Error> {
        let process = self.process(pid);
        let mappings = self.read_mappings(&process)?;
        Ok(libraries::libraries(&process, mappings))
    }

    /// When a process started: one small read.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn start_time(&self, pid: Pid) -> Result<StartTime, Error> {
        self.process(pid).start_time()
    }

    /// What a process runs at the moment: another value after each program that it becomes.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn program(&self, pid: Pid) -> Result<Program, Error> {
        self.process(pid).program()
    }

    /// Whether the process with this JVM's pid is still this JVM and not a later one with the same pid.
    #[must_use]
    pub fn is_same(&self, jvm: &Jvm) -> bool {
        let process = self.process(jvm.pid);
        let lives = || process.status().is_ok_and(|status| !status.has_ended());
        process.start_time().ok() == Some(jvm.start_time) && lives()
    }

    /// How long a JVM has been running; `None` where `/proc/uptime` does not tell.
    #[must_use]
    pub fn age(&self, jvm: &Jvm) -> Option<Duration> {
        let uptime = std::fs::read_to_string(self.root.join("uptime")).ok()?;
        let since_boot = Duration::try_from_secs_f64(uptime.split_whitespace().next()?.parse().ok()?).ok()?;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Some(since_boot.saturating_sub(Duration::from_millis(jvm.start_time.0.saturating_mul(1_000) / ticks)))
    }

    /// The time that all threads of a process have spent on CPUs so far, those that have ended too.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn cpu_time(&self, pid: Pid) -> Result<Duration, Error> {
        let ticks = self.process(pid).cpu_ticks()?;
        Ok(Duration::from_millis(ticks.saturating_mul(1_000) / rustix::param::clock_ticks_per_second().max(1)))
    }

    /// How many threads a process has.
    ///
    /// # Errors
    /// If the process is gone.
    pub fn threads(&self, pid: Pid) -> Result<u32, Error> {
        self.process(pid).threads()
    }

    /// What tells whether a JVM's program has run since it was last asked.
    #[must_use]
    pub fn activity(&self, pid: Pid) -> Activity {
        Activity::new(self.clone(), pid)
    }

    /// What tells whether a process may run another program than when it was last asked.
    #[must_use]
    pub fn first_thread(&self, pid: Pid) -> FirstThread {
        FirstThread::of(self, pid)
    }

    fn process(&self, pid: Pid) -> ProcessDir {
        ProcessDir::new(&self.root, pid)
    }

    fn look(&self) -> Look {
        Look { users: Users::read(&self.host_root.join("etc/passwd")), native_images: HashMap::new() }
    }

    /// The process ids, rising.
    fn pids(&self) -> Result<Vec<Pid>, Error> {
        let failed = |source| Error::Io { path: self.root.clone(), source };
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            pids.extend(name.to_str().and_then(|name| name.parse().ok()).map(Pid));
        }
        pids.sort_unstable();
        Ok(pids)
    }

    fn read_mappings(&self, process: &ProcessDir) -> Result<Vec<Mapping>, Error> {
        let bytes = process.maps()?;
        maps::parse(&bytes).map_err(|line| process.malformed("maps", line))
    }

    fn find_jvm(&self, pid: Pid, look: &mut Look) -> Result<Jvm, Error> {
        let process = self.process(pid);
        let status = process.status()?;
        if status.tgid != pid {
            return Err(Error::IsThread { tid: pid, tgid: status.tgid });
        }
        let comm = status.comm.clone();
        if status.has_ended() {
            return Err(Error::Ended { pid, comm });
        }
        let (start_time, kernel_thread) = process.start_time_and_kernel_thread()?;
        if kernel_thread {
            // Not asked further: the kernel refuses everybody but root a look at its (empty) mappings.
            return Err(Error::NotAJvm { pid, comm });
        }
        let mappings = self.read_mappings(&process)?;
        let kind =
            kind::kind_of(&mappings).or_else(|| look.native_image(&process)).ok_or(Error::NotAJvm { pid, comm })?;
        let jvm = describe(&process, &status, start_time, kind, &mappings, look)?;
        // The files above were read one after the other: they must be one process's.
        if process.start_time()? != start_time {
            return Err(Error::NoSuchProcess { pid });
        }
        Ok(jvm)
    }
}

impl Look {
    fn native_image(&mut self, process: &ProcessDir) -> Option<JvmKind> {
        let exe = process.join("exe");
        let found = target_file::look(&exe).ok()?;
        let is_one = *self
            .native_images
            .entry(found.id)
            .or_insert_with(|| TargetFile::open(&exe).is_ok_and(|file| native_image::is_native_image(&file)));
        is_one.then_some(JvmKind::NativeImage)
    }
}

/// Everything else about a process that is known to be a JVM.
fn describe(
    process: &ProcessDir,
    status: &Status,
    start_time: StartTime,
    kind: JvmKind,
    mappings: &[Mapping],
    look: &Look,
) -> Result<Jvm, Error> {
    let release = mappings
        .iter()
        .find(|m| m.executable && kind::is_libjvm(&m.path))
        .map(|m| Release::read(process, &m.path))
        .unwrap_or_default();
    let exe = process.exe_name().unwrap_or_else(|| status.comm.clone());
    let read_argfile = |path: &std::path::Path| {
        let file = process.open_as_target(path).ok()?;
        let bytes = process::read_to_limit(file.stream(), ARGFILE_BYTES).ok()?;
        String::from_utf8(bytes).ok()
    };
    Ok(Jvm {
        pid: process.pid(),
        start_time,
        main: launch::main_name(&process.arguments()?, &exe, read_argfile),
        kind,
        vm_name: release.vendor,
        vm_version: release.version,
        uid: status.euid,
        user: look.users.name(status.euid).map(str::to_owned),
        container: container::container_id(&process.cgroup()?),
    })
}
