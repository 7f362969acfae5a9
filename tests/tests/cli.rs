//! The other outputs and options of the command line.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::{Child, Stream};
use nprof_tests::nprof::{Outcome, Trace, UNGOVERNED, binary, outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use rustix::process::Signal;
use serde_json::Value;

use crate::TARGETS;

/// Traces one round of static calls with `options` and returns what nprof printed.
fn traced(target: &mut RemoteProcess, options: &[&str]) -> Result<Outcome> {
    let pid = target.pid().to_string();
    // On a busy machine the default budget would leave some of the calls to an estimate.
    let mut nprof = spawn(&[&["trace", "--pid", &pid], &UNGOVERNED[..], options].concat())?;
    nprof.line_with_prefix(Stream::Stderr, "tracing ")?;
    target.calls("static", 1, 123)?;
    nprof.signal(Signal::INT)?;
    let run = outcome(nprof)?;
    ensure!(run.code == Some(0), "{run:?}");
    Ok(run)
}

/// Check that the table names the method, its calls and its library, and ends with what was lost.
#[test]
fn a_table() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let run = traced(&mut RemoteProcess::shapes(jdk)?, &[TARGETS])?;
        let row = run.stdout.lines().find(|line| line.contains("targets.Plain::add"));
        let row = row.with_context(|| format!("no row of the native in:\n{}", run.stdout))?;
        ensure!(row.contains("123") && row.contains("libshapes.so"), "{row}");
        ensure!(!run.stdout.contains('\x1b'), "control characters in a pipe:\n{}", run.stdout);
        let last = run.stdout.trim_end().lines().last().unwrap_or_default();
        ensure!(last.to_lowercase().contains("loss") || last.to_lowercase().contains("lost"), "last line: {last}");
        Ok(())
    })
}

/// Check that CSV has one header, one row per method, and as many fields in each.
#[test]
fn csv() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let run = traced(&mut RemoteProcess::shapes(jdk)?, &["--format", "csv", "targets.Plain::add"])?;
        let lines: Vec<&str> = run.stdout.lines().collect();
        ensure!(lines.len() == 2, "{} lines:\n{}", lines.len(), run.stdout);
        let (header, row): (Vec<&str>, Vec<&str>) = (lines[0].split(',').collect(), lines[1].split(',').collect());
        let field = |name| header.iter().position(|column| *column == name).and_then(|at| row.get(at)).copied();
        ensure!(header.len() == row.len(), "{header:?} and {row:?}");
        ensure!(field("class") == Some("targets.Plain") && field("method") == Some("add"), "{}", run.stdout);
        ensure!(field("signature") == Some("(II)I") && field("calls") == Some("123"), "{}", run.stdout);
        Ok(())
    })
}

/// Check that the line on stderr says how many methods are traced, and of what process.
#[test]
fn the_announcement() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["targets.Plain::*"])?;
        let words: Vec<&str> = trace.announcement.split(' ').collect();
        let ["tracing", traced, "methods", "of", pid, main] = words[..] else {
            anyhow::bail!("{}", trace.announcement);
        };
        ensure!(
            traced == "6" && pid.parse() == Ok(target.pid()) && main == "(targets.Shapes)",
            "{}",
            trace.announcement
        );
        let report = trace.finish()?;
        ensure!(report.schema == 1 && report.targets.len() == 1, "{report:?}");
        ensure!(report.targets[0].pid == target.pid() && report.targets[0].main == "targets.Shapes", "{report:?}");
        Ok(())
    })
}

/// Check that `--exclude` takes methods away from the selection.
#[test]
fn exclude() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &[TARGETS, "--exclude", "*::over", "--exclude", "targets.Entries::*"])?;
        target.calls("all", 1, 10)?;
        let report = trace.finish()?;
        ensure!(report.methods.len() > 10, "{:?}", report.methods);
        let excluded = |class: &str, method: &str| method == "over" || class == "targets.Entries";
        ensure!(!report.methods.iter().any(|row| excluded(&row.class, &row.method)), "{:?}", report.methods);
        Ok(())
    })
}

