//! One round: the same work in each state, one after the other.

#![expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^52")]

use anyhow::{Context, Result, ensure};
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
use nprof_tests::usage::cpu_time;

/// Names, and what nprof is told; nothing where it does not run.
pub(crate) const STATES: [(&str, Option<&[&str]>); 5] = [
    ("no nprof", None),
    ("stubs, full", Some(&["--tier", "stub"])),
    ("stubs, every 16th timed", Some(&["--tier", "stub", "--time-every", "16"])),
    ("stubs, count", Some(&["--tier", "stub", "--count-only"])),
    ("probes, full", Some(&["--tier", "kernel"])),
];

/// The work, in one state.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measured {
    /// By the JVM's clock, in seconds.
    pub wall: f64,
    /// User and system time of the JVM, in seconds.
    pub cpu: f64,
    /// The same of nprof.
    pub own_cpu: f64,
    /// Calls of natives per second that stubs counted, or stubs and probes by turns.
    pub by_stubs: f64,
    /// Those that probes counted.
    pub by_probes: f64,
}

/// All states.
#[derive(Debug)]
pub(crate) struct Round {
    pub states: [Measured; STATES.len()],
}

impl Round {
    /// Measures all states, in an order that changes from round to round: what drifts is not taken for a difference.
    pub(crate) fn measure(target: &mut RemoteProcess, number: usize) -> Result<Self> {
        let mut states = [Measured::default(); STATES.len()];
        for step in 0..STATES.len() {
            let place = (number / 2 + step) % STATES.len();
            let state = if number.is_multiple_of(2) { place } else { STATES.len() - 1 - place };
            states[state] = measured(target, STATES[state].1).with_context(|| STATES[state].0)?;
        }
        Ok(Self { states })
    }
}

fn measured(target: &mut RemoteProcess, options: Option<&[&str]>) -> Result<Measured> {
    let pid = target.pid();
    let trace = options.map(|options| Trace::start(pid, options)).transpose()?;
    // After a change of the tier the JVM compiles again what calls natives: this is no part of what is measured.
    compile(target)?;
    let own = |trace: &Option<Trace>| trace.as_ref().map_or(Ok(0.0), |trace| cpu_time(trace.pid()));
    let (before, own_before) = (cpu_time(pid)?, own(&trace)?);
    let wall = compile(target)?;
    let (cpu, own_cpu) = (cpu_time(pid)? - before, own(&trace)? - own_before);
    let measured = Measured { wall, cpu, own_cpu, ..Measured::default() };
    let Some(trace) = trace else {
        return Ok(measured);
    };
    let report = trace.finish()?;
    let (by_stubs, by_probes) = rates(&report);
    ensure!(by_stubs + by_probes > 0.0, "no call was seen");
    Ok(Measured { by_stubs, by_probes, ..measured })
}

/// Has everything compiled once; seconds.
fn compile(target: &mut RemoteProcess) -> Result<f64> {
    Ok(target.took_ns("compile 1")? / 1e9)
}

/// Calls per second, by whom they were counted.
fn rates(report: &Report) -> (f64, f64) {
    let (mut stubs, mut probes) = (0, 0);
    for row in &report.methods {
        *if row.tier == "kernel" { &mut probes } else { &mut stubs } += row.calls;
    }
    let seconds = report.elapsed_ns as f64 / 1e9;
    (stubs as f64 / seconds, probes as f64 / seconds)
}
