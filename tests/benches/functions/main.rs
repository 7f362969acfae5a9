//! What a stub in the VM's table of JNI functions costs: loops over a function that does nearly nothing, and over one with any number of
//! arguments, that calls Java, without an agent and in each mode of the stub; and two readings of the time stamp counter, in one run.
//!
//! Every round measures everything, and what is judged is the median over the rounds of the difference within a round.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

use anyhow::{Context, Result, ensure};
use nprof_tests::bars::{Bars, median};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::shim::load;
use nprof_tests::shim_peer::{COUNT, Connection, Listener, OFF, TIME};

const ROUNDS: usize = 9;
const CALLS: u32 = 2_000_000;
const RECORDS: u32 = 64;
const SHARDS: u32 = 64;
/// The functions by their places in the table, and what is said of them.
const FUNCTIONS: [(u32, &str); 2] = [(4, "GetVersion"), (141, "CallStaticVoidMethod")];
/// Which of them does nearly nothing.
const VERSION: usize = 0;
const MODES: [(&str, (u32, u32)); 3] = [("off", OFF), ("count", COUNT), ("time", TIME)];
/// At most so many nanoseconds more.
const OFF_ADDS: f64 = 1.0;
const COUNT_ADDS: f64 = 3.0;
/// To two readings of the counter.
const TIME_ADDS: f64 = 1.6;

/// What one round measured of each function, in nanoseconds per call: without a stub, then in each mode.
type Times = [[f64; 1 + MODES.len()]; FUNCTIONS.len()];

fn main() -> Result<()> {
    let mut bars = Bars::default();
    for jdk in Jdk::find_all()? {
        let rounds = measure(&jdk).with_context(|| format!("on {jdk}"))?;
        let readings = |of: &dyn Fn(&(f64, Times)) -> f64| median(rounds.iter().map(of));
        println!(
            "## {jdk}\n\nnanoseconds per call, medians of {ROUNDS} rounds; two readings: {:.1}\n",
            readings(&|round| round.0)
        );
        println!("| function | no stub | off | count | time |\n| --- | --- | --- | --- | --- |");
        for (place, (_, name)) in FUNCTIONS.into_iter().enumerate() {
            let [none, off, count, time] = std::array::from_fn(|at| readings(&|round| round.1[place][at]));
            println!("| {name} | {none:.1} | {off:.1} | {count:.1} | {time:.1} |");
            let added = |at: usize| readings(&|round| round.1[place][at] - round.1[place][0]);
            // A nanosecond more is nothing that can be seen of a function that takes forty, one run more and the next less.
            if place == VERSION {
                bars.add(format!("{name}, off adds, ns, {jdk}"), added(1), OFF_ADDS);
                bars.add(format!("{name}, count adds, ns, {jdk}"), added(2), COUNT_ADDS);
            }
            let part = readings(&|round| (round.1[place][3] - round.1[place][0]) / round.0);
            bars.add(format!("{name}, time adds, to two readings, {jdk}"), part, TIME_ADDS);
        }
        println!();
    }
    println!("{bars}");
    bars.must_be_met()
}

/// Two readings, and the times of the functions, of each round.
fn measure(jdk: &Jdk) -> Result<Vec<(f64, Times)>> {
    let mut target = RemoteProcess::functions(jdk, &[])?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let readings = per_call(&mut target, &format!("readings {CALLS}"))?;
        let mut times = Times::default();
        pass(&mut target, &mut times, 0)?;
        let listener = Listener::new()?;
        load(jdk, target.pid(), &listener.option())?;
        let mut connection = listener.accept()?;
        connection.welcome(Connection::usual_welcome(RECORDS, SHARDS))?;
        for (at, (_, mode)) in (1..).zip(MODES) {
            FUNCTIONS.iter().try_for_each(|&(place, _)| connection.watch_function(place, mode))?;
            let applied = connection.apply()?;
            ensure!(applied.failed == 0, "{applied:?}");
            pass(&mut target, &mut times, at)?;
        }
        connection.detach()?;
        rounds.push((readings, times));
    }
    target.exit()?;
    Ok(rounds)
}

fn pass(target: &mut RemoteProcess, times: &mut Times, at: usize) -> Result<()> {
    for (kind, times) in times.iter_mut().enumerate() {
        times[at] = per_call(target, &format!("time {kind} {CALLS}"))?;
    }
    Ok(())
}

fn per_call(target: &mut RemoteProcess, command: &str) -> Result<f64> {
    let answer = target.run(command)?;
    let took: f64 = answer.first().context("no answer")?.parse()?;
    Ok(took / f64::from(CALLS))
}
