//! However nprof ends, nothing of it stays: not in the kernel, not in the target.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nprof_tests::code::{probed, still_probed};
use nprof_tests::jdk::Jdk;
use nprof_tests::kernel::BpfObjects;
use nprof_tests::nprof::{Trace, methods};
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::traced_on_every_jdk;
use rustix::process::Signal;

use crate::TARGETS;

/// Everything from nprof's start to its being attached, and from Ctrl-C to its end, takes at most so many times as long for all natives as
/// for one. Done one probe at a time, it takes a hundred times as long.
const MOST: u32 = 10;

const LIBRARY: &str = "libshapes.so";

/// Where the probes of the target's own library sit: all but the one that the kernel refuses.
fn sites(target: &RemoteProcess) -> Result<Vec<u64>> {
    let list = methods(target.pid(), &[TARGETS])?;
    let of_library =
        list.methods.iter().filter(|listed| listed.library.as_deref() == Some(LIBRARY) && listed.method != "lockFirst");
    let mut offsets: Vec<u64> = of_library.filter_map(|listed| listed.offset).collect();
    offsets.sort_unstable();
    offsets.dedup();
    ensure!(offsets.len() > 30, "only {} sites in {LIBRARY}", offsets.len());
    Ok(offsets)
}

/// Traces a busy target, ends the trace by `end`, and looks for what is left: of the probes, and in the kernel.
fn leaves_nothing(jdk: &Jdk, end: impl Fn(Trace) -> Result<()>) -> Result<()> {
    let mut target = RemoteProcess::shapes(jdk)?;
    let sites = sites(&target)?;
    let trace = Trace::start(target.pid(), &[TARGETS])?;
    target.calls("all", 4, 20)?;
    target.run("block 2")?;
    let held = BpfObjects::held_by(trace.pid())?;
    ensure!(!held.links.is_empty() && !held.maps.is_empty(), "nprof holds nothing: {held:?}");
    ensure!(probed(target.pid(), LIBRARY, &sites)? == sites, "not every site carries a probe");
    end(trace)?;
    ensure!(still_probed(target.pid(), LIBRARY, &sites)?.is_empty(), "probes are left in the target");
    let left = held.left_over()?;
    ensure!(left == BpfObjects::default(), "left in the kernel: {left:?}");
    target.run("release")?;
    target.exit()
}

/// Check that nothing is left after Ctrl-C.
#[test]
fn after_ctrl_c() -> Result<()> {
    traced_on_every_jdk(|jdk| leaves_nothing(jdk, |trace| trace.finish().map(drop)))
}

/// Check that nothing is left after SIGTERM.
#[test]
fn after_sigterm() -> Result<()> {
    traced_on_every_jdk(|jdk| leaves_nothing(jdk, |trace| trace.finish_by(Signal::TERM).map(drop)))
}

/// Check that nothing is left after SIGKILL, which nprof cannot see coming.
#[test]
fn after_sigkill() -> Result<()> {
    traced_on_every_jdk(|jdk| leaves_nothing(jdk, Trace::kill))
}

/// Check that nothing is left when the trace ends by its duration.
#[test]
fn after_the_duration() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let sites = sites(&target)?;
        let trace = Trace::start(target.pid(), &["--duration", "300ms", TARGETS])?;
        target.calls("all", 1, 10)?;
        let report = trace.wait()?;
        ensure!(report.elapsed_ns >= 300_000_000, "ended after {} ns", report.elapsed_ns);
        ensure!(still_probed(target.pid(), LIBRARY, &sites)?.is_empty(), "probes are left in the target");
        target.exit()
    })
}

/// Check that a target that was traced, and whose tracer was killed, can be traced again, exactly.
#[test]
fn a_second_trace_works() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        Trace::start(target.pid(), &[TARGETS])?.kill()?;
        let trace = Trace::start(target.pid(), &[TARGETS])?;
        let called = target.calls("all", 2, 100)?;
        let report = trace.finish()?;
        report.must_equal(&called)?;
        report.must_be_lossless()
    })
}

/// Check that two traces of one target at a time both count everything.
#[test]
fn two_traces_at_a_time() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let first = Trace::start(target.pid(), &[TARGETS])?;
        let second = Trace::start(target.pid(), &[TARGETS])?;
        let called = target.calls("all", 2, 100)?;
        first.finish()?.must_equal(&called)?;
        let more = target.calls("static", 2, 100)?;
        let report = second.finish()?;
        let calls = report.calls(&more[0].methods[0]);
        ensure!(calls == 400, "the second trace counted {calls} of 400 calls");
        Ok(())
    })
}

/// Check that another process that has the same library mapped is neither counted nor touched.
#[test]
fn other_processes_are_left_alone() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let mut bystander = RemoteProcess::shapes(jdk)?;
        let sites = sites(&target)?;
        let trace = Trace::start(target.pid(), &[TARGETS])?;
        let called = target.calls("all", 2, 100)?;
        bystander.calls("all", 2, 100)?;
        ensure!(probed(bystander.pid(), LIBRARY, &sites)?.is_empty(), "the bystander carries probes");
        trace.finish()?.must_equal(&called)
    })
}

/// How long nprof takes until these natives are attached, and until they are detached again.
fn start_and_end(target: &RemoteProcess, patterns: &[&str]) -> Result<[Duration; 2]> {
    let began = Instant::now();
    let trace = Trace::start(target.pid(), patterns)?;
    let start = began.elapsed();
    let began = Instant::now();
    trace.finish()?;
    Ok([start, began.elapsed()])
}

/// Check that all natives of a JVM are attached, and detached again, about as quickly as one.
#[test]
fn attaching_and_detaching_are_quick() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let target = RemoteProcess::shapes(jdk)?;
        let one = || start_and_end(&target, &["targets.Plain::add"]);
        let (before, all, after) = (one()?, start_and_end(&target, &[])?, one()?);
        // Other work may have held up one of the two.
        let is_quick = |part: usize| all[part] < MOST * before[part].max(after[part]);
        ensure!(
            is_quick(0) && is_quick(1),
            "to start and to end: {before:?} and {after:?} with one native, {all:?} with all"
        );
        target.exit()
    })
}

/// Check that the target runs at its old speed afterwards. Probes make this native 50 times slower, so a bound that
/// a busy machine does not break still proves it.
#[test]
fn the_old_speed_comes_back() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        target.speed_ns(200_000)?;
        let before = target.speed_ns(200_000)?;
        let trace = Trace::start(target.pid(), &[TARGETS])?;
        let traced = target.speed_ns(20_000)?;
        trace.finish().context("ending the trace")?;
        let after = target.speed_ns(200_000)?;
        ensure!(traced > 5.0 * before, "{traced} ns when traced, {before} ns before: not traced at all");
        ensure!(after < 2.0 * before, "{before} ns a call before, {after} ns after");
        Ok(())
    })
}
