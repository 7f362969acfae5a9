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

/// Every check.
pub(crate) fn check_all(tally: &mut Tally) {
    for (name, mut command) in [
        ("formatting", formatting()),
        ("clippy", clippy()),
        ("clippy on the BPF programs", clippy_on_bpf()),
        ("documentation", documentation()),
        ("dependencies", dependencies()),
    ] {
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

/// As a program of this machine, which is only looked at: for the BPF target there is no compiler with clippy everywhere. The
/// crate needs what a nightly compiler has, and no unwinding.
fn clippy_on_bpf() -> Command {
    let mut command = cargo::command("clippy");
    command.args(["--package", "nprof-ebpf", "--", "--deny", "warnings"]);
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", "-Cpanic=abort");
    // Other flags build everything again: not at the cost of the next ordinary build.
    command.env("CARGO_TARGET_DIR", cargo::target_directory().join("clippy-bpf"));
    command
}

fn documentation() -> Command {
    let mut command = cargo::command("doc");
    command.args(["--workspace", "--exclude", "nprof-ebpf", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings");
    command
}

/// Licences, origins and versions, by `deny.toml`. Known weaknesses of what is used are looked up at a release: that list is on
/// the network.
fn dependencies() -> Command {
    let mut command = cargo::command("deny");
    command.args(["--locked", "--offline", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    command
}

fn shell_scripts() -> Command {
    let mut command = Command::new("shellcheck");
    command.args([".ci/run", "tests/tests/install.sh"]);
    command.args(["postinst", "prerm", "postrm"].map(|script| format!("packaging/debian/{script}")));
    command.current_dir(cargo::workspace());
    command
}
