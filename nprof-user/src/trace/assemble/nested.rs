//! Self time of calls whose tier does not know which call was made by which: stacks do.
//!
//! The stack of a sampled call begins with its own frame, and shows the native methods that it was made within. What is above
//! such a frame was time of that method too, at that stack: it is taken off there. Where probes have counted both, the programs
//! have done so, exactly; and where stubs with rows of threads have, these, of the calls that they have timed. What is left is calls
//! of different tiers, those that stubs only counted, and stubs without rows.

use std::collections::{HashMap, HashSet};

use super::Sampled;
use crate::model::{MethodSnapshot, ProfileFrame, ProfileFrameKind, ProfileStack, StackTotals, Tier};

/// The stacks of calls, and the frames that they are made of.
type Stacks<'a> = (&'a [ProfileStack], &'a [ProfileFrame]);

/// Calls of one thread, of a function, with a stack.
type Key<'a> = (Option<u32>, u32, &'a [u32]);

/// The time of a function's calls without those that they made, and the part of it in which threads did not run, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Own {
    pub ns: u64,
    pub off_cpu_ns: u64,
}

/// Time within calls, and the part of it in which threads did not run, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Within {
    ns: f64,
    off_cpu_ns: f64,
}

/// The sums of samples, and what of the exact totals was time of calls within calls.
pub(super) struct SelfTimes {
    /// The sums, without the time of calls within them that is known by stacks alone.
    pub calls: Vec<StackTotals>,
    nested: HashMap<u32, Within>,
}

impl SelfTimes {
    /// Takes off what stacks show. Only what was made within sampled calls counts: one in flight is in no total.
    pub(super) fn find(
        mut calls: Vec<StackTotals>,
        (stacks, frames): Stacks<'_>,
        functions: &[MethodSnapshot],
    ) -> Self {
        let frames_of = |stack: u32| stacks.get(stack as usize).map(|stack| &stack.frames[..]).unwrap_or_default();
        let unknown = |inner: u32, outer: u32| {
            let row = |function: u32| functions.get(function as usize);
            row(inner).zip(row(outer)).map_or(0.0, |(inner, outer)| unknown_share(inner, outer))
        };
        let (by_name, weights) = (by_name(functions), weights(&calls, functions));
        let sampled: HashSet<Key<'_>> =
            calls.iter().filter_map(|of| Some((of.thread, of.function?, frames_of(of.stack)))).collect();
        let mut within: HashMap<Key<'_>, Within> = HashMap::new();
        for of in &calls {
            let Some(function) = of.function else { continue };
            let Some((outer, stack)) = outer(frames_of(of.stack), frames, &by_name) else { continue };
            let (around, unknown) = ((of.thread, outer, stack), unknown(function, outer));
            if unknown > 0.0 && sampled.contains(&around) {
                let weight = unknown * weights.get(&function).copied().unwrap_or_default();
                within.entry(around).or_default().add(Within::made_by(of), weight);
            }
        }
        let mut nested: HashMap<u32, Within> = HashMap::new();
        for of in &mut calls {
            let Some(function) = of.function else { continue };
            let Some(exact) = within.get(&(of.thread, function, frames_of(of.stack))) else { continue };
            nested.entry(function).or_default().add(*exact, 1.0);
            let weight = weights.get(&function).copied().unwrap_or_default();
            exact.take_off(of, if weight > 0.0 { 1.0 / weight } else { f64::MAX });
        }
        Self { calls, nested }
    }

    /// What is left of a function's own time, and whether that is an estimate.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; the cast saturates")]
    pub(super) fn of(&self, function: u32, own: Own) -> (Own, bool) {
        let Within { ns, off_cpu_ns } = self.nested.get(&function).copied().unwrap_or_default();
        let (nested_ns, nested_off_ns) = (ns as u64, off_cpu_ns as u64);
        let ns = own.ns.saturating_sub(nested_ns);
        let off_cpu_ns = own.off_cpu_ns.saturating_sub(nested_off_ns);
        (Own { ns, off_cpu_ns }, nested_ns > 0)
    }
}

impl Within {
    /// All the time of sampled calls. Of what they called in turn it is taken that threads ran as they did in these.
    fn made_by(of: &StackTotals) -> Self {
        let off_share = if of.self_ns > 0.0 { (of.off_cpu_ns / of.self_ns).min(1.0) } else { 0.0 };
        Self { ns: of.time_ns, off_cpu_ns: of.time_ns * off_share }
    }

    fn add(&mut self, more: Self, times: f64) {
        self.ns += more.ns * times;
        self.off_cpu_ns += more.off_cpu_ns * times;
    }

    /// Takes it off calls that it was within, so many times.
    fn take_off(&self, of: &mut StackTotals, times: f64) {
        of.self_ns = (of.self_ns - self.ns * times).max(0.0);
        of.off_cpu_ns = (of.off_cpu_ns - self.off_cpu_ns * times).max(0.0);
    }
}

