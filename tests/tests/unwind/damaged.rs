//! Stacks that are too short, too deep or damaged.

use anyhow::{Context, Result, ensure};
use nprof::model::{CutReason, VirtAddr};
use nprof::unwind::{End, MAX_FRAMES, Sample};
use nprof_tests::require::on_every_jdk;

use super::session::{MAX_STACK_BYTES, Session};
use super::waiting::Waiting;

/// Check that a copy that is too short gives the innermost frames of the whole, and says that it is cut.
#[test]
fn short_copies_give_right_prefixes() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        session.target.run("warm 300 all")?;
        let mut cut = 0;
        for waiting in Waiting::all(&mut session.target, "all")? {
            let whole = session.copy(waiting.rsp, 16 << 10)?;
            for bytes in (8..whole.len()).step_by(88) {
                let sample = Sample::at_native_entry(VirtAddr(waiting.rsp), VirtAddr(waiting.rbp), &whole[..bytes])
                    .context("an empty stack")?;
                let stack = session.unwinder.unwind(&sample)?;
                ensure!(stack.end != End::Complete || stack.frames.len() >= waiting.frames.len(), "cut unsaid");
                let difference = waiting.difference(&stack, jdk);
                ensure!(difference.is_none(), "{bytes} bytes: {difference:?}");
                cut += usize::from(stack.end == End::Cut(CutReason::StackTooShort));
            }
        }
        ensure!(cut > 500, "only {cut} stacks were cut: nothing was proven");
        Ok(())
    })
}

/// Check that damaged stacks end, and end the unwinder's work only on this stack: the next one is right again.
#[test]
fn damaged_stacks_do_no_harm() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &[])?;
        session.target.run("warm 300 all")?;
        let mut complete = 0;
        for waiting in Waiting::all(&mut session.target, "all")? {
            let whole = session.copy(waiting.rsp, 4 << 10)?;
            let (rsp, rbp) = (VirtAddr(waiting.rsp), VirtAddr(waiting.rbp));
            for word in 0..whole.len() / 8 {
                for value in [0, 1, u64::MAX, waiting.rsp, waiting.rsp + 8, 1 << 46, 0x1000] {
                    let mut damaged = whole.clone();
                    damaged[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
                    let sample = Sample::at_native_entry(rsp, rbp, &damaged).context("an empty stack")?;
                    complete += usize::from(session.unwinder.unwind(&sample)?.end == End::Complete);
                }
            }
            let sample = Sample::at_native_entry(rsp, rbp, &whole).context("an empty stack")?;
            let difference = waiting.difference(&session.unwinder.unwind(&sample)?, jdk);
            ensure!(difference.is_none(), "{difference:?}");
        }
        // Most words of a stack are none of those that lead on.
        ensure!(complete > 1_000, "only {complete} were followed: the damage was not where it was meant to be");
        Ok(())
    })
}

/// Check that a stack that is too deep has the most frames that are allowed, and says that it is cut.
#[test]
fn deep_stacks_are_cut_visibly() -> Result<()> {
    on_every_jdk(|jdk| {
        let mut session = Session::new(jdk, &["-Xint"])?;
        let waiting = Waiting::all(&mut session.target, "recursion1500")?;
        let bytes = session.copy(waiting[0].rsp, MAX_STACK_BYTES)?;
        let sample = Sample::at_native_entry(VirtAddr(waiting[0].rsp), VirtAddr(waiting[0].rbp), &bytes);
        let stack = session.unwinder.unwind(&sample.context("an empty stack")?)?;
        ensure!(stack.end == End::Cut(CutReason::TooDeep) && stack.frames.len() == MAX_FRAMES, "{:?}", stack.end);
        ensure!(waiting[0].difference(&stack, jdk).is_none(), "{:?}", waiting[0].difference(&stack, jdk));
        Ok(())
    })
}
