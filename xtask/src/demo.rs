//! `cargo xtask demo`: from a bare machine to a table of native calls, in one command.

use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime};

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
/// What nprof is built from, below the workspace.
const PARTS: [&str; 7] =
    ["Cargo.lock", "Cargo.toml", "nprof-common", "nprof-ebpf", "nprof-hotspot", "nprof-shim", "nprof-user"];

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
    let nprof = built()?;
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

/// Builds nprof unless that has been done, and keeps the program alone: what cargo needs to build it again is forty times its
/// size, and most demos are run once.
fn built() -> Result<PathBuf> {
    let directory = cargo::target_directory().join("demo");
    let (nprof, work) = (directory.join("nprof"), directory.join("build"));
    if is_newer(&nprof, &changed(&cargo::workspace())?) {
        return Ok(nprof);
    }
    eprintln!("demo: cargo build --profile demo (three minutes on two cores; the BPF programs are compiled already)");
    let began = SystemTime::now();
    let program = cargo::nprof(&cargo::build_demo(&work)?)?;
    // A source that changes meanwhile is newer than the program.
    File::open(&program).and_then(|file| file.set_modified(began)).with_context(|| program.display().to_string())?;
    fs::rename(&program, &nprof).with_context(|| format!("cannot make {}", nprof.display()))?;
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    Ok(nprof)
}

/// When what nprof is built from was last changed.
fn changed(workspace: &Path) -> Result<SystemTime> {
    let mut latest = SystemTime::UNIX_EPOCH;
    let mut paths: Vec<PathBuf> = PARTS.iter().map(|part| workspace.join(part)).collect();
    while let Some(path) = paths.pop() {
        let read = || {
            let metadata = fs::metadata(&path)?;
            let entries = if metadata.is_dir() { fs::read_dir(&path)?.collect::<io::Result<_>>()? } else { Vec::new() };
            io::Result::Ok((metadata.modified()?, entries))
        };
        let (modified, entries) = read().with_context(|| format!("cannot read {}", path.display()))?;
        latest = latest.max(modified);
        paths.extend(entries.iter().map(DirEntry::path));
    }
    Ok(latest)
}

fn is_newer(program: &Path, changed: &SystemTime) -> bool {
    fs::metadata(program).and_then(|metadata| metadata.modified()).is_ok_and(|modified| modified > *changed)
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

    /// Check that nprof is built again if any of its sources is newer, however deep, and not if it is the newest of all.
    #[test]
    fn sources_are_looked_at() {
        let workspace = tempfile::tempdir().unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let set = |path: &Path, seconds| File::open(path).unwrap().set_modified(at(seconds)).unwrap();
        for part in PARTS {
            fs::create_dir(workspace.path().join(part)).unwrap();
        }
        let deep = workspace.path().join("nprof-user/src");
        fs::create_dir(&deep).unwrap();
        let source = deep.join("main.rs");
        fs::write(&source, "").unwrap();
        set(&deep, 50);
        for part in PARTS {
            set(&workspace.path().join(part), 60);
        }
        let nprof = workspace.path().join("nprof");
        assert!(!is_newer(&nprof, &at(0)));
        fs::write(&nprof, "").unwrap();
        set(&nprof, 100);
        for (modified, latest) in [(70, 70), (101, 101), (40, 60)] {
            set(&source, modified);
            let changed = changed(workspace.path()).unwrap();
            assert_eq!(changed, at(latest));
            assert_eq!(is_newer(&nprof, &changed), latest < 100);
        }
        fs::remove_dir(workspace.path().join(PARTS[0])).unwrap();
        assert!(changed(workspace.path()).is_err());
    }

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
