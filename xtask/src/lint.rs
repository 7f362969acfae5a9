//! `cargo xtask lint`: what a reviewer should not have to look for.

use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::cargo;
use crate::machine::Machine;
use crate::process;
use crate::setup::{self, Purpose};
use crate::tally::Tally;

/// The command.
///
/// # Errors
/// When the arguments are wrong or the tools cannot be installed. A finding is a failed check.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        bail!("lint takes no arguments");
    }
    setup::ensure(Purpose::Test)?;
    let mut tally = Tally::default();
    check_all(&mut tally);
    Ok(tally.finish())
}

/// Every check. Those of the `nprof-ebpf` crate are left to its build: it compiles for the BPF target alone.
pub(crate) fn check_all(tally: &mut Tally) {
    for (name, mut command) in [("formatting", formatting()), ("clippy", clippy()), ("documentation", documentation())]
    {
        tally.check(name, || process::run(&mut command, cargo::BUILD_LIMIT));
    }
    if Machine::this().program("shellcheck").is_some() {
        tally.check("shell scripts", || process::run(&mut shell_scripts(), cargo::BUILD_LIMIT));
    } else {
        tally.skip("shell scripts", "shellcheck is not installed");
    }
}

fn formatting() -> Command {
    let mut command = cargo::command("fmt");
    command.args(["--all", "--check"]);
    command
}

fn clippy() -> Command {
    let mut command = cargo::command("clippy");
    command.args(["--workspace", "--exclude", "nprof-ebpf", "--all-targets"]).args(["--", "--deny", "warnings"]);
    command
}

fn documentation() -> Command {
    let mut command = cargo::command("doc");
    command.args(["--workspace", "--exclude", "nprof-ebpf", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings");
    command
}

fn shell_scripts() -> Command {
    let mut command = Command::new("shellcheck");
    command.args([".ci/run", "tests/tests/install.sh"]);
    command.args(["postinst", "prerm", "postrm"].map(|script| format!("packaging/debian/{script}")));
    command.current_dir(cargo::workspace());
    command
}
