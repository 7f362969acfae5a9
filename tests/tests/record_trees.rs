//! `nprof record --tree`: recordings hold trees that are exact, and every command that reads recordings shows them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nprof::model::{Profile, RecordedTrees, TreeLosses};
use nprof_tests::child::{Child, Stream};
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::{Outcome, UNGOVERNED, outcome, run, spawn};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::callers::read;
use crate::tree::{must_be_the_same, open_again};

const ENTRY: &str = "targets.Trees$Work::entry";
const WORK: &str = "targets.Trees$Work";
/// So many invocations of each thread find room, also if nobody reads it meanwhile.
const ROUNDS: u64 = 140;
const THREADS: u64 = 4;
/// So many trees are kept.
const KEPT: usize = 100;

/// A running `nprof record --tree`, with everything in place.
fn start(target: &RemoteProcess, file: &Path, args: &[&str]) -> Result<Child> {
    let (pid, file) = (target.pid().to_string(), file.to_str().context("a temporary directory's name is text")?);
    let recording = ["record", "--pid", &pid, "-o", file, "--tree", ENTRY, "--package", "targets.**"];
    let mut child = spawn(&[&recording, &UNGOVERNED[..], args].concat())?;
    child.line_with_prefix(Stream::Stderr, "following ")?;
    let word = if args.contains(&"--on-cpu") { "sampling " } else { "recording " };
    child.line_with_prefix(Stream::Stderr, word)?;
    Ok(child)
}

/// Ends a recording with Ctrl-C and reads it.
fn end(child: Child, file: &Path) -> Result<Profile> {
    child.signal(Signal::INT)?;
    let outcome = outcome(child)?;
    ensure!(outcome.code == Some(0) && outcome.stderr.contains("wrote "), "{outcome:?}");
    read(file)
}

/// A target that makes so many invocations in each of its threads while it is recorded.
fn recorded(jdk: &Jdk, rounds: u64, file: &Path, args: &[&str]) -> Result<Profile> {
    let mut target = RemoteProcess::trees(jdk, &[])?;
    let child = start(&target, file, args)?;
    target.run(&format!("run {THREADS} {rounds} platform"))?;
    let profile = end(child, file)?;
    target.exit()?;
    Ok(profile)
}

fn trees(profile: &Profile) -> Result<&RecordedTrees> {
    profile.trees.as_deref().context("the recording holds no trees")
}

/// What an invocation with this seed calls: a method, and how often.
fn calls_of(seed: u64) -> [(&'static str, u64); 5] {
    let levels = if seed.is_multiple_of(3) { 3 } else { 0 } + if seed % 10 == 9 { 4 } else { 0 };
    [("entry", 1), ("recursive", seed % 7 + 1), ("leaf", seed % 7 + 3), ("level", levels), ("locked", 1)]
}

/// The calls of a method in all trees of a recording together.
fn calls(trees: &RecordedTrees, method: &str) -> u64 {
    let is_it = |number: u32| {
        let of = &trees.methods[number as usize];
        &*of.class == WORK && &*of.method == method
    };
    let sums = trees.totals.by_way();
    sums.iter().filter(|(way, _)| is_it(trees.totals.ways[**way as usize].method)).map(|(_, sum)| sum.calls).sum()
}

/// Check that everything in a recording is what the target did.
fn must_be_exact(trees: &RecordedTrees, rounds: u64) -> Result<()> {
    let of_entry: Vec<_> = trees.totals.entries.values().collect();
    let [entry] = of_entry[..] else { anyhow::bail!("{} entry methods", of_entry.len()) };
    ensure!(trees.losses == TreeLosses::default() && entry.incomplete + entry.endless == 0, "{:?}", trees.losses);
    ensure!(entry.group().invocations == THREADS * rounds && entry.failed == THREADS * (rounds / 10), "{entry:?}");
    for (at, (method, _)) in calls_of(0).into_iter().enumerate() {
        let made = THREADS * (0..rounds).map(|seed| calls_of(seed)[at].1).sum::<u64>();
        ensure!(calls(trees, method) == made, "{method}: {} of {made}", calls(trees, method));
    }
    let own: u64 = trees.totals.by_way().values().map(|sum| sum.self_ns).sum();
    ensure!(own == entry.group().total_ns, "{own} of {}", entry.group().total_ns);
    Ok(())
}

/// Check that a recording of a target has sums of all invocations and the slowest as trees, beside what it has of natives; and what is left of
/// the classes afterwards.
pub(crate) fn must_be_recorded(target: &mut RemoteProcess) -> Result<()> {
    let directory = TempDir::new()?;
    let file = directory.path().join("run.nprof");
    let before = open_again(target, false)?.class_files(WORK)?;
    let child = start(target, &file, &["java.lang.Thread::*"])?;
    target.run(&format!("run {THREADS} {ROUNDS} platform"))?;
    let profile = end(child, &file)?;
    let trees = trees(&profile)?;
    must_be_exact(trees, ROUNDS)?;
    let all: Vec<u64> = trees.kept.iter().map(|kept| kept.invocation.root().total_ns).collect();
    let slowest = trees.totals.entries.values().find_map(|of| of.slowest).context("no slowest")?;
    ensure!(all.len() == KEPT && all.iter().max() == Some(&slowest.total_ns), "{all:?}, {slowest:?}");
    ensure!(trees.exceptions.values().all(|class| class == "targets.Trees$Failure"), "{:?}", trees.exceptions);
    let native = profile.functions.iter().find(|function| function.method == "holdsLock").context("no holdsLock")?;
    ensure!(native.calls == THREADS * ROUNDS, "{native:?}");
    must_be_the_same(&before[0], &open_again(target, false)?.class_files(WORK)?[0])
}

/// Check that recordings hold what the target did, live, and leave classes as they were.
#[test]
fn recordings_hold_exact_trees() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::trees(jdk, &[])?;
        must_be_recorded(&mut target)?;
        target.exit()
    })
}

