//! What a switch of threads costs: the time that nprof's program takes there, as the kernel accounts for it, less that of one that only
//! looks at a number, while two threads of one CPU take turns. Of another process than the traced one, of the traced JVM, and within a
//! traced call; by probes and by stubs.
//!
//! The clock does not tell: two measurements of the same switches differ by 100 ns on a host that has other guests. Of what the kernel accounts
//! the least of all rounds counts: what else the CPU's core does only adds to it.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]
#![expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^52")]

use std::fmt;

use anyhow::{Context, Result, ensure};
use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use nprof_tests::bars::{Bars, median};
use nprof_tests::bpftrace::Bpftrace;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;

const ROUNDS: usize = 10;
/// How often each of the two threads gets the CPU.
const TURNS: u64 = 50_000;
/// nprof's program, and the floor's.
const PROGRAM: &str = "nprof_switch";
const FLOOR: &str = "sched_switch";

/// How the threads are looked at.
const WAYS: [(&str, [&str; 2]); 2] = [("probes", ["--tier", "kernel"]), ("stubs", ["--tier", "stub"])];
/// Whose threads take turns, what is traced, and at most how many nanoseconds more that is.
const CASES: [(Whose, &str, f64); 3] = [
    (Whose::AnotherProcess, "targets.Consuming::swap", 30.0),
    (Whose::TheJvm, "targets.Consuming::lock", 30.0),
    (Whose::Traced, "targets.Consuming::swap", 250.0),
];

/// Whose threads take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    AnotherProcess,
    TheJvm,
    Traced,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AnotherProcess => "of another process",
            Self::TheJvm => "of the traced JVM, outside of traced calls",
            Self::Traced => "within traced calls",
        })
    }
}

/// Nanoseconds that the programs take for a switch.
#[derive(Debug, Default)]
struct Switches {
    floor: Vec<f64>,
    /// By way and case.
    with: [[Vec<f64>; CASES.len()]; WAYS.len()],
}

fn main() -> Result<()> {
    let mut bars = Bars::default();
    for jdk in Jdk::find_all()? {
        let switches = measure(&jdk).with_context(|| format!("on {jdk}"))?;
        println!("## {jdk}\n\n{switches}");
        switches.judge(&mut bars);
    }
    println!("{bars}");
    bars.must_be_met()
}

/// Measures each of them in each round.
fn measure(jdk: &Jdk) -> Result<Switches> {
    let (mut target, mut other) = (RemoteProcess::consuming(jdk)?, RemoteProcess::consuming(jdk)?);
    // Binds both.
    target.run("consume lock 1 1 1")?;
    for target in [&mut target, &mut other] {
        target.took_ns(&format!("swap {TURNS}"))?;
    }
    let _accounted = enable_stats(Stats::RunTime)?;
    let mut switches = Switches::default();
    for round in 0..ROUNDS {
        let bpftrace = Bpftrace::at_switches()?;
        switches.floor.push(per_switch(FLOOR, &mut target)?);
        drop(bpftrace);
        // By turns first: what drifts is not taken for a difference.
        for way in [round % 2, 1 - round % 2] {
            for ((whose, method, _), times) in CASES.into_iter().zip(&mut switches.with[way]) {
                let trace = Trace::start(target.pid(), &[&WAYS[way].1[..], &[method]].concat())?;
                let who = if whose == Whose::AnotherProcess { &mut other } else { &mut target };
                times.push(per_switch(PROGRAM, who)?);
                trace.finish()?;
            }
        }
    }
    target.exit()?;
    other.exit()?;
    Ok(switches)
}

/// Nanoseconds that the programs of this name take for a switch. Each turn of a thread begins with one.
fn per_switch(program: &str, target: &mut RemoteProcess) -> Result<f64> {
    let before = accounted(program)?;
    target.took_ns(&format!("swap {TURNS}"))?;
    let after = accounted(program)?;
    let (runs, time_ns) = (after.0 - before.0, after.1 - before.1);
    ensure!(runs >= 2 * TURNS, "{program} ran {runs} times at {} switches", 2 * TURNS);
    Ok(time_ns as f64 / runs as f64)
}

/// How often the programs of this name have run, and for how many nanoseconds.
fn accounted(program: &str) -> Result<(u64, u64)> {
    let mut sums = (0, 0);
    for one in loaded_programs() {
        // What goes away meanwhile is none of these.
        let Ok(one) = one else { continue };
        if one.name_as_str() == Some(program) {
            sums = (sums.0 + one.run_count(), sums.1 + u64::try_from(one.run_time().as_nanos())?);
        }
    }
    ensure!(sums != (0, 0), "there is no program {program}, or it was never run");
    Ok(sums)
}

impl Switches {
    fn added(&self, way: usize, case: usize) -> f64 {
        least(&self.with[way][case]) - least(&self.floor)
    }

    /// What is promised.
    fn judge(&self, bars: &mut Bars) {
        for (way, (by, _)) in WAYS.into_iter().enumerate() {
            for (case, (whose, _, limit)) in CASES.into_iter().enumerate() {
                bars.add(format!("a switch {whose}, more by {by}, ns"), self.added(way, case), limit);
            }
        }
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let floor = least(&self.floor);
        writeln!(
            f,
            "A switch between two threads of one CPU, {ROUNDS} rounds of {} switches, in the program:\n",
            2 * TURNS
        )?;
        writeln!(f, "| | ns, at least (median) | more than the floor |\n| --- | --- | --- |")?;
        writeln!(f, "| a program that looks at one number (bpftrace) | {floor:.0} | |")?;
        for (way, (by, _)) in WAYS.into_iter().enumerate() {
            for (case, (whose, ..)) in CASES.into_iter().enumerate() {
                let times = &self.with[way][case];
                let (least, middle) = (least(times), median(times.iter().copied()));
                let added = self.added(way, case);
                writeln!(f, "| {whose}, by {by} | {least:.0} ({middle:.0}) | {added:.0} |")?;
            }
        }
        Ok(())
    }
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}
