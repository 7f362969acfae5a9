//! Self time of calls that stubs have timed: stubs do not know which call was made by which, but stacks do.
//!
//! The stack of a sampled call begins with its own frame, and shows the native methods that it was made within. What is above
//! such a frame was time of that method too, at that stack: it is taken off there. Where probes have counted both, the programs
//! have done so, exactly.

use std::collections::{HashMap, HashSet};

use crate::model::{MethodSnapshot, ProfileFrame, ProfileFrameKind, ProfileStack, StackTotals, Tier};

/// The stacks of calls, and the frames that they are made of.
type Stacks<'a> = (&'a [ProfileStack], &'a [ProfileFrame]);

/// Calls of one thread, of a function, with a stack.
type Key<'a> = (Option<u32>, u32, &'a [u32]);

/// The sums of samples, and what of the exact totals was time of calls within calls.
pub(super) struct SelfTimes {
    /// The sums, those of stubs' calls without the time of the calls that were made within them.
    pub calls: Vec<StackTotals>,
    nested_ns: HashMap<u32, f64>,
}

impl SelfTimes {
    /// Takes off what stacks show. Only what was made within sampled calls counts: one in flight is in no total.
    pub(super) fn find(
        mut calls: Vec<StackTotals>,
        (stacks, frames): Stacks<'_>,
        functions: &[MethodSnapshot],
    ) -> Self {
        let frames_of = |stack: u32| stacks.get(stack as usize).map(|stack| &stack.frames[..]).unwrap_or_default();
        let is_stubbed = |function: u32| functions.get(function as usize).is_some_and(|row| row.tier != Tier::Kernel);
        let (by_name, weights) = (by_name(functions), weights(&calls, functions));
        let sampled: HashSet<Key<'_>> =
            calls.iter().filter_map(|of| Some((of.thread, of.function?, frames_of(of.stack)))).collect();
        let mut within: HashMap<Key<'_>, f64> = HashMap::new();
        for of in &calls {
            let Some(function) = of.function else { continue };
            let Some((outer, stack)) = outer(frames_of(of.stack), frames, &by_name) else { continue };
            let around = (of.thread, outer, stack);
            if (is_stubbed(function) || is_stubbed(outer)) && sampled.contains(&around) {
                *within.entry(around).or_default() += of.time_ns * weights.get(&function).copied().unwrap_or_default();
            }
        }
        let mut nested_ns: HashMap<u32, f64> = HashMap::new();
        for of in &mut calls {
            let Some(function) = of.function else { continue };
            let Some(exact_ns) = within.get(&(of.thread, function, frames_of(of.stack))) else { continue };
            *nested_ns.entry(function).or_default() += exact_ns;
            let weight = weights.get(&function).copied().unwrap_or_default();
            let sampled_ns = if weight > 0.0 { exact_ns / weight } else { of.self_ns };
            of.self_ns = (of.self_ns - sampled_ns).max(0.0);
        }
        Self { calls, nested_ns }
    }

    /// What is left of a function's time, in nanoseconds, and whether that is an estimate.
    pub(super) fn of(&self, function: u32, time_ns: u64) -> (u64, bool) {
        let nested_ns = self.nested_ns.get(&function).copied().unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; the cast saturates")]
        let nested_ns = nested_ns as u64;
        (time_ns.saturating_sub(nested_ns), nested_ns > 0)
    }
}

/// By how much the samples of each function have to be multiplied to be its exact time.
fn weights(calls: &[StackTotals], functions: &[MethodSnapshot]) -> HashMap<u32, f64> {
    let mut sums: HashMap<u32, f64> = HashMap::new();
    for of in calls {
        of.function.into_iter().for_each(|function| *sums.entry(function).or_default() += of.time_ns);
    }
    let weight = |(function, sampled_ns): (u32, f64)| {
        let exact_ns = functions.get(function as usize)?.total_ns as f64;
        (sampled_ns > 0.0).then_some((function, exact_ns / sampled_ns))
    };
    sums.into_iter().filter_map(weight).collect()
}

