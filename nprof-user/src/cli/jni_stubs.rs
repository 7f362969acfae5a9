//! `nprof jni --tier stub`: counts and times all JNI functions by stubs in the JVM.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use tokio::time::Instant;

use super::terminal::harmless;
use super::trace::{Stop, read};
use crate::govern::Budget;
use crate::model::{JniSnapshot, Pid};
use crate::resolve::select::Selection;
use crate::trace::{JniStubs, Options, Pace, TierWanted};

/// What selects no native method, to leave it out.
const EVERYTHING: &str = "*";

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct JniStubsArgs {
    pub(super) pid: Pid,
    pub(super) duration: Option<Duration>,
    /// What it may cost.
    pub(super) budget: Option<Budget>,
}

/// Counts and times until there is a reason to stop, then has printed what was measured.
///
/// # Errors
/// If there can be no stubs in the JVM, or the output cannot be written.
pub(super) fn run(
    args: JniStubsArgs,
    quiet: bool,
    print: impl FnOnce(&JniSnapshot) -> io::Result<()>,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let traced = runtime.block_on(trace(args, quiet, print));
    // A JVM that was still being read holds up nobody.
    runtime.shutdown_background();
    traced
}

async fn trace(
    args: JniStubsArgs,
    quiet: bool,
    print: impl FnOnce(&JniSnapshot) -> io::Result<()>,
) -> anyhow::Result<ExitCode> {
    let mut stop = Stop::new()?;
    let selection = Selection::parse(&[], &[EVERYTHING], &[])?;
    let (tier, budget) = (TierWanted::Stub, args.budget);
    let options = Options { budget, off_cpu: true, tier, ..Options::by_probes(selection) };
    let mut stubs = read(&mut stop, args.pid, options).await?.jni_by_stubs()?;
    if !quiet {
        announce(&stubs);
    }
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let result = follow(&mut stubs, &mut stop, deadline).await;
    let jvm = stubs.tracer().jvm().clone();
    let measured = stubs.finish();
    result?;
    print(&measured?)?;
    if !quiet {
        stop.tell(&jvm);
    }
    Ok(ExitCode::SUCCESS)
}

/// Says that all stubs are there. Scripts wait for this line.
#[expect(clippy::print_stderr, reason = "the announcement has its own form")]
fn announce(stubs: &JniStubs) {
    let (jvm, functions) = (stubs.tracer().jvm(), stubs.functions());
    eprintln!("tracing {functions} JNI functions of {} ({}) by stubs", jvm.pid, harmless(&jvm.main));
}

async fn follow(stubs: &mut JniStubs, stop: &mut Stop, deadline: Option<Instant>) -> anyhow::Result<()> {
    let mut pace = Pace::for_one();
    loop {
        tokio::select! {
            biased;
            reason = stop.wait(deadline) => return reason,
            () = pace.tick() => stubs.tick(),
        }
    }
}
