//! What a stub costs a program at each call, in one JVM whose stubs are switched off, to counting and to timing by turns: the code and
//! its place stay the same, so that nothing but the stubs' work differs.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nprof_tests::bars::median;
use nprof_tests::serve::{Serve, UNGOVERNED};

use crate::program::{Progress, Running};

/// Rounds, in each of which each state has its turn.
const ROUNDS: usize = 60;
/// A turn, and how long the stubs are left alone after they were switched.
const TURN: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_millis(20);
/// The JVM compiles again what calls the natives.
const SETTLED: Duration = Duration::from_secs(4);
/// Calls of an operation are counted for so long.
const COUNTED: Duration = Duration::from_secs(1);
const ALL: &str = "*::*";
/// What is done at a call. The first costs next to nothing.
const STATES: [(&str, &[&str]); 3] =
    [("off", &["disable", ALL]), ("count", &["mode", "count", ALL]), ("count and time", &["mode", "time", ALL])];

/// Measures a program, and says what its calls cost; nothing where that cannot be told from other work.
pub(crate) fn measure(running: &mut Running) -> Result<String> {
    if running.progress()?.is_none() {
        return Ok(String::new());
    }
    let main = running.main.clone();
    let options = [&UNGOVERNED[..], &["--jvm", &main, "--stubs-for", &main]].concat();
    let serve = Serve::start(&options)?;
    sleep(SETTLED);
    let calls = calls_of_operation(running, &serve)?;
    let mut costs: [Vec<f64>; STATES.len()] = Default::default();
    for round in 0..ROUNDS {
        for step in 0..STATES.len() {
            let state = (round + step) % STATES.len();
            serve.ctl_succeeds(STATES[state].1)?;
            sleep(REST);
            let progress = advance(running, TURN)?;
            costs[state].push(progress.cpu_ns / progress.operations / calls);
        }
    }
    ensure!(serve.finish()?.success(), "the service has not ended well");
    table(calls, &costs)
}

/// Calls of natives in an operation.
fn calls_of_operation(running: &mut Running, serve: &Serve) -> Result<f64> {
    let counted = || -> Result<f64> {
        Ok(serve.samples()?.with("nprof_native_calls_total", &[]).map(|sample| sample.value).sum())
    };
    let calls = counted()?;
    let progress = advance(running, COUNTED)?;
    Ok((counted()? - calls) / progress.operations)
}

/// What it does in some time.
fn advance(running: &mut Running, time: Duration) -> Result<Progress> {
    let before = running.progress()?.context("nobody works")?;
    sleep(time);
    let after = running.progress()?.context("nobody works")?;
    ensure!(after.operations > before.operations, "no operation in {time:?}");
    Ok(Progress { cpu_ns: after.cpu_ns - before.cpu_ns, operations: after.operations - before.operations })
}

/// Medians of the rounds' differences, with the half-width of their 95 % interval.
fn table(calls: f64, costs: &[Vec<f64>]) -> Result<String> {
    let off = costs.first().context("no state")?;
    let mut text =
        format!("By switching stubs, {calls:.1} calls in an operation, {ROUNDS} rounds of {TURN:?} each:\n\n");
    for ((name, _), costs) in STATES.iter().zip(costs).skip(1) {
        let differences: Vec<f64> = costs.iter().zip(off).map(|(cost, off)| cost - off).collect();
        let (middle, half) = (median(differences.iter().copied()), half_width(&differences));
        writeln!(text, "- {name}: {middle:.1} ns a call (95 %: ± {half:.1})")?;
    }
    Ok(text)
}

/// Of the interval of the median, as that of the mean of normal values, times 1.25.
#[expect(clippy::cast_precision_loss, reason = "a few rounds")]
fn half_width(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    1.96 * 1.25 * (variance / count).sqrt()
}
