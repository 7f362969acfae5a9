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
use nprof_tests::jdk::Jdk;
use nprof_tests::process::RemoteProcess;
use nprof_tests::target::MANY;

use self::footprint::Footprint;
use self::rounds::{Native, Scale};

/// How a bar was met.
struct Verdict {
    bar: &'static str,
    measured: f64,
    limit: f64,
}

fn main() -> Result<()> {
    let mut verdicts = Vec::new();
    for jdk in Jdk::find_all()? {
        println!("## {jdk}\n");
        verdicts.extend(bench(&jdk).with_context(|| format!("on {jdk}"))?);
        println!();
    }
    println!("## Bars\n\n| bar | limit | measured | |\n| --- | --- | --- | --- |");
    for Verdict { bar, measured, limit } in &verdicts {
        let met = if measured <= limit { "met" } else { "MISSED" };
        println!("| {bar} | {limit} | {measured:.3} | {met} |");
    }
    let missed = verdicts.iter().filter(|verdict| verdict.measured > verdict.limit).count();
    anyhow::ensure!(missed == 0, "{missed} bars missed");
    Ok(())
}

fn bench(jdk: &Jdk) -> Result<Vec<Verdict>> {
    let mut target = RemoteProcess::bench(jdk)?;
    let mut verdicts = Vec::new();
    for native in [Native::PUSH, Native::MOV] {
        let costs = rounds::compare(&mut target, native)?;
        println!("{costs}");
        verdicts.push(Verdict { bar: native.floor_bar, measured: costs.nprof_to_empty(), limit: 1.15 });
        verdicts.push(Verdict { bar: native.peer_bar, measured: costs.nprof_to_bpftrace(), limit: native.peer_limit });
    }
    let scale: Scale = rounds::ten_and_many(&mut target)?;
    println!("{scale}");
    verdicts.push(Verdict { bar: "cost per call, 2,000 attached to 10", measured: scale.ratio(), limit: 1.05 });
    let footprint = Footprint::measure(&mut target)?;
    println!("{footprint}");
    verdicts.push(Verdict { bar: "attach 2,000 methods, ms", measured: footprint.attach_ms, limit: 200.0 });
    verdicts.push(Verdict { bar: "detach them, ms", measured: footprint.detach_ms, limit: 200.0 });
    verdicts.push(Verdict { bar: "nprof's share of a core, %", measured: footprint.core_percent, limit: 1.0 });
    verdicts.push(Verdict { bar: "nprof's memory with BPF, MB", measured: footprint.megabytes(), limit: 64.0 });
    target.exit()?;
    assert_eq!(MANY, 2_000, "the bars speak of two thousand");
    Ok(verdicts)
}
