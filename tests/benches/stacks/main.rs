//! What it costs to take stacks: the thread that is sampled, and nprof itself.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]
#![expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^52")]

use std::fs;
use std::path::Path;
use std::time::Instant;

use ::nprof::model::Profile;
use ::nprof::recording;
use anyhow::{Context, Result, ensure};
use nprof_tests::bars::Bars;
use nprof_tests::child::Stream;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof;
use nprof_tests::process::RemoteProcess;
use nprof_tests::usage::cpu_seconds;
use rustix::process::Signal;

/// Java frames below the native method.
const DEPTH: u32 = 60;
/// Seconds of each recording.
const SECONDS: f64 = 6.0;
/// The kernel's switch for what programs take.
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// What a recording took.
struct Cost {
    /// Time of the programs per call, in nanoseconds.
    call_ns: f64,
    /// CPU time of nprof per second of recording.
    cpu: f64,
    stacks_per_second: f64,
    complete: f64,
}

fn main() -> Result<()> {
    let jdk = Jdk::find_all()?.pop().context("no JDK under /usr/lib/jvm")?;
    let _statistics = Statistics::on()?;
    let mut target = RemoteProcess::deep(&jdk)?;
    println!("## Stacks of {DEPTH} frames and more on {jdk}\n");
    println!("| calls/s | stacks/s | programs, a call | nprof's CPU | complete |\n| --- | --- | --- | --- | --- |");
    let mut measure = |per_millisecond: u32, max_stacks: u32| -> Result<Cost> {
        let cost = cost(&mut target, per_millisecond, max_stacks)?;
        let Cost { call_ns, cpu, stacks_per_second, complete } = &cost;
        let (cpu, complete) = (100.0 * cpu, 100.0 * complete);
        let calls = per_millisecond * 1_000;
        println!("| about {calls} | {stacks_per_second:.0} | {call_ns:.0} ns | {cpu:.1} % | {complete:.2} % |");
        Ok(cost)
    };
    let (none, all) = (measure(1, 1)?, measure(1, 100_000)?);
    let usual = measure(20, 1_000)?;
    let mut bars = Bars::default();
    bars.add("a sampled call adds, in us", (all.call_ns - none.call_ns) / 1e3, 5.0);
    bars.add("nprof at 1,000 stacks/s, share of a core", usual.cpu / usual.stacks_per_second * 1e3, 0.1);
    bars.add("incomplete stacks, share", 1.0 - all.complete.min(usual.complete), 0.005);
    println!("\n{bars}");
    bars.must_be_met()
}

/// Records the target while it calls.
fn cost(target: &mut RemoteProcess, per_millisecond: u32, max_stacks: u32) -> Result<Cost> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("run.nprof");
    let (pid, stacks) = (target.pid().to_string(), max_stacks.to_string());
    let file = path.to_str().context("a path")?;
    let mut child = nprof::spawn(&["record", "--pid", &pid, "-o", file, "--max-stacks", &stacks])?;
    child.line_with_prefix(Stream::Stderr, "recording ")?;
    let (began, before) = (Instant::now(), cpu_seconds(child.pid())?);
    let called = target.run(&format!("calls {DEPTH} {per_millisecond} {SECONDS}"))?;
    ensure!(!called.is_empty(), "the target says nothing");
    let (elapsed, after) = (began.elapsed(), cpu_seconds(child.pid())?);
    let (run_ns, runs) = run_time(child.pid())?;
    child.signal(Signal::INT)?;
    let outcome = nprof::outcome(child)?;
    ensure!(outcome.code == Some(0), "{outcome:?}");
    let profile = read(&path)?;
    Ok(Cost {
        // Two programs run at each call.
        call_ns: run_ns as f64 / (runs as f64 / 2.0),
        cpu: (after - before) / elapsed.as_secs_f64(),
        stacks_per_second: profile.quality.stacks as f64 / elapsed.as_secs_f64(),
        complete: profile.quality.complete as f64 / profile.quality.stacks.max(1) as f64,
    })
}

fn read(path: &Path) -> Result<Profile> {
    Ok(recording::read(&mut fs::File::open(path)?)?)
}

/// How long the programs on calls ran and how often, from what the kernel says of the descriptors of a process.
fn run_time(pid: u32) -> Result<(u64, u64)> {
    /// Of programs on probes: `BPF_PROG_TYPE_KPROBE`.
    const ON_PROBES: &str = "2";
    let (mut time, mut count) = (0, 0);
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("prog_type:") == Some(ON_PROBES) {
            time += field("run_time_ns:").context("run_time_ns")?.parse::<u64>()?;
            count += field("run_cnt:").context("run_cnt")?.parse::<u64>()?;
        }
    }
    ensure!(count > 0, "no program has run");
    Ok((time, count))
}

/// The kernel's statistics, as long as this lives.
struct Statistics {
    before: String,
}

impl Statistics {
    fn on() -> Result<Self> {
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
