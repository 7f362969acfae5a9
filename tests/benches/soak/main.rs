//! A service under which JVMs come and go every second, for as many minutes as `--minutes` says.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

use std::time::Duration;

use anyhow::{Context, Result};
use nprof_tests::jdk::Jdk;
use nprof_tests::soak::Soak;

/// Minutes without `--minutes`.
const MINUTES: u64 = 10;

fn main() -> Result<()> {
    let jdk = Jdk::find_all()?.pop().context("no JDK under /usr/lib/jvm")?;
    let minutes = minutes()?;
    let soak = Soak::run(&jdk, Duration::from_secs(60 * minutes))?;
    println!("## {minutes} minutes on {jdk}\n\n{soak}");
    soak.must_be_flat()
}

fn minutes() -> Result<u64> {
    // Cargo adds its own flag.
    let mut arguments = std::env::args().skip_while(|argument| argument != "--minutes").skip(1);
    arguments.next().map_or(Ok(MINUTES), |number| number.parse().context("--minutes N"))
}
