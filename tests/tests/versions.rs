//! JVMs of other versions than those that everything is tested on: few tests, each of which fails if anything that nprof
//! reads lies elsewhere there.

use anyhow::{Context, Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::nprof::Trace;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_every_other_jdk, traced_on_every_jdk, traced_on_every_other_jdk};

use crate::TARGETS;
use crate::callers::Callers;
use crate::exact::traced_exactly;
use crate::flamegraph::{must_be_counted, must_be_true_though_late};
use crate::tiers::{must_count_by_stubs, must_show_slow_calls};
use crate::unwind::agreement::agree;

/// Check that counts are exact, of natives that are not bound yet and of such that are.
#[test]
fn counts_are_exact() -> Result<()> {
    traced_on_every_other_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        for _ in 0..2 {
            traced_exactly(&mut target, &[TARGETS], "all", 16, 200)?;
        }
        target.exit()
    })
}

/// Check that stacks of every shape are the VM's own, interpreted and compiled.
#[test]
fn every_frame_is_the_vms_own() -> Result<()> {
    on_every_other_jdk(|jdk| {
        agree(jdk, &[], &[300, 3_000, 3_000], 1)?;
        agree(jdk, &["-Xint"], &[], 1)
    })
}

/// Check that every stack of a recording is one of the target's own, those of virtual threads included.
#[test]
fn every_stack_is_a_true_one() -> Result<()> {
    traced_on_every_other_jdk(|jdk| {
        let mut target = Callers::learned(jdk, &[])?;
        let args = ["--max-stacks", "5000", "--stack-size", "64k"];
        for go in ["all 8 100000 2500", "virtual 6 100000 2000"] {
            if go.starts_with("virtual") && jdk.version < 21 {
                continue;
            }
            let (profile, truth) = target.recorded(&args, go)?;
            must_be_true_though_late(&profile, &truth, &format!("JDK {} {go}", jdk.version))?;
            must_be_counted(&profile, &truth)?;
        }
        target.exit()
    })
}

/// Check that stubs count exactly and show slow calls with their callers.
#[test]
fn stubs() -> Result<()> {
    traced_on_every_other_jdk(|jdk| {
        let mut target = RemoteProcess::shapes(jdk)?;
        must_count_by_stubs(&mut target)?;
        target.exit()?;
        must_show_slow_calls(jdk)
    })
}

/// Check that a method is counted exactly whose critical function compiled code calls: by probes, in a row of each function,
/// and by stubs, with which the VM calls the ordinary function alone.
#[test]
fn critical_functions() -> Result<()> {
    traced_on_every_other_jdk(|jdk| if jdk.version < 17 { must_count_critical(jdk, &[]) } else { Ok(()) })?;
    traced_on_every_jdk(|jdk| match jdk.version {
        17 => must_count_critical(jdk, &["-XX:+CriticalJNINatives"]),
        _ => Ok(()),
    })
}

fn must_count_critical(jdk: &Jdk, options: &[&str]) -> Result<()> {
    const CALLS: u64 = 20_000;
    let mut target = RemoteProcess::critical(jdk, options)?;
    for (tier, is_stub) in [("kernel", false), ("kernel", false), ("stub", true)] {
        let trace = Trace::start(target.pid(), &["--tier", tier, "targets.Critical::sum"])?;
        let answer = target.run(&format!("sum {CALLS}"))?.join("\n");
        let counts = answer.strip_prefix("counted ").and_then(|counts| counts.split_once(' ')).context("counts")?;
        let [ordinary, critical] = [counts.0.parse::<u64>()?, counts.1.parse::<u64>()?];
        ensure!(ordinary + critical == CALLS && (critical > 0) != is_stub, "{tier}: {answer}");
        let report = trace.finish()?;
        let seen = |is_critical: bool| {
            let rows = report.methods.iter().filter(|row| (row.bound == "critical") == is_critical);
            rows.map(|row| row.calls).sum::<u64>()
        };
        ensure!((seen(false), seen(true)) == (ordinary, critical), "{tier}: {answer}: {:?}", report.methods);
        ensure!(report.lost() == 0, "something was lost: {:?}", report.losses);
    }
    target.exit()
}
