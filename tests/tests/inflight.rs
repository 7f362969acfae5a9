//! Calls that were already running are not counted, and those that still run are reported as such.

use anyhow::{Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
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
