//! `nprof tree` as users run it: what it prints, what it says of what cannot be followed, and what is left when it is killed.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nprof_tests::child::{Child, PATIENCE, Stream};
use nprof_tests::nprof::{Outcome, outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use rustix::process::Signal;
use serde_json::Value;

const ENTRY: &str = "targets.Trees$Work::entry";
/// So many invocations are shown.
const SHOWN: u64 = 20;

/// A command that follows a method of a target, with everything in place.
pub(crate) fn follow(target: &RemoteProcess, entry: &str, args: &[&str]) -> Result<Child> {
    let pid = target.pid().to_string();
    let mut child = spawn(&[&["tree", "--pid", &pid, entry, "--package", "targets.**"], args].concat())?;
    child.line_with_prefix(Stream::Stderr, "following ")?;
    Ok(child)
}

/// The calls of a method in a tree.
fn calls(node: &Value, method: &str) -> u64 {
    let own = if node["method"] == method { node["calls"].as_u64().unwrap_or(0) } else { 0 };
    own + node["children"].as_array().into_iter().flatten().map(|child| calls(child, method)).sum::<u64>()
}

/// Check the tree of the invocation with this seed against what the target does with it.
fn must_be_the_tree_of(seed: u64, tree: &Value) -> Result<()> {
    let root = &tree["root"];
    ensure!(tree["number"] == seed + 1 && tree["entry"] == ENTRY && root["calls"] == 1, "{tree}");
    let fails = seed % 10 == 9;
    let exception = if fails { Value::from("targets.Trees$Failure") } else { Value::Null };
    ensure!(root["exception"] == exception, "{tree}");
    let levels = if seed.is_multiple_of(3) { 3 } else { 0 } + if fails { 4 } else { 0 };
    let expected = [("recursive", seed % 7 + 1), ("leaf", seed % 7 + 3), ("level", levels), ("locked", 1)];
    for (method, made) in expected {
        ensure!(calls(root, method) == made, "{method} of {seed}: {made} were made: {tree}");
    }
    let own = |node: &Value| node["self_ns"].as_u64().unwrap_or(0);
    ensure!(own(root) <= tree["total_ns"].as_u64().context("no total")?, "{tree}");
    Ok(())
}

/// The invocations that a command has printed, and the last line.
pub(crate) fn printed(outcome: Outcome) -> Result<(Vec<Value>, Value)> {
    let Outcome { code, stdout, stderr } = outcome;
    ensure!(code == Some(0), "{code:?}: {stderr:?}");
    let mut lines = stdout.lines().map(|line| Ok(serde_json::from_str(line)?)).collect::<Result<Vec<Value>>>()?;
    let last = lines.pop().context("nothing was printed")?;
    Ok((lines, last))
}

/// Check that each invocation of a target is a line with its tree, and that the last line adds them up.
pub(crate) fn must_be_lines(target: &mut RemoteProcess) -> Result<()> {
    let child = follow(target, ENTRY, &["--format", "json", "-n", &SHOWN.to_string()])?;
    target.run(&format!("run 1 {SHOWN} platform"))?;
    let (trees, summary) = printed(outcome(child)?)?;
    ensure!(trees.len() as u64 == SHOWN, "{} lines", trees.len());
    (0..).zip(&trees).try_for_each(|(seed, tree)| must_be_the_tree_of(seed, tree))?;
    ensure!(summary["summary"]["entries"][0]["invocations"] == SHOWN, "{summary}");
    ensure!(summary["summary"]["entries"][0]["failed"] == SHOWN / 10, "{summary}");
    Ok(())
}

/// Check that each invocation is a line with its tree, and that the last line adds them up.
#[test]
fn a_line_for_each_invocation() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        must_be_lines(&mut target)?;
        target.exit()
    })
}

