//! What it costs to take stacks: the thread that is sampled, and nprof itself; and what else a recording may collect.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]
#![expect(clippy::cast_precision_loss, reason = "counts and times are far below 2^52")]

mod additions;
mod recording;

use anyhow::{Context, Result};
use nprof_tests::bars::Bars;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;

use crate::additions::Additions;
use crate::recording::{Cost, DEPTH, Load, Statistics};

fn main() -> Result<()> {
    let jdk = Jdk::find_all()?.pop().context("no JDK under /usr/lib/jvm")?;
    let _statistics = Statistics::on()?;
    let mut target = RemoteProcess::deep(&jdk)?;
    println!("## Stacks of {DEPTH} frames and more on {jdk}\n");
    println!("| calls/s | stacks/s | programs, a call | nprof's CPU | complete |\n| --- | --- | --- | --- | --- |");
    let mut measure = |calls_per_millisecond: u32, max_stacks: u32| -> Result<Cost> {
        let load = Load { calls_per_millisecond, max_stacks, options: &[], seconds: 6.0 };
        let cost = Cost::of(&mut target, load)?;
        let Cost { call_ns, cpu, stacks_per_second, complete, .. } = &cost;
        let (cpu, complete) = (100.0 * cpu, 100.0 * complete);
        let calls = calls_per_millisecond * 1_000;
        println!("| about {calls} | {stacks_per_second:.0} | {call_ns:.0} ns | {cpu:.1} % | {complete:.2} % |");
        Ok(cost)
    };
    let (none, all) = (measure(1, 1)?, measure(1, 100_000)?);
    let usual = measure(20, 1_000)?;
    println!();
    Additions::measure(&mut target)?.print();
    let mut bars = Bars::default();
    bars.add("a sampled call adds, in us", (all.call_ns - none.call_ns) / 1e3, 5.0);
    bars.add("nprof at 1,000 stacks/s, share of a core", usual.cpu / usual.stacks_per_second * 1e3, 0.1);
    bars.add("incomplete stacks, share", 1.0 - all.complete.min(usual.complete), 0.005);
    println!("{bars}");
    bars.must_be_met()
}
