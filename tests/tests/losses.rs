//! What cannot be measured is counted and said: losses are provoked here, and must show.

use anyhow::{Context as _, Result, bail, ensure};
use aya::programs::loaded_programs;
use nprof_tests::child::Stream;
use nprof_tests::kernel::{BpfObjects, unless_gone};
use nprof_tests::nprof::{ATTACHED, Outcome, Trace, methods, outcome, run, spawn};
use nprof_tests::process::{Called, RemoteProcess};
use nprof_tests::report::Report;
use nprof_tests::require::traced_on_every_jdk;

use rustix::process::Signal;

use crate::TARGETS;

fn lossy(target: &mut RemoteProcess, shape: &str, rounds: u32) -> Result<(Vec<Called>, Report)> {
    let trace = Trace::start(target.pid(), &[TARGETS])?;
    let called = target.calls(shape, 1, rounds)?;
    let report = trace.finish()?;
    report.must_equal(&called)?;
    ensure!(report.lost() > 0, "nothing is said of what was lost: {:?}", report.losses);
    let untimed: u64 = report.methods.iter().map(|row| row.untimed).sum();
    ensure!(untimed == report.lost(), "{untimed} calls are untimed, losses say {:?}", report.losses);
    Ok((called, report))
}

/// Check that calls nested deeper than the tracer can follow are counted, and their missing times are said.
#[test]
fn too_deep() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let (called, report) = lossy(&mut target, "deep", 20)?;
        let row = report.needed_row(&called[0].methods[0])?;
        ensure!(row.untimed >= 20 && row.untimed < row.calls, "{row:?}");
        ensure!(row.times()?.calls == row.calls - row.untimed, "the histogram disagrees: {row:?}");
        Ok(())
    })
}

/// Check that a call that is left by longjmp is counted, and that its caller's time is not disturbed.
#[test]
fn left_by_longjmp() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let (called, report) = lossy(&mut target, "jumping", 100)?;
        let (outer, inner) = (&called[0].methods[0], &called[1].methods[0]);
        ensure!(report.needed_row(outer)?.untimed == 0, "{:?}", report.needed_row(outer)?);
        ensure!(report.needed_row(inner)?.untimed == 100, "{:?}", report.needed_row(inner)?);
        Ok(())
    })
}

/// Check that what was lost once does not shift what is measured after it.
#[test]
fn losses_do_not_spread() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &[TARGETS])?;
        target.calls("jumping", 4, 50)?;
        target.calls("deep", 4, 5)?;
        let called = target.calls("static", 4, 1000)?;
        let report = trace.finish()?;
        report.must_equal(&called)?;
        ensure!(report.needed_row(&called[0].methods[0])?.untimed == 0, "{:?}", report.methods);
        Ok(())
    })
}

/// Check that `-vv` tells each loss with method and thread, and that the programs have nothing of that otherwise, as with `-v`.
#[test]
fn told_one_by_one() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let pid = target.pid().to_string();
        let mut sizes = Vec::new();
        for verbose in [&[][..], &["-v"], &["-vv"]] {
            let mut nprof = spawn(&[verbose, &["trace", "--max-overhead", "off", "--pid", &pid, TARGETS]].concat())?;
            nprof.line_with_prefix(Stream::Stderr, ATTACHED)?;
            sizes.push(entry_program_bytes(nprof.pid())?);
            let called = target.calls("deep", 1, 2)?;
            nprof.signal(Signal::INT)?;
            let ended = outcome(nprof)?;
            let method = &called[0].methods[0];
            let told = format!("too-deep: a call of {}::{} by thread ", method.class, method.method);
            let lines = ended.stderr.lines().filter(|line| line.contains(&told)).count();
            ensure!((lines > 1) == (verbose == ["-vv"]), "{lines} lines of '{told}': {}", ended.stderr);
        }
        ensure!(
            sizes[0] == sizes[1] && sizes[1] < sizes[2],
            "bytes after verification, without and with losses told: {sizes:?}"
        );
        Ok(())
    })
}

/// Check that of many losses at once some are told with `-vv` and the others are numbered, so that none is missing.
#[test]
fn many_are_told_in_part() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let pid = target.pid().to_string();
        let arguments = ["-vv", "trace", "--format", "json", "--max-overhead", "off", "--pid", &pid, TARGETS];
        let mut nprof = spawn(&arguments)?;
        nprof.line_with_prefix(Stream::Stderr, ATTACHED)?;
        target.calls("deep", 4, 2_000)?;
        nprof.signal(Signal::INT)?;
        let Outcome { stdout, stderr, .. } = outcome(nprof)?;
        let report: Report = serde_json::from_str(&stdout)?;
        let told = stderr.lines().filter(|line| line.contains(": a call of ")).count() as u64;
        let others = stderr.lines().filter_map(|line| line.split_once("and ")?.1.strip_suffix(" more losses"));
        let others: u64 = others.map(str::parse::<u64>).sum::<Result<_, _>>()?;
        let lost: u64 = report.losses.values().sum();
        ensure!(told > 0 && others > 0, "{told} are told, and {others} numbered, of {lost}");
        ensure!(told + others == lost, "{told} are told, and {others} numbered, of {lost}: {:?}", report.losses);
        Ok(())
    })
}

/// The size of the program at the entries of natives that a process has loaded, after verification.
fn entry_program_bytes(pid: u32) -> Result<u32> {
    let held = BpfObjects::held_by(pid)?.programs;
    for program in loaded_programs() {
        // Others may free theirs meanwhile.
        let Some(program) = unless_gone(program)? else { continue };
        if held.contains(&program.id()) && program.name_as_str() == Some(nprof_common::programs::ENTER) {
            return program.size_translated().context("no size");
        }
    }
    bail!("{pid} has none of the programs {held:?} at the entries of natives")
}

/// Check that a native that cannot be probed is said to be skipped, by `methods` as well, or else counted.
#[test]
fn refused_by_the_kernel() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let listed = methods(target.pid(), &["targets.Entries::lockFirst"])?;
        let trace = Trace::start(target.pid(), &["targets.Entries::*"])?;
        let called = target.calls("locked", 1, 100)?;
        let report = trace.finish()?;
        let refused = report.skipped.iter().find(|skipped| skipped.reason == "refused-by-kernel");
        match refused {
            Some(skipped) => ensure!(skipped.examples == ["targets.Entries::lockFirst"], "{skipped:?}"),
            None => report.must_equal(&called)?,
        }
        ensure!(listed.methods[0].traceable == refused.is_none(), "{:?} but {:?}", listed.methods, report.skipped);
        Ok(())
    })
}

/// Check that a native whose code is in no file is named where it is said to be skipped, together with what would see it; and
/// that this is so: a stub counts each call.
#[test]
fn in_generated_code() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let made = ["targets.Made::*"];
        let pid = target.pid().to_string();
        let table = run(&[&["trace", "--pid", &pid, "--duration", "100ms", "--tier", "kernel"], &made[..]].concat())?;
        let said = "1 bound to generated code (a probe needs a file; stubs see it: --tier stub) [targets.Made::made]";
        ensure!(table.stdout.lines().any(|line| line.starts_with("not traced: ") && line.contains(said)), "{table:?}");
        let trace = Trace::start(target.pid(), &[&["--tier", "stub"], &made[..]].concat())?;
        let called = target.calls("made", 4, 250)?;
        let report = trace.finish()?;
        report.must_equal(&called)?;
        let row = report.needed_row(&called[0].methods[0])?;
        ensure!(row.calls == 1000 && row.tier == "stub" && report.skipped.is_empty(), "{row:?}, {:?}", report.skipped);
        target.exit()
    })
}
