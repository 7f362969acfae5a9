//! What stubs that are always on cost a program: the Java compiler in process and an HTTP server of the JDK, in one JVM each under
//! `nprof serve`, whose stubs are off, count, and count and time by turns: until the interval says that they cost less than the limit, or
//! for `--rounds N`.
//!
//! `bench application` attaches and detaches: the JVM compiles again what calls natives each time, and two such measurements
//! differ by some percent. Here code and data stay where they are, and nothing differs but what the stubs do. What this leaves
//! out is a stub that is off (`bench stubs` has the bar for it) and nprof itself, which another process pays for.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the result of a benchmark is what it prints, and how far it is"
)]

mod awake;
mod turns;
mod work;

use std::ops::ControlFlow;

use anyhow::{Context, Result, bail};
use nprof_tests::bars::{Bars, median};
use nprof_tests::jdk::Jdk;
use nprof_tests::slowdown::Slowdown;

use self::turns::{Measured, STATES};
use self::work::WORKS;

/// The most rounds without `--rounds`.
const ROUNDS: usize = 40_000;
/// The most that stubs may cost, in percent: the upper end of the interval.
const LIMIT: f64 = 0.5;

fn main() -> Result<()> {
    let rounds = rounds_wanted()?;
    let mut bars = Bars::default();
    for jdk in Jdk::find_all()? {
        println!("## {jdk}\n");
        println!(
            "| | calls/s | of them timed | rounds | CPU time | slow-down by CPU time | p99 | longer p99 |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
        );
        for work in WORKS {
            let measured =
                turns::measure(&work, &jdk, rounds, look).with_context(|| format!("{} on {jdk}", work.name))?;
            for (state, (name, _)) in STATES.iter().enumerate().skip(1) {
                print_row(work.name, &measured, state);
                let name = format!("{}, JDK {}, {name}: slow-down at most, %", work.name, jdk.version);
                bars.add(name, by_cpu(&measured, state).most, LIMIT);
            }
        }
        println!();
    }
    println!("{bars}");
    bars.must_be_met()
}

/// What the command line says; Cargo adds `--bench`.
fn rounds_wanted() -> Result<usize> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(ROUNDS),
        ["--rounds", rounds] => rounds.parse().context("--rounds wants a whole number"),
        _ => bail!("[--rounds N]"),
    }
}

fn print_row(name: &str, measured: &Measured, state: usize) {
    let off = |value: fn(&turns::State) -> f64| median(measured.rounds.iter().map(|round| value(&round[0])));
    // The last state times.
    let timed = if state + 1 == STATES.len() { measured.timed } else { 0.0 };
    print!(
        "| {name}: {} | {:.0} | {:.2} % | {} | ",
        STATES[state].0,
        measured.calls,
        100.0 * timed,
        measured.rounds.len()
    );
    print!("{:.2} ms | ", 1e3 * off(|one| one.cpu));
    print!("{:.2} | ", by_cpu(measured, state));
    match off(|one| one.p99) {
        p99 if p99 > 0.0 => {
            let longer = Slowdown::middle(measured.rounds.iter().map(|round| (round[0].p99, round[state].p99)));
            println!("{:.0} us | {longer:.2} |", 1e6 * p99);
        }
        _ => println!("| |"),
    }
}

/// A look at the rounds so far, which is told to whoever waits for hours. There need be no more when it is known of each state that it costs
/// no more than the limit.
fn look(measured: &Measured) -> ControlFlow<()> {
    let mut costs = (1..STATES.len()).map(|state| by_cpu(measured, state));
    let said = costs.clone().map(|cost| format!("{cost:.2}")).collect::<Vec<_>>().join(", ");
    eprintln!("{} rounds: {said}", measured.rounds.len());
    if costs.all(|cost| cost.most <= LIMIT) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn by_cpu(measured: &Measured, state: usize) -> Slowdown {
    Slowdown::middle(measured.rounds.iter().map(|round| (round[0].cpu, round[state].cpu)))
}