/// The share of the time of calls within others that is still part of the own time of these, because their tier does not know of it.
fn unknown_share(inner: &MethodSnapshot, outer: &MethodSnapshot) -> f64 {
    match (inner.tier, outer.tier) {
        (Tier::Kernel, Tier::Kernel) => 0.0,
        (Tier::Stub | Tier::Both, Tier::Stub | Tier::Both) if outer.self_ns.is_some() => {
            let counted_ns = Sampled::of(inner).ns as f64;
            counted_ns / (inner.total_ns as f64 + counted_ns).max(1.0)
        }
        _ => 1.0,
    }
}

/// By how much the samples of each function have to be multiplied to be its exact time.
fn weights(calls: &[StackTotals], functions: &[MethodSnapshot]) -> HashMap<u32, f64> {
    let mut sums: HashMap<u32, f64> = HashMap::new();
    for of in calls {
        of.function.into_iter().for_each(|function| *sums.entry(function).or_default() += of.time_ns);
    }
    let weight = |(function, sampled_ns): (u32, f64)| {
        let row = functions.get(function as usize)?;
        let exact_ns = row.total_ns.saturating_add(Sampled::of(row).ns) as f64;
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

    /// What is known of both: their tiers, whether stubs know what is nested in which, and the time of calls of `inner` that were
    /// only counted.
    type Known = ([Tier; 2], bool, u64);

    /// The self times of sampled calls of `outer` (1,000 ns) and of `inner` (300 ns) within it, and of `inner` alone (50 ns); and
    /// that of `outer` as a whole, where twice as much is exact. Half of the time of `inner` its threads did not run.
    fn self_times((tiers, is_nesting_known, counted_ns): Known, stacks: [Vec<u32>; 3]) -> (Vec<f64>, ([u64; 2], bool)) {
        use ProfileFrameKind::{C2, NativeMethod};
        let frames = [frame(NativeMethod, "outer"), frame(NativeMethod, "inner"), frame(C2, "java")];
        let stacks = stacks.map(|frames| ProfileStack { frames, cut: None });
        let row = |(name, tier, total_ns, estimated_ns)| {
            let self_ns = is_nesting_known.then_some(total_ns);
            MethodSnapshot { tier, total_ns, self_ns, estimated_ns, counted: 1, ..function(&[name]) }
        };
        let counted = Some(counted_ns).filter(|ns| *ns > 0);
        let functions = [("outer", tiers[0], 2000, None), ("inner", tiers[1], 700 - counted_ns, counted)].map(row);
        let totals = |stack, function, time_ns| StackTotals {
            stack,
            function: Some(function),
            thread: None,
            samples: 1,
            calls: 1.0,
            time_ns,
            self_ns: time_ns,
            off_cpu_ns: time_ns / 2.0,
        };
        let calls = vec![totals(0, 0, 1000.0), totals(1, 1, 300.0), totals(2, 1, 50.0)];
        let found = SelfTimes::find(calls, (&stacks, &frames), &functions);
        let (own, is_estimated) = found.of(0, Own { ns: 2000, off_cpu_ns: 1000 });
        (found.calls.iter().map(|of| of.self_ns).collect(), ([own.ns, own.off_cpu_ns], is_estimated))
    }

    /// Check that calls lose the time of those within them, and what these waited of it, if stubs have seen one of both and do not
    /// know, and keep the rest; of what was only counted within them stubs never know.
    #[test]
    fn nested_calls_are_taken_off() {
        let stacks = [vec![0, 2], vec![1, 2, 0, 2], vec![1, 2]];
        let all = (vec![700.0, 300.0, 50.0], ([1400, 700], true));
        for tiers in [[Stub, Stub], [Stub, Kernel], [Kernel, Stub]] {
            assert_eq!(self_times((tiers, false, 0), stacks.clone()), all, "{tiers:?}");
        }
        assert_eq!(self_times(([Stub, Kernel], true, 0), stacks.clone()), all, "stubs do not know what probes see");
        let known = (vec![1000.0, 300.0, 50.0], ([2000, 1000], false));
        assert_eq!(self_times(([Kernel, Kernel], true, 0), stacks.clone()), known, "the programs have done it");
        assert_eq!(self_times(([Stub, Stub], true, 0), stacks.clone()), known, "stubs have done it");
        let half = (vec![850.0, 300.0, 50.0], ([1700, 850], true));
        assert_eq!(self_times(([Stub, Stub], true, 350), stacks), half, "stubs have done it for half of them");
        let others = [vec![0, 2], vec![1, 2, 0, 2, 2], vec![1, 2]];
        assert_eq!(self_times(([Stub, Stub], false, 0), others), known, "within a call that is in flight");
    }
}
