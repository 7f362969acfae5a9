//! Processes that keep waiting whoever reads them: a page of theirs is backed by a program that does not answer. Not even
//! SIGKILL ends a thread that waits for it.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof_tests::jar::Jar;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::{self, Outcome, run};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::{Serve, UNGOVERNED};
use nprof_tests::target::Targets;
use tempfile::TempDir;

use crate::TARGETS;
use crate::serve::until_counted;

/// What nprof says of such a process.
const SAYS: &str = "does not let itself be read";

/// A process with a VM's tables that cannot be read.
struct Held {
    process: RemoteProcess,
    _mounted_on: TempDir,
}

impl Held {
    fn start(jdk: &Jdk) -> Result<Self> {
        let directory = TempDir::new()?;
        let mut command = Command::new(Targets::get()?.library("held"));
        command.arg(jdk.home.join("lib/server/libjvm.so")).arg(directory.path());
        Ok(Self { process: RemoteProcess::program(&mut command)?, _mounted_on: directory })
    }

    fn pid(&self) -> String {
        self.process.pid().to_string()
    }

    fn crowd(jdk: &Jdk, number: usize) -> Result<Vec<Self>> {
        (0..number).map(|_| Self::start(jdk)).collect()
    }
}

/// How long `nprof` takes to come to its end where nothing keeps it waiting, against which it is measured.
fn timed(args: &[&str]) -> Result<(f64, Outcome)> {
    let start = Instant::now();
    let outcome = run(args)?;
    Ok((start.elapsed().as_secs_f64(), outcome))
}

/// Check that `ps` counts the natives of others and says of each such process why it does not, for many in the time of
/// few.
#[test]
fn ps_leaves_them_out() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let one = Held::start(jdk)?;
        let (alone, _) = timed(&["ps"])?;
        let crowd = Held::crowd(jdk, 11)?;
        let (together, outcome) = timed(&["ps"])?;
        ensure!(outcome.code == Some(0), "{outcome:?}");
        for held in crowd.iter().chain([&one]) {
            let note = format!("{}: ", held.pid());
            let line = outcome.stderr.lines().find(|line| line.contains(&note)).context(outcome.stderr.clone())?;
            ensure!(line.contains(SAYS), "{line}");
        }
        // One after the other they would take eleven times as long.
        ensure!(together < 5.0 * alone, "{together} s for twelve, {alone} s for one");
        let list = nprof::ps()?;
        let found = list.jvms.iter().find(|jvm| jvm.pid == target.pid()).context("the target is not listed")?;
        ensure!(found.natives.is_some_and(|natives| natives > 0), "{found:?}");
        target.exit()
    })
}

/// Check that each command that is to read such a process ends, with the reason.
#[test]
fn every_command_ends() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let held = Held::start(jdk)?;
        let pid = held.pid();
        let directory = TempDir::new()?;
        let file = directory.path().join("a.folded");
        let file = file.to_str().context("a path that is not UTF-8")?;
        for args in [
            &["methods", "--pid", &pid][..],
            &["trace", "--pid", &pid],
            &["record", "--pid", &pid, "-o", file],
            &["flamegraph", "--pid", &pid, "--on-cpu", "-o", file],
        ] {
            let outcome = run(args)?;
            ensure!(outcome.code == Some(2) && outcome.stderr.contains(SAYS), "{args:?}: {outcome:?}");
        }
        let outcome = run(&["check", "--pid", &pid])?;
        ensure!(outcome.code == Some(2) && outcome.stdout.contains(SAYS), "{outcome:?}");
        Ok(())
    })
}

/// Check that a service with more such processes than can join at a time becomes ready, counts the calls of an ordinary
/// JVM, says what it leaves out, and ends at SIGTERM.
#[test]
fn serve_is_not_blinded() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let crowd = Held::crowd(jdk, 20)?;
        let jar = Jar::new(jdk, "healthy")?;
        let mut target = jar.start()?;
        let serve = Serve::start(&[&UNGOVERNED[..], &[TARGETS]].concat())?;
        until_counted(&serve, jar.name(), &mut target)?;
        let samples = serve.scrape_until("the processes left out", |samples| {
            Ok(samples.count("nprof_untraced_jvms", &[])? >= crowd.len() as u64)
        })?;
        ensure!(samples.count("nprof_reads_given_up_total", &[])? >= crowd.len() as u64);
        ensure!(samples.count("nprof_stuck_reads", &[])? >= crowd.len() as u64);
        for page in ["/-/healthy", "/-/ready"] {
            let answer = serve.get(page, &[])?;
            ensure!(answer.status == 200, "{page}: {answer:?}");
        }
        // A JVM that starts now is found and traced as ever.
        let later_jar = Jar::new(jdk, "later")?;
        let mut later = later_jar.start()?;
        until_counted(&serve, later_jar.name(), &mut later)?;
        let start = Instant::now();
        let status = serve.finish()?;
        let took = start.elapsed().as_secs_f64();
        ensure!(status.success(), "{status}");
        ensure!(took < 10.0, "{took} s from SIGTERM to the end");
        target.exit()?;
        later.exit()
    })
}