/// Check that `--library` restricts the selection to a library, and that one nobody has is an error.
#[test]
fn library() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["--library", "libshapes*"])?;
        target.calls("all", 1, 10)?;
        let report = trace.finish()?;
        ensure!(report.methods.len() > 10, "{:?}", report.methods);
        ensure!(report.methods.iter().all(|row| row.library == "libshapes.so"), "{:?}", report.methods);
        let nobody = run(&["trace", "--pid", &target.pid().to_string(), "--library", "libnobody*"])?;
        ensure!(nobody.code == Some(1), "{nobody:?}");
        Ok(())
    })
}

/// Check that `--max-methods` limits what is traced and says what was left out.
#[test]
fn max_methods() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["--max-methods", "5", "--exclude", "targets.Registered::*", TARGETS])?;
        ensure!(trace.announcement.starts_with("tracing 5 methods"), "{}", trace.announcement);
        let report = trace.finish()?;
        let over_limit = report.skipped.iter().find(|skipped| skipped.reason == "over-limit");
        ensure!(over_limit.is_some_and(|skipped| skipped.count > 20), "{:?}", report.skipped);
        Ok(())
    })
}

/// Check that a trace with `--interval` gives documents whose counts never fall.
#[test]
fn interval() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let mut trace = Trace::start(target.pid(), &["--interval", "50ms", TARGETS])?;
        let mut before = 0;
        let mut called = Vec::new();
        for _ in 0..5 {
            called = target.calls("static", 1, 100)?;
            let calls = trace.next_report()?.calls(&called[0].methods[0]);
            ensure!(calls >= before, "{before} calls, then {calls}");
            before = calls;
        }
        let report = trace.finish()?;
        let calls = report.calls(&called.first().context("no calls")?.methods[0]);
        ensure!(calls == 500, "{:?}", report.methods);
        Ok(())
    })
}

/// Check that `nprof ps` lists the target with its main class and version.
#[test]
fn ps() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let run = run(&["ps", "--format", "json"])?;
        ensure!(run.code == Some(0), "{run:?}");
        let list: Value = serde_json::from_str(&run.stdout)?;
        let jvms = list["jvms"].as_array().with_context(|| run.stdout.clone())?;
        let jvm = jvms.iter().find(|jvm| jvm["pid"] == target.pid()).with_context(|| run.stdout.clone())?;
        ensure!(jvm["main"] == "targets.Shapes", "{jvm}");
        ensure!(jvm.to_string().contains(&format!("\"{}.", jdk.version)), "no version {} in {jvm}", jdk.version);
        Ok(())
    })
}

/// Check that stdout that is closed early is no error.
#[test]
fn a_broken_pipe() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let mut pipeline = Command::new("bash");
        pipeline.args(["-o", "pipefail", "-c", "\"$0\" methods --pid $1 | head -c 1 > /dev/null"]);
        let run = outcome(Child::spawn("nprof methods | head", pipeline.arg(binary()).arg(target.pid().to_string()))?)?;
        ensure!(run.code == Some(0) && run.stderr.is_empty(), "{run:?}");
        Ok(())
    })
}

/// Check that `check` says of hardware counters what the kernel's list of them does.
#[test]
fn hardware_counters() -> Result<()> {
    traced_on_every_jdk(|_| {
        let outcome = run(&["check", "--format", "json"])?;
        let document: Value = serde_json::from_str(&outcome.stdout).with_context(|| format!("{outcome:?}"))?;
        let findings = document["host"].as_array().context("no findings")?;
        let finding = findings.iter().find(|finding| finding["check"] == "hw counters");
        let finding = finding.with_context(|| format!("nothing of hardware counters: {findings:?}"))?;
        let devices = Path::new("/sys/bus/event_source/devices");
        let are_there = ["cpu", "cpu_core"].iter().any(|name| devices.join(name).exists());
        let says = finding["message"].as_str().unwrap_or_default();
        let words = if are_there { "the CPUs count cycles" } else { "the CPUs count no cycles here" };
        ensure!(
            finding["verdict"] == "ok" && says.starts_with(words),
            "{finding}, and the kernel has some: {are_there}"
        );
        Ok(())
    })
}
