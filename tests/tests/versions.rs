//! JVMs of other versions than those that everything is tested on: few tests, each of which fails if anything that nprof
//! reads lies elsewhere there.

use anyhow::Result;
use nprof_tests::process::RemoteProcess;
use nprof_tests::require::{on_every_other_jdk, traced_on_every_other_jdk};

use crate::TARGETS;
use crate::callers::Callers;
use crate::exact::traced_exactly;
use crate::flamegraph::{must_be_counted, must_be_true_though_late};
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
