//! Which thread made which call: every one of them, to the unit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nprof_tests::nprof::{Trace, run};
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::{GroupRow, Report, Row, ThreadRow};
use nprof_tests::require::traced_on_every_jdk;

use crate::callers::Recording;

const CLASS: &str = "targets.Consuming";
const THREADS: u64 = 5;
const ROUNDS: u64 = 40;
/// How many threads call each of three natives: together more pairs of both than there is room for, and each fewer than the kernel
/// has numbers for.
const PASSING: u64 = 12_000;
const NATIVES: [&str; 3] = ["call", "lock", "nap"];
const ROOM: u64 = 1 << 15;
/// How long a JVM may take to be found.
const PATIENCE: Duration = Duration::from_secs(180);
/// Where calls are whose thread is not known.
const NOT_KNOWN: &str = "(not known)";

/// Has threads call a native, of which each makes more calls than the one before, and two have one name.
fn divided(target: &mut RemoteProcess, options: &[&str], what: &str, amount: u64) -> Result<Report> {
    let trace = Trace::start(target.pid(), &[options, &["--by", "thread", CLASS]].concat())?;
    target.run(&format!("divide {what} {THREADS} {ROUNDS} {amount}"))?;
    trace.finish()
}

fn row<'a>(report: &'a Report, what: &str) -> Result<&'a Row> {
    report.methods.iter().find(|row| row.method == what).with_context(|| format!("no row of {what}"))
}

fn groups(report: &Report) -> Result<&[GroupRow]> {
    report.groups.as_deref().context("no groups")
}

/// The calls of each thread by its name, those of fewer calls first.
fn expected() -> Vec<(String, u64)> {
    (0..THREADS).map(|thread| (format!("part-{}", thread / 2), ROUNDS * (thread + 1))).collect()
}

fn must_be_divided(row: &Row) -> Result<Vec<ThreadRow>> {
    let mut threads = row.threads.clone().context("no threads")?;
    threads.sort_by_key(|thread| thread.calls);
    let found: Vec<(String, u64)> = threads.iter().map(|thread| (thread.name.clone(), thread.calls)).collect();
    ensure!(found == expected(), "{found:?}");
    let tids: BTreeSet<u32> = threads.iter().map(|thread| thread.tid).collect();
    ensure!(tids.len() == threads.len(), "{threads:?}");
    Ok(threads)
}

fn sum(threads: &[ThreadRow], of: impl Fn(&ThreadRow) -> Option<u64>) -> Option<u64> {
    threads.iter().map(of).sum()
}

/// Check that each call is its thread's, whatever others are called, and so is its time, to the nanosecond: what threads worked and
/// waited is what the function did; also where calls are nested, and where they are only counted.
#[test]
fn each_call_is_its_threads() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        for (what, amount) in [("call", 3), ("nap", 1), ("outer", 2)] {
            let report = divided(&mut target, &[], what, amount)?;
            report.must_be_lossless()?;
            let row = row(&report, what)?;
            let threads = must_be_divided(row)?;
            let of_threads = [
                sum(&threads, |thread| thread.total_ns),
                sum(&threads, |thread| thread.self_ns),
                sum(&threads, |thread| thread.off_cpu_ns),
                sum(&threads, |thread| thread.on_cpu_ns),
            ];
            let of_row = [row.total_ns, row.self_ns, row.off_cpu_ns, row.on_cpu_ns];
            ensure!(of_threads == of_row && row.off_cpu_ns.is_some(), "{what}: {of_threads:?} of {row:?}");
            let groups = groups(&report)?;
            ensure!(groups.iter().all(|group| group.tid.is_some() && group.name != NOT_KNOWN), "{groups:?}");
            let all: u64 = groups.iter().map(|group| group.calls).sum();
            ensure!(all == report.methods.iter().map(|row| row.calls).sum::<u64>(), "{all} calls of threads");
        }
        let report = divided(&mut target, &["--count-only"], "call", 3)?;
        let threads = must_be_divided(row(&report, "call")?)?;
        ensure!(
            threads.iter().all(|thread| thread.counted == thread.calls && thread.total_ns.is_none()),
            "{threads:?}"
        );
        target.exit()
    })
}

/// Check that threads are a row each where every JVM is traced, in the order that is wanted, and that stubs, which do not know them,
/// are refused with what to do.
#[test]
fn of_every_jvm_but_not_of_stubs() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let trace = Trace::start_all(&["--by", "thread", "--sort", "calls", CLASS])?;
        target.run(&format!("divide call {THREADS} {ROUNDS} 1"))?;
        let report = trace.finish()?;
        let groups = groups(&report)?;
        let calls: Vec<u64> = groups.iter().map(|group| group.calls).collect();
        ensure!(calls == (1..=THREADS).rev().map(|thread| ROUNDS * thread).collect::<Vec<_>>(), "{groups:?}");
        let pid = target.pid().to_string();
        let refused = run(&["trace", "--pid", &pid, "--by", "thread", "--tier", "stub", "-d", "1s"])?;
        ensure!(refused.stderr.contains("stubs do not tell threads apart: say `--tier kernel`"), "{}", refused.stderr);
        ensure!(refused.code == Some(2), "{:?}", refused.code);
        target.exit()
    })
}

