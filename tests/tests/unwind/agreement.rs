//! Every frame of every shape is the VM's own, however the VM was started.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use nprof_tests::jdk::Jdk;
use nprof_tests::require::{on_every_jdk, rounds};

use super::session::Session;
use super::tally::Tally;
use super::waiting::Waiting;

/// Compares all shapes on a JVM with these options: at once, and when their code is more and more compiled.
pub(crate) fn agree(jdk: &Jdk, options: &[&str], warmings: &[u32], rounds: u32) -> Result<()> {
    let mut session = Session::new(jdk, options)?;
    let mut tally = Tally::default();
    for warming in [0].iter().chain(warmings) {
        session.target.run(&format!("warm {warming} all"))?;
        for _ in 0..rounds {
            session.compare(jdk, "all", &mut tally)?;
        }
    }
    tally.judge(jdk, &format!("{options:?}"))
}

/// Check that stacks of every shape are the VM's own, from the first call until the code is compiled by C2.
#[test]
fn every_frame_is_the_vms_own() -> Result<()> {
    on_every_jdk(|jdk| agree(jdk, &[], &[50, 300, 3_000, 3_000], rounds()?))
}

/// Check the same without the interpreter, without compilers, with one compiler alone.
#[test]
fn every_way_of_execution_agrees() -> Result<()> {
    on_every_jdk(|jdk| {
        agree(jdk, &["-Xint"], &[], rounds()?)?;
        agree(jdk, &["-Xcomp"], &[], rounds()?)?;
        agree(jdk, &["-XX:TieredStopAtLevel=1"], &[2_000], rounds()?)?;
        agree(jdk, &["-XX:-TieredCompilation"], &[12_000], rounds()?)
    })
}

/// Check the same with other collectors and layouts of the VM.
#[test]
fn every_layout_agrees() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut all: Vec<&[&str]> = vec![
            // Without a collection meanwhile.
            &["-XX:+UseZGC", "-Xmx1g", "-XX:MetaspaceSize=256m"],
            &["-XX:+UseSerialGC", "-XX:-UseCompressedOops", "-XX:-SegmentedCodeCache"],
            &["-XX:+PreserveFramePointer"],
            &["-Xshare:off", "-Xcheck:jni"],
            &["-XX:-Inline"],
        ];
        if jdk.version >= 25 {
            all.push(&["-XX:+UseCompactObjectHeaders"]);
            // The VM warns that it will not know this option much longer.
            all.push(&["-XX:-UseCompressedClassPointers"]);
        }
        all.into_iter().try_for_each(|options| agree(jdk, options, &[1_000], 1))
    })
}

/// Check that the frames that are not hidden are those that the VM shows without being told to show all; those of JDKs
/// before 21 show all of another thread's frames.
#[test]
fn hidden_frames_are_those_that_the_vm_hides() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-XX:-ShowHiddenFrames"])?;
        session.target.run("warm 300 all")?;
        let mut hidden = BTreeSet::new();
        for waiting in Waiting::all(&mut session.target, "all")? {
            let mut stack = session.unwind(&waiting)?;
            hidden.extend(stack.frames.iter().filter(|frame| frame.hidden).map(|frame| frame.method.name.to_string()));
            if jdk.version >= 21 {
                stack.frames.retain(|frame| !frame.hidden);
                // The carrier's frames have no hidden entry before them then.
                let difference = waiting.difference_within(&stack);
                ensure!(difference.is_none(), "{difference:?}");
            }
        }
        ensure!(hidden.iter().any(|name| name.starts_with("invokeStatic")), "no lambda form is hidden: {hidden:?}");
        Ok(())
    })
}
