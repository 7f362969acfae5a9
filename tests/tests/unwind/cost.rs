//! What a stack costs.

use std::time::Instant;

use anyhow::{Context, Result};
use nprof::model::VirtAddr;
use nprof::unwind::Sample;
use nprof_tests::require::{on_every_jdk, say};

use super::session::Session;
use super::waiting::Waiting;

/// Prints what a stack costs: run by hand, in a release build.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_stack() -> Result<()> {
    const TIMES: u32 = 2_000;
    on_every_jdk(|jdk| {
        for options in [&[][..], &["-Xint"]] {
            let mut session = Session::new(jdk, options)?;
            session.target.run("warm 3000 direct,inlined,callback3,stream,recursion200")?;
            for waiting in Waiting::all(&mut session.target, "direct,inlined,callback3,stream,recursion200")? {
                let bytes = session.copy(waiting.rsp, 64 << 10)?;
                let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &bytes)
                    .context("an empty stack")?;
                let start = Instant::now();
                let stack = session.unwinder.unwind(&sample)?;
                let cold = start.elapsed();
                let start = Instant::now();
                for _ in 0..TIMES {
                    session.unwinder.unwind(&sample)?;
                }
                let (frames, warm) = (stack.frames.len(), start.elapsed() / TIMES);
                let shape = &waiting.shape;
                say(&format!(
                    "JDK {} {options:?} {shape}: {frames} frames, {cold:?} at first, {warm:?} again",
                    jdk.version
                ));
            }
        }
        Ok(())
    })
}
