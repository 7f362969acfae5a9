//! Natives that are bound after the start are picked up within a second, and counted exactly from then on.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
use nprof_tests::require::traced_on_every_jdk;

/// The promise.
const PICKED_UP_WITHIN: Duration = Duration::from_secs(1);

/// How long to look before the test gives up. Longer than the promise, so that a miss says by how much.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

const DOCUMENTS: [&str; 3] = ["--interval", "100ms", "*"];

/// Calls the native once per document until its calls are seen, and returns how long that took.
fn until_seen(trace: &mut Trace, target: &mut RemoteProcess, command: &str, method: &MethodName) -> Result<Duration> {
    let began = Instant::now();
    loop {
        target.run(&format!("{command} 1"))?;
        if trace.next_report()?.calls(method) > 0 {
            return Ok(began.elapsed());
        }
        if began.elapsed() > GIVE_UP_AFTER {
            bail!("{method} was not picked up within {GIVE_UP_AFTER:?}");
        }
    }
}

/// The count that no longer changes once the target has stopped calling.
fn settled(trace: &mut Trace, method: &MethodName) -> Result<u64> {
    let deadline = Instant::now() + GIVE_UP_AFTER;
    let mut before = trace.next_report()?.calls(method);
    while Instant::now() < deadline {
        let now = trace.next_report()?.calls(method);
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    bail!("the count of {method} does not settle")
}

/// Waits for the pick-up of a native and then counts a known number of calls.
fn picked_up_and_exact(
    mut trace: Trace,
    target: &mut RemoteProcess,
    command: &str,
    name: &MethodName,
) -> Result<Report> {
    let took = until_seen(&mut trace, target, command, name)?;
    ensure!(took <= PICKED_UP_WITHIN, "{name} was picked up only after {took:?}");
    let before = settled(&mut trace, name)?;
    let called = target.run_and_count(&format!("{command} 1000"))?;
    let report = trace.finish()?;
    let row = report.needed_row(name)?;
    ensure!(row.calls == before + called[0].made, "{before} calls, then {}: {row:?}", called[0].made);
    ensure!(row.traced_after_ns > 0, "picked up late, but said to be traced from the start: {row:?}");
    report.must_be_lossless()?;
    Ok(report)
}

/// Check that a library loaded after the start is noticed.
#[test]
fn a_late_library() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library(jdk)?;
        let trace = Trace::start(target.pid(), &DOCUMENTS)?;
        target.run("load")?;
        let late = MethodName::new("targets.LateLibrary", "late", "(I)I");
        let report = picked_up_and_exact(trace, &mut target, "late", &late)?;
        ensure!(report.needed_row(&late)?.library == "liblate.so", "{report:?}");
        Ok(())
    })
}

/// Check that a class loaded after the start, with its own class loader and library, is noticed.
#[test]
fn a_late_class() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library(jdk)?;
        let trace = Trace::start(target.pid(), &DOCUMENTS)?;
        target.run("welcome")?;
        let visit = MethodName::new("guests.Guest", "visit", "()V");
        picked_up_and_exact(trace, &mut target, "guest", &visit)?;
        Ok(())
    })
}

/// Check that a class that is unloaded and loaded again while it is traced is counted both times.
#[test]
fn a_class_that_comes_back() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library(jdk)?;
        target.run("welcome")?;
        let visit = MethodName::new("guests.Guest", "visit", "()V");
        let mut trace = Trace::start(target.pid(), &DOCUMENTS)?;
        target.run("guest 500")?;
        ensure!(settled(&mut trace, &visit)? == 500, "the first guest's calls were miscounted");
        target.run("dismiss")?;
        target.run("welcome")?;
        target.run("guest 1")?;
        let began = Instant::now();
        let mut before = settled(&mut trace, &visit)?;
        while before <= 500 && began.elapsed() < PICKED_UP_WITHIN {
            target.run("guest 1")?;
            before = settled(&mut trace, &visit)?;
        }
        target.run("guest 1000")?;
        let after = trace.finish()?.calls(&visit);
        ensure!(before > 500 && after == before + 1000, "{before} calls, then 1000 more make {after}");
        Ok(())
    })
}

/// Check that a method that exists but is bound only during the trace loses none of its calls: its export is known.
#[test]
fn predicted_natives_lose_nothing() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::late_library(jdk)?;
        target.run("load")?;
        let trace = Trace::start(target.pid(), &["targets.LateLibrary::late"])?;
        let called = target.run_and_count("late 1000")?;
        trace.finish()?.must_equal(&called)
    })
}
