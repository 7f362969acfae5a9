//! What a process takes of the machine, as the kernel accounts for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::kernel::BpfObjects;

/// The beginnings of the names of HotSpot's threads that compile, collect and keep house.
const OF_THE_VM: [&str; 5] = ["C1 ", "C2 ", "GC ", "VM ", "Sweeper "];
/// The name of a process that nprof reads targets by.
const READER: &str = "(nprof-runner)";

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Resident memory that is its own, in bytes.
    pub anonymous: u64,
    /// All resident memory, in bytes: files and BPF maps that are mapped included.
    pub resident: u64,
    /// The most that was ever resident, in bytes.
    pub peak: u64,
    /// What the kernel charges for its BPF maps and programs, in bytes. What is mapped of them is resident, too.
    pub bpf: u64,
    /// File descriptors, without those to the processes that it reads targets by, of which it keeps some for later, and without the
    /// times of threads that live: it opens those of a JVM's own threads when that is found at rest, sooner or later.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// BPF programs, maps and links.
    pub objects: [usize; 3],
}

impl Usage {
    /// Of a process that runs.
    ///
    /// # Errors
    /// When it does not run.
    pub fn of(pid: u32) -> Result<Self> {
        let held = BpfObjects::held_by(pid)?;
        Ok(Self {
            anonymous: status_bytes(pid, "RssAnon:")?,
            resident: status_bytes(pid, "VmRSS:")?,
            peak: status_bytes(pid, "VmHWM:")?,
            bpf: bpf_memory(pid)?,
            descriptors: descriptors(pid)?.saturating_sub(readers(pid)?),
            threads: fs::read_dir(format!("/proc/{pid}/task"))?.count(),
            objects: [held.programs.len(), held.maps.len(), held.links.len()],
        })
    }
}

/// User and system time so far, in seconds.
///
/// # Errors
/// When it does not run.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit(')').next().context("stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    #[expect(clippy::cast_precision_loss, reason = "usually a hundred")]
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system time so far, in seconds, to the nanosecond: for what takes a few of the hundredths of
/// [`cpu_seconds`].
///
/// # Errors
/// When it does not run.
pub fn cpu_time(pid: u32) -> Result<f64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into()?))?;
    Ok(Duration::from(clock.now()?).as_secs_f64())
}

/// The time so far of the thread that a JVM runs `main` in, in seconds, to the nanosecond: without those of its compiler and its collector.
///
/// # Errors
/// When it does not run, or no JVM's launcher has started it.
pub fn main_thread_time(pid: u32) -> Result<f64> {
    // The launcher has the same name, and waits.
    let mut threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten().filter(|thread| {
        thread.file_name().to_str() != Some(&pid.to_string())
            && fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "java\n")
    });
    let thread = threads.next().context("no thread runs main")?;
    Ok(Duration::from_nanos(ran_ns(&thread.path())?).as_secs_f64())
}

/// The time so far of all threads of a JVM but those that compile, collect and keep house for it, in seconds, to the nanosecond. Of threads
/// that have ended nothing is known: it is for programs whose threads stay.
///
/// # Errors
/// When it does not run.
pub fn java_threads_time(pid: u32) -> Result<f64> {
    let mut ran = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // Those that compile end when there is little to do, also in this moment.
        let Ok(name) = fs::read_to_string(thread.path().join("comm")) else { continue };
        if !OF_THE_VM.iter().any(|of_vm| name.starts_with(of_vm)) {
            ran += ran_ns(&thread.path())?;
        }
    }
    Ok(Duration::from_nanos(ran).as_secs_f64())
}

/// How long a thread has run, by its directory.
fn ran_ns(thread: &Path) -> Result<u64> {
    let times = fs::read_to_string(thread.join("schedstat"))?;
    Ok(times.split_whitespace().next().context("schedstat")?.parse()?)
}

/// `bytes` in units of a million.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "megabytes are far below 2^52 bytes")]
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The file descriptors of a process, without the times of threads that live.
fn descriptors(pid: u32) -> Result<usize> {
    let mut descriptors = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // Some are closed meanwhile.
        let file = fs::read_link(entry?.path()).unwrap_or_default();
        descriptors += usize::from(!(file.ends_with("schedstat") && file.exists()));
    }
    Ok(descriptors)
}

/// How many processes `pid` reads its targets by, each over one socket.
fn readers(pid: u32) -> Result<usize> {
    let mut readers = 0;
    for process in fs::read_dir("/proc")? {
        // Other processes end meanwhile.
        let stat = fs::read_to_string(process?.path().join("stat")).unwrap_or_default();
        let parent = || stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok();
        readers += usize::from(stat.contains(READER) && parent() == Some(pid));
    }
    Ok(readers)
}

fn status_bytes(pid: u32, field: &'static str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context(field)?;
    Ok(1024 * line.trim().trim_end_matches(" kB").parse::<u64>()?)
}

/// What the kernel charges for the BPF maps and programs that a process holds, in bytes.
fn bpf_memory(pid: u32) -> Result<u64> {
    let mut objects = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let info = fs::read_to_string(entry?.path()).unwrap_or_default();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let id =
            field("map_id:").map(|id| ("map", id.to_owned())).or(field("prog_id:").map(|id| ("prog", id.to_owned())));
        if let (Some(id), Some(memory)) = (id, field("memlock:")) {
            objects.insert(id, memory.parse::<u64>()?);
        }
    }
    Ok(objects.values().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what this process takes is told, and a process that does not run is an error.
    #[test]
    fn reads_itself() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(0 < usage.anonymous && usage.anonymous <= usage.resident && usage.resident <= usage.peak, "{usage:?}");
        assert!(usage.descriptors >= 3 && usage.threads >= 1, "{usage:?}");
        assert_eq!((usage.bpf, usage.objects), (0, [0; 3]));
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        assert!(Usage::of(0).is_err());
        let (coarse, fine) = (cpu_seconds(std::process::id()).unwrap(), cpu_time(std::process::id()).unwrap());
        assert!((coarse..coarse + 1.0).contains(&fine), "{coarse} and {fine}");
    }
}
