//! A recording narrowed to some of its threads.
//!
//! How often each function was called, and for how long, is known exactly for all threads together. How that divides among
//! threads is what samples say: each function's totals are scaled by the part that the samples of these threads have.

use std::collections::HashMap;

use super::narrow::narrow;
use crate::model::{FunctionTotals, Profile, StackTotals, Unseen};

/// A recording does not tell which thread made which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the recording does not tell threads apart: it is of an earlier nprof, or of `nprof serve`, which keeps the stacks of all \
     threads together; make one with `nprof record`"
)]
pub struct NoThreads;

/// The recording of those threads whose names `keeps` says; functions that they are not known to have called are left out.
///
/// # Errors
/// If it does not tell threads apart.
pub fn narrow_to_threads(profile: Profile, keeps: impl Fn(&str) -> bool) -> Result<Profile, NoThreads> {
    tells_threads(&profile)?;
    let kept: Vec<bool> = profile.threads.iter().map(|thread| keeps(&thread.name)).collect();
    let is_kept = |thread: Option<u32>| thread.is_some_and(|thread| kept.get(thread as usize) == Some(&true));
    let shares = shares(&profile, is_kept);
    let in_flight = in_flight(&profile.open, is_kept);
    let Profile { functions, mut calls, mut open, mut inside, mut timeline, .. } = profile;
    for totals in [&mut calls, &mut open, &mut inside] {
        totals.retain(|of| is_kept(of.thread));
    }
    let tids: HashMap<u32, bool> =
        profile.threads.iter().zip(&kept).map(|(thread, kept)| (thread.tid, *kept)).collect();
    timeline.retain(|call| tids.get(&call.tid) == Some(&true));
    let part = |(place, function): (u32, FunctionTotals)| {
        let share = shares.get(&place).copied().unwrap_or_default();
        FunctionTotals { in_flight: in_flight.get(&place).copied().unwrap_or(0), ..share.of(function) }
    };
    let functions = (0..).zip(functions).map(part).collect();
    let narrowed = Profile { functions, calls, open, inside, timeline, ..profile };
    Ok(narrow(narrowed, |function| function.calls > 0 || function.in_flight > 0 || function.unseen.is_some()))
}

/// Whether it is known which thread made which call.
///
/// # Errors
/// If it is not.
pub fn tells_threads(profile: &Profile) -> Result<(), NoThreads> {
    let mut totals = profile.calls.iter().chain(&profile.open).chain(&profile.inside);
    if totals.all(|of| of.thread.is_some()) { Ok(()) } else { Err(NoThreads) }
}

/// Which part of a function's calls and times belongs to some threads, of one.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    calls: f64,
    time: f64,
    self_time: f64,
    off_cpu: f64,
}

