//! What tracing costs real programs that know nothing of it: how many operations they do in a second, and how much CPU time
//! each takes, without nprof and with it, in the long run and in every tenth of a second of its start and end.
//! `--rounds N` for another number of rounds, `--only WORD` for the programs whose name has that word.
//!
//! All states are measured in **one JVM** by attaching and detaching, each next to a time without nprof of the same JVM: two
//! JVMs that do the same differ by more than what is to be measured. A program writes its own log ([`log`]), and is judged by
//! CPU time: on the clock other processes of the machine count, too.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

mod log;
mod program;
mod round;
mod switched;
mod table;

use anyhow::{Context, Result, bail};
use nprof_tests::bars::Bars;
use nprof_tests::jdk::Jdk;

use self::program::{PROGRAMS, Program};
use self::round::Rounds;

/// Rounds without `--rounds`.
const ROUNDS: usize = 6;

/// What the command line says; Cargo adds `--bench`.
struct Wanted {
    rounds: usize,
    only: String,
}

fn main() -> Result<()> {
    let wanted = wanted()?;
    let jdk = Jdk::find_all()?.pop().context("no JDK under /usr/lib/jvm")?;
    println!("## {jdk}, {} rounds\n", wanted.rounds);
    let mut bars = Bars::default();
    for program in PROGRAMS.iter().filter(|program| program.name.contains(&wanted.only)) {
        println!("### {}\n", program.name);
        match program.missing() {
            Some(missing) => {
                println!("**Not measured**: {missing} is missing. `cargo xtask bench programs` installs it.\n")
            }
            None => {
                let (rounds, switched) = measure(program, &jdk, wanted.rounds).with_context(|| program.name)?;
                println!("{}\n{switched}", table::of(&rounds)?);
                table::bars(program.name, &rounds, &mut bars);
            }
        }
    }
    println!("{bars}");
    bars.must_be_met()
}

fn wanted() -> Result<Wanted> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut wanted = Wanted { rounds: ROUNDS, only: String::new() };
    for pair in arguments.chunks(2) {
        match pair {
            [option, rounds] if option == "--rounds" => wanted.rounds = rounds.parse().context("--rounds")?,
            [option, word] if option == "--only" => wanted.only.clone_from(word),
            _ => bail!("[--rounds N] [--only WORD]"),
        }
    }
    Ok(wanted)
}

fn measure(program: &Program, jdk: &Jdk, count: usize) -> Result<(Rounds, String)> {
    let mut running = program.start(jdk)?;
    running.warm_up()?;
    let rounds = round::measure(&mut running, count)?;
    let switched = switched::measure(&mut running)?;
    running.exit()?;
    Ok((rounds, switched))
}
