//! The capabilities that docs/permissions.md says are needed: with them any user can trace, without one nobody can.
//! (What the two for files are for is seen only with deleted and unreadable libraries; the table there was measured.)

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::Child;
use nprof_tests::nprof::{Outcome, binary, outcome};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;

use crate::TARGETS;

const NEEDED: [&str; 5] = ["bpf", "perfmon", "sys_ptrace", "checkpoint_restore", "dac_read_search"];

/// A user who owns nothing.
const NOBODY: &str = "65534";

/// Traces `pid` for a moment as a user who owns nothing, with these capabilities and no way to get others.
fn traced_with(capabilities: &[&str], pid: u32) -> Result<Outcome> {
    // The build directory may be closed to others.
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("nprof");
    fs::copy(binary(), &copy)?;
    for path in [directory.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    run_as_nobody(capabilities, &copy, pid)
}

fn run_as_nobody(capabilities: &[&str], nprof: &Path, pid: u32) -> Result<Outcome> {
    let set: String =
        std::iter::once("-all".to_owned()).chain(capabilities.iter().map(|it| format!(",+{it}"))).collect();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"]);
    for kind in ["--bounding-set", "--inh-caps", "--ambient-caps"] {
        command.args([kind, &set]);
    }
    command.arg(nprof).args(["trace", "--duration", "200ms", "--format", "json", "--pid", &pid.to_string(), TARGETS]);
    outcome(Child::spawn("nprof without root", command.current_dir("/"))?)
}

/// Check that the five capabilities let another user than root trace a JVM of root.
#[test]
fn five_are_enough() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let run = traced_with(&NEEDED, target.pid())?;
        ensure!(run.code == Some(0), "{run:?}");
        let line = run.stderr.lines().find_map(|line| line.strip_prefix("tracing ")).context("nothing is traced")?;
        let traced: u32 = line.split(' ').next().unwrap_or_default().parse()?;
        ensure!(traced > 20, "{run:?}");
        Ok(())
    })
}

/// Check that without one of the three that everything hangs on, nprof says what it wants, and that there is no fourth.
#[test]
fn each_is_needed() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        for without in NEEDED {
            let others: Vec<&str> = NEEDED.into_iter().filter(|name| *name != without).collect();
            let run = traced_with(&others, target.pid())?;
            if ["bpf", "perfmon", "sys_ptrace"].contains(&without) {
                ensure!(run.code == Some(2) && run.stderr.contains("CAP_BPF"), "without {without}: {run:?}");
            } else {
                ensure!(run.code == Some(0), "without {without}: {run:?}");
            }
        }
        Ok(())
    })
}
