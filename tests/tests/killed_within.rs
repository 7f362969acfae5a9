//! Calls whose process or whose thread ends while they are inside: what they consumed until then is theirs, once, by probes. A stub
//! cannot know it any more: there they are in flight, and nothing of it is anybody's.

use std::collections::BTreeMap;
use std::time::Instant;

use ::nprof::model::Profile;
use anyhow::{Context, Result, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::{Report, Row, SlowCallRows};
use nprof_tests::require::traced_on_every_jdk;

use crate::callers::Recording;

const CLASS: &str = "targets.Consuming";
const COLLECTED: &str = "--collect=faults,io,syscalls,locks,mapped";
/// Calls that are inside, and of what each consumes how much.
const CALLS: u64 = 20;
const AMOUNT: u64 = 7;
const PAGE: u64 = 4096;
const MAPPED: u64 = AMOUNT * PAGE;

type Numbers = BTreeMap<String, u64>;

/// What the innermost native consumes until its process or thread ends. The last system call is the one by which it waits, or leaves.
const INNERMOST: [(&str, u64); 6] = [
    ("faults", AMOUNT),
    ("major_faults", 0),
    ("read_bytes", AMOUNT),
    ("written_bytes", AMOUNT),
    ("syscalls", 5 + AMOUNT + 1),
    ("mapped_bytes", MAPPED),
];
/// What a native consumes that has returned in the same one.
const RETURNED: [(&str, u64); 6] = [
    ("faults", 0),
    ("major_faults", 0),
    ("read_bytes", AMOUNT),
    ("written_bytes", 0),
    ("syscalls", 1),
    ("mapped_bytes", 0),
];
/// What is the outer one's alone, in which the VM reads and writes nothing; of these it may have some more.
const OUTER: [(&str, u64); 2] = [("read_bytes", 0), ("written_bytes", 0)];
const OUTER_AT_LEAST: [(&str, u64); 3] = [("faults", AMOUNT), ("syscalls", 3), ("mapped_bytes", MAPPED)];

/// How calls end that do not return.
#[derive(Debug, Clone, Copy)]
struct End {
    /// The native in which it happens.
    native: &'static str,
    /// Whether it waits for a lock then.
    lock_waits: u64,
}

const KILLED: End = End { native: "stay", lock_waits: 1 };
const LEFT: End = End { native: "leave", lock_waits: 0 };

/// A target that has done once what is done once.
fn settled(jdk: &Jdk) -> Result<RemoteProcess> {
    let mut target = RemoteProcess::consuming(jdk)?;
    target.run("leave 0 0")?;
    Ok(target)
}

fn row<'a>(report: &'a Report, native: &str) -> Result<&'a Row> {
    report.methods.iter().find(|row| row.method == native).with_context(|| format!("no row of {native}"))
}

fn must_be(numbers: &Numbers, expected: &[(&str, u64)], calls: u64) -> Result<()> {
    for (name, number) in expected {
        ensure!(
            numbers.get(*name) == Some(&(number * calls)),
            "{name} should be {} in all: {numbers:?}",
            number * calls
        );
    }
    Ok(())
}

/// What a row has of each: its own, and with nested calls.
fn collected(row: &Row) -> Result<(&Numbers, &Numbers)> {
    row.collected.as_ref().zip(row.collected_total.as_ref()).with_context(|| format!("nothing was collected: {row:?}"))
}

/// By probes: all calls have ended, and have what they consumed, of which nothing is in two rows.
fn must_have_ended(report: &Report, end: End) -> Result<()> {
    report.must_be_lossless()?;
    for native in [end.native, "within", "take"] {
        let row = row(report, native)?;
        ensure!((row.calls, row.in_flight, &*row.tier) == (CALLS, Some(0), "kernel"), "{row:?}");
        let (on_cpu_ns, off_cpu_ns) = row.on_cpu_ns.zip(row.off_cpu_ns).with_context(|| format!("{row:?}"))?;
        ensure!(Some(on_cpu_ns + off_cpu_ns) == row.self_ns, "{row:?}");
    }
    let innermost = row(report, end.native)?;
    let (own, total) = collected(innermost)?;
    ensure!(own == total, "{innermost:?}");
    must_be(own, &INNERMOST, CALLS)?;
    must_be(own, &[("lock_waits", end.lock_waits)], CALLS)?;
    must_be(collected(row(report, "take")?)?.0, &RETURNED, CALLS)?;
    let (own, total) = collected(row(report, "within")?)?;
    for ((name, innermost), (_, returned)) in INNERMOST.iter().zip(RETURNED) {
        let nested = total[*name] - own[*name];
        ensure!(nested == (innermost + returned) * CALLS, "{name} of nested calls: {own:?} of {total:?}");
    }
    must_be(own, &OUTER, CALLS)?;
    ensure!(OUTER_AT_LEAST.iter().all(|(name, number)| own[*name] >= number * CALLS), "{own:?}");
    Ok(())
}

