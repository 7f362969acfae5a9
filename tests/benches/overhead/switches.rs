//! What a switch of threads costs: two of them take turns on one CPU, without nprof, while it traces what they do not call, and
//! while it traces what they are in; by probes and by stubs.

use std::fmt;

use anyhow::Result;
use nprof_tests::bars::{Bars, median};
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;

use crate::rounds::{least, took};

const ROUNDS: usize = 15;
/// How often each of the two threads gets the CPU in a part of a measurement.
const TURNS: u32 = 10_000;
/// So many parts, of which the quickest counts: what else the machine does only adds to it.
const PARTS: usize = 10;
/// At most so many nanoseconds more, of a thread that makes no traced call, and of one that does.
const LIMITS: [f64; 2] = [30.0, 250.0];

/// How the threads are looked at.
const WAYS: [(&str, [&str; 2]); 2] = [("probes", ["--tier", "kernel"]), ("stubs", ["--tier", "stub"])];
/// What is traced: what the threads do not call, and what they are in.
const TRACED: [(&str, &str); 2] = [("any other", "targets.Consuming::lock"), ("a traced", "targets.Consuming::swap")];

/// Nanoseconds for a switch.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    none: Vec<f64>,
    /// By way, and what is traced.
    with: [[Vec<f64>; TRACED.len()]; WAYS.len()],
}

/// Measures each of them in each round.
pub(crate) fn measure(jdk: &Jdk) -> Result<Switches> {
    let mut target = RemoteProcess::consuming(jdk)?;
    // Binds both.
    target.run("consume lock 1 1 1")?;
    per_switch(&mut target)?;
    let mut switches = Switches::default();
    for _ in 0..ROUNDS {
        switches.none.push(per_switch(&mut target)?);
        for ((_, tier), of_way) in WAYS.into_iter().zip(&mut switches.with) {
            for ((_, method), times) in TRACED.into_iter().zip(of_way) {
                let trace = Trace::start(target.pid(), &[&tier[..], &[method]].concat())?;
                times.push(per_switch(&mut target)?);
                trace.finish()?;
            }
        }
    }
    target.exit()?;
    Ok(switches)
}

/// Nanoseconds of the quickest part. Each turn of a thread begins with a switch.
fn per_switch(target: &mut RemoteProcess) -> Result<f64> {
    let parts = (0..PARTS).map(|_| Ok(took(target, &format!("swap {TURNS}"))? / f64::from(2 * TURNS)));
    Ok(least(&parts.collect::<Result<Vec<_>>>()?))
}

impl Switches {
    fn added(&self, way: usize, traced: usize) -> f64 {
        median(self.with[way][traced].iter().zip(&self.none).map(|(with, none)| with - none))
    }

    /// What is promised.
    pub(crate) fn judge(&self, bars: &mut Bars) {
        for (way, (by, _)) in WAYS.into_iter().enumerate() {
            for (traced, ((thread, _), limit)) in TRACED.into_iter().zip(LIMITS).enumerate() {
                bars.add(format!("a switch of {thread} thread, more by {by}, ns"), self.added(way, traced), limit);
            }
        }
    }
}

impl fmt::Display for Switches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "A switch between two threads of one CPU, the quickest of {PARTS} times {} switches, {ROUNDS} rounds:\n",
            2 * TURNS
        )?;
        writeln!(f, "| | ns | more (median of the rounds) |\n| --- | --- | --- |")?;
        writeln!(f, "| no nprof | {:.0} | |", median(self.none.iter().copied()))?;
        for (way, (by, _)) in WAYS.into_iter().enumerate() {
            for (traced, (thread, _)) in TRACED.into_iter().enumerate() {
                let middle = median(self.with[way][traced].iter().copied());
                writeln!(f, "| {thread} thread, by {by} | {middle:.0} | {:.0} |", self.added(way, traced))?;
            }
        }
        Ok(())
    }
}