/// Check what is shown of a recording: the slowest trees and the summary of all, the same for programs, and a picture with exact times.
#[test]
fn trees_are_shown() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let file = directory.path().join("run.nprof");
        let profile = recorded(jdk, ROUNDS, &file, &["--package", "java.lang.Thread"])?;
        let (trees, file) = (trees(&profile)?, file.to_str().context("a temporary directory's name is text")?);
        let shown = |args: &[&str]| -> Result<String> {
            let Outcome { code, stdout, stderr } = run(args)?;
            ensure!(code == Some(0) && stderr.is_empty(), "{args:?}: {code:?}: {stderr}");
            Ok(stdout)
        };
        let text = shown(&["report", file, "--trees", "2"])?;
        let all = THREADS * ROUNDS;
        ensure!(text.contains(&format!("{all} invocations of {ENTRY}")), "{text}");
        ensure!(text.lines().filter(|line| line.starts_with('#')).count() == 2, "{text}");
        let document: Value = serde_json::from_str(&shown(&["report", file, "--format", "json"])?)?;
        let (invocations, summary) = (&document["trees"]["invocations"], &document["trees"]["summary"]);
        ensure!(invocations.as_array().is_some_and(|all| all.len() == 3), "{invocations}");
        ensure!(invocations[0]["number"] == summary["entries"][0]["slowest"], "{summary}");
        ensure!(summary["entries"][0]["invocations"] == all, "{summary}");
        let folded = shown(&["flamegraph", file, "--trees", "-f", "folded"])?;
        let width = |line: &str| line.rsplit_once(' ').and_then(|(_, width)| width.parse::<u64>().ok()).unwrap_or(0);
        let total: u64 = trees.totals.entries.values().map(|of| of.group().total_ns).sum();
        ensure!(folded.lines().map(width).sum::<u64>() == total, "{total}: {folded}");
        let calls = shown(&["flamegraph", file, "--trees", "-f", "folded", "-w", "calls"])?;
        let native = calls.lines().find(|line| line.contains("holdsLock")).context("no native")?;
        ensure!(width(native) == all && native.contains("clock_[j];"), "{native}");
        let svg = shown(&["flamegraph", file, "--trees", "-o", "-"])?;
        ensure!(svg.contains(&format!("{all} invocations")) && svg.trim_end().ends_with("</svg>"), "{svg}");
        Ok(())
    })
}

/// Check that two recordings are compared by what an invocation does, however many there were.
#[test]
fn recordings_are_compared_by_invocation() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let files = ["a", "b"].map(|name| directory.path().join(name));
        recorded(jdk, 70, &files[0], &["--on-cpu"])?;
        recorded(jdk, 140, &files[1], &["--on-cpu"])?;
        let [before, after] = files.each_ref().map(|file| file.to_string_lossy());
        let Outcome { code, stdout, .. } = run(&["diff", &before, &after, "--top", "0"])?;
        ensure!(code == Some(0), "{code:?}");
        ensure!(stdout.contains("A: 280 invocations, ") && stdout.contains("B: 560 invocations, "), "{stdout}");
        // Seeds from 0 to 69 and to 139 do the same on average.
        let row = stdout.lines().find(|line| line.ends_with("Trees$Work::recursive > Trees$Work::leaf"));
        let cells: Vec<&str> = row.context("no row")?.split_whitespace().collect();
        ensure!(cells[0] == cells[1], "{stdout}");
        must_be_drawn(&before, &after)
    })
}