/// The functions by a method's class, name and signature.
fn by_name(functions: &[MethodSnapshot]) -> HashMap<[&str; 3], u32> {
    let mut names: HashMap<[&str; 3], u32> = HashMap::new();
    for (place, row) in (0..).zip(functions) {
        for known in &row.methods {
            let method = &known.method;
            // Of several rows of one method those that stubs have seen come first: what probes saw has its own self time.
            let entry = names.entry([&*method.class, &*method.name, &*method.signature]).or_insert(place);
            if row.tier != Tier::Kernel {
                *entry = place;
            }
        }
    }
    names
}

/// The innermost native method that a call was made within: its function, and its stack.
fn outer<'a>(
    numbers: &'a [u32],
    frames: &[ProfileFrame],
    by_name: &HashMap<[&str; 3], u32>,
) -> Option<(u32, &'a [u32])> {
    let native = |number: &u32| {
        let frame = frames.get(*number as usize)?;
        let is_native = frame.kind == ProfileFrameKind::NativeMethod;
        is_native.then(|| by_name.get(&[&*frame.scope, &*frame.name, &*frame.signature]).copied()).flatten()
    };
    // The first frame is the call's own.
    let (at, function) = numbers.iter().enumerate().skip(1).find_map(|(at, number)| Some((at, native(number)?)))?;
    Some((function, &numbers[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tier::{Kernel, Stub};
    use crate::trace::assemble::borders::tests::function;

    fn frame(kind: ProfileFrameKind, name: &str) -> ProfileFrame {
        let (scope, signature) = ("a.N".to_owned(), "()V".to_owned());
        let (name, library) = (name.to_owned(), String::new());
        ProfileFrame { kind, scope, name, signature, line: None, hidden: false, library }
    }

    /// The self times of sampled calls of `outer` (1,000 ns) and of `inner` (300 ns) within it, and of `inner` alone (50 ns); and
    /// that of `outer` as a whole, where twice as much is exact.
    fn self_times(tiers: [Tier; 2], stacks: [Vec<u32>; 3]) -> (Vec<f64>, (u64, bool)) {
        use ProfileFrameKind::{C2, NativeMethod};
        let frames = [frame(NativeMethod, "outer"), frame(NativeMethod, "inner"), frame(C2, "java")];
        let stacks = stacks.map(|frames| ProfileStack { frames, cut: None });
        let row = |(name, tier, total_ns)| MethodSnapshot { tier, total_ns, ..function(&[name]) };
        let functions = [("outer", tiers[0], 2000), ("inner", tiers[1], 700)].map(row);
        let totals = |stack, function, time_ns| StackTotals {
            stack,
            function: Some(function),
            thread: None,
            samples: 1,
            calls: 1.0,
            time_ns,
            self_ns: time_ns,
            off_cpu_ns: 0.0,
        };
        let calls = vec![totals(0, 0, 1000.0), totals(1, 1, 300.0), totals(2, 1, 50.0)];
        let found = SelfTimes::find(calls, (&stacks, &frames), &functions);
        (found.calls.iter().map(|of| of.self_ns).collect(), found.of(0, 2000))
    }

    /// Check that calls lose the time of those within them, if stubs have seen one of both, and keep the rest.
    #[test]
    fn nested_calls_are_taken_off() {
        let stacks = [vec![0, 2], vec![1, 2, 0, 2], vec![1, 2]];
        for tiers in [[Stub, Stub], [Stub, Kernel], [Kernel, Stub]] {
            assert_eq!(self_times(tiers, stacks.clone()), (vec![700.0, 300.0, 50.0], (1400, true)), "{tiers:?}");
        }
        let known = (vec![1000.0, 300.0, 50.0], (2000, false));
        assert_eq!(self_times([Kernel, Kernel], stacks), known, "the programs have done it");
        let others = [vec![0, 2], vec![1, 2, 0, 2, 2], vec![1, 2]];
        assert_eq!(self_times([Stub, Stub], others), known, "within a call that is in flight");
    }
}
