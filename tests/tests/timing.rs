//! Times are those that the target measures itself.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use nprof::model::MethodSnapshot;
use nprof::trace::Tracer;
use nprof_common::Mode;
use nprof_tests::name::MethodName;
use nprof_tests::nprof::Trace;
use nprof_tests::process::{RemoteProcess, SelfTimed};
use nprof_tests::report::Row;
use nprof_tests::require::{on_every_jdk, traced_on_every_jdk};
use nprof_tests::shim_peer::TIME;
use nprof_tests::shim_watch::Watched;

use crate::TARGETS;
use crate::tiers::{SOON, traced_by_stubs};

/// What a pair of probes may add to a call that measures itself from its first statement to its last: the traps and
/// the programs that lie between nprof's clock readings and the target's. Measured: 1 to 6 us.
const PROBE_COST_NS: u64 = 10_000;

fn traced(target: &mut RemoteProcess, what: &str, calls: u32, argument: u64) -> Result<(SelfTimed, Row)> {
    let trace = Trace::start(target.pid(), &[TARGETS])?;
    let truth = target.self_timed(what, calls, argument)?;
    let report = trace.finish()?;
    report.must_be_lossless()?;
    let row = report.needed_row(&truth.method)?.clone();
    ensure!(row.calls == truth.calls && row.in_flight == Some(0), "{row:?}");
    Ok((truth, row))
}

/// The total is that of the target, and at most so much more; with what was taken off for the probes it is not less, and
/// neither is it without, but for the error that is stated.
fn agrees(truth: &SelfTimed, row: &Row, at_most_more_ns: u64) -> Result<()> {
    let times = row.times()?;
    let (probe_ns, error_ns) = probes(row)?;
    let more_ns = times.total_ns.saturating_sub(truth.total_ns);
    ensure!(times.total_ns + probe_ns >= truth.total_ns, "{truth:?}\n{row:?}");
    ensure!(
        times.total_ns + error_ns >= truth.total_ns && more_ns <= at_most_more_ns,
        "{more_ns} ns more: {truth:?}\n{row:?}"
    );
    ensure!(times.max_ns + probe_ns / truth.calls >= truth.max_ns, "{truth:?}\n{row:?}");
    Ok(())
}

/// What was taken off for the probes, and how far that may be off.
fn probes(row: &Row) -> Result<(u64, u64)> {
    let (Some(probe_ns), Some(error_ns)) = (row.probe_ns, row.probe_error_ns) else {
        bail!("nothing is said of the probes: {row:?}");
    };
    ensure!(probe_ns > 0 && error_ns > 0 && row.cost_ns > row.probe_ns, "{row:?}");
    Ok((probe_ns, error_ns))
}

/// Check that 200 sleeps of 10 ms add up to what the target's own clock says, within 1 %.
#[test]
fn sleeps_within_one_percent() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let (truth, row) = traced(&mut target, "sleep", 200, 10_000_000)?;
        agrees(&truth, &row, truth.total_ns / 100)
    })
}

/// Check that computing takes what the target says, within the cost of the probes.
#[test]
fn work_within_the_probes_cost() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let (truth, row) = traced(&mut target, "work", 500, 1_000_000)?;
        agrees(&truth, &row, truth.calls * PROBE_COST_NS)
    })
}

/// Has a target call a native that does nothing; what the calls took with everything around them, in nanoseconds.
fn call_empty(target: &mut RemoteProcess, command: &str) -> Result<u64> {
    let answer = target.run(&format!("{command} {EMPTY_CALLS}"))?.join("\n");
    Ok(answer.strip_prefix("took ").with_context(|| format!("no time: {answer}"))?.parse()?)
}

/// Calls of a native that does nothing.
const EMPTY_CALLS: u64 = 5000;

/// Check that natives that do nothing read as the same by probes, at each kind of site, and by stubs, within the error that
/// is stated and what the target itself has seen the probes take longer than they were found to cost: on a host that
/// others use, the same trap takes half as long again from one moment to the next. In what calls wait for a CPU meanwhile
/// probes have no part.
#[test]
fn empty_natives_take_no_time() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::bench(jdk)?;
        // Loads the class and binds its natives.
        call_empty(&mut target, "push")?;
        for (command, method, cost) in [("push", "pushFirst", "emulated"), ("step", "movFirst", "single-stepped")] {
            let mut traced = |tier: &str| {
                let pattern = format!("targets.Entries::{method}");
                let trace = Trace::start(target.pid(), &["--tier", tier, &pattern])?;
                let took_ns = call_empty(&mut target, command)?;
                let report = trace.finish()?;
                let row = report.methods.iter().find(|row| row.method == method).cloned();
                let row = row.with_context(|| format!("no row of {method}: {report:?}"))?;
                ensure!(row.calls == EMPTY_CALLS, "{row:?}");
                Ok((took_ns, row))
            };
            let ((took_ns, probed), (_, stubbed)) = (traced("kernel")?, traced("stub")?);
            ensure!(probed.cost.as_deref() == Some(cost) && stubbed.tier == "stub", "{probed:?}\n{stubbed:?}");
            let (probe_ns, error_ns) = probes(&probed)?;
            let waited_ns = probed.off_cpu_ns.context("no waits")?;
            let slower_ns = took_ns.saturating_sub(waited_ns + probed.cost_ns.context("no cost")?);
            let stubbed_ns = stubbed.total_ns.context("no total")?;
            let differ_ns = probed.on_cpu_ns.context("no work")?.abs_diff(stubbed_ns);
            let told = format!("{differ_ns} ns, {slower_ns} ns slower: {probed:?}\n{stubbed:?}");
            ensure!(differ_ns <= error_ns + slower_ns, "{told}");
            // What was measured was the probe, for the most part.
            ensure!(probed.p50_ns.context("no median")? < probe_ns / EMPTY_CALLS, "{told}");
        }
        target.exit()
    })
}

