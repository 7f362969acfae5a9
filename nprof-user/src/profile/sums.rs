//! What the samples add up to, by function and stack.

use std::collections::HashMap;

use nprof_common::{Pace, StackHeader};

use super::interner::Interner;
use crate::model::{CutReason, ProfileFrame, ProfileStack, Spread, StackTotals};

/// One sample, for what it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Share {
    /// The calls that it stands for: 1 / chance; 0 for one inside a call.
    pub calls: f64,
    /// The wall-clock time, nested traced calls included.
    pub time_ns: f64,
    /// The time without those.
    pub self_ns: f64,
    /// The part of that off the CPU.
    pub off_cpu_ns: f64,
}

/// What a sample is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Of {
    /// The function, by its record; `None` outside of calls.
    pub record: Option<u32>,
    /// The number of the stack.
    pub stack: u32,
    /// The thread on the host; `None` if threads are not to be told apart.
    pub tid: Option<u32>,
}

/// Sums of samples.
#[derive(Debug, Default)]
pub struct Sums {
    frames: Interner<ProfileFrame>,
    stacks: Interner<ProfileStack>,
    calls: HashMap<Of, Sum>,
    spread: HashMap<u32, Spread>,
    inside: HashMap<Of, Sum>,
    /// Samples, complete ones, and the reasons of the others.
    taken: u64,
    complete: u64,
    cut: HashMap<CutReason, u64>,
    /// Samples that rest on a guess.
    guessed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    samples: u64,
    share: Share,
}

/// The sums, taken apart.
#[derive(Debug, Default)]
pub struct Summed {
    /// Each different frame.
    pub frames: Vec<ProfileFrame>,
    /// Each different stack.
    pub stacks: Vec<ProfileStack>,
    /// Calls that returned; functions by record, threads by number.
    pub calls: Vec<StackTotals>,
    /// Samples inside calls or of no call.
    pub inside: Vec<StackTotals>,
    /// Stacks that were taken.
    pub taken: u64,
    /// Of them, the complete ones.
    pub complete: u64,
    /// The reasons of the others, most frequent first.
    pub cut: Vec<(CutReason, u64)>,
    /// Of all stacks that were taken, those that rest on a guess.
    pub guessed: u64,
}

impl Sums {
    /// The number of a frame.
    pub fn frame(&mut self, frame: ProfileFrame) -> u32 {
        self.frames.number(frame)
    }

    /// The number of a stack whose frames have these numbers, the innermost first; counts it as one that was taken.
    pub fn stack(&mut self, frames: Vec<u32>, cut: Option<CutReason>) -> u32 {
        self.taken += 1;
        match cut {
            None => self.complete += 1,
            Some(reason) => *self.cut.entry(reason).or_default() += 1,
        }
        self.stacks.number(ProfileStack { frames, cut })
    }

    /// The same for a stack that is no sample.
    pub fn part(&mut self, frames: Vec<u32>, cut: Option<CutReason>) -> u32 {
        self.stacks.number(ProfileStack { frames, cut })
    }

    /// Notes that a stack that was taken rests on a guess: what has called native code without unwind information.
    pub fn note_guess(&mut self) {
        self.guessed += 1;
    }

    /// Adds a call that returned.
    pub fn add_call(&mut self, of: Of, share: Share) {
        self.calls.entry(of).or_default().add(share);
        if let Some(record) = of.record {
            let spread = self.spread.entry(record).or_default();
            spread.calls += share.calls.powi(2);
            spread.self_ns += share.self_ns.powi(2);
        }
    }

    /// How much the sums of each record's calls may be off.
    #[must_use]
    pub fn spread(&self) -> &HashMap<u32, Spread> {
        &self.spread
    }

    /// Adds a sample inside a call, or of no call.
    pub fn add_inside(&mut self, of: Of, share: Share) {
        self.inside.entry(of).or_default().add(share);
    }

    /// Adds to a sample that was taken before: what it stands for was not known then.
    pub fn add_to(&mut self, of: Of, share: Share) {
        self.inside.entry(of).or_default().share.add(share);
    }

    /// Takes the sums apart.
    #[must_use]
    pub fn finish(self) -> Summed {
        let mut cut: Vec<_> = self.cut.into_iter().collect();
        cut.sort_unstable_by_key(|&(reason, count)| (std::cmp::Reverse(count), reason));
        Summed {
            frames: self.frames.into_values(),
            stacks: self.stacks.into_values(),
            calls: totals(self.calls),
            inside: totals(self.inside),
            taken: self.taken,
            complete: self.complete,
            cut,
            guessed: self.guessed,
        }
    }
}

