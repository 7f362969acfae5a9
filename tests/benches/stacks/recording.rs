//! A recording of a target that calls, and what it took: the programs, nprof, and how good it is.

use std::fs;
use std::path::Path;
use std::time::Instant;

use ::nprof::model::Profile;
use ::nprof::recording;
use anyhow::{Context, Result, ensure};
use nprof_tests::child::Stream;
use nprof_tests::nprof;
use nprof_tests::process::RemoteProcess;
use nprof_tests::usage::cpu_seconds;
use rustix::process::Signal;

/// Java frames below the native method.
pub(crate) const DEPTH: u32 = 60;
/// The kernel's switch for what programs take.
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Programs on probes: `BPF_PROG_TYPE_KPROBE`.
const ON_PROBES: &str = "2";
/// Programs on functions of the kernel and its tracepoints: `BPF_PROG_TYPE_TRACING`.
const ON_SWITCHES: &str = "26";

/// What is recorded, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) calls_per_millisecond: u32,
    pub(crate) max_stacks: u32,
    pub(crate) options: &'static [&'static str],
    pub(crate) seconds: f64,
}

/// What a recording took.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Time of the programs per call, in nanoseconds.
    pub(crate) call_ns: f64,
    /// Time of the program per switch of threads, of any process, in nanoseconds; if there is such a program.
    pub(crate) switch_ns: Option<f64>,
    /// CPU time of nprof per second of recording.
    pub(crate) cpu: f64,
    pub(crate) stacks_per_second: f64,
    pub(crate) complete: f64,
}

impl Cost {
    /// Records the target while it calls.
    pub(crate) fn of(target: &mut RemoteProcess, load: Load) -> Result<Self> {
        let Load { calls_per_millisecond, max_stacks, options, seconds } = load;
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("run.nprof");
        let (pid, stacks) = (target.pid().to_string(), max_stacks.to_string());
        let file = path.to_str().context("a path")?;
        let args = ["record", "--pid", &pid, "-o", file, "--max-stacks", &stacks, "--max-overhead", "off"];
        let mut child = nprof::spawn(&[&args, options].concat())?;
        child.line_with_prefix(Stream::Stderr, "recording ")?;
        let (began, before) = (Instant::now(), cpu_seconds(child.pid())?);
        let called = target.run(&format!("calls {DEPTH} {calls_per_millisecond} {seconds}"))?;
        ensure!(!called.is_empty(), "the target says nothing");
        let (elapsed, after) = (began.elapsed(), cpu_seconds(child.pid())?);
        let on_probes = run_ns(child.pid(), ON_PROBES)?.context("no program has run")?;
        let switch_ns = run_ns(child.pid(), ON_SWITCHES)?;
        child.signal(Signal::INT)?;
        let outcome = nprof::outcome(child)?;
        ensure!(outcome.code == Some(0), "{outcome:?}");
        let quality = read(&path)?.quality;
        Ok(Self {
            // Two programs run at each call.
            call_ns: 2.0 * on_probes,
            switch_ns,
            cpu: (after - before) / elapsed.as_secs_f64(),
            stacks_per_second: quality.stacks as f64 / elapsed.as_secs_f64(),
            complete: quality.complete as f64 / quality.stacks.max(1) as f64,
        })
    }
}

fn read(path: &Path) -> Result<Profile> {
    Ok(recording::read(&mut fs::File::open(path)?)?)
}

/// How long a program of this type ran on average, in nanoseconds, from what the kernel says of the descriptors of a
/// process; `None` if none has run.
fn run_ns(pid: u32, program_type: &str) -> Result<Option<f64>> {
    let (mut time, mut count) = (0, 0);
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("prog_type:") == Some(program_type) {
            time += field("run_time_ns:").context("run_time_ns")?.parse::<u64>()?;
            count += field("run_cnt:").context("run_cnt")?.parse::<u64>()?;
        }
    }
    Ok((count > 0).then(|| time as f64 / count as f64))
}

/// The kernel's statistics, as long as this lives.
#[derive(Debug)]
pub(crate) struct Statistics {
    before: String,
}

impl Statistics {
    pub(crate) fn on() -> Result<Self> {
        let before = fs::read_to_string(STATISTICS)?;
        fs::write(STATISTICS, "1")?;
        Ok(Self { before })
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        // The next run would set it again.
        drop(fs::write(STATISTICS, &self.before));
    }
}
