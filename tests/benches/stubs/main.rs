//! What a stub costs: a loop over an empty native with no agent, in each mode and after the agent has left, from one
//! thread and from two, beside two readings of the time stamp counter, in one run.
//!
//! Absolute times differ from machine to machine and from minute to minute. So every round measures everything, and
//! what is judged is the median over the rounds of the difference within a round.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

use anyhow::{Context, Result};
use nprof_tests::bars::{Bars, median};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::shim::{agent_path, load};

const ROUNDS: usize = 9;
const CALLS: u32 = 5_000_000;
const WARM_UP: usize = 3;
/// What the agent is told before each measurement, and the name of that.
const STATES: [(&str, &str); 5] = [
    ("off", "mode=off"),
    ("count", "mode=count"),
    ("every 16th timed", "mode=every:16"),
    ("time", "mode=time"),
    ("detached", "detach"),
];
const THREADS: [u32; 2] = [1, 2];

/// What one round measured, in nanoseconds per call.
struct Round {
    /// Two readings of the time stamp counter.
    readings: f64,
    /// Without agent, by number of threads.
    without: [f64; THREADS.len()],
    /// By state and number of threads.
    with: [[f64; THREADS.len()]; STATES.len()],
}

/// The bars of the first three with one thread: no more nanoseconds than this.
const LIMITS: [f64; 3] = [2.0, 4.0, 6.0];

fn main() -> Result<()> {
    let mut bars = Bars::default();
    for jdk in Jdk::find_all()? {
        let rounds = measure(&jdk).with_context(|| format!("on {jdk}"))?;
        print(&jdk, &rounds);
        judge(&rounds, &mut bars);
    }
    println!("{bars}");
    bars.must_be_met()
}

fn measure(jdk: &Jdk) -> Result<Vec<Round>> {
    let mut plain = RemoteProcess::stubs(jdk, &[], &[])?;
    let agent = agent_path("only=targets.Stubs,mode=time")?;
    let mut stubbed = RemoteProcess::stubs(jdk, &[&agent], &[])?;
    for target in [&mut plain, &mut stubbed] {
        for _ in 0..WARM_UP {
            spin(target)?;
        }
    }
    let rounds = (0..ROUNDS).map(|_| round(jdk, &mut plain, &mut stubbed)).collect::<Result<_>>()?;
    plain.exit()?;
    stubbed.exit()?;
    Ok(rounds)
}

fn round(jdk: &Jdk, plain: &mut RemoteProcess, stubbed: &mut RemoteProcess) -> Result<Round> {
    let readings = per_call(plain, &format!("readings {CALLS}"))?;
    let without = spin(plain)?;
    let mut with = [[0.0; THREADS.len()]; STATES.len()];
    load(jdk, stubbed.pid(), "only=targets.Stubs")?;
    for ((_, options), times) in STATES.into_iter().zip(&mut with) {
        load(jdk, stubbed.pid(), options)?;
        // What was bound anew is compiled anew, meanwhile.
        spin(stubbed)?;
        *times = spin(stubbed)?;
    }
    Ok(Round { readings, without, with })
}

fn spin(target: &mut RemoteProcess) -> Result<[f64; THREADS.len()]> {
    let mut times = [0.0; THREADS.len()];
    for (threads, time) in THREADS.into_iter().zip(&mut times) {
        *time = per_call(target, &format!("spins {threads} {CALLS}"))?;
    }
    Ok(times)
}

fn per_call(target: &mut RemoteProcess, command: &str) -> Result<f64> {
    let answer = target.run(command)?.join("\n");
    let took: f64 = answer.strip_prefix("took ").context(answer.clone())?.parse()?;
    Ok(took / f64::from(CALLS))
}

fn print(jdk: &Jdk, rounds: &[Round]) {
    println!("## {jdk}\n\nnanoseconds per call, median of {ROUNDS} rounds\n");
    println!("| | 1 thread | 2 threads |\n| --- | --- | --- |");
    println!("| two readings of the counter | {:.1} | |", median(rounds.iter().map(|round| round.readings)));
    let row = |name: &str, times: &dyn Fn(&Round) -> [f64; 2]| {
        let [one, two] = [0, 1].map(|threads| median(rounds.iter().map(|round| times(round)[threads])));
        println!("| {name} | {one:.1} | {two:.1} |");
    };
    row("no agent", &|round| round.without);
    for (place, (name, _)) in STATES.into_iter().enumerate() {
        row(name, &|round| round.with[place]);
    }
    println!();
}

fn judge(rounds: &[Round], bars: &mut Bars) {
    let added = |state: usize, threads: usize| {
        median(rounds.iter().map(|round| round.with[state][threads] - round.without[threads]))
    };
    let names = ["off adds, ns", "count adds, ns", "every 16th timed adds, ns"];
    for (state, (name, limit)) in names.into_iter().zip(LIMITS).enumerate() {
        bars.add(name, added(state, 0), limit);
    }
    bars.add("count adds with two threads, ns", added(1, 1), 2.0 * LIMITS[1]);
    bars.add("a detached agent adds, ns", added(4, 0), 1.0);
    let to_readings = |round: &Round| (round.with[3][0] - round.without[0]) / round.readings;
    bars.add("time adds, to two readings", median(rounds.iter().map(to_readings)), 1.6);
}