/// Check that the picture of both has what the table has: what an invocation did, as often as there were invocations in the later one.
fn must_be_drawn(before: &str, after: &str) -> Result<()> {
    let drawn = |args: &[&str]| -> Result<String> {
        let run = run(&[&["diff", before, after, "--trees", "-o", "-"], args].concat())?;
        ensure!(run.code == Some(0) && run.stderr.is_empty(), "{args:?}: {run:?}");
        Ok(run.stdout)
    };
    let both = |folded: &str| -> Result<Vec<(String, [u64; 2])>> {
        let row = |line: &str| {
            let [new, old, stack] = line.rsplitn(3, ' ').collect::<Vec<_>>()[..] else { anyhow::bail!("{line}") };
            Ok((stack.to_owned(), [old.parse()?, new.parse()?]))
        };
        folded.lines().map(row).collect()
    };
    let calls = both(&drawn(&["-f", "folded", "-w", "calls"])?)?;
    let in_recursions: Vec<_> = calls.iter().filter(|(stack, _)| stack.contains("Trees$Work.recursive")).collect();
    ensure!(in_recursions.len() > 10 && in_recursions.iter().all(|(_, [old, new])| old == new), "{calls:?}");
    let times = both(&drawn(&["-f", "folded"])?)?;
    let profile = read(Path::new(after))?;
    let total: u64 = trees(&profile)?.totals.entries.values().map(|of| of.group().total_ns).sum();
    ensure!(times.iter().map(|(_, [_, new])| new).sum::<u64>() == total, "not {total}: {times:?}");
    let svg = drawn(&[])?;
    ensure!(svg.contains("scaled to the same number of invocations") && svg.contains("Trees$Work.recursive"), "{svg}");
    Ok(())
}

/// Check that a recording of so long has trees of that time, within that of its natives, and not also of the time that it takes to put
/// everything in place and to take it away again.
#[test]
fn trees_are_of_the_time_that_was_asked_for() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let file = directory.path().join("run.nprof");
        let target = RemoteProcess::trees(jdk, &[])?;
        let outcome = outcome(start(&target, &file, &["-d", "1s"])?)?;
        ensure!(outcome.code == Some(0), "{outcome:?}");
        let profile = read(&file)?;
        let (about, trees) = (&profile.about, trees(&profile)?);
        ensure!(trees.elapsed >= Duration::from_secs(1), "{:?}", trees.elapsed);
        ensure!(trees.elapsed <= about.elapsed, "trees of {:?} in {:?}", trees.elapsed, about.elapsed);
        ensure!(trees.began.wall >= about.started, "{} before {}", trees.began.wall, about.started);
        target.exit()
    })
}

/// Check that the end of a JVM ends a recording with its trees, and that what cannot be recorded is said before anything is.
#[test]
fn ends_and_mistakes() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let directory = TempDir::new()?;
        let file = directory.path().join("run.nprof");
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let child = start(&target, &file, &[])?;
        target.run(&format!("run {THREADS} {ROUNDS} platform"))?;
        target.exit()?;
        let outcome = outcome(child)?;
        ensure!(outcome.code == Some(0), "{outcome:?}");
        must_be_exact(trees(&read(&file)?)?, ROUNDS)?;
        let mut target = RemoteProcess::trees(jdk, &[])?;
        let before = open_again(&target, false)?.class_files(WORK)?;
        let pid = target.pid().to_string();
        for (args, code, words) in [
            (&["--tree", "targets.Trees$Work::entri"][..], 1, "nearest: targets.Trees$Work::entry"),
            (&["--tree", ENTRY, "--tier", "stub"], 2, "`--tree`"),
            (&["--depth", "3"], 2, "--tree <ENTRY>"),
            // By then the methods have been enhanced: they are restored.
            (&["--tree", ENTRY, "targets.None::*"], 1, "matches no native method"),
        ] {
            let run = run(&[&["record", "--pid", &pid, "-o", "/dev/null", "-d", "300ms"], args].concat())?;
            ensure!(run.code == Some(code) && run.stderr.contains(words), "{args:?}: {run:?}");
        }
        must_be_missed(&pid, &file)?;
        must_be_the_same(&before[0], &open_again(&target, false)?.class_files(WORK)?[0])?;
        target.run("run 2 20 platform")?;
        target.exit()
    })
}

/// Check that a recording without trees is named where trees are to be drawn.
fn must_be_missed(pid: &str, with_trees: &Path) -> Result<()> {
    let without = with_trees.with_file_name("without.nprof");
    let files = [with_trees, &without].map(|file| file.to_string_lossy());
    let recorded = run(&["record", "--pid", pid, "-o", &files[1], "-d", "100ms", "java.lang.Thread::*"])?;
    ensure!(recorded.code == Some(0), "{recorded:?}");
    let drawn = run(&["diff", &files[0], &files[1], "--trees", "-o", "-"])?;
    let says = format!("{}: the recording holds no trees of invocations", files[1]);
    ensure!(drawn.code == Some(2) && drawn.stdout.is_empty() && drawn.stderr.contains(&says), "{drawn:?}");
    Ok(())
}