/// By stubs: those are in flight that were left open, and nothing that they consumed is anybody's; what has returned in them is as ever.
fn must_be_in_flight(report: &Report, end: End) -> Result<()> {
    ensure!(report.lost() == 0, "{:?}", report.losses);
    for native in [end.native, "within"] {
        let row = row(report, native)?;
        ensure!((row.calls, row.in_flight, &*row.tier) == (0, Some(CALLS), "stub"), "{row:?}");
        ensure!((row.total_ns, row.self_ns, row.off_cpu_ns) == (Some(0), Some(0), Some(0)), "{row:?}");
        let numbers = row.collected.iter().chain(&row.collected_total).flat_map(Numbers::values);
        ensure!(numbers.sum::<u64>() == 0, "{row:?}");
    }
    let row = row(report, "take")?;
    ensure!((row.calls, row.in_flight, &*row.tier) == (CALLS, Some(0), "stub"), "{row:?}");
    must_be(collected(row)?.0, &RETURNED, CALLS)
}

fn must_be_right(report: &Report, tier: &str, end: End) -> Result<()> {
    let is_right = if tier == "kernel" { must_have_ended } else { must_be_in_flight };
    is_right(report, end).with_context(|| format!("{end:?} by {tier}: {report:#?}"))
}

/// Slow calls that their process has ended are known with what they consumed and without callers, which nobody could ask any more.
fn must_be_told(slow: &SlowCallRows) -> Result<()> {
    let stayed: Vec<_> = slow.calls.iter().filter(|call| call.method == KILLED.native).collect();
    ensure!(stayed.len() as u64 == CALLS, "{slow:?}");
    for call in stayed {
        must_be(call.collected.as_ref().context("nothing was collected")?, &INNERMOST, 1)?;
        ensure!(call.off_cpu_ns.zip(call.on_cpu_ns).is_some_and(|(off, on)| off + on == call.time_ns), "{call:?}");
    }
    Ok(())
}

/// Check that calls that a SIGKILL ends in the middle have what they consumed until then, to the unit, by probes, or are in flight by stubs;
/// where they are nested, and on threads of both kinds.
#[test]
fn with_their_process() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        for tier in ["kernel", "stub"] {
            let mut target = settled(jdk)?;
            let trace = Trace::start(target.pid(), &["--tier", tier, COLLECTED, "--slow=1ns", CLASS])?;
            // A virtual thread keeps its carrier inside, of which there may be one.
            let virtual_threads = u64::from(jdk.version >= 21);
            target.run(&format!("stay really {} {AMOUNT}", CALLS - virtual_threads))?;
            target.run(&format!("stay virtually {virtual_threads} {AMOUNT}"))?;
            target.kill()?;
            let report = trace.wait()?;
            must_be_right(&report, tier, KILLED)?;
            ensure!(report.targets[0].ended, "{:?}", report.targets);
            if tier == "kernel" {
                must_be_told(report.targets[0].slow.as_ref().context("no slow calls")?)?;
            }
        }
        Ok(())
    })
}

/// Check the same of calls that end with their thread, in a process that goes on: later ones have what is theirs.
#[test]
fn with_their_thread() -> Result<()> {
    const LATER: u64 = 50;
    traced_on_every_jdk(|jdk| {
        for tier in ["kernel", "stub"] {
            let mut target = settled(jdk)?;
            let trace = Trace::start(target.pid(), &["--tier", tier, COLLECTED, CLASS])?;
            target.run(&format!("leave {CALLS} {AMOUNT}"))?;
            target.run(&format!("consume call 4 {LATER} 3"))?;
            target.run(&format!("consume touch 4 {LATER} 5"))?;
            let report = trace.finish()?;
            must_be_right(&report, tier, LEFT)?;
            for (native, name, amount) in [("call", "syscalls", 3), ("touch", "faults", 5)] {
                let row = row(&report, native)?;
                ensure!((row.calls, row.in_flight) == (4 * LATER, Some(0)), "{row:?}");
                must_be(collected(row)?.0, &[(name, amount)], 4 * LATER)?;
            }
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that recordings and, where all JVMs are traced, their common table have the same of a JVM that is killed.
#[test]
fn in_other_views() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = settled(jdk)?;
        let recording = Recording::start(target.pid(), &[COLLECTED, CLASS])?;
        let mut trace = Trace::start_all(&["--interval=100ms", COLLECTED, CLASS])?;
        target.run(&format!("stay really {CALLS} {AMOUNT}"))?;
        let pid = target.pid();
        target.kill()?;
        must_be_recorded(&recording.wait()?.0)?;
        let began = Instant::now();
        while !trace.next_report()?.targets.iter().any(|found| found.pid == pid && found.ended) {
            ensure!(began.elapsed() < PATIENCE, "its end is not seen within {PATIENCE:?}");
        }
        let report = trace.finish()?.of(pid);
        must_be_right(&report, "kernel", KILLED)
    })
}

fn must_be_recorded(profile: &Profile) -> Result<()> {
    let stay = profile.functions.iter().find(|function| function.method == KILLED.native).context("no row")?;
    ensure!((stay.calls, stay.in_flight) == (CALLS, 0), "{stay:?}");
    let consumed = stay.consumed.as_deref().context("nothing was collected")?;
    let columns = profile.about.collectors.columns().map(|column| (column.name.to_owned(), column.own(consumed)));
    must_be(&columns.collect(), &INNERMOST, CALLS)
}
