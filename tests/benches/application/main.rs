//! What tracing every native method costs a whole application: the Java compiler, in process, which compiles a large tree
//! of sources again and again, without nprof, with stubs and with probes of the kernel. `--rounds N` for another number
//! of rounds.
//!
//! All states are measured in **one JVM**, by attaching and detaching. Two JVMs that do the same differ by some percent
//! from the first second to the last, because their compilers and collectors have decided otherwise: far more than what is
//! to be measured, so that it would take hundreds of JVMs. In one JVM, neighbouring measurements share all that. What is
//! left of nprof in it while it is detached is the shim, which does nothing then (`bench stubs` has a bar for that).

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

mod round;

use anyhow::{Context, Result, bail};
use nprof_tests::bars::{Bars, median};
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::slowdown::Slowdown;
use nprof_tests::source_tree::SourceTree;

use self::round::{Measured, Round, STATES};

/// Rounds without `--rounds`.
const ROUNDS: usize = 24;
/// So often is everything compiled before: then the JVM has compiled what it will compile.
const WARM_UP: usize = 20;
/// What stubs may cost, in percent.
const LIMIT: f64 = 1.0;

fn main() -> Result<()> {
    let count = rounds_wanted()?;
    let mut bars = Bars::default();
    for jdk in Jdk::find_all()? {
        let rounds = measure(&jdk, count).with_context(|| format!("on {jdk}"))?;
        print(&rounds);
        // Where other processes run beside it, time on the clock is theirs too.
        for (state, (name, _)) in STATES.into_iter().enumerate().filter(|(_, (name, _))| name.starts_with("stubs")) {
            let percent = slowdown(&rounds, state, |one| one.cpu).percent;
            bars.add(format!("{name}: slow-down by CPU time, %"), percent, LIMIT);
        }
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

fn measure(jdk: &Jdk, count: usize) -> Result<Vec<Round>> {
    let scratch = tempfile::tempdir()?;
    let [sources, classes] = ["sources", "classes"].map(|name| scratch.path().join(name));
    [&sources, &classes].into_iter().try_for_each(std::fs::create_dir)?;
    let tree = SourceTree::write(jdk, &sources)?;
    println!("## {jdk}\n\njavac compiles {} ({count} rounds)\n", tree.name);
    let mut target = RemoteProcess::compiler(jdk, &[], &tree, &classes)?;
    for _ in 0..WARM_UP {
        target.run("compile 1")?;
    }
    let rounds = (0..count).map(|number| Round::measure(&mut target, number)).collect::<Result<_>>()?;
    target.exit()?;
    Ok(rounds)
}

fn print(rounds: &[Round]) {
    let middle =
        |state: usize, value: fn(&Measured) -> f64| median(rounds.iter().map(|round| value(&round.states[state])));
    println!("| | time | CPU time | slow-down by CPU time | by the clock | calls/s: stubs, probes | nprof's CPU |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (state, (name, _)) in STATES.into_iter().enumerate() {
        let (wall, cpu) = (middle(state, |one| one.wall), middle(state, |one| one.cpu));
        print!("| {name} | {wall:.3} s | {cpu:.3} s | ");
        if state == 0 {
            println!("| | | |");
            continue;
        }
        let (by_cpu, by_clock) = (slowdown(rounds, state, |one| one.cpu), slowdown(rounds, state, |one| one.wall));
        let [stubs, probes] = [middle(state, |one| one.by_stubs), middle(state, |one| one.by_probes)];
        let own = 100.0 * middle(state, |one| one.own_cpu / one.wall);
        println!("{by_cpu} | {by_clock} | {stubs:.0}, {probes:.0} | {own:.2} % |");
    }
    println!();
}

/// Of a state, to the first one of the same round.
fn slowdown(rounds: &[Round], state: usize, value: fn(&Measured) -> f64) -> Slowdown {
    Slowdown::of(rounds.iter().map(|round| (value(&round.states[0]), value(&round.states[state]))))
}
