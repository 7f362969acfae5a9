//! `cargo xtask bench`: what tracing costs, side by side with empty probes and with bpftrace, as Markdown on stdout.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cargo;
use crate::machine::Machine;
use crate::process;
use crate::setup::{self, Purpose};

/// The benchmark, in the package of the real tests: `tests/benches/overhead`.
const BENCH: [&str; 4] = ["--package", "nprof-tests", "--bench", "overhead"];
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// The command. A bar that is missed is a failed check.
///
/// # Errors
/// When what the benchmark needs cannot be installed or built.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        bail!("bench takes no arguments");
    }
    if !Machine::this().is_root {
        bail!("the benchmark loads BPF programs: run it as root");
    }
    setup::ensure(Purpose::Test)?;
    cargo::build_release()?;
    let mut command = cargo::command("bench");
    command.args(BENCH);
    let status = process::run_lines(&mut command, LIMIT, print)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(line: &str) {
    println!("{line}");
}
