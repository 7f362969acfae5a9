//! How long collections waited for critical sections (`nprof jni`): what the VM itself logs of it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::jni_report::{Jni, JniReport, WaitedRow};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use tempfile::TempDir;

const ROUNDS: u64 = 8;
/// How long an array is held in each round.
const HELD_MS: u64 = 40;
/// What the VM logs as a wait and takes as long is one.
const LONG_NS: f64 = 1e6;

/// What the VM says of its waits, in nanoseconds each: from when a collection could not begin to the end of the last section or, in
/// later versions, how long who began it was blocked.
fn logged(log: &Path) -> Result<Vec<f64>> {
    let (mut waits, mut due) = (Vec::new(), None);
    for line in std::fs::read_to_string(log)?.lines() {
        let time = line.split_once("ns]").and_then(|(time, _)| time.trim_start_matches('[').parse::<f64>().ok());
        if line.contains("Setting _needs_gc") {
            due = time;
        } else if line.contains("Performing GC after exiting") {
            waits.extend(due.take().zip(time).map(|(since, now)| now - since));
        } else if line.contains("blocked to start GC") {
            let ms = line.rsplit(' ').find_map(milliseconds);
            waits.push(ms.with_context(|| format!("no time in: {line}"))? * 1e6);
        }
    }
    waits.retain(|ns| *ns >= LONG_NS);
    Ok(waits)
}

/// `12.345ms.`
fn milliseconds(word: &str) -> Option<f64> {
    word.trim_end_matches('.').strip_suffix("ms")?.parse().ok()
}

/// Has an array held while another thread wants a collection; what nprof says of it, and what the VM.
fn held_up(jdk: &Jdk, collector: &str, what: &str) -> Result<(JniReport, Vec<f64>)> {
    let directory = TempDir::new()?;
    let log = directory.path().join("gc.log");
    let logging = format!("-Xlog:gc+jni=debug:file={}:uptimenanos", log.display());
    let mut target = RemoteProcess::asking(jdk, &[collector, "-Xmn4m", "-Xmx64m", &logging])?;
    let jni = Jni::start(target.pid(), &["--format", "json", "targets.Asking"])?;
    target.run(&format!("ask {what} 1 {ROUNDS} {HELD_MS}"))?;
    let report = jni.finish()?;
    target.exit()?;
    Ok((report, logged(&log)?))
}

/// Check that number, time and longest wait are those that the VM logs, charged to the native method that held the array, whether a
/// collection is asked for or memory has run out; and that it is said that nothing waits where regions are pinned.
#[test]
fn as_the_vm_logs_it() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for collector in ["-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseG1GC"] {
            for what in ["holdUp", "holdUpAllocating"] {
                let (report, logged) = held_up(jdk, collector, what)?;
                must_agree(&report, &logged).with_context(|| format!("{collector} {what}: {report:?}, {logged:?}"))?;
                let is_pinned = collector.contains("G1") && logged.is_empty();
                ensure!(is_pinned || logged.len() as u64 >= ROUNDS / 2, "{collector} {what}: {logged:?}");
            }
        }
        Ok(())
    })
}

fn must_agree(report: &JniReport, logged: &[f64]) -> Result<()> {
    ensure!(report.critical.context("no sections")?.sections == ROUNDS);
    if report.collections_wait == Some(false) {
        ensure!(report.collections_waited.is_none() && logged.is_empty());
        return Ok(());
    }
    let waited = report.collections_waited.context("not known")?;
    let WaitedRow { collections, total_ns, longest_ns } = waited;
    ensure!(report.collections_wait == Some(true) && collections == logged.len() as u64, "{waited:?}");
    let (total, longest) = (logged.iter().sum::<f64>(), logged.iter().copied().fold(0.0, f64::max));
    ensure!((0.9..1.1).contains(&(total_ns as f64 / total)), "{waited:?}: {total}");
    ensure!((0.9..1.1).contains(&(longest_ns as f64 / longest)), "{waited:?}: {longest}");
    ensure!(report.method(Some("hold"))?.collections_waited == Some(waited));
    Ok(())
}

/// Check that nothing is said to have waited where sections are short and nothing is collected.
#[test]
fn nothing_waits() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let (report, logged) = held_up(jdk, "-XX:+UseSerialGC", "hold")?;
        let none = WaitedRow { collections: 0, total_ns: 0, longest_ns: 0 };
        ensure!(report.collections_waited == Some(none) && logged.is_empty(), "{report:?} {logged:?}");
        Ok(())
    })
}
