//! What nprof itself takes with two thousand methods attached: time to attach and detach, CPU and memory.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use nprof::discover::Proc;
use nprof::model::Pid;
use nprof::resolve::select::Selection;
use nprof::trace::{Options, Prepared};
use nprof_tests::child::{Child, Stream};
use nprof_tests::nprof::binary;
use nprof_tests::process::RemoteProcess;
use nprof_tests::target::MANY;
use rustix::process::Signal;

/// How long nprof is watched, in seconds.
const WATCHED: f64 = 15.0;

/// What nprof takes.
#[derive(Debug)]
pub(crate) struct Footprint {
    pub attach_ms: f64,
    pub detach_ms: f64,
    pub core_percent: f64,
    resident: u64,
    bpf: u64,
}

impl Footprint {
    /// Measures with every native of `targets.Many` attached, and called meanwhile.
    pub(crate) fn measure(target: &mut RemoteProcess) -> Result<Self> {
        let (attach_ms, detach_ms) = attach_and_detach(target.pid())?;
        // `script` gives nprof a terminal, which it redraws every second.
        let command = format!("exec {} trace --pid {} 'targets.Many::*'", binary().display(), target.pid());
        let mut script =
            Child::spawn("nprof on a terminal", Command::new("script").args(["-qefc", &command, "/dev/null"]))?;
        script.line_with_prefix(Stream::Stdout, "tracing ")?;
        let nprof = child_of(script.pid())?;
        let (began, before) = (Instant::now(), cpu_seconds(nprof)?);
        target.run(&format!("many {WATCHED}"))?;
        let used = cpu_seconds(nprof)? - before;
        let core_percent = 100.0 * used / began.elapsed().as_secs_f64();
        let (resident, bpf) = (peak_resident(nprof)?, bpf_memory(nprof)?);
        let pid = rustix::process::Pid::from_raw(i32::try_from(nprof)?).context("a pid is not zero")?;
        rustix::process::kill_process(pid, Signal::INT)?;
        script.wait()?;
        Ok(Self { attach_ms, detach_ms, core_percent, resident, bpf })
    }

    /// Resident and BPF memory together.
    pub(crate) fn megabytes(&self) -> f64 {
        megabytes(self.resident + self.bpf)
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attach_ms, detach_ms, core_percent, resident, bpf } = self;
        writeln!(
            f,
            "With {MANY} methods: attached in {attach_ms:.0} ms, detached in {detach_ms:.0} ms (entries and returns)."
        )?;
        writeln!(
            f,
            "nprof on a terminal that is redrawn every second takes {core_percent:.2} % of a core, {:.1} MB resident at \
            most and {:.1} MB of BPF memory.",
            megabytes(*resident),
            megabytes(*bpf)
        )
    }
}

/// Attaches all natives of the target through the library, as `nprof trace` does, and detaches them.
fn attach_and_detach(pid: u32) -> Result<(f64, f64)> {
    let proc = Proc::host();
    let jvm = proc.jvm(Pid(pid))?;
    let options = Options { selection: Selection::default(), timed: true, max_functions: None };
    let prepared = Prepared::new(proc, jvm, options)?;
    let began = Instant::now();
    let mut tracer = prepared.attach()?;
    let attached = began.elapsed();
    let began = Instant::now();
    tracer.stop();
    Ok((1e3 * attached.as_secs_f64(), 1e3 * began.elapsed().as_secs_f64()))
}

fn child_of(pid: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    children.split_whitespace().next().context("script has no child")?.parse().context("a pid")
}

/// User and system time so far.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit(')').next().context("stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred, as a rule")]
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// The most that was ever resident, in bytes.
fn peak_resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
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

#[expect(clippy::cast_precision_loss, reason = "megabytes are far below 2^52 bytes")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