impl Sum {
    fn add(&mut self, share: Share) {
        self.samples += 1;
        self.share.add(share);
    }
}

impl Share {
    /// What a sampled call stands for.
    pub(super) fn of(header: &StackHeader) -> Self {
        let calls = Pace::CERTAIN as f64 / header.probability.max(1) as f64;
        let self_ns = header.time_ns.saturating_sub(header.child_ns);
        Self {
            calls,
            time_ns: calls * header.time_ns as f64,
            self_ns: calls * self_ns as f64,
            off_cpu_ns: calls * header.off_ns.min(self_ns) as f64,
        }
    }

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.time_ns += other.time_ns;
        self.self_ns += other.self_ns;
        self.off_cpu_ns += other.off_cpu_ns;
    }
}

fn totals(sums: HashMap<Of, Sum>) -> Vec<StackTotals> {
    let mut totals: Vec<StackTotals> = sums
        .into_iter()
        .map(|(of, Sum { samples, share })| StackTotals {
            stack: of.stack,
            function: of.record,
            thread: of.tid,
            samples,
            calls: share.calls,
            time_ns: share.time_ns,
            self_ns: share.self_ns,
            off_cpu_ns: share.off_cpu_ns,
        })
        .collect();
    totals.sort_unstable_by_key(|totals| (totals.function, totals.stack, totals.thread));
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ProfileFrameKind;

    fn frame(name: &str) -> ProfileFrame {
        ProfileFrame {
            kind: ProfileFrameKind::C2,
            scope: "A".into(),
            name: name.into(),
            signature: "()V".into(),
            line: Some(1),
            hidden: false,
            library: String::new(),
        }
    }

    /// Check that samples of one function, stack and thread are one sum, and that frames and stacks are kept once.
    #[test]
    fn sums_by_function_and_stack() {
        let mut sums = Sums::default();
        let share = Share { calls: 4.0, time_ns: 10.0, self_ns: 8.0, off_cpu_ns: 1.0 };
        for (record, frames) in [(7, ["a", "b"]), (7, ["a", "b"]), (7, ["c", "b"]), (8, ["a", "b"])] {
            let frames = frames.map(|name| sums.frame(frame(name))).to_vec();
            let stack = sums.stack(frames, None);
            sums.add_call(Of { record: Some(record), stack, tid: Some(1) }, share);
            sums.add_call(Of { record: Some(record), stack, tid: Some(2) }, share);
        }
        let summed = sums.finish();
        assert_eq!(summed.frames, ["a", "b", "c"].map(frame));
        assert_eq!(summed.stacks.len(), 2);
        let calls: Vec<_> = summed.calls.iter().map(|sum| (sum.function, sum.stack, sum.samples, sum.calls)).collect();
        let of_each = [(Some(7), 0, 2, 8.0), (Some(7), 1, 1, 4.0), (Some(8), 0, 1, 4.0)];
        assert_eq!(calls, of_each.map(|sum| [sum; 2]).concat());
        assert!(summed.calls.chunks(2).all(|two| (two[0].thread, two[1].thread) == (Some(1), Some(2))));
        assert_eq!((summed.taken, summed.complete), (4, 4));
    }

    /// Check that stacks that were cut for different reasons are different, and counted by reason.
    #[test]
    fn counts_cut_stacks() {
        let mut sums = Sums::default();
        for cut in [None, Some(CutReason::TooDeep), Some(CutReason::Changing), Some(CutReason::Changing)] {
            let _stack = sums.stack(vec![0], cut);
        }
        sums.note_guess();
        let summed = sums.finish();
        assert_eq!((summed.taken, summed.complete, summed.stacks.len(), summed.guessed), (4, 1, 3, 1));
        assert_eq!(summed.cut, [(CutReason::Changing, 2), (CutReason::TooDeep, 1)]);
    }

    /// Check that what a sample stands for may become known later, without another sample.
    #[test]
    fn adds_later() {
        let mut sums = Sums::default();
        let stack = sums.stack(vec![0], None);
        let of = Of { record: Some(1), stack, tid: None };
        sums.add_inside(of, Share::default());
        sums.add_to(of, Share { self_ns: 5.0, ..Share::default() });
        let summed = sums.finish();
        assert_eq!((summed.inside[0].samples, summed.inside[0].self_ns), (1, 5.0));
    }
}
