//! `nprof diagnose`: what is wrong with the native calls of a JVM, what it costs, and what to change.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use tokio::time::Instant;

use super::budget::BudgetArgs;
use super::jni::announce;
use super::selection::SelectionArgs;
use super::trace::{Stop, prepare};
use crate::diagnose::{self, Measured};
use crate::model::{Collectors, JniSnapshot, Pid};
use crate::render::diagnosis;
use crate::resolve::pattern::PATTERN_HELP;
use crate::resolve::thresholds::Thresholds;
use crate::trace::{JniTracer, Options, Pace};

/// What is collected of native methods: everything that costs next to nothing.
const COLLECTED: [&str; 6] = ["faults", "switches", "io", "syscalls", "locks", "results"];
/// From when on a call is told with its stack.
const SLOW: &str = "10ms";

/// Find what is wrong with native methods and the JNI functions that they call, what it costs, and what to change
///
/// Measures for a while everything that costs little, and prints a list of findings, the dearest first, each with its numbers; or that
/// there is none, and what was looked at. Ctrl-C and the end of the JVM end it early. Nothing in the JVM changes.
#[derive(Debug, Args)]
#[command(after_help = PATTERN_HELP)]
pub(super) struct DiagnoseArgs {
    /// The JVM's process id
    #[arg(short, long)]
    pid: u32,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Stop after this time, such as 10s or 1m30s
    #[arg(short, long, value_name = "TIME", default_value = "30s", value_parser = crate::config::duration::parse)]
    duration: Duration,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    format: Format,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    /// For people
    #[default]
    Text,
    /// One document on one line
    Json,
}

impl DiagnoseArgs {
    fn options(&self) -> anyhow::Result<Options> {
        let Ok(collectors) = Collectors::named(&COLLECTED) else { bail!("there are no collectors {COLLECTED:?}") };
        let slow = diagnose::waiters().map(|pattern| format!("{pattern}=off"));
        let slow = Thresholds::parse(&[SLOW.to_owned()].into_iter().chain(slow).collect::<Vec<_>>())?;
        let selection = self.selection.parse()?;
        Ok(Options { collectors, slow: Some(slow), budget: self.budget.whole(), ..Options::by_probes(selection) })
    }
}

/// Measures until there is a reason to stop, then prints what was found.
///
/// # Errors
/// If the JVM cannot be traced, or the output cannot be written.
pub(super) fn run(args: &DiagnoseArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(measure(args, quiet));
    // A JVM that was still being read holds up nobody: what it has in the kernel goes with the process.
    runtime.shutdown_background();
    found
}

async fn measure(args: &DiagnoseArgs, quiet: bool) -> anyhow::Result<ExitCode> {
    // First of all: a signal from now on ends the tracing cleanly.
    let mut stop = Stop::new()?;
    let prepared = match prepare(&mut stop, Pid(args.pid), args.options()?).await? {
        Ok(prepared) => prepared,
        Err(code) => return Ok(code),
    };
    let mut tracer = prepared.jni(None, false)?;
    if !quiet {
        announce(&tracer);
    }
    let (started, middle) = (Instant::now(), args.duration / 2);
    let mut earlier = None;
    let mut result = follow(&mut tracer, &mut stop, started + middle).await;
    if matches!(result, Ok(Ended::Time)) {
        earlier = Some(tracer.snapshot());
        result = follow(&mut tracer, &mut stop, started + args.duration).await;
    }
    tracer.stop();
    result?;
    let jni = tracer.snapshot();
    print(args.format, &Measured { jni: &jni, earlier: earlier.as_ref() })?;
    if !quiet {
        stop.tell(tracer.tracer().jvm());
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a part of the measurement has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// Its time is over.
    Time,
    /// There is a reason to stop.
    Stopped,
}

async fn follow(tracer: &mut JniTracer, stop: &mut Stop, deadline: Instant) -> anyhow::Result<Ended> {
    let mut pace = Pace::for_one();
    loop {
        tokio::select! {
            biased;
            reason = stop.wait(None) => return reason.map(|()| Ended::Stopped),
            () = tokio::time::sleep_until(deadline) => return Ok(Ended::Time),
            () = pace.tick() => tracer.tick(),
        }
    }
}

fn print(format: Format, measured: &Measured<'_>) -> io::Result<()> {
    let (diagnosis, JniSnapshot { snapshot, .. }) = (diagnose::diagnose(measured), measured.jni);
    let mut out = io::stdout().lock();
    match format {
        Format::Text => diagnosis::text(&diagnosis, snapshot, &mut out)?,
        Format::Json => diagnosis::json(&diagnosis, snapshot, &mut out)?,
    }
    out.flush()
}
