//! bpftrace on one function of a library: what nprof is measured against.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::child::{Child, Stream};

/// A running bpftrace.
#[derive(Debug)]
pub struct Bpftrace(Child);

impl Bpftrace {
    /// Whether there is one on this machine.
    #[must_use]
    pub fn is_installed() -> bool {
        Command::new("bpftrace").arg("--version").output().is_ok_and(|output| output.status.success())
    }

    /// The script that people write to time a function. Returns when it is attached.
    ///
    /// # Errors
    /// When bpftrace is not there or refuses.
    pub fn timing(library: &Path, symbol: &str) -> Result<Self> {
        let site = site(library, symbol);
        Self::attach(&format!(
            "uprobe:{site} {{ @start[tid] = nsecs; }} \
             uretprobe:{site} /@start[tid]/ {{ @calls = count(); @total = sum(nsecs - @start[tid]); \
             @times = hist(nsecs - @start[tid]); delete(@start[tid]); }}"
        ))
    }

    /// The same with how long threads of a process ran, and their page faults and system calls, by the difference between entry and return.
    /// Returns when it is attached.
    ///
    /// # Errors
    /// When bpftrace is not there or refuses.
    pub fn collecting(library: &Path, symbol: &str, pid: u32) -> Result<Self> {
        let site = site(library, symbol);
        let feeds = format!(
            "software:page-faults:1 /pid == {pid}/ {{ @faults[tid]++; }} \
             tracepoint:raw_syscalls:sys_enter /pid == {pid}/ {{ @syscalls[tid]++; }} \
             tracepoint:sched:sched_switch {{ if (pid == {pid}) {{ @since[tid] = nsecs; }} \
             if (@since[args->next_pid]) {{ @away[args->next_pid] += nsecs - @since[args->next_pid]; \
             delete(@since[args->next_pid]); }} }}"
        );
        let calls = format!(
            "uprobe:{site} {{ @faults_then[tid] = @faults[tid]; @syscalls_then[tid] = @syscalls[tid]; \
             @away_then[tid] = @away[tid]; @start[tid] = nsecs; }} \
             uretprobe:{site} /@start[tid]/ {{ $time = nsecs - @start[tid]; @calls = count(); @total = sum($time); \
             @times = hist($time); @waited = sum(@away[tid] - @away_then[tid]); \
             @faulted = sum(@faults[tid] - @faults_then[tid]); @called = sum(@syscalls[tid] - @syscalls_then[tid]); \
             delete(@start[tid]); }}"
        );
        Self::attach(&format!("{feeds} {calls}"))
    }

    /// A script that counts entries and returns. Returns when it is attached.
    ///
    /// # Errors
    /// When bpftrace is not there or refuses.
    pub fn counting(library: &Path, symbol: &str) -> Result<Self> {
        let site = site(library, symbol);
        Self::attach(&format!("uprobe:{site} {{ @begun = count(); }} uretprobe:{site} {{ @calls = count(); }}"))
    }

    /// A program at each switch of threads that looks at one number and does nothing. Returns when it is attached.
    ///
    /// # Errors
    /// When bpftrace is not there or refuses.
    pub fn at_switches() -> Result<Self> {
        Self::attach("tracepoint:sched:sched_switch /args->next_pid == 999999999/ { exit(); }")
    }

    fn attach(script: &str) -> Result<Self> {
        let script = format!("BEGIN {{ printf(\"attached\\n\"); }} {script}");
        let mut child = Child::spawn("bpftrace", Command::new("bpftrace").args(["-e", &script]))
            .context("bpftrace is needed to compare with: cargo xtask setup --for test")?;
        child.line_with_prefix(Stream::Stdout, "attached")?;
        Ok(Self(child))
    }

    /// Ends it and returns how many returns it counted.
    ///
    /// # Errors
    /// When it does not end well, or has counted nothing.
    pub fn finish(mut self) -> Result<u64> {
        self.0.signal(Signal::INT)?;
        let (status, output) = self.0.wait()?;
        ensure!(status.success(), self.0.failure(&format!("ended with {status}")));
        let calls =
            output.lines().find_map(|line| line.strip_prefix("@calls: ")).context("bpftrace printed no count")?;
        Ok(calls.trim().parse()?)
    }
}

fn site(library: &Path, symbol: &str) -> String {
    format!("{}:{symbol}", library.display())
}
