//! Who calls each native method: its heaviest stacks.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::aggregate::{Detail, weigh};
use crate::model::{FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, Weighed, Weight};

use super::functions;

/// A stack and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller<'a> {
    /// The frames, the innermost first.
    pub(super) frames: Vec<&'a ProfileFrame>,
    /// Time in nanoseconds, further native methods that were called from there left out.
    pub(super) time_ns: u64,
    /// How many samples the time rests on.
    pub(super) samples: u64,
}

/// The stacks of a recording by the native method that they end in.
#[derive(Debug)]
pub(super) struct Callers<'a> {
    by_method: HashMap<Option<(&'a str, &'a str, &'a str)>, Vec<Caller<'a>>>,
}

/// The stacks of a recording by a time that it has.
pub(super) fn weighed(profile: &Profile, weight: Weight, lines: bool) -> Weighed {
    weigh(profile, weight, Detail { lines, ..Detail::default() }).unwrap_or_default()
}

impl<'a> Callers<'a> {
    /// Sorts stacks, the heaviest first.
    pub(super) fn of(weighed: &'a Weighed) -> Self {
        let mut by_method: HashMap<_, Vec<Caller<'a>>> = HashMap::new();
        for stack in &weighed.stacks {
            let frames = stack.frames.iter().rev().filter_map(|at| weighed.frames.get(*at as usize));
            let frames: Vec<&ProfileFrame> = frames.collect();
            let native = frames.iter().find(|frame| frame.kind == ProfileFrameKind::NativeMethod);
            let method = native.map(|frame| (&*frame.scope, &*frame.name, &*frame.signature));
            by_method.entry(method).or_default().push(Caller { frames, time_ns: stack.value, samples: stack.samples });
        }
        for callers in by_method.values_mut() {
            callers.sort_by_key(|caller| Reverse(caller.time_ns));
        }
        Self { by_method }
    }

    /// The stacks that end in a function.
    pub(super) fn function(&self, function: &'a FunctionTotals) -> &[Caller<'a>] {
        self.by_method.get(&Some(functions::key(function))).map_or(&[], Vec::as_slice)
    }

    /// All stacks, the heaviest first.
    pub(super) fn all(&self) -> Vec<&Caller<'a>> {
        let mut all: Vec<&Caller<'a>> = self.by_method.values().flatten().collect();
        all.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| names(a).cmp(names(b))));
        all
    }
}

fn names<'a>(caller: &'a Caller<'_>) -> impl Iterator<Item = (&'a str, &'a str)> {
    caller.frames.iter().map(|frame| (frame.scope.as_str(), frame.name.as_str()))
}

/// A part of a whole in percent: 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
