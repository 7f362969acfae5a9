//! What was compared, how often, and what was wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use nprof::model::CutReason;
use nprof::unwind::{End, FrameKind, JavaFrame, JavaStack};
use nprof_tests::jdk::Jdk;
use nprof_tests::require::say;

use super::waiting::Waiting;

/// What was compared so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    stacks: usize,
    complete: usize,
    frames: usize,
    pub(super) kinds: BTreeMap<String, usize>,
    pub(super) cuts: BTreeMap<CutReason, usize>,
    /// Shapes that were cut, apart from those that are too deep.
    pub(super) cut_shapes: BTreeSet<String>,
    wrong: Vec<String>,
    pub(super) cold: Duration,
    pub(super) warm: Duration,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stacks, complete, frames, kinds, cuts, cut_shapes, .. } = self;
        let wrong = self.wrong.len();
        write!(f, "{stacks} stacks, {complete} complete, {wrong} wrong, {frames} frames {kinds:?}, cut {cuts:?} ")?;
        let each = |all: Duration| all / u32::try_from((*stacks).max(1)).unwrap_or(u32::MAX);
        write!(f, "{cut_shapes:?}, a stack {:?} at first, {:?} again", each(self.cold), each(self.warm))
    }
}

impl Tally {
    pub(super) fn add(&mut self, waiting: &Waiting, stack: &JavaStack, jdk: &Jdk) {
        self.stacks += 1;
        self.frames += stack.frames.len();
        for frame in &stack.frames {
            *self.kinds.entry(kind_of(frame).to_owned()).or_default() += 1;
        }
        for crossing in &stack.crossings {
            *self.kinds.entry(format!("{:?}", crossing.kind)).or_default() += 1;
        }
        match stack.end {
            End::Complete => self.complete += 1,
            End::Cut(reason) => {
                *self.cuts.entry(reason).or_default() += 1;
                if reason != CutReason::TooDeep {
                    self.cut_shapes.insert(waiting.shape.clone());
                }
            }
        }
        self.wrong.extend(waiting.difference(stack, jdk));
    }

    /// Says what was compared. Fails if a frame is wrong, or a stack cut that need not be.
    pub(super) fn judge(&self, jdk: &Jdk, what: &str) -> Result<()> {
        say(&format!("JDK {} {what}: {self}", jdk.version));
        let examples = self.wrong.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
        ensure!(self.wrong.is_empty(), "{what}: {} stacks are wrong:\n{examples}", self.wrong.len());
        ensure!(self.cut_shapes.is_empty(), "{what}: cut: {:?} {:?}", self.cuts, self.cut_shapes);
        Ok(())
    }
}

fn kind_of(frame: &JavaFrame) -> &'static str {
    match frame.kind {
        FrameKind::Interpreted => "interpreted",
        FrameKind::C1 => "C1",
        FrameKind::C2 => "C2",
        FrameKind::Inlined => "inlined",
        FrameKind::NativeWrapper => "wrapper",
    }
}
