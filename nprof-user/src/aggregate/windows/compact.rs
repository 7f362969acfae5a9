//! A profile as it is kept: numbers of its own, and shared names.

use jiff::{SignedDuration, Timestamp};
use nprof_common::Consumed;

use super::shared::{Bytes, Shared, Table};
use crate::model::{About, BytesPerCall, CutReason, FunctionTotals, Profile, ProfileFrame, Quality, StackTotals};

/// A window of one JVM.
#[derive(Debug)]
pub(super) struct Window {
    about: Box<About>,
    /// The functions; their names are empty here.
    pub(super) functions: Vec<(Shared<FunctionName>, FunctionTotals)>,
    pub(super) stacks: Vec<Shared<Stack>>,
    /// Of calls that have returned; functions and stacks by their places in this window.
    pub(super) calls: Box<[StackTotals]>,
    pub(super) quality: Quality,
}

/// What a function is known by.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FunctionName {
    pub(super) class: String,
    pub(super) method: String,
    pub(super) signature: String,
    pub(super) library: String,
    pub(super) others: u32,
}

/// The frames of a stack, and why outer ones are missing.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Stack {
    pub(super) frames: Box<[Shared<ProfileFrame>]>,
    pub(super) cut: Option<CutReason>,
}

/// What windows share.
#[derive(Debug, Default)]
pub(super) struct Pool {
    frames: Table<ProfileFrame>,
    stacks: Table<Stack>,
    names: Table<FunctionName>,
}

impl Pool {
    /// Keeps of a profile what windows have: the functions, and the stacks of calls that have returned.
    pub(super) fn compact(&mut self, profile: Profile) -> Window {
        let Profile { about, frames, stacks, functions, calls, quality, .. } = profile;
        let frames: Vec<Shared<ProfileFrame>> = frames.into_iter().map(|frame| self.frames.share(frame)).collect();
        let stack = |stack: crate::model::ProfileStack| Stack {
            frames: stack.frames.iter().filter_map(|at| frames.get(*at as usize).cloned()).collect(),
            cut: stack.cut,
        };
        let mut stacks: Vec<_> = stacks.into_iter().map(|of| self.stacks.share(stack(of))).collect();
        let mut functions: Vec<_> = functions.into_iter().map(|function| self.function(function)).collect();
        stacks.shrink_to_fit();
        functions.shrink_to_fit();
        Window { about: Box::new(about), functions, stacks, calls: calls.into(), quality }
    }

    fn function(&mut self, function: FunctionTotals) -> (Shared<FunctionName>, FunctionTotals) {
        let FunctionTotals { class, method, signature, library, others, .. } = function;
        let name = self.names.share(FunctionName { class, method, signature, library, others });
        let none = String::new;
        let numbers =
            FunctionTotals { class: none(), method: none(), signature: none(), library: none(), others: 0, ..function };
        (name, numbers)
    }

    /// Forgets what no window has any more: stacks first, for they have frames.
    pub(super) fn sweep(&mut self) {
        self.stacks.sweep();
        self.frames.sweep();
        self.names.sweep();
    }

    pub(super) fn bytes(&self) -> usize {
        self.frames.bytes() + self.stacks.bytes() + self.names.bytes()
    }
}

impl Window {
    pub(super) fn about(&self) -> &About {
        &self.about
    }

    pub(super) fn started(&self) -> Timestamp {
        self.about.started
    }

    /// When it ended.
    pub(super) fn until(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.about.elapsed).unwrap_or_default();
        self.about.started.checked_add(elapsed).unwrap_or(self.about.started)
    }

    /// What it takes by itself.
    pub(super) fn bytes(&self) -> usize {
        let about = &self.about;
        let texts = [&about.nprof, &about.main, &about.vm, &about.kernel, &about.host];
        let counts = [&self.quality.cut, &self.quality.lost, &self.quality.losses, &self.quality.skipped];
        let counts = counts.iter().flat_map(|counts| counts.iter());
        size_of::<Self>()
            + size_of::<About>()
            + texts.into_iter().chain(&about.patterns).chain(&about.threads).map(|text| text.len()).sum::<usize>()
            + counts.map(|(reason, _)| size_of::<(String, u64)>() + reason.len()).sum::<usize>()
            + size_of_val(&self.functions[..])
            + self.functions.iter().filter(|(_, of)| of.consumed.is_some()).count() * size_of::<Consumed>()
            + self.functions.iter().flat_map(|(_, of)| of.bytes_per_call.iter().flatten()).map(of_calls).sum::<usize>()
            + size_of_val(&self.stacks[..])
            + size_of_val(&self.calls[..])
    }
}

/// What the bytes of single calls take.
fn of_calls(bytes: &BytesPerCall) -> usize {
    size_of::<BytesPerCall>() + size_of_val(&bytes.histogram.buckets[..])
}

impl Bytes for FunctionName {
    fn bytes(&self) -> usize {
        let texts = [&self.class, &self.method, &self.signature, &self.library];
        size_of::<Self>() + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

impl Bytes for Stack {
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.frames[..])
    }
}

impl Bytes for ProfileFrame {
    fn bytes(&self) -> usize {
        let texts = [&self.scope, &self.name, &self.signature, &self.library];
        size_of::<Self>() + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}