/// Check that a pattern without a match is answered with what may have been meant, and that what telling itself takes is refused.
#[test]
fn what_cannot_be_followed_is_said() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let pid = target.pid().to_string();
        let said = |entry: &str| -> Result<String> {
            let Outcome { code, stderr, stdout } = run(&["tree", "--pid", &pid, entry])?;
            ensure!(code == Some(1) && stdout.is_empty(), "{code:?}: {stdout:?}");
            Ok(stderr)
        };
        let answer = said("targets.Trees$Work::entri")?;
        ensure!(answer.contains(&format!("nearest: {ENTRY}")), "{answer}");
        if jdk.version >= 21 {
            let answer = said("java.lang.Thread::isVirtual")?;
            ensure!(answer.contains("that nprof itself needs in the JVM"), "{answer}");
        }
        target.run("run 2 20 platform")?;
        target.exit()
    })
}

/// Check that a native method that is chosen is the root of its trees, as those tell that call it.
#[test]
fn a_native_method_is_a_root() -> Result<()> {
    const NATIVE: &str = "java.lang.Thread::holdsLock";
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let child = follow(&target, NATIVE, &["--format", "json", "-n", &SHOWN.to_string()])?;
        target.run(&format!("run 1 {SHOWN} platform"))?;
        let (trees, summary) = printed(outcome(child)?)?;
        for tree in &trees {
            let root = &tree["root"];
            ensure!(tree["entry"] == NATIVE && root["kind"] == "native" && root["calls"] == 1, "{tree}");
        }
        ensure!(summary["summary"]["entries"][0]["invocations"] == SHOWN && trees.len() as u64 == SHOWN, "{summary}");
        target.exit()
    })
}

/// Check that entry methods are chosen by regular expressions, and that what is written of all invocations together has each path once.
#[test]
fn all_invocations_together() -> Result<()> {
    const ENTRIES: &str = r"targets\.Trees\$Work::(entry|none)";
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let pid = target.pid().to_string();
        let mut written = |format: &str| -> Result<String> {
            let mut child = spawn(&["tree", "--pid", &pid, "--regex", ENTRIES, "--format", format])?;
            child.line_with_prefix(Stream::Stderr, "following ")?;
            target.run(&format!("run 2 {SHOWN} platform"))?;
            child.signal(Signal::INT)?;
            let Outcome { code, stdout, stderr } = outcome(child)?;
            ensure!(code == Some(0), "{code:?}: {stderr}");
            Ok(stdout)
        };
        let folded = written("folded")?;
        let paths: Vec<(&str, &str)> = folded.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        let is_path = |(path, time): &(&str, &str)| {
            path.split(';').next().is_some_and(|root| root.contains("entry")) && time.parse::<u64>().is_ok()
        };
        ensure!(paths.len() == folded.lines().count() && paths.iter().all(is_path), "{folded}");
        let of_recursion =
            |depth: usize| paths.iter().filter(move |(path, _)| path.matches("recursive").count() == depth);
        ensure!(of_recursion(7).count() == 2 && of_recursion(8).count() == 0, "{folded}");
        let svg = written("svg")?;
        let title = format!("{} invocations of {ENTRY}", 2 * SHOWN);
        ensure!(svg.contains("<svg") && svg.contains(&title) && svg.contains("</svg>"), "{svg}");
        target.exit()
    })
}

/// Check that a hidden class is named as one that the VM lets nobody change.
#[test]
fn hidden_classes_are_left_out() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::hidden(jdk)?;
        target.run("define 1")?;
        let pid = target.pid().to_string();
        let Outcome { code, stdout, stderr } = run(&["tree", "--pid", &pid, "targets.Hidden$Small.*::*"])?;
        ensure!(code == Some(1) && stdout.is_empty(), "{code:?}: {stdout}");
        let why = "(of classes that the VM lets nobody change)";
        ensure!(stderr.contains("left out: targets.Hidden$Small/0x") && stderr.contains(why), "{stderr}");
        target.exit()
    })
}

