//! Every JVM of the host at once: those that run, those that start, those that end. Results are per JVM.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::container::{Container, Layer, Root, Sort};
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::report::{Report, TargetRow};
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::usage::Usage;

use crate::TARGETS;
use crate::containers::Decoy;
use crate::errors::{VALUE, changeable};

/// The promise.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);
/// How long to look before a test gives up. Longer than the promise, so that a miss says by how much.
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);
/// JVMs that come and go in the test of what stays behind.
const CROWD: usize = 50;

/// Reads documents until one has what is wanted of it; returns how long that took.
fn until(trace: &mut Trace, what: &str, mut has_it: impl FnMut(&Report) -> bool) -> Result<Duration> {
    let began = Instant::now();
    while !has_it(&trace.next_report()?) {
        ensure!(began.elapsed() < GIVE_UP_AFTER, "{what}: not within {GIVE_UP_AFTER:?}");
    }
    Ok(began.elapsed())
}

/// The count that no longer changes while the target makes no calls.
fn settled(trace: &mut Trace, pid: u32, native: &MethodName) -> Result<u64> {
    let mut before = trace.next_report()?.of(pid).calls(native);
    for _ in 0..100 {
        let now = trace.next_report()?.of(pid).calls(native);
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    bail!("the count of {native} does not settle")
}

fn target(report: &Report, pid: u32) -> Option<&TargetRow> {
    report.targets.iter().find(|target| target.pid == pid)
}

/// Check that calls are told apart by JVM and counted to the unit, in one that ran before and in one that starts later,
/// and that the results of one that ends stay.
#[test]
fn each_jvm_by_itself() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut before = RemoteProcess::shapes(jdk)?;
        let mut trace = Trace::start_all(&["--interval", "100ms", TARGETS])?;
        let mut later = RemoteProcess::shapes(jdk)?;
        let (first, second) = (before.pid(), later.pid());
        let took = until(&mut trace, "the later JVM", |report| target(report, second).is_some())?;
        ensure!(took <= NOTICED_WITHIN, "a JVM that was ready was traced only {took:?} later");
        // It joined while it was starting: what it has bound since is picked up within a second.
        let native = later.calls("static", 1, 1)?.remove(0).methods.remove(0);
        let picked_up = until(&mut trace, "its native", |report| {
            later.calls("static", 1, 1).is_ok() && report.of(second).calls(&native) > 0
        })?;
        ensure!(picked_up <= NOTICED_WITHIN, "its native was traced only {picked_up:?} later");
        let counted = settled(&mut trace, second, &native)?;
        let called_before = before.calls("static", 1, 1000)?;
        let called_later = later.calls("static", 2, 700)?;
        before.exit()?;
        until(&mut trace, "the end of the first", |report| target(report, first).is_some_and(|row| row.ended))?;
        let report = trace.finish()?;
        report.of(first).must_equal(&called_before)?;
        let made: u64 = called_later.iter().map(|called| called.made).sum();
        ensure!(
            report.of(second).calls(&native) == counted + made,
            "{counted} and {made}: {:?}",
            report.of(second).methods
        );
        report.must_be_lossless()?;
        ensure!(!target(&report, second).context("the later JVM")?.ended, "{:?}", report.targets);
        later.exit()
    })
}

/// Check that the calls of JVMs in containers of all sorts are told apart, from each other's and from those of one that is in
/// none, all at once; and that a file of the host is not taken for one of a container.
#[test]
fn containers_of_all_sorts() -> Result<()> {
    let decoy = Decoy::new()?;
    let mut sorts = Vec::new();
    for layer in [Layer::Upper, Layer::Lower] {
        let usual = Sort { layer, ..Sort::default() };
        let chroot = Sort { root: Root::Chroot, ..usual.clone() };
        let user_namespace = Sort { user_namespace: true, ..usual.clone() };
        sorts.extend([
            (usual.clone(), None),
            (usual, Some(Container::delete_library as fn(&Container) -> Result<()>)),
            (chroot.clone(), None),
            (chroot, Some(Container::unmount_root)),
            (user_namespace, None),
            (decoy.sort(layer)?, None),
        ]);
    }
    traced_on_every_jdk(|jdk| {
        let mut outside = RemoteProcess::shapes(jdk)?;
        let mut inside = Vec::new();
        for (sort, change) in &sorts {
            let container = Container::start(jdk, sort)?;
            change.map_or(Ok(()), |change| change(&container))?;
            inside.push(container);
        }
        let trace = Trace::start_all(&[TARGETS])?;
        let called_inside = inside.iter_mut().map(|container| container.calls("all", 2, 300)).collect::<Vec<_>>();
        let called_outside = outside.calls("all", 2, 200)?;
        let report = trace.finish()?;
        report.of(outside.pid()).must_equal(&called_outside)?;
        for ((container, called), (sort, change)) in inside.iter().zip(called_inside).zip(&sorts) {
            let of_it = report.of(container.pid());
            let is_exact = called.and_then(|called| of_it.must_equal(&called)).and_then(|()| of_it.must_be_lossless());
            is_exact.with_context(|| format!("{sort:?}, changed: {}", change.is_some()))?;
        }
        Ok(())
    })?;
    decoy.must_be_unopened()
}

/// Check that JVMs that come and go leave nothing behind: no descriptor, no record, hardly any memory.
#[test]
fn a_crowd_leaves_nothing_behind() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut trace = Trace::start_all(&["--interval", "100ms", TARGETS])?;
        let mut sizes = Vec::new();
        for round in 0..CROWD {
            let mut target_jvm = RemoteProcess::shapes(jdk)?;
            let pid = target_jvm.pid();
            until(&mut trace, "a JVM of the crowd", |report| target(report, pid).is_some())?;
            target_jvm.calls("static", 1, 10)?;
            target_jvm.kill()?;
            until(&mut trace, "its end", |report| target(report, pid).is_none_or(|row| row.ended))?;
            if round == CROWD / 5 || round == CROWD - 1 {
                sizes.push(Usage::of(trace.pid())?);
            }
        }
        let report = trace.finish()?;
        report.must_be_lossless()?;
        let [early, late] = sizes[..] else { unreachable!() };
        ensure!(late.descriptors <= early.descriptors, "{sizes:?}");
        // What is kept of the results grows; what was needed for tracing does not.
        ensure!(late.resident < early.resident + 8_000_000, "{sizes:?}");
        Ok(())
    })
}

/// Check that a JVM whose process becomes another program has ended while others are traced on.
#[test]
fn one_of_several_becomes_another_program() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let (mut changes, mut stays) = (changeable(jdk)?, changeable(jdk)?);
        let mut trace = Trace::start_all(&["--interval", "200ms", VALUE])?;
        for target in [&mut changes, &mut stays] {
            target.run("value")?;
        }
        changes.leave_to("become")?;
        let (gone, living) = (changes.pid(), stays.pid());
        let is_ended = |report: &Report, pid| report.targets.iter().any(|target| target.pid == pid && target.ended);
        let deadline = Instant::now() + PATIENCE;
        while !is_ended(&trace.next_report()?, gone) {
            ensure!(Instant::now() < deadline, "another program is not noticed");
        }
        stays.run("value")?;
        let report = trace.finish()?;
        ensure!(is_ended(&report, gone) && !is_ended(&report, living), "{report:?}");
        let calls = |pid| report.methods.iter().filter(|method| method.pid == pid).map(|m| m.calls).sum::<u64>();
        ensure!((calls(gone), calls(living)) == (1, 2), "{report:?}");
        stays.exit()
    })
}
