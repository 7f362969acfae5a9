//! Runs the `nprof` binary as its users do: arguments in, stdout, stderr and an exit code out.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde::de::DeserializeOwned;

use crate::child::{Child, Stream};
use crate::report::{JvmList, MethodList, Report};
use crate::target::cargo_target_dir;

/// What nprof prints on stderr when everything is attached.
pub const ATTACHED: &str = "tracing ";

/// Has nprof time every call, whatever that costs.
pub const UNGOVERNED: [&str; 2] = ["--max-overhead", "off"];

/// How a run of nprof ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The exit code; `None` when it was killed by a signal.
    pub code: Option<i32>,
    /// Data.
    pub stdout: String,
    /// Talk.
    pub stderr: String,
}

/// A running `nprof trace` with everything attached.
#[derive(Debug)]
pub struct Trace {
    child: Child,
    /// The line that said that everything is attached.
    pub announcement: String,
}

/// Runs nprof to its end.
///
/// # Errors
/// When it cannot be started or does not end.
pub fn run(args: &[&str]) -> Result<Outcome> {
    outcome(spawn(args)?)
}

/// Runs nprof to its end with no more than so many bytes of data: beyond that it ends by a signal.
///
/// # Errors
/// As [`run`].
pub fn run_within(bytes: u64, args: &[&str]) -> Result<Outcome> {
    let mut command = Command::new("prlimit");
    command.arg(format!("--data={bytes}")).arg(binary()).args(args);
    outcome(Child::spawn(&format!("nprof {} within {bytes} bytes", args.join(" ")), &mut command)?)
}

/// Starts nprof without waiting for anything.
///
/// # Errors
/// When it cannot be started.
pub fn spawn(args: &[&str]) -> Result<Child> {
    let binary = binary();
    ensure!(binary.exists(), "no nprof at {}: cargo build --release, or set NPROF_BIN", binary.display());
    Child::spawn(&format!("nprof {}", args.join(" ")), Command::new(binary).args(args))
}

/// Waits for the end of a running nprof.
///
/// # Errors
/// When it does not end.
pub fn outcome(mut child: Child) -> Result<Outcome> {
    let (status, stdout) = child.wait()?;
    Ok(Outcome { code: status.code(), stdout, stderr: child.rest_of_stderr()? })
}

/// `nprof ps` with JSON output.
///
/// # Errors
/// When it ends with an error or prints something else.
pub fn ps() -> Result<JvmList> {
    let run = run(&["ps", "--format", "json"])?;
    ensure!(run.code == Some(0), "{run:?}");
    last_document(&run.stdout)
}

/// `nprof methods` with JSON output.
///
/// # Errors
/// When it ends with an error or prints something else.
pub fn methods(pid: u32, patterns: &[&str]) -> Result<MethodList> {
    let pid = pid.to_string();
    let run = run(&[&["methods", "--format", "json", "--pid", &pid], patterns].concat())?;
    ensure!(run.code == Some(0), "{run:?}");
    last_document(&run.stdout)
}

impl Trace {
    /// Starts `nprof trace` with JSON output and returns when everything is attached.
    ///
    /// # Errors
    /// When nprof ends before that.
    pub fn start(pid: u32, args: &[&str]) -> Result<Self> {
        let pid = pid.to_string();
        Self::spawn(&[&["--pid", &pid], args].concat())
    }

    /// The same for every JVM of the host.
    ///
    /// # Errors
    /// When nprof ends before everything is attached.
    pub fn start_all(args: &[&str]) -> Result<Self> {
        Self::spawn(&[&["--all"], args].concat())
    }

    /// The same as [`Self::start`] with the options that are given and no others: with the budget that users get.
    ///
    /// # Errors
    /// When nprof ends before everything is attached.
    pub fn start_as_users_do(pid: u32, args: &[&str]) -> Result<Self> {
        Self::announced(&[&["--pid", &pid.to_string()], args].concat())
    }

    fn spawn(args: &[&str]) -> Result<Self> {
        // The default budget would leave hot methods to estimates: what tests count is to be exact.
        let budget: &[&str] = if args.contains(&"--max-overhead") { &[] } else { &UNGOVERNED };
        Self::announced(&[budget, args].concat())
    }

    fn announced(args: &[&str]) -> Result<Self> {
        let mut child = spawn(&[&["trace", "--format", "json"], args].concat())?;
        let announcement = child.line_with_prefix(Stream::Stderr, ATTACHED)?;
        Ok(Self { child, announcement })
    }

    /// nprof's own process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The next document of a trace with `--interval`.
    ///
    /// # Errors
    /// When none comes, or it is not one line of JSON.
    pub fn next_report(&mut self) -> Result<Report> {
        let line = self.child.line(Stream::Stdout)?;
        serde_json::from_str(&line).with_context(|| format!("not a report in one line: {line}"))
    }

    /// Ends the trace with Ctrl-C and returns its final document.
    ///
    /// # Errors
    /// When it does not end with success.
    pub fn finish(self) -> Result<Report> {
        self.finish_by(Signal::INT)
    }

    /// Ends the trace with a signal and returns its final document.
    ///
    /// # Errors
    /// When it does not end with success.
    pub fn finish_by(self, signal: Signal) -> Result<Report> {
        self.child.signal(signal)?;
        self.wait()
    }

    /// Waits for the trace to end by itself and returns its final document.
    ///
    /// # Errors
    /// When it does not end with success.
    pub fn wait(mut self) -> Result<Report> {
        let (status, stdout) = self.child.wait()?;
        ensure!(status.success(), self.child.failure(&format!("ended with {status}")));
        last_document(&stdout)
    }

    /// Tells nprof to end by a signal, and ends it the hard way after so long, whether it has ended or not.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn end_without_waiting(mut self, signal: Signal, patience: Duration) -> Result<()> {
        self.child.signal(signal)?;
        std::thread::sleep(patience);
        self.child.kill()
    }

    /// Ends nprof the hard way.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()
    }
}

/// The binary under test.
#[must_use]
pub fn binary() -> PathBuf {
    std::env::var_os("NPROF_BIN").map_or_else(|| cargo_target_dir().join("release/nprof"), PathBuf::from)
}

fn last_document<T: DeserializeOwned>(stdout: &str) -> Result<T> {
    let documents = serde_json::Deserializer::from_str(stdout).into_iter::<T>();
    let document = documents.last().with_context(|| format!("no document on stdout: '{stdout}'"))?;
    document.with_context(|| format!("not a document of the contract: {stdout}"))
}
