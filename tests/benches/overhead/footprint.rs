//! What nprof itself takes with two thousand methods attached: time to attach and detach, CPU and memory.

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
use nprof_tests::usage::{Usage, cpu_seconds, megabytes};
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
        let Usage { peak: resident, bpf, .. } = Usage::of(nprof)?;
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
    let options = Options::by_probes(Selection::default());
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
