//! Stubs for many JVMs at once: under `trace --all`, and in those that a service is told to load the library into.

use std::time::Instant;

use anyhow::{Result, ensure};
use nprof_tests::child::PATIENCE;
use nprof_tests::jar::Jar;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::{Serve, UNGOVERNED};

use crate::TARGETS;
use crate::cycles::shim_threads;
use crate::serve::{ADD, CALLS, of, settled, until_counted};
use crate::tiers::{has_shim, must_add_up, must_be_as_before, must_be_stubbed};

/// Check that stubs count in each of several JVMs, each call once and for its own JVM; in one that starts later from when it is
/// found on; and that one that is of no use to stubs any more goes on to run.
#[test]
fn all_at_once() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let (mut one, mut other) = (RemoteProcess::shapes(jdk)?, RemoteProcess::shapes(jdk)?);
        // Loads the classes.
        for target in [&mut one, &mut other] {
            target.calls("static", 1, 1)?;
        }
        let mut trace = Trace::start_all(&["--interval", "100ms", "--tier", "stub", TARGETS])?;
        let later = RemoteProcess::shapes(jdk)?;
        let has_joined = |trace: &mut Trace| -> Result<bool> {
            Ok(trace.next_report()?.targets.iter().any(|row| row.pid == later.pid()))
        };
        // It is told of as soon as it is found; the shim is loaded then.
        let begin = Instant::now();
        while !(has_joined(&mut trace)? && has_shim(later.pid())?) {
            ensure!(begin.elapsed() < PATIENCE, "the later JVM is without the shim");
        }
        let called = [one.calls("static", 2, 1000)?, other.calls("static", 1, 700)?];
        let report = trace.finish()?;
        for (target, called) in [(&one, &called[0]), (&other, &called[1])] {
            let report = report.of(target.pid());
            must_add_up(&report, called)?;
            must_be_stubbed(&report, called)?;
        }
        for (which, mut target) in [("first", one), ("second", other), ("later", later)] {
            ensure!(has_shim(target.pid())?, "the {which} JVM is without the shim: {:?}", report.targets);
            must_be_as_before(&target)?;
            target.calls("static", 1, 10)?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that a service loads the library into the JVMs that it is told to and into no other, counts every call of both kinds,
/// and leaves a JVM whose calls count on, by probes, for the next.
#[test]
fn where_a_service_is_told_to() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let (wanted, unwanted) = (Jar::new(jdk, "with-stubs")?, Jar::new(jdk, "without-stubs")?);
        let options = [&UNGOVERNED[..], &["--stubs-for", "*with-stubs*", "--stubs-for", "no-such", TARGETS]].concat();
        let serve = Serve::start(&options)?;
        let mut targets = [wanted.start()?, unwanted.start()?];
        for (jar, target) in [&wanted, &unwanted].into_iter().zip(&mut targets) {
            until_counted(&serve, jar.name(), target)?;
            let before = settled(&serve, jar.name(), target)?;
            target.calls("static", 3, 400)?;
            ensure!(settled(&serve, jar.name(), target)? == before + 1200, "calls are missing");
            let seen = serve.samples()?.count(CALLS, &of(jar.name(), &ADD))?;
            ensure!(seen == before + 1200, "{seen} calls, {before} before");
        }
        // Who only looks does not take the stubs away from the service.
        let before = settled(&serve, wanted.name(), &mut targets[0])?;
        let trace = Trace::start(targets[0].pid(), &[TARGETS])?;
        let called = targets[0].calls("static", 1, 500)?;
        let report = trace.finish()?;
        must_add_up(&report, &called)?;
        ensure!(report.methods.iter().all(|row| row.tier == "kernel"), "{:?}", report.methods);
        ensure!(settled(&serve, wanted.name(), &mut targets[0])? == before + 500, "the service has missed calls");
        ensure!(has_shim(targets[0].pid())? && !has_shim(targets[1].pid())?, "the wrong JVM has the shim");
        ensure!(serve.finish()?.success(), "the service has not ended well");
        for mut target in targets {
            let trace = Trace::start(target.pid(), &["--tier", "kernel", TARGETS])?;
            let called = target.calls("static", 1, 300)?;
            must_add_up(&trace.finish()?, &called)?;
            target.exit()?;
        }
        Ok(())
    })
}

/// Check that a JVM that is found while it is starting gets its stubs: it obeys before it can be given any.
#[test]
fn one_that_is_starting() -> Result<()> {
    const JVM: &str = "targets.Shapes";
    traced_on_every_jdk(|jdk| {
        let options = [&UNGOVERNED[..], &["--jvm", JVM, "--stubs-for", JVM, TARGETS]].concat();
        let serve = Serve::start(&options)?;
        // What it compiles first takes it most of a second.
        let mut target = RemoteProcess::shapes_on(jdk, &["-Xcomp", "-XX:TieredStopAtLevel=1"])?;
        until_counted(&serve, JVM, &mut target)?;
        ensure!(shim_threads(target.pid())? == 1, "it is traced without the library");
        let before = settled(&serve, JVM, &mut target)?;
        target.calls("static", 2, 300)?;
        ensure!(settled(&serve, JVM, &mut target)? == before + 600, "calls are missing");
        target.exit()
    })
}
