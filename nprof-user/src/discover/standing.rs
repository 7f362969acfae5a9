//! How a process would take a request: whose it is, whether it runs, and what SIGQUIT, by which JVMs are asked for
//! something, would do to it.

use super::process::read_bounded;
use super::status::Status;
use super::{Error, Proc};
use crate::model::Pid;

/// Files of one thread or one cgroup.
const SMALL_BYTES: u64 = 64 << 10;
/// SIGQUIT among the bits of `/proc/PID/status`.
const QUIT: u64 = 1 << 2;

/// How a process would take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Its number in its own namespace of process ids.
    pub ns_pid: u32,
    /// Its effective user, as the host sees it.
    pub euid: u32,
    /// Its effective group, as the host sees it.
    pub egid: u32,
    /// Why it does not run, if so.
    pub halted: Option<Halted>,
    /// What SIGQUIT would do.
    pub quit: OnQuit,
}

/// Why a process does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halted {
    /// By a signal (SIGSTOP, Ctrl-Z).
    Stopped,
    /// By a debugger.
    Traced,
    /// With its whole container (`docker pause`).
    Frozen,
}

/// What SIGQUIT would do to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnQuit {
    /// A function of its own takes it.
    Caught,
    /// The same, but every thread holds it off.
    HeldOff,
    /// Nothing.
    Ignored,
    /// It would end, with a core dump.
    Ends,
}

impl Proc {
    /// How a process would take a request.
    ///
    /// # Errors
    /// If the process is gone or may not be looked into.
    pub fn standing(&self, pid: Pid) -> Result<Standing, Error> {
        let status = self.process(pid).status()?;
        let quit = match () {
            () if status.ignored & QUIT != 0 => OnQuit::Ignored,
            () if status.caught & QUIT == 0 => OnQuit::Ends,
            () if self.all_hold_off(pid)? => OnQuit::HeldOff,
            () => OnQuit::Caught,
        };
        let halted = match status.state {
            'T' => Some(Halted::Stopped),
            't' => Some(Halted::Traced),
            _ => self.is_frozen(pid).then_some(Halted::Frozen),
        };
        let ns_pid = status.ns_pid.unwrap_or(pid.0);
        Ok(Standing { ns_pid, euid: status.euid, egid: status.egid, halted, quit })
    }

    /// Whether SIGQUIT would reach no thread. Threads that end meanwhile do not count.
    fn all_hold_off(&self, pid: Pid) -> Result<bool, Error> {
        let tasks = self.process(pid).join("task");
        let takes = |tid: u32| {
            let bytes = read_bounded(&tasks.join(tid.to_string()).join("status"), SMALL_BYTES).ok()?;
            Some(Status::parse(&bytes)?.blocked & QUIT == 0)
        };
        Ok(!self.tids(pid)?.into_iter().filter_map(takes).any(|takes| takes))
    }

    /// Whether the process is in a cgroup (version 2) that is frozen, itself or one above it.
    fn is_frozen(&self, pid: Pid) -> bool {
        let group = self.process(pid).cgroup().ok().and_then(|text| String::from_utf8(text).ok());
        let group = group.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("0::/")));
        // A path that leads out of its mount is that of another namespace.
        let Some(group) = group.filter(|group| !group.split('/').any(|part| part == "..")) else {
            return false;
        };
        let events = self.host_root.join("sys/fs/cgroup").join(group).join("cgroup.events");
        read_bounded(&events, SMALL_BYTES).is_ok_and(|text| text.split(|b| *b == b'\n').any(|line| line == b"frozen 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::test_proc::TestProc;

    const PID: Pid = Pid(7);

    fn thread(host: &TestProc, tid: u32, blocked: &str) {
        let ids = "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n";
        let status = format!("Name:\tj\nState:\tS\nTgid:\t7\n{ids}CapEff:\t0\nSigBlk:\t{blocked}\n");
        host.file(format!("proc/7/task/{tid}/status"), status);
    }

    /// Check that the fate of a process at SIGQUIT is told from its masks and those of all its threads.
    #[test]
    fn tells_what_the_signal_does() {
        let host = TestProc::new();
        host.process(PID).add();
        assert_eq!(host.proc().standing(PID).unwrap().quit, OnQuit::Ends);
        host.process(PID).caught(0b100).add();
        thread(&host, 7, "0000000000000004");
        assert_eq!(host.proc().standing(PID).unwrap().quit, OnQuit::HeldOff);
        thread(&host, 8, "0000000000000003");
        assert_eq!(host.proc().standing(PID).unwrap().quit, OnQuit::Caught);
    }

    /// Check that a process is known to be halted by a signal, by a debugger and with its container.
    #[test]
    fn tells_who_does_not_run() {
        let host = TestProc::new();
        let halted = |state, cgroup| {
            host.process(PID).state(state).cgroup(cgroup).add();
            host.proc().standing(PID).unwrap().halted
        };
        assert_eq!(halted('S', "0::/box\n"), None);
        assert_eq!(halted('T', "0::/box\n"), Some(Halted::Stopped));
        assert_eq!(halted('t', "0::/box\n"), Some(Halted::Traced));
        host.file("sys/fs/cgroup/box/cgroup.events", "populated 1\nfrozen 1\n");
        assert_eq!(halted('S', "1:cpu:/\n0::/box\n"), Some(Halted::Frozen));
        assert_eq!(halted('S', "0::/../box\n"), None);
    }
}
