//! Times are those that the target measures itself.

use anyhow::{Result, bail, ensure};
use nprof_tests::nprof::Trace;
use nprof_tests::process::{RemoteProcess, SelfTimed};
use nprof_tests::report::Row;
use nprof_tests::require::traced_on_every_jdk;

use crate::TARGETS;

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

/// The total is that of the target, and at most so much more.
fn agrees(truth: &SelfTimed, row: &Row, at_most_more_ns: u64) -> Result<()> {
    let times = row.times()?;
    let more_ns = times.total_ns.saturating_sub(truth.total_ns);
    ensure!(times.total_ns >= truth.total_ns && more_ns <= at_most_more_ns, "{more_ns} ns more: {truth:?}\n{row:?}");
    ensure!(times.max_ns >= truth.max_ns, "{truth:?}\n{row:?}");
    Ok(())
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