/// What a native works in the test below, in nanoseconds: less than the probe of a single-stepped site takes, and more than what
/// that probe takes may be off by. (The median of a native that does nothing was 2.2 us there once, with a bucket of 1.1 us
/// to each side and an error of 0.8 us.)
const WORK_NS: u64 = 6_000;

/// Check that a native that works takes longer than one that does nothing, though that one's probe takes longer than the
/// work.
#[test]
fn work_is_longer_than_a_costly_probe() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["targets.Entries::movFirst", "targets.Timed::work"])?;
        target.calls("entries", 1, 2000)?;
        let truth = target.self_timed("work", 2000, WORK_NS)?;
        let report = trace.finish()?;
        let worked = report.needed_row(&truth.method)?;
        let empty = report.methods.iter().find(|row| row.method == "movFirst").context("no row of movFirst")?;
        ensure!(worked.p50_ns > empty.p50_ns && empty.p50_ns.is_some(), "{worked:?}\n{empty:?}");
        Ok(())
    })
}

/// Check that the quantiles lie where equal sleeps must put them: a bucket is a factor of 1.19 wide.
#[test]
fn quantiles_of_equal_sleeps() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let (_, row) = traced(&mut target, "sleep", 50, 4_000_000)?;
        let (Some(p50), Some(p90), Some(p99)) = (row.p50_ns, row.p90_ns, row.p99_ns) else {
            bail!("no quantiles: {row:?}");
        };
        ensure!((3_400_000..=4_800_000).contains(&p50), "{row:?}");
        ensure!(p50 <= p90 && p90 <= p99 && p99 <= row.times()?.max_ns * 6 / 5, "{row:?}");
        Ok(())
    })
}

/// Check that nested calls do not count their time twice in the self time.
#[test]
fn self_time_leaves_out_traced_callees() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        let trace = Trace::start(target.pid(), &["targets.Nested::*"])?;
        target.calls("nested", 1, 500)?;
        let report = trace.finish()?;
        let times = report.methods[0].times()?;
        // Ten calls lie in each other: the sum over all is several times what passed.
        ensure!(times.self_ns * 2 < times.total_ns && times.self_ns <= report.elapsed_ns, "{times:?}");
        Ok(())
    })
}

/// Check that the times that the agent's stubs take of calls that time themselves are right.
#[test]
fn of_stubs_in_the_agent() -> Result<()> {
    on_every_jdk(|jdk| {
        let start = |agent: &str| RemoteProcess::shapes_on(jdk, &[agent]);
        let (mut target, mut watched) = Watched::from_the_start("targets.", TIME, start)?;
        let slept = target.self_timed("sleep", 20, 2_000_000)?;
        let record = watched.records()?.record("targets.Timed", "sleep", "(J)V");
        ensure!((record.entered, record.ended) == (20, 20), "{record:?}");
        // The native's own measurement lies inside ours.
        ensure!(record.total_ns * 10_001 / 10_000 >= slept.total_ns, "{record:?} of {slept:?}");
        ensure!(record.total_ns <= slept.total_ns + slept.total_ns / 50 + 20 * 100_000, "{record:?} of {slept:?}");
        ensure!(record.max_ns * 10_001 / 10_000 >= slept.max_ns, "{record:?} of {slept:?}");
        watched.exit(target)
    })
}

/// Calls of one method, and of these the ones that were only counted; the time of all of them, estimated in part.
fn sampled(tracer: &Tracer, method: &MethodName) -> Option<[u64; 3]> {
    let snapshot = tracer.snapshot();
    let is_named = |row: &&MethodSnapshot| {
        let known = &row.methods[0].method;
        (&*known.class, &*known.name) == (&*method.class, &*method.method)
    };
    let row = snapshot.methods.iter().find(is_named)?;
    Some([row.calls, row.counted, row.total_ns + row.estimated_ns.unwrap_or(0)])
}

/// Check that where one of 16 calls is timed all are counted, those of a method that is called rarely are all timed, and
/// the time of the others is estimated as the target measures it itself.
#[test]
fn some_calls_are_timed() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        const EVERY: u32 = 16;
        let mut target = RemoteProcess::shapes(jdk)?;
        let mut tracer = traced_by_stubs(&target, Mode::Time, EVERY)?;
        target.calls("all", 1, 100)?;
        tracer.tick();
        ensure!(tracer.snapshot().methods.iter().all(|row| row.counted == 0 && row.estimated_ns.is_none()));
        let mut work = |calls: u32| target.self_timed("work", calls, 5_000);
        let method = work(1)?.method;
        let deadline = Instant::now() + SOON;
        let before = loop {
            work(500)?;
            tracer.tick();
            match sampled(&tracer, &method).context("no work was seen")? {
                [_, 0, _] => ensure!(Instant::now() < deadline, "all calls are timed for {SOON:?}"),
                sampled => break sampled,
            }
        };
        let truth = work(100_000)?;
        let after = sampled(&tracer, &method).context("no work was seen")?;
        let [calls, counted, time] = [0, 1, 2].map(|field| after[field] - before[field]);
        ensure!(calls == truth.calls, "{calls} of {} calls", truth.calls);
        let of_each_1000 = 1000 * u64::from(EVERY) * (calls - counted) / calls;
        ensure!((950..=1050).contains(&of_each_1000), "{counted} of {calls} calls were not timed");
        let ratio = time as f64 / truth.total_ns as f64;
        ensure!((0.5..2.0).contains(&ratio), "estimated {time} ns, the target measured {}", truth.total_ns);
        tracer.stop();
        target.exit()
    })
}