/// Check that recordings are read by thread: what threads of a name did in the report, in a picture with their names at the root, and
/// compared for each call of a method.
#[test]
fn recordings_of_some_threads() -> Result<()> {
    const NAME: &str = "part-2";
    const TEN: u64 = 10;
    let native = format!("{CLASS}::nap");
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let recording = Recording::start(target.pid(), &[CLASS])?;
        // So many that some calls of each thread are sampled, and so long that the thread's name is known.
        target.run(&format!("divide nap {THREADS} {} 2", TEN * ROUNDS))?;
        let recorded = recording.finish_file()?;
        let file = recorded.file();
        let file = file.to_str().context("a temporary directory's name is text")?;
        let shown = |args: &[&str]| -> Result<String> {
            let run = run(args)?;
            ensure!(run.code == Some(0), "{run:?}");
            Ok(run.stdout)
        };
        let calls = |threads: &[&str]| -> Result<u64> {
            let report = shown(&[&["report", file, "--format=json", &native], threads].concat())?;
            let report: serde_json::Value = serde_json::from_str(&report)?;
            report["functions"][0]["calls"].as_u64().with_context(|| report.to_string())
        };
        let all = TEN * expected().iter().map(|(_, calls)| calls).sum::<u64>();
        let [of_all, of_parts, of_one] = [&[][..], &["--thread=part-*"], &["--thread", NAME]]
            .map(calls)
            .into_iter()
            .collect::<Result<Vec<_>>>()?[..]
        else {
            anyhow::bail!("three")
        };
        ensure!(of_all == all && of_parts == all && (1..all).contains(&of_one), "{of_all}, {of_parts}, {of_one}");
        let picture = ["flamegraph", file, "--threads", "--format=folded", "--weight=calls", "-o", "-"];
        let roots = |threads: &[&str]| -> Result<BTreeSet<String>> {
            let picture = shown(&[&picture, threads].concat())?;
            Ok(picture.lines().filter_map(|line| Some(line.split_once(';')?.0.to_owned())).collect())
        };
        let (roots_of_all, roots_of_one) = (roots(&[])?, roots(&["--thread", NAME])?);
        let is_root = |root: &String| root.contains(NAME);
        ensure!(roots_of_one.len() == 1 && roots_of_one.iter().all(is_root), "{roots_of_one:?}");
        ensure!(roots_of_all.len() >= 3 && roots_of_all.is_superset(&roots_of_one), "{roots_of_all:?}");
        let compared = shown(&["diff", file, file, "--thread", NAME, "--per", &native, "--sort", "calls-b"])?;
        ensure!(compared.contains(&format!("per call of {native}")) && compared.contains(" 0.0 %"), "{compared}");
        target.exit()
    })
}

/// Check that a JVM that comes later, and gets the records of one that has ended, has none of its threads.
#[test]
fn records_are_given_on_without_threads() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut first = RemoteProcess::consuming(jdk)?;
        let mut trace = Trace::start_all(&["--by", "thread", "--interval", "200ms", CLASS])?;
        first.run(&format!("divide call {THREADS} {ROUNDS} 1"))?;
        let of_first = first.pid();
        first.exit()?;
        until(&mut trace, |report| report.targets.iter().any(|target| target.pid == of_first && target.ended))?;
        let mut second = RemoteProcess::consuming(jdk)?;
        let pid = second.pid();
        until(&mut trace, |report| {
            let is_seen = report.methods.iter().any(|row| row.pid == pid && row.method == "call");
            is_seen || second.run("divide call 1 1 1").is_err()
        })?;
        let report = trace.finish()?;
        ensure!(report.methods.iter().any(|row| row.pid == pid), "{:?}", report.methods);
        for row in &report.methods {
            let of_threads = sum(row.threads.as_deref().context("no threads")?, |thread| Some(thread.calls));
            ensure!(of_threads == Some(row.calls), "{row:?}");
        }
        second.exit()
    })
}

/// Waits for a document of which this is true.
fn until(trace: &mut Trace, mut is_so: impl FnMut(&Report) -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so(&trace.next_report()?) {
        ensure!(Instant::now() < deadline, "that does not come");
    }
    Ok(())
}

/// Check that calls of threads for which there is no room are in no thread's row, and not lost.
#[test]
fn no_room_is_said() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::consuming(jdk)?;
        let trace = Trace::start(target.pid(), &["--by", "thread", CLASS])?;
        for native in NATIVES {
            target.run(&format!("pass {native} {PASSING}"))?;
        }
        let report = trace.finish()?;
        let by_name: BTreeMap<bool, u64> = groups(&report)?.iter().fold(BTreeMap::new(), |mut sums, group| {
            *sums.entry(group.tid.is_some()).or_default() += group.calls;
            sums
        });
        for native in NATIVES {
            ensure!(row(&report, native)?.calls == PASSING, "{:?}", report.methods);
        }
        let all = PASSING * NATIVES.len() as u64;
        ensure!(by_name == BTreeMap::from([(true, ROOM), (false, all - ROOM)]), "{by_name:?}");
        target.exit()
    })
}