/// The nanoseconds that a call in a loop of so many takes at best.
fn best(target: &mut RemoteProcess, calls: u32) -> Result<f64> {
    let answer = target.run(&format!("time {calls}"))?;
    let (call, _) = answer.first().and_then(|line| line.split_once(' ')).context("no times")?;
    Ok(call.parse()?)
}

/// Check that a method that is called all the time tells no more, so that it is about as quick as before, and that this is said; `off` goes on.
#[test]
fn what_is_called_too_often_is_silenced() -> Result<()> {
    const CALLS: u32 = 10_000_000;
    /// Enough for seconds where each is told of.
    const TOLD: u32 = 1_000_000;
    /// Told of, a call takes a hundred times as long.
    const MOST: f64 = 20.0;
    const LEAF: &str = "targets.Trees$Work::leaf";
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        best(&mut target, CALLS)?;
        let before = best(&mut target, CALLS)?;
        for (budget, calls) in [("5%", CALLS), ("off", TOLD)] {
            let child = follow(&target, "targets.Trees::timed", &["--format", "json", "--max-overhead", budget])?;
            best(&mut target, calls)?;
            let after = best(&mut target, calls)?;
            child.signal(Signal::INT)?;
            let Outcome { code, stdout, stderr } = outcome(child)?;
            ensure!(code == Some(0), "{code:?}: {stderr}");
            let summary: Value = serde_json::from_str(stdout.lines().last().context("nothing was printed")?)?;
            let silenced = &summary["summary"]["silenced"];
            if budget == "off" {
                ensure!(
                    silenced.as_array().is_some_and(Vec::is_empty) && after > MOST * before,
                    "{after}, {before}: {silenced}"
                );
                continue;
            }
            ensure!(silenced[0] == LEAF && silenced[1].is_null(), "{summary}");
            ensure!(after < MOST * before, "{after} ns a call, {before} without nprof");
        }
        target.exit()
    })
}

/// Check that calls outside of entry methods are within the budget: a method that is called all the time elsewhere is silenced, too, and nothing
/// is where nothing is called often.
#[test]
fn what_is_called_too_often_elsewhere_is_silenced() -> Result<()> {
    const CALLS: u32 = 10_000_000;
    const FEW: u32 = 100;
    const LEAF: &str = "targets.Trees$Work::leaf";
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        for (calls, expected) in [(FEW, Value::Array(Vec::new())), (CALLS, Value::from(vec![LEAF]))] {
            let child = follow(&target, ENTRY, &["--format", "json"])?;
            best(&mut target, calls)?;
            child.signal(Signal::INT)?;
            let Outcome { code, stdout, stderr } = outcome(child)?;
            ensure!(code == Some(0), "{code:?}: {stderr}");
            let summary: Value = serde_json::from_str(stdout.lines().last().context("nothing was printed")?)?;
            ensure!(summary["summary"]["silenced"] == expected, "{calls} calls: {summary}");
        }
        target.exit()
    })
}

/// Check that a target goes on when nprof is killed, and that the next one finds it as if nobody had been there.
#[test]
fn sigkill_leaves_nothing() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let mut child = follow(&target, ENTRY, &[])?;
        target.run("run 2 50 platform")?;
        child.signal(Signal::KILL)?;
        child.wait()?;
        target.run("run 2 50 platform")?;
        // The shim notices by itself that nprof has gone, and restores classes before it lets the next one in.
        let deadline = Instant::now() + PATIENCE;
        let child = loop {
            match follow(&target, ENTRY, &["--format", "json", "-n", "40"]) {
                Err(_) if Instant::now() < deadline => {}
                followed => break followed?,
            }
        };
        target.run("run 2 20 platform")?;
        let Outcome { code, stdout, stderr } = outcome(child)?;
        let lines = stdout.lines().count();
        ensure!(code == Some(0) && lines == 41, "{code:?}, {lines} lines: {stderr}");
        target.exit()
    })
}
