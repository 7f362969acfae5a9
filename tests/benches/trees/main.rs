//! What an enhanced call costs, entered and left, in code that the VM has compiled, beside two readings of the clock by Java.
//!
//! A run is as long as a thread's ring has room, and the best of five counts: what else the machine does only adds to it.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

use anyhow::{Context, Result, ensure};
use nprof::discover::Proc;
use nprof::model::{Pid, TreeKind, TreeMethod, TreePlan};
use nprof::trace::TreeTracer;
use nprof_tests::bars::Bars;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;

/// So many calls have the VM compile what makes them.
const WARM_UP: u32 = 1_000_000;
/// Five times as many find room in a ring.
const CALLS: u32 = 600;
/// An enhanced call is to add at most so many times two readings.
const READINGS: f64 = 2.5;

/// Nanoseconds of a call, and of two readings.
#[derive(Debug, Clone, Copy)]
struct Times {
    call: f64,
    readings: f64,
}

fn main() -> Result<()> {
    let mut bars = Bars::default();
    println!("| | ns a call | enhanced | restored | two readings of the clock |\n| --- | --- | --- | --- | --- |");
    for jdk in Jdk::find_all()? {
        let [before, enhanced, restored] = measure(&jdk).with_context(|| format!("on {jdk}"))?;
        let (plain, told, after) = (before.call, enhanced.call, restored.call);
        println!("| {jdk} | {plain:.2} | {told:.1} | {after:.2} | {:.1} |", before.readings);
        let added = (told - plain) / before.readings;
        bars.add(format!("added to an enhanced call, in two readings of the clock, {jdk}"), added, READINGS);
    }
    println!("\n{bars}");
    bars.must_be_met()
}

/// As it is, enhanced, and restored.
fn measure(jdk: &Jdk) -> Result<[Times; 3]> {
    let mut target = RemoteProcess::trees(jdk, &[])?;
    times(&mut target, WARM_UP)?;
    let before = times(&mut target, CALLS)?;
    let proc = Proc::host();
    let plan = TreePlan { methods: vec![timed(), leaf()], ..TreePlan::default() };
    let mut tracer = TreeTracer::with_plan(&proc, proc.jvm(Pid(target.pid()))?, plan)?;
    tracer.begin()?;
    // Compiled again, for the most part without room in the ring.
    times(&mut target, WARM_UP)?;
    tracer.tick(&mut |_| {})?;
    let lost = tracer.losses();
    let enhanced = times(&mut target, CALLS)?;
    ensure!(tracer.losses() == lost, "{:?} after {lost:?}", tracer.losses());
    tracer.stop(&mut |_| {})?;
    times(&mut target, WARM_UP)?;
    let restored = times(&mut target, CALLS)?;
    target.exit()?;
    Ok([before, enhanced, restored])
}

fn times(target: &mut RemoteProcess, calls: u32) -> Result<Times> {
    let answer = target.run(&format!("time {calls}"))?;
    let (call, readings) = answer.first().and_then(|line| line.split_once(' ')).context("no times")?;
    Ok(Times { call: call.parse()?, readings: readings.parse()? })
}

/// The loop, and what it calls.
fn timed() -> TreeMethod {
    TreeMethod { class: "targets.Trees".into(), method: "timed".into(), is_entry: true, ..leaf() }
}

fn leaf() -> TreeMethod {
    TreeMethod {
        class: "targets.Trees$Work".into(),
        method: "leaf".into(),
        signature: "(I)I".into(),
        kind: TreeKind::Java,
        is_entry: false,
        depth: 0,
        callers: Vec::new(),
    }
}
