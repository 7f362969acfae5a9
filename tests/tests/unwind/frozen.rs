//! Frames of virtual threads that are frozen in the heap.

use anyhow::{Context, Result, ensure};
use nprof::model::{CutReason, VirtAddr};
use nprof::unwind::{End, Sample};
use nprof_tests::require::{on_every_jdk, say};

use super::session::{MAX_STACK_BYTES, Session};
use super::tally::Tally;
use super::waiting::Waiting;

/// Check that frames in the heap are found after every collection that moves them, or that the stack is cut there: Z
/// moves objects without telling those that refer to them.
#[test]
fn frozen_frames_outlast_collections() -> Result<()> {
    const SHAPES: &str = "virtualYielded,virtualYieldedDeep,virtualYieldedOften,virtualYieldedInStream";
    on_every_jdk(|jdk| {
        let collectors =
            ["-XX:+UseG1GC", "-XX:+UseParallelGC", "-XX:+UseSerialGC", "-XX:+UseShenandoahGC", "-XX:+UseZGC"];
        for collector in collectors.into_iter().filter(|_| jdk.version >= 21) {
            let mut session = Session::new(jdk, &[collector])?;
            let mut tally = Tally::default();
            session.target.run("warm 300 all")?;
            let waiting = Waiting::all(&mut session.target, SHAPES)?;
            for _ in 0..5 {
                session.look(jdk, &waiting, &mut tally)?;
                session.target.run("collect")?;
            }
            if collector == "-XX:+UseZGC" && tally.cuts.keys().eq([&CutReason::FrozenFrames]) {
                tally.cut_shapes.clear();
            }
            tally.judge(jdk, collector)?;
        }
        Ok(())
    })
}

/// Check that frozen frames are left out, and none else, if the thread is said to have gone on.
#[test]
fn frozen_frames_need_the_thread_to_be_there() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xint"])?;
        for waiting in Waiting::all(&mut session.target, "direct,virtual,virtualYielded")? {
            let bytes = session.copy(waiting.rsp, MAX_STACK_BYTES)?;
            let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &bytes);
            let stack = session.unwinder.unwind_while(&sample.context("an empty stack")?, || false)?;
            let frozen = waiting.shape == "virtualYielded" && jdk.version >= 21;
            let expected = if frozen { End::Cut(CutReason::FrozenFrames) } else { End::Complete };
            ensure!(stack.end == expected && !stack.frames.is_empty(), "{}: {:?}", waiting.shape, stack.end);
            ensure!(waiting.difference(&stack, jdk).is_none(), "{:?}", waiting.difference(&stack, jdk));
        }
        Ok(())
    })
}

/// Check that a copy of a stack is not completed by the frozen frames of another virtual thread that has taken the place
/// of the first one and looks the same on the stack.
#[test]
fn frozen_frames_of_others_are_not_taken() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xint", "-Djdk.virtualThreadScheduler.parallelism=1"])?;
        let (mut cut, mut same_place) = (0, 0);
        for _ in 0..10 * u32::from(jdk.version >= 21) {
            let before = Waiting::all(&mut session.target, "virtualYielded")?.swap_remove(0);
            let bytes = session.copy(before.rsp, MAX_STACK_BYTES)?;
            session.target.run("release")?;
            let after = Waiting::all(&mut session.target, "virtualYieldedDeep")?.swap_remove(0);
            same_place += u32::from(after.rsp == before.rsp);
            let sample = Sample::at_native_entry(VirtAddr(before.rsp), VirtAddr(before.rbp), &bytes);
            let stack = session.unwinder.unwind(&sample.context("an empty stack")?)?;
            cut += u32::from(stack.end == End::Cut(CutReason::FrozenFrames));
            let difference = before.difference(&stack, jdk);
            ensure!(difference.is_none(), "{difference:?}");
            session.target.run("release")?;
        }
        say(&format!("JDK {}: {cut} cut, {same_place} of them with another thread in the same place", jdk.version));
        ensure!(jdk.version < 21 || cut == 10 && same_place > 0, "{cut} cut, {same_place} in the same place");
        Ok(())
    })
}
