//! A host for tests: a temporary directory with `proc`, `etc` and `sys` in it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Proc;
use crate::model::Pid;

/// Where [`TestProcess::maps_libjvm`] maps the library, in the form of a line of `maps` without its path.
const LIBJVM: &str = "7f0000000000-7f0000100000 r-xp 00000000 08:01 77";

/// The host.
pub(crate) struct TestProc(TempDir);

impl TestProc {
    /// A host without processes.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        Self(dir)
    }

    pub(crate) fn proc(&self) -> Proc {
        Proc::at(self.0.path())
    }

    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(path)
    }

    /// Writes a file, with the directories above it.
    pub(crate) fn file(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// Makes or replaces a symbolic link, with the directories above it.
    pub(crate) fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.is_symlink() {
            fs::remove_file(&path).unwrap();
        }
        symlink(target, path).unwrap();
    }

    /// A sleeping process of root without arguments or mappings, to be changed and then added.
    pub(crate) fn process(&self, pid: Pid) -> TestProcess<'_> {
        TestProcess {
            host: self,
            pid,
            comm: "java".to_owned(),
            tgid: pid,
            uid: 0,
            state: 'S',
            cap_eff: "0000000000000000".to_owned(),
            kernel_thread: false,
            start_time: 1000 + u64::from(pid.0),
            stack: 0x7ff0_0000_0000,
            args: Vec::new(),
            exe: "/jdk/bin/java".to_owned(),
            maps: Vec::new(),
            cgroup: "0::/\n".to_owned(),
            caught: 0,
        }
    }
}

/// A process that is not there yet.
#[must_use = "call add()"]
pub(crate) struct TestProcess<'a> {
    host: &'a TestProc,
    pid: Pid,
    comm: String,
    tgid: Pid,
    uid: u32,
    state: char,
    cap_eff: String,
    kernel_thread: bool,
    start_time: u64,
    stack: u64,
    args: Vec<String>,
    exe: String,
    maps: Vec<u8>,
    cgroup: String,
    caught: u64,
}

impl TestProcess<'_> {
    pub(crate) fn comm(mut self, comm: &str) -> Self {
        comm.clone_into(&mut self.comm);
        self
    }

    pub(crate) fn thread_of(mut self, tgid: Pid) -> Self {
        self.tgid = tgid;
        self
    }

    pub(crate) fn uid(mut self, uid: u32) -> Self {
        self.uid = uid;
        self
    }

    pub(crate) fn state(mut self, state: char) -> Self {
        self.state = state;
        self
    }

    pub(crate) fn kernel_thread(mut self) -> Self {
        self.kernel_thread = true;
        self
    }

    pub(crate) fn cap_eff(mut self, bits: &str) -> Self {
        bits.clone_into(&mut self.cap_eff);
        self
    }

    pub(crate) fn start_time(mut self, ticks: u64) -> Self {
        self.start_time = ticks;
        self
    }

    /// Where its stack begins: what the start of another program changes.
    pub(crate) fn stack(mut self, address: u64) -> Self {
        self.stack = address;
        self
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self
    }

    pub(crate) fn exe(mut self, target: &str) -> Self {
        target.clone_into(&mut self.exe);
        self
    }

    pub(crate) fn cgroup(mut self, text: &str) -> Self {
        text.clone_into(&mut self.cgroup);
        self
    }

    /// The signals that it has functions for, as bits.
    pub(crate) fn caught(mut self, bits: u64) -> Self {
        self.caught = bits;
        self
    }

    /// Adds a line to `maps`.
    pub(crate) fn maps(mut self, line: impl AsRef<[u8]>) -> Self {
        self.maps.extend_from_slice(line.as_ref());
        self.maps.push(b'\n');
        self
    }

    /// Maps a HotSpot VM.
    pub(crate) fn maps_libjvm(self) -> Self {
        self.maps(format!("{LIBJVM}   /jdk/lib/server/libjvm.so"))
    }

    /// Writes the process's directory.
    pub(crate) fn add(self) {
        let write = |name: &str, contents: &[u8]| {
            self.host.file(format!("proc/{}/{name}", self.pid), contents);
        };
        let status = format!(
            "Name:\t{}\nState:\t{} (test)\nTgid:\t{}\nPid:\t{}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n\
             Gid:\t{uid}\t{uid}\t{uid}\t{uid}\nSigCgt:\t{:016x}\nCapEff:\t{}\nSeccomp:\t0\n",
            self.comm,
            self.state,
            self.tgid,
            self.pid,
            self.caught,
            self.cap_eff,
            uid = self.uid,
        );
        let flags = if self.kernel_thread { 0x0020_8040 } else { 0 };
        // Fields 4 to 8, 10 to 21, 23 to 27, and those after the stack's start.
        let [first, second, third, last] = [5, 12, 5, 24].map(|fields| "0 ".repeat(fields));
        let stat = format!(
            "{} ({}) {} {first}{flags} {second}{} {third}{} {last}\n",
            self.pid, self.comm, self.state, self.start_time, self.stack
        );
        let mut cmdline = self.args.join("\0");
        if !cmdline.is_empty() {
            cmdline.push('\0');
        }
        write("status", status.as_bytes());
        write("stat", stat.as_bytes());
        write("cmdline", cmdline.as_bytes());
        write("maps", &self.maps);
        write("cgroup", self.cgroup.as_bytes());
        self.host.link(format!("proc/{}/exe", self.pid), &self.exe);
    }
}
