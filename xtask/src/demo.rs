//! `cargo xtask demo`: from a bare machine to a table of native calls, in one command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo;
use crate::jdk::{self, Jdk};
use crate::kernel;
use crate::machine::Machine;
use crate::process::{self, Background};
use crate::setup::{self, Purpose};

/// Where the workload's source is, below the workspace.
const SOURCE: &str = "tests/targets/demo";
const MAIN_CLASS: &str = "Demo";

const TRACE_SECONDS: u64 = 10;
/// The workload ends by itself after this time, should it ever be left alone.
const WORKLOAD_SECONDS: u64 = TRACE_SECONDS + 50;

const COMPILE_LIMIT: Duration = Duration::from_secs(120);
const READY_LIMIT: Duration = Duration::from_secs(30);
const TRACE_LIMIT: Duration = Duration::from_secs(TRACE_SECONDS + 30);

/// The command.
///
/// # Errors
/// When something cannot be installed, built, started or traced.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if !arguments.is_empty() {
        bail!("demo takes no arguments");
    }
    let machine = Machine::this();
    // Before anything is installed or built: it would be in vain.
    kernel::must_trace(&machine)?;
    let as_root = as_root(&machine)?;
    setup::ensure(Purpose::Build)?;
    eprintln!("demo: cargo build --profile demo (three minutes on two cores; the BPF programs are compiled already)");
    let nprof = cargo::nprof(&cargo::build_demo()?)?;
    let jdk = jdk::newest(&machine).context("there is no JDK")?;
    let classes = compile(&jdk, &nprof)?;

    let workload = start(&jdk, &classes)?;
    let mut command = trace(as_root, &nprof, workload.pid());
    eprintln!("demo: {}", process::describe(&command));
    let status = Background::start(&mut command)?.wait(TRACE_LIMIT)?;
    drop(workload);
    process::check(&command, status)?;
    Ok(ExitCode::SUCCESS)
}

/// What to put before nprof so that it runs as root.
fn as_root(machine: &Machine) -> Result<Option<PathBuf>> {
    if machine.is_root {
        return Ok(None);
    }
    machine.program("sudo").map(Some).context("nprof loads BPF programs: run the demo as root, or install sudo")
}

/// Compiles the workload and gives the directory of its classes.
fn compile(jdk: &Jdk, nprof: &Path) -> Result<PathBuf> {
    let classes = nprof.with_file_name("demo-classes");
    fs::create_dir_all(&classes).with_context(|| format!("cannot make {}", classes.display()))?;
    let mut command = Command::new(jdk.program("javac"));
    command.args(["-encoding", "UTF-8", "-d"]).arg(&classes).args(sources()?);
    process::run(&mut command, COMPILE_LIMIT)?;
    Ok(classes)
}

fn sources() -> Result<Vec<PathBuf>> {
    let directory = cargo::workspace().join(SOURCE);
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut sources: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "java"))
        .collect();
    sources.sort();
    if sources.is_empty() {
        bail!("no Java source in {}", directory.display());
    }
    Ok(sources)
}

/// Starts the workload and waits until it says that it runs.
fn start(jdk: &Jdk, classes: &Path) -> Result<Background> {
    let mut command = Command::new(jdk.program("java"));
    command
        .arg("-cp")
        .arg(classes)
        .arg(MAIN_CLASS)
        .args(["--seconds", &WORKLOAD_SECONDS.to_string()])
        .stdout(Stdio::piped());
    eprintln!("demo: {}", process::describe(&command));
    let workload = Background::start(&mut command)?;
    let greeting = workload.first_line(READY_LIMIT)?;
    eprintln!("demo: workload (pid {}): {greeting}", workload.pid());
    Ok(workload)
}

fn trace(as_root: Option<PathBuf>, nprof: &Path, pid: u32) -> Command {
    let mut command = match as_root {
        Some(sudo) => {
            let mut command = Command::new(sudo);
            command.arg(nprof);
            command
        }
        None => Command::new(nprof),
    };
    command.args(["trace", "--pid", &pid.to_string()]).args(["--duration", &format!("{TRACE_SECONDS}s")]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fake::FakeMachine;

    /// Check that nprof, and only nprof, is started with sudo by an ordinary user, who is told where there is none.
    #[test]
    fn only_nprof_runs_as_root() {
        let mut fake = FakeMachine::new();
        let nprof = Path::new("/t/nprof");
        let line = |sudo| process::describe(&trace(sudo, nprof, 42));
        let plain = line(as_root(&fake.machine).unwrap());
        assert_eq!(plain, "/t/nprof trace --pid 42 --duration 10s");
        fake.machine.is_root = false;
        assert!(as_root(&fake.machine).is_err());
        fake.file("/usr/bin/sudo");
        let with_sudo = line(as_root(&fake.machine).unwrap());
        assert!(with_sudo.ends_with(&format!("usr/bin/sudo {plain}")), "{with_sudo}");
    }
}
