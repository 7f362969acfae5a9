//! A recording narrowed to some of its functions, as if only they had been traced.

use std::collections::BTreeMap;

use crate::model::{FunctionTotals, Profile, Quality, StackTotals, TimelineCall};

/// The recording of those functions that `keeps` says. What was lost is not known by function, and stays.
#[must_use]
pub fn narrow(profile: Profile, keeps: impl Fn(&FunctionTotals) -> bool) -> Profile {
    let Profile { functions, calls, open, inside, timeline, .. } = profile;
    let kept: Vec<u32> = (0..).zip(&functions).filter(|(_, function)| keeps(function)).map(|(at, _)| at).collect();
    let place = |function: u32| kept.binary_search(&function).ok().and_then(|at| u32::try_from(at).ok());
    let of_kept = |totals: Vec<StackTotals>| -> Vec<StackTotals> {
        let of_kept =
            |totals: StackTotals| Some(StackTotals { function: Some(totals.function.and_then(place)?), ..totals });
        totals.into_iter().filter_map(of_kept).collect()
    };
    let (calls, open, inside) = (of_kept(calls), of_kept(open), of_kept(inside));
    let timeline =
        timeline.into_iter().filter_map(|call| Some(TimelineCall { function: place(call.function)?, ..call }));
    let mut narrowed = Profile {
        functions: functions.into_iter().filter(|function| keeps(function)).collect(),
        calls,
        open,
        inside,
        timeline: timeline.collect(),
        ..profile
    };
    narrowed.quality = quality(&narrowed);
    narrowed
}

/// How good the stacks are that are left.
fn quality(profile: &Profile) -> Quality {
    let (mut stacks, mut complete, mut cut) = (0, 0, BTreeMap::<String, u64>::new());
    for totals in profile.calls.iter().chain(&profile.inside) {
        stacks += totals.samples;
        match profile.stacks.get(totals.stack as usize).and_then(|stack| stack.cut) {
            None => complete += totals.samples,
            Some(reason) => *cut.entry(reason.to_string()).or_default() += totals.samples,
        }
    }
    let mut cut: Vec<(String, u64)> = cut.into_iter().collect();
    cut.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Quality { stacks, complete, cut, narrowed: true, ..profile.quality.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CutReason, ProfileStack};

    fn totals(stack: u32, function: Option<u32>, samples: u64) -> StackTotals {
        let (thread, calls, time_ns, self_ns, off_cpu_ns) = (None, 1.0, 1.0, 1.0, 0.0);
        StackTotals { stack, function, thread, samples, calls, time_ns, self_ns, off_cpu_ns }
    }

    /// Check that what belongs to other functions goes, that indices lead to the same functions as before, and that stacks are
    /// counted again by how they were cut.
    #[test]
    fn leaves_others_out() {
        let function = |method: &str| FunctionTotals { method: method.to_owned(), ..FunctionTotals::default() };
        let stack = |cut| ProfileStack { frames: Vec::new(), cut };
        let call =
            |function| TimelineCall { tid: 1, function, start_ns: 0, duration_ns: 1, stack: None, made_with: None };
        let profile = Profile {
            functions: ["a", "b", "c"].map(function).to_vec(),
            stacks: vec![stack(None), stack(Some(CutReason::TooDeep))],
            calls: vec![totals(0, Some(0), 9), totals(0, Some(2), 5), totals(1, Some(1), 3)],
            open: vec![totals(0, Some(1), 1), totals(0, Some(0), 1)],
            inside: vec![totals(1, Some(2), 2), totals(0, None, 7)],
            timeline: vec![call(0), call(1), call(2)],
            quality: Quality { stacks: 26, complete: 21, guessed: 1, ..Quality::default() },
            ..Profile::default()
        };
        let narrowed = narrow(profile, |function| function.method != "a");
        let methods: Vec<&str> = narrowed.functions.iter().map(|function| &*function.method).collect();
        assert_eq!(methods, ["b", "c"]);
        assert_eq!(narrowed.calls, [totals(0, Some(1), 5), totals(1, Some(0), 3)]);
        assert_eq!((narrowed.open, narrowed.inside), (vec![totals(0, Some(0), 1)], vec![totals(1, Some(1), 2)]));
        assert_eq!(narrowed.timeline, [call(0), call(1)]);
        let Quality { stacks, complete, cut, guessed, narrowed, .. } = narrowed.quality;
        assert_eq!((stacks, complete, cut), (10, 5, vec![(CutReason::TooDeep.to_string(), 5)]));
        assert_eq!((guessed, narrowed), (1, true));
    }
}
