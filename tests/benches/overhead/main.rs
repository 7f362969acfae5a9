//! What tracing costs: nprof side by side with no probe, with empty probes (the floor that the kernel sets) and with
//! a bpftrace script that measures the same, on the same native of the same JVM, in one run.
//!
//! Absolute times differ from machine to machine and from minute to minute. So every round measures every tool, and
//! what is judged is the median over the rounds of the ratio within a round.

#![expect(clippy::print_stdout, reason = "the result of a benchmark is what it prints")]

mod footprint;
mod peers;
mod rounds;

use anyhow::{Context, Result};
use nprof_tests::bars::Bars;
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::target::MANY;

use self::footprint::Footprint;
use self::rounds::{Native, Scale};

fn main() -> Result<()> {
    let mut bars = Bars::default();
    for jdk in Jdk::find_all()? {
        println!("## {jdk}\n");
        bars.extend(bench(&jdk).with_context(|| format!("on {jdk}"))?);
        println!();
    }
    println!("{bars}");
    bars.must_be_met()
}

fn bench(jdk: &Jdk) -> Result<Bars> {
    let mut target = RemoteProcess::bench(jdk)?;
    let mut bars = Bars::default();
    for native in [Native::PUSH, Native::MOV] {
        let costs = rounds::compare(&mut target, native)?;
        println!("{costs}");
        bars.add(native.floor_bar, costs.nprof_to_empty(), 1.15);
        bars.add(native.peer_bar, costs.nprof_to_bpftrace(), native.peer_limit);
        let [to_empty, to_bpftrace] = costs.collecting();
        bars.add(format!("{}, with faults and system calls", native.floor_bar), to_empty, 1.3);
        bars.add(format!("{}, with these", native.peer_bar), to_bpftrace, 0.8);
    }
    let scale: Scale = rounds::ten_and_many(&mut target)?;
    println!("{scale}");
    bars.add("cost per call, 2,000 attached to 10", scale.ratio(), 1.05);
    let footprint = Footprint::measure(&mut target)?;
    println!("{footprint}");
    bars.add("attach 2,000 methods, ms", footprint.attach_ms, 200.0);
    bars.add("detach them, ms", footprint.detach_ms, 200.0);
    bars.add("nprof's share of a core, %", footprint.core_percent, 1.0);
    bars.add("nprof's memory with BPF, MB", footprint.megabytes(), 64.0);
    target.exit()?;
    assert_eq!(MANY, 2_000, "the bars speak of two thousand");
    Ok(bars)
}
