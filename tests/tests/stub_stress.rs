//! Stubs in JVMs that have other troubles at the same time: a profiler's signals, collections without end, arrays that may
//! not move, classes that are replaced. Every result right, every call counted.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::jdk::Jdk;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{does_not_concern, on_every_jdk, traced_on_every_jdk};
use nprof_tests::shape_source;
use nprof_tests::shim::still_stubbed;
use nprof_tests::shim_peer::TIME;
use nprof_tests::shim_watch::Watched;

use crate::stubs::{GENERATED, THREADS, call_shapes, must_be_exact, must_be_right};

/// Enough for some hundred samples: the kernel's timers are coarser than what is asked for.
const ROUNDS: u64 = 2_500;
/// The last JDK with `-XX:+CriticalJNINatives`.
const LAST_CRITICAL: u32 = 17;
/// The first JDK with virtual threads.
const FIRST_VIRTUAL: u32 = 21;
/// A native of which there are two, an ordinary one and a critical one.
const SWIFT: [&str; 3] = ["targets.Stressed", "swift", "([I)I"];

/// A JVM with every native timed from the start.
fn timed(jdk: &Jdk, options: &[&str]) -> Result<(RemoteProcess, Watched)> {
    Watched::from_the_start("", TIME, |agent| RemoteProcess::stressed(jdk, &[options, &[agent]].concat()))
}

/// The numbers that a command answers with.
fn numbers<const COUNT: usize>(target: &mut RemoteProcess, command: &str) -> Result<[u64; COUNT]> {
    let answer = target.run(command)?;
    let numbers: Vec<u64> = answer.iter().map(|line| line.parse()).collect::<Result<_, _>>()?;
    numbers.try_into().map_err(|numbers| anyhow::anyhow!("{command}: {numbers:?}"))
}

/// Takes sums of arrays by one of the natives for it.
fn sums(target: &mut RemoteProcess, native: &str, rounds: u64) -> Result<u64> {
    let answer = target.run(&format!("{native} {THREADS} {rounds}"))?;
    ensure!(answer == [format!("checked {} wrong 0", THREADS * rounds)], "{answer:?}");
    Ok(THREADS * rounds)
}

/// Check that a profiler may interrupt threads anywhere in stubs and unwind them: it gets stacks, of threads in natives
/// too, and all results and counts stay right.
#[test]
fn interrupted_by_a_profiler() -> Result<()> {
    on_every_jdk(|jdk| {
        let (mut target, mut watched) = timed(jdk, &[])?;
        target.run("profile 1000")?;
        call_shapes(&mut target, THREADS, ROUNDS)?;
        let mut made = THREADS * ROUNDS;
        if jdk.version >= FIRST_VIRTUAL {
            must_be_right(&target.run("virtual 100 2")?, Some(200))?;
            made += 200;
        }
        target.run("profile 0")?;
        let [ticks, stacks, in_natives] = numbers(&mut target, "samples")?;
        ensure!(stacks > 100 && in_natives > 10, "{ticks} ticks, {stacks} stacks, {in_natives} of them in natives");
        must_be_exact(&watched.records()?, TIME, made)?;
        watched.exit(target)
    })
}

/// Check that collections never harm a call, whatever collector there is: of objects that natives hold and of arrays that
/// may not move, from threads of both sorts.
#[test]
fn collections_without_end() -> Result<()> {
    on_every_jdk(|jdk| {
        for collector in ["-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseG1GC", "-XX:+UseZGC"] {
            let (mut target, mut watched) = timed(jdk, &[collector, "-Xmn2m"])?;
            collect_meanwhile(jdk, &mut target, &mut watched).with_context(|| collector.to_owned())?;
            watched.exit(target)?;
        }
        Ok(())
    })
}

fn collect_meanwhile(jdk: &Jdk, target: &mut RemoteProcess, watched: &mut Watched) -> Result<()> {
    /// So many, while arrays may not move.
    const ENOUGH: u64 = 4;
    target.run("collect")?;
    call_shapes(target, THREADS, 20)?;
    let mut made = 20 * THREADS;
    if jdk.version >= FIRST_VIRTUAL {
        must_be_right(&target.run("virtual 20 1")?, Some(20))?;
        made += 20;
    }
    // Arrays that may not move keep collections waiting, and how many calls there are to one differs from run to run.
    let (mut pinned, mut collections) = (sums(target, "pinned", 20_000)?, numbers::<1>(target, "calm")?[0]);
    let deadline = Instant::now() + PATIENCE;
    while collections < ENOUGH {
        ensure!(Instant::now() < deadline, "{collections} collections in {pinned} calls");
        target.run("collect")?;
        pinned += sums(target, "pinned", 20_000)?;
        collections += numbers::<1>(target, "calm")?[0];
    }
    let records = watched.records()?;
    must_be_exact(&records, TIME, made)?;
    let record = records.record("targets.Stressed", "pinned", "([I)I");
    ensure!((record.entered, record.ended) == (pinned, pinned), "{record:?} of {pinned}");
    Ok(())
}

