//! Calls that were already running are not counted, and those that still run are reported as such.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::{Report, Row};
use nprof_tests::require::traced_on_every_jdk;

use crate::TARGETS;

/// Runs commands before and while the target is traced. `(calls, in flight)` of the blocking native.
fn blocked(jdk: &Jdk, before: &[&str], traced: &[&str]) -> Result<(u64, u64)> {
    let mut target = RemoteProcess::shapes(jdk)?;
    for command in before {
        target.run(command)?;
    }
    let trace = Trace::start(target.pid(), &[TARGETS])?;
    for command in traced {
        target.run(command)?;
    }
    let report: Report = trace.finish()?;
    ensure!(report.lost() == 0, "something was lost: {:?}", report.losses);
    let block = MethodName::new("targets.Blocking", "block", "()V");
    Ok(report.row(&block).map_or((0, 0), |row| (row.calls, row.in_flight.unwrap_or(0))))
}

fn blocked_on_every_jdk(before: &[&str], traced: &[&str], expected: (u64, u64)) -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let measured = blocked(jdk, before, traced)?;
        ensure!(measured == expected, "{measured:?} instead of {expected:?}");
        Ok(())
    })
}

/// Check that calls that began before the trace and end in it are not counted.
#[test]
fn begun_before_is_not_counted() -> Result<()> {
    blocked_on_every_jdk(&["block 3"], &["release"], (0, 0))
}

/// Check that calls that began before the trace and outlive it are not counted either.
#[test]
fn begun_before_and_still_running() -> Result<()> {
    blocked_on_every_jdk(&["block 3"], &[], (0, 0))
}

/// Check that calls that still run at the end are in flight.
#[test]
fn still_running_is_in_flight() -> Result<()> {
    blocked_on_every_jdk(&[], &["block 5"], (0, 5))
}

/// Check that old, ended and running calls are told apart.
#[test]
fn all_three_together() -> Result<()> {
    blocked_on_every_jdk(&["block 2"], &["block 3", "release", "block 4"], (3, 4))
}

/// Check that what is in flight counts by what its threads do: who works in a call that does not return comes first, who waits in one
/// last, with how long both have lasted; for one JVM and where all are traced, and that the same is not claimed of stubs, whose open calls
/// nobody sees.
#[test]
fn in_flight_by_what_it_does() -> Result<()> {
    const CLASS: &str = "targets.Consuming";
    /// Longer than the test.
    const WORK_MS: u64 = 600_000;
    const ENOUGH_NS: u64 = 50_000_000;
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        target.run("leave 0 0")?;
        let pid = target.pid();
        let mut all = Trace::start_all(&["--interval=100ms", CLASS])?;
        let mut one = Trace::start(pid, &["--interval=100ms", "--tier=kernel", CLASS])?;
        target.run("stay really 3 1")?;
        target.leave_to(&format!("consume work 1 1 {WORK_MS}"))?;
        for trace in [&mut all, &mut one] {
            let began = Instant::now();
            loop {
                let report = trace.next_report()?.of(pid);
                let work = report.methods.iter().find(|row| row.method == "work");
                if work.and_then(|row| row.open_on_cpu_ns) >= Some(ENOUGH_NS) {
                    break must_be_by_work(&report)?;
                }
                ensure!(began.elapsed() < PATIENCE, "it does not work: {report:?}");
            }
        }
        for trace in [all, one] {
            must_be_by_work(&trace.finish()?.of(pid))?;
        }
        target.kill()?;
        let mut target = RemoteProcess::consuming(jdk)?;
        target.run("leave 0 0")?;
        let trace = Trace::start(target.pid(), &["--tier=stub", CLASS])?;
        target.run("stay really 3 1")?;
        let report = trace.finish()?;
        let stay = report.methods.iter().find(|row| row.method == "stay").context("no row")?;
        ensure!((stay.in_flight, stay.open_ns, stay.open_on_cpu_ns) == (Some(3), None, None), "{stay:?}");
        target.kill()
    })
}

fn must_be_by_work(report: &Report) -> Result<()> {
    let row = |native: &str| report.methods.iter().find(|row| row.method == native).context("no row");
    let (work, stay) = (row("work")?, row("stay")?);
    ensure!(report.methods[0].method == "work" && (work.calls, work.in_flight) == (0, Some(1)), "{report:?}");
    ensure!((stay.calls, stay.in_flight) == (0, Some(3)), "{stay:?}");
    let open = |row: &Row| row.open_ns.zip(row.open_on_cpu_ns).with_context(|| format!("not known: {row:?}"));
    let ((worked_ns, work_ns), (stayed_ns, stay_ns)) = (open(work)?, open(stay)?);
    // Three of them wait for as long as it works; what they worked before is next to nothing.
    ensure!(work_ns <= worked_ns && worked_ns < stayed_ns, "{work:?} {stay:?}");
    ensure!(stay_ns < work_ns && stay_ns < stayed_ns / 2, "{stay:?} {work:?}");
    Ok(())
}
