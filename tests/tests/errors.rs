//! Whatever is asked or happens, nprof ends by itself, with a message that helps and the right exit code.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::Stream;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::{Outcome, Trace, outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::Report;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::target::Targets;

use crate::TARGETS;

/// Runs nprof, which must fail with `code` and say each of `words` on stderr and nothing on stdout.
fn fails(args: &[&str], code: i32, words: &[&str]) -> Result<()> {
    let run = run(args)?;
    ensure!(run.code == Some(code), "exit code {:?} instead of {code}: {run:?}", run.code);
    ensure!(run.stdout.is_empty(), "data where there is none: {run:?}");
    for word in words {
        ensure!(run.stderr.contains(word), "no '{word}' in: {}", run.stderr);
    }
    Ok(())
}

/// A process id that just became free.
fn dead_pid(jdk: &Jdk) -> Result<String> {
    let mut target = RemoteProcess::shapes(jdk)?;
    target.kill()?;
    Ok(target.pid().to_string())
}

/// Check that a process that does not exist is named.
#[test]
fn no_such_process() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let pid = dead_pid(jdk)?;
        for command in ["trace", "methods"] {
            fails(&[command, "--pid", &pid], 2, &["no process", &pid])?;
        }
        Ok(())
    })
}

/// Check that a process without a JVM is named as such.
#[test]
fn not_a_jvm() -> Result<()> {
    traced_on_every_jdk(|_| {
        let pid = std::process::id().to_string();
        for command in ["trace", "methods"] {
            fails(&[command, "--pid", &pid], 2, &["JVM", &pid])?;
        }
        Ok(())
    })
}

/// Check that the id of a thread is refused, and the process that it belongs to is named.
#[test]
fn a_thread_id() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let pid = target.pid().to_string();
        let mut threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(Result::ok);
        let thread = threads.find(|entry| entry.file_name() != *pid).context("the JVM has one thread only")?;
        let tid = thread.file_name().into_string().expect("a number");
        fails(&["trace", "--pid", &tid], 2, &["thread", &tid, &pid])
    })
}

/// Check that a pattern that matches nothing suggests what was probably meant, and is told apart by the exit code.
#[test]
fn a_pattern_without_a_match() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let pid = target.pid().to_string();
        for command in ["trace", "methods"] {
            fails(&[command, "--pid", &pid, "targets.Plain::ad"], 1, &["targets.Plain::ad", "targets.Plain::add"])?;
        }
        Ok(())
    })
}

/// Check that a pattern that is none is shown.
#[test]
fn a_malformed_pattern() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let pid = target.pid().to_string();
        fails(&["trace", "--pid", &pid, "targets.[::*"], 2, &["targets.["])
    })
}

/// Check that wrong arguments are refused before anything is touched.
#[test]
fn wrong_arguments() -> Result<()> {
    traced_on_every_jdk(|_| {
        fails(&["trace"], 2, &["--pid"])?;
        fails(&["trace", "--pid", "many"], 2, &["many"])?;
        fails(&["trace", "--pid", "0"], 2, &["0"])?;
        fails(&["trace", "--pid", "1", "--duration", "soon"], 2, &["soon"])?;
        fails(&["trace", "--pid", "1", "--format", "xml"], 2, &["xml", "json"])?;
        fails(&["dance"], 2, &["dance"])
    })
}

/// Check that the target's end ends the trace, with everything that was counted until then.
#[test]
fn the_target_ends() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &[TARGETS])?;
        let called = target.calls("all", 2, 100)?;
        target.exit()?;
        trace.wait()?.must_equal(&called)
    })
}

/// Check that the same holds when the target is killed while its threads are inside natives.
#[test]
fn the_target_is_killed() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &[TARGETS])?;
        let called = target.calls("all", 2, 100)?;
        target.run("block 3")?;
        target.kill()?;
        trace.wait()?.must_equal(&called)
    })
}

/// Check that nprof ends cleanly when its target is killed at any moment of its start.
#[test]
fn the_target_is_killed_during_the_start() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for delay_ms in [0, 1, 2, 4, 7, 10, 15, 20, 30, 45, 60, 80, 120, 200] {
            let mut target = RemoteProcess::shapes(jdk)?;
            let nprof = spawn(&["trace", "--format", "json", "--pid", &target.pid().to_string()])?;
            // Not to wait for something: the moment of the kill is what is varied.
            std::thread::sleep(Duration::from_millis(delay_ms));
            target.kill()?;
            ended_well(&outcome(nprof)?).with_context(|| format!("killed {delay_ms} ms after nprof's start"))?;
        }
        Ok(())
    })
}

/// Either it had begun to trace and gives its final document, or it says why it could not.
fn ended_well(run: &Outcome) -> Result<()> {
    ensure!(!run.stderr.contains("panicked"), "{run:?}");
    match run.code {
        Some(0) => ensure!(run.stdout.contains("\"schema\""), "success without a document: {run:?}"),
        Some(1 | 2) => ensure!(!run.stderr.trim().is_empty(), "an error without a word: {run:?}"),
        _ => anyhow::bail!("{run:?}"),
    }
    Ok(())
}

/// What is traced of a JVM that is about to become another program.
pub(crate) const VALUE: &str = "targets.Twisted::value";

/// A JVM that can become another program.
pub(crate) fn changeable(jdk: &Jdk) -> Result<RemoteProcess> {
    RemoteProcess::twisted(jdk, &Targets::get()?.library("libtwisted.so"), false)
}

/// Check that a JVM whose process becomes another program has ended: the results are printed, with the reason, although the
/// process lives on.
#[test]
fn becomes_another_program() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = changeable(jdk)?;
        let pid = target.pid().to_string();
        let args = ["trace", "--format", "json", "--max-overhead", "off", "--pid", &pid, VALUE];
        let mut nprof = spawn(&args)?;
        nprof.line_with_prefix(Stream::Stderr, "tracing ")?;
        for _ in 0..3 {
            target.run("value")?;
        }
        target.leave_to("become")?;
        let outcome = outcome(nprof)?;
        ensure!(outcome.code == Some(0), "{outcome:?}");
        ensure!(outcome.stderr.contains("runs another program now (exec)"), "{outcome:?}");
        let report: Report = serde_json::from_str(outcome.stdout.trim())?;
        ensure!(report.methods.iter().map(|method| method.calls).eq([3]), "{report:?}");
        ensure!(std::fs::read_link(format!("/proc/{pid}/exe"))?.ends_with("cat"), "the process has ended, too");
        Ok(())
    })
}