/// Check that a VM that checks every use of its interface finds nothing to say about calls that go through stubs.
#[test]
fn checked_calls() -> Result<()> {
    on_every_jdk(|jdk| {
        let (mut target, watched) = timed(jdk, &["-Xcheck:jni"])?;
        for command in [format!("shapes {THREADS} 5"), format!("pinned {THREADS} 100")] {
            let answer = target.run(&command)?;
            // It says what it finds on its standard output.
            ensure!(answer.len() == 1 && answer[0].ends_with(" wrong 0"), "{answer:?}");
        }
        watched.exit(target)
    })
}

/// Check that a method with a critical native gets right results and is counted exactly with a stub, because the VM passes
/// its critical native over, and has it again without.
#[test]
fn critical_natives() -> Result<()> {
    const ROUNDS: u64 = 20_000;
    on_every_jdk(|jdk| {
        if jdk.version > LAST_CRITICAL {
            return does_not_concern(jdk, "it has no critical natives");
        }
        let mut target = RemoteProcess::stressed(jdk, &["-XX:+CriticalJNINatives"])?;
        sums(&mut target, "swift", ROUNDS)?;
        let [usual, critical] = numbers(&mut target, "ways")?;
        ensure!(critical > 0, "no critical call: {usual} usual");
        let mut watched = Watched::load(jdk, target.pid(), "targets.", TIME)?;
        let made = sums(&mut target, "swift", ROUNDS)?;
        let [usual_then, critical_then] = numbers(&mut target, "ways")?;
        ensure!((usual_then - usual, critical_then - critical) == (made, 0), "{usual_then} {critical_then}");
        let [class, method, signature] = SWIFT;
        let record = watched.detach()?.record(class, method, signature);
        ensure!((record.entered, record.ended) == (made, made), "{record:?} of {made}");
        sums(&mut target, "swift", ROUNDS)?;
        let [_, critical_now] = numbers(&mut target, "ways")?;
        ensure!(critical_now > critical_then, "no critical call any more");
        target.exit()
    })
}

/// Check that a class that is replaced while its natives are called keeps its stubs: results stay right, and nprof counts
/// each call before and after, under one name, and leaves nothing in the newest version of the class.
#[test]
fn replaced_classes() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::stressed(jdk, &[])?;
        call_shapes(&mut target, THREADS, 1)?;
        let trace = Trace::start(target.pid(), &["--tier", "stub", "targets.Generated::*"])?;
        for _ in 0..3 {
            call_shapes(&mut target, THREADS, 10)?;
            target.run("redefine 4")?;
        }
        call_shapes(&mut target, THREADS, 10)?;
        let made = 40 * THREADS;
        target.run("load 4")?;
        target.run("redefine 10")?;
        must_be_right(&target.run("unload")?, None)?;
        let under_load = trace.finish()?;
        let rows: Vec<_> = under_load.methods.iter().filter(|row| row.class == GENERATED).collect();
        let shapes: Vec<_> = rows.iter().filter(|row| row.method != "hash").collect();
        ensure!(shapes.len() == shape_source::count(), "{} rows", shapes.len());
        ensure!(shapes.iter().all(|row| row.calls > made && row.tier == "stub"), "not all calls were seen");
        ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
        must_be_traced_exactly(&mut target)?;
        target.exit()
    })
}

/// Traces a class once more, of which there have been other versions, and replaces it meanwhile.
fn must_be_traced_exactly(target: &mut RemoteProcess) -> Result<()> {
    let trace = Trace::start(target.pid(), &["--tier", "stub", "targets.Generated::*"])?;
    call_shapes(target, THREADS, 10)?;
    target.run("redefine 3")?;
    call_shapes(target, THREADS, 10)?;
    let report = trace.finish()?;
    let wrong: Vec<MethodName> = report
        .methods
        .iter()
        .filter(|row| row.method != "hash" && row.calls != 20 * THREADS)
        .map(nprof_tests::report::Row::name)
        .collect();
    if !wrong.is_empty() {
        bail!("{} methods were not counted exactly, such as {}", wrong.len(), wrong[0]);
    }
    ensure!(report.lost() == 0, "{:?}", report.losses);
    ensure!(still_stubbed(target.pid())?.is_empty(), "stubs are left");
    Ok(())
}
