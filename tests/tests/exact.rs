//! Counts are equal to what the target made, to the unit, and nothing is lost.

use anyhow::{Result, ensure};
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
use nprof_tests::require::{rounds, traced_on_every_jdk};

use crate::TARGETS;

/// Two traces, one after the other, of each of several fresh targets: before their natives are bound, and after.
fn exact(patterns: &[&str], shape: &str, threads: u32, calls: u32) -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for _ in 0..rounds()? {
            let mut target = RemoteProcess::shapes(jdk)?;
            for _ in 0..2 {
                traced_exactly(&mut target, patterns, shape, threads, calls)?;
            }
            target.exit()?;
        }
        Ok(())
    })
}

pub(crate) fn traced_exactly(
    target: &mut RemoteProcess,
    patterns: &[&str],
    shape: &str,
    threads: u32,
    calls: u32,
) -> Result<Report> {
    let trace = Trace::start(target.pid(), patterns)?;
    let called = target.calls(shape, threads, calls)?;
    let report = trace.finish()?;
    report.must_equal(&called)?;
    report.must_be_lossless()?;
    Ok(report)
}

/// Check that every shape is counted exactly from one thread.
#[test]
fn one_thread() -> Result<()> {
    exact(&[TARGETS], "all", 1, 1000)
}

/// Check that every shape is counted exactly from as many threads as the smallest machine has cores.
#[test]
fn two_threads() -> Result<()> {
    exact(&[TARGETS], "all", 2, 500)
}

/// Check that every shape is counted exactly from many more threads than cores.
#[test]
fn sixty_four_threads() -> Result<()> {
    exact(&[TARGETS], "all", 64, 30)
}

/// Check that the hottest case, one small native from many threads, loses nothing.
#[test]
fn one_hot_native() -> Result<()> {
    exact(&[TARGETS], "static", 64, 1000)
}

/// Check that the counts stay exact while every native of the JVM is traced.
#[test]
fn everything_traced() -> Result<()> {
    exact(&[], "all", 8, 100)
}

/// Check that `--count-only` counts exactly, and times nothing.
#[test]
fn count_only() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["--count-only", TARGETS])?;
        let called = target.calls("all", 64, 100)?;
        let report = trace.finish()?;
        report.must_equal(&called)?;
        ensure!(report.lost() == 0, "something was lost: {:?}", report.losses);
        ensure!(
            report.methods.iter().all(|row| row.times().is_err() && row.in_flight.is_none()),
            "something was timed: {:?}",
            report.methods
        );
        Ok(())
    })
}

/// Check that a call that its thread does not survive is counted, and ends with the thread.
#[test]
fn threads_that_die_inside() -> Result<()> {
    exact(&[TARGETS], "dying", 2, 10)
}

/// Check that methods that share a function share a row, with each other's names.
#[test]
fn shared_functions_are_one_row() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let report = traced_exactly(&mut target, &["targets.Registered::*"], "aliases", 2, 100)?;
        ensure!(report.methods.len() == 1, "{:?}", report.methods);
        let row = &report.methods[0];
        ensure!(row.calls == 400 && row.aliases.len() == 1, "{row:?}");
        ensure!(row.bound == "registered", "{row:?}");
        Ok(())
    })
}

/// Check that only what was selected is reported, and that rows are sorted by time.
#[test]
fn only_the_selection_is_reported() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["targets.Plain::over", "targets.Nested::*"])?;
        target.calls("all", 2, 100)?;
        let report = trace.finish()?;
        let mut names: Vec<MethodName> = report.methods.iter().map(|row| row.name()).collect();
        names.sort();
        ensure!(names.len() == 4, "{names:?}");
        ensure!(names.iter().all(|name| name.method == "over" || name.method == "descend"), "{names:?}");
        ensure!(
            report.methods.is_sorted_by_key(|row| std::cmp::Reverse(row.on_cpu_ns)),
            "not sorted by time on the CPU"
        );
        Ok(())
    })
}

/// Check that what the probes cost is what the instruction at the entry allows, and that the counts hold at each.
#[test]
fn every_sort_of_entry() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let report = traced_exactly(&mut target, &["targets.Entries::*"], "entries", 2, 1000)?;
        for row in &report.methods {
            let cost = match row.method.as_str() {
                "pushFirst" | "movThenPush" | "testThenBranch" | "endbrFirst" => "emulated",
                _ => "single-stepped",
            };
            ensure!(row.cost.as_deref() == Some(cost), "{} is {:?}, not {cost}", row.name(), row.cost);
        }
        Ok(())
    })
}
