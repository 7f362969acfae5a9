//! A service under which JVMs of all JDKs come and go every second, by stubs and by probes, for as many minutes as `--minutes` says:
//! each of their calls must be counted, and nothing may grow.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::soak::Soak;

/// Minutes without `--minutes`.
const MINUTES: u64 = 10;

fn main() -> Result<()> {
    let jdks = Jdk::find_all()?;
    ensure!(!jdks.is_empty(), "no JDK under /usr/lib/jvm");
    let minutes = minutes()?;
    let soak = Soak::run(&jdks, Duration::from_secs(60 * minutes))?;
    let names: Vec<String> = jdks.iter().map(ToString::to_string).collect();
    println!("## {minutes} minutes on {}\n\n{soak}", names.join(", "));
    soak.must_be_flat()
}

fn minutes() -> Result<u64> {
    // Cargo adds its own flag.
    let mut arguments = std::env::args().skip_while(|argument| argument != "--minutes").skip(1);
    arguments.next().map_or(Ok(MINUTES), |number| number.parse().context("--minutes N"))
}