impl Share {
    fn of(self, function: FunctionTotals) -> FunctionTotals {
        let of_unseen = |unseen: Unseen| {
            let error_ns = unseen.error_ns.map(|ns| part(ns, self.time));
            let (calls, error_calls) = (part(unseen.calls, self.calls), part(unseen.error_calls, self.calls));
            Unseen { calls, error_calls, total_ns: part(unseen.total_ns, self.time), error_ns, ..unseen }
        };
        let self_ns = part(function.self_ns, self.self_time);
        FunctionTotals {
            calls: part(function.calls, self.calls),
            untimed: part(function.untimed, self.calls),
            counted: part(function.counted, self.calls),
            total_ns: part(function.total_ns, self.time),
            self_ns,
            off_cpu_ns: part(function.off_cpu_ns, self.off_cpu).min(self_ns),
            // Whose call was the longest is known only if all are theirs, and so it is what they consumed.
            max_ns: if self.calls >= 1.0 { function.max_ns } else { 0 },
            consumed: function.consumed.filter(|_| self.calls >= 1.0),
            bytes_per_call: function.bytes_per_call.filter(|_| self.calls >= 1.0),
            probe_ns: part(function.probe_ns, self.calls),
            probe_error_ns: part(function.probe_error_ns, self.calls),
            unseen: function.unseen.map(of_unseen).filter(|unseen| unseen.calls > 0 || unseen.error_calls > 0),
            unseen_off_ns: part(function.unseen_off_ns, self.off_cpu),
            ..function
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a whole number")]
fn part(whole: u64, share: f64) -> u64 {
    if share >= 1.0 { whole } else { (whole as f64 * share).round() as u64 }
}

/// The share of each function that has samples at all, by its place.
fn shares(profile: &Profile, is_kept: impl Fn(Option<u32>) -> bool) -> HashMap<u32, Share> {
    let mut sums: HashMap<u32, [[f64; 4]; 2]> = HashMap::new();
    for of in &profile.calls {
        let Some(function) = of.function else { continue };
        let [all, kept] = sums.entry(function).or_default();
        let said = [of.calls, of.time_ns, of.self_ns, of.off_cpu_ns];
        all.iter_mut().zip(said).for_each(|(sum, more)| *sum += more);
        if is_kept(of.thread) {
            kept.iter_mut().zip(said).for_each(|(sum, more)| *sum += more);
        }
    }
    let share = |([all, kept], calls): (&[[f64; 4]; 2], f64)| {
        // What no sample says anything of is divided as the calls are.
        let of = |at: usize| if all[at] > 0.0 { kept[at] / all[at] } else { calls };
        Share { calls, time: of(1), self_time: of(2), off_cpu: of(3) }
    };
    let calls = |[all, kept]: &[[f64; 4]; 2]| if all[0] > 0.0 { kept[0] / all[0] } else { 0.0 };
    sums.iter().map(|(function, sums)| (*function, share((sums, calls(sums))))).collect()
}

/// How many calls these threads have not returned from, by function.
fn in_flight(open: &[StackTotals], is_kept: impl Fn(Option<u32>) -> bool) -> HashMap<u32, u64> {
    let mut counts = HashMap::new();
    for of in open.iter().filter(|of| is_kept(of.thread)) {
        of.function.into_iter().for_each(|function| *counts.entry(function).or_default() += of.samples);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ProfileStack, ThreadName, TimelineCall};

    fn totals(function: u32, thread: u32, calls: f64, ns: f64) -> StackTotals {
        StackTotals {
            stack: 0,
            function: Some(function),
            thread: Some(thread),
            samples: 1,
            calls,
            time_ns: ns,
            self_ns: ns,
            off_cpu_ns: ns / 2.0,
        }
    }

    fn profile() -> Profile {
        let function = |method: &str| FunctionTotals {
            method: method.to_owned(),
            calls: 100,
            total_ns: 1_000,
            self_ns: 1_000,
            off_cpu_ns: 500,
            max_ns: 70,
            ..FunctionTotals::default()
        };
        let thread = |(tid, name): (u32, &str)| ThreadName { tid, name: name.to_owned() };
        Profile {
            functions: ["both", "one", "other", "unsampled"].map(function).to_vec(),
            stacks: vec![ProfileStack { frames: Vec::new(), cut: None }],
            calls: vec![
                totals(0, 0, 3.0, 100.0),
                totals(0, 1, 1.0, 300.0),
                totals(1, 0, 5.0, 1.0),
                totals(2, 1, 5.0, 1.0),
            ],
            open: vec![totals(1, 0, 1.0, 9.0), totals(1, 1, 1.0, 9.0)],
            threads: [(7, "worker-1"), (8, "main")].map(thread).to_vec(),
            timeline: [7, 8]
                .map(|tid| TimelineCall { tid, function: 0, start_ns: 0, duration_ns: 1, stack: None, made_with: None })
                .to_vec(),
            ..Profile::default()
        }
    }

    /// Check that calls and times are divided as samples say, each for itself; that the longest call is only said where it is
    /// theirs for certain; and that what no sample of theirs shows is left out.
    #[test]
    fn totals_are_divided() {
        let narrowed = narrow_to_threads(profile(), |name| name.starts_with("worker")).unwrap();
        let of = |function: &FunctionTotals| {
            (function.method.clone(), function.calls, function.total_ns, function.off_cpu_ns, function.max_ns)
        };
        let expected = [("both".to_owned(), 75, 250, 125, 0), ("one".to_owned(), 100, 1_000, 500, 70)];
        assert_eq!(narrowed.functions.iter().map(of).collect::<Vec<_>>(), expected);
        assert_eq!((narrowed.functions[0].in_flight, narrowed.functions[1].in_flight), (0, 1));
        assert_eq!((narrowed.calls.len(), narrowed.open.len(), narrowed.timeline.len()), (2, 1, 1));
        assert!(narrowed.quality.narrowed);
    }

    /// Check that the parts of all threads are the whole.
    #[test]
    fn parts_add_up() {
        let of = |name: &'static str| narrow_to_threads(profile(), move |of| of == name).unwrap();
        let calls = |profile: &Profile| profile.functions.iter().map(|function| function.calls).sum::<u64>();
        assert_eq!(calls(&of("worker-1")) + calls(&of("main")), 300);
    }

    /// Check that a recording without threads is refused, and not taken for one of none.
    #[test]
    fn needs_threads() {
        let mut profile = profile();
        profile.calls[0].thread = None;
        assert_eq!(narrow_to_threads(profile, |_| true).unwrap_err(), NoThreads);
    }
}
