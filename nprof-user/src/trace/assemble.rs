//! The exact totals and what was sampled, put together to a [`Profile`].

mod borders;
mod nested;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use nprof_common::CallEvent;

use self::nested::{Own, SelfTimes};
use crate::attach::Taken;
use crate::model::{
    About, FunctionTotals, Method, MethodSnapshot, ProbeCost, Profile, ProfileFrame, ProfileFrameKind, Quality,
    SharedStr, Snapshot, StackTotals, ThreadName, Tier, TimelineCall, Tracing, Unseen,
};
use crate::profile::{Finished, NotedWords, OpenCall, Summed, Timeline};

/// Puts a recording together. `records` gives the index of a function for the number of its record. It tells work from waiting if
/// that was measured, and is known of every function.
pub(super) fn assemble(about: About, snapshot: &Snapshot, finished: Finished, records: &HashMap<u32, u32>) -> Profile {
    let functions: HashMap<u32, u32> = (0u32..).zip(&snapshot.methods).map(|(place, of)| (of.index, place)).collect();
    let place = |record: &u32| records.get(record).and_then(|index| functions.get(index)).copied();
    let Finished { sums, timeline: mut told, sampled, threads, open, taken, too_late, too_slow, .. } = finished;
    let mut summed = sums.finish();
    let off_cpu = about.off_cpu && snapshot.methods.iter().all(|row| row.off_cpu_ns.is_some());
    let quality = Quality {
        timeline_lost: taken.calls_lost + told.too_many,
        losses: above_zero(snapshot.losses.counts.iter().copied()),
        skipped: skipped(snapshot),
        open_unsplit: if off_cpu { open.iter().filter(|call| call.off_cpu_ns.is_none()).count() as u64 } else { 0 },
        ..quality(&summed, &taken, (too_late, too_slow))
    };
    let inside = by_function(std::mem::take(&mut summed.inside), place);
    let inside = borders::without(inside, (&summed.stacks, &summed.frames), &snapshot.methods);
    let open = open_calls(&open, &summed, snapshot, place);
    let traced = snapshot.methods.iter().flat_map(|of| of.methods.iter().map(|known| (&known.method, &*of.library)));
    let objects = told.take_objects();
    let timeline = timeline(told, &sampled, snapshot, place);
    let inside_ns = |function| snapshot.methods.get(function as usize).map(|of| of.price.inside_ns);
    let calls = less_probes(by_function(summed.calls, place), inside_ns);
    let self_times = SelfTimes::find(calls, (&summed.stacks, &summed.frames), &snapshot.methods);
    let (started, elapsed, collectors) = (snapshot.started, snapshot.elapsed, snapshot.collectors);
    let mut profile = Profile {
        about: About { started, elapsed, collectors, off_cpu, ..about },
        frames: with_libraries(summed.frames, traced),
        stacks: summed.stacks,
        functions: (0..)
            .zip(&snapshot.methods)
            .map(|(place, of)| totals(of, |own| self_times.of(place, own)))
            .collect(),
        calls: self_times.calls,
        open,
        inside,
        timeline,
        objects,
        threads: Vec::new(),
        quality,
        trees: None,
    };
    name_threads(&mut profile, threads);
    profile
}

/// Puts a recording by timer together. Each sample also stands for its part of those that were lost: they were not chosen
/// by what the threads did.
pub(super) fn on_cpu(about: About, finished: Finished) -> Profile {
    let Finished { sums, taken, too_late, threads, .. } = finished;
    let mut summed = sums.finish();
    let lost = taken.over_pace + taken.no_room;
    let each = 1.0 + lost as f64 / taken.taken.max(1) as f64;
    for totals in &mut summed.inside {
        totals.time_ns *= each;
        totals.self_ns *= each;
    }
    let mut profile = Profile { about, quality: quality(&summed, &taken, (too_late, 0)), ..Profile::default() };
    (profile.frames, profile.stacks, profile.inside) = (summed.frames, summed.stacks, summed.inside);
    name_threads(&mut profile, threads);
    profile
}

/// The frames, those of traced native methods with the library that their function is in.
fn with_libraries<'a>(
    mut frames: Vec<ProfileFrame>,
    traced: impl Iterator<Item = (&'a Method, &'a str)>,
) -> Vec<ProfileFrame> {
    let mut libraries: HashMap<(&str, &str, &str), &str> = HashMap::new();
    for (method, library) in traced {
        let known = libraries.entry((&method.class, &method.name, &method.signature)).or_insert(library);
        if *known != library {
            // Classes of the same name, of two loaders: a frame does not say which of them it is.
            *known = "";
        }
    }
    for frame in frames.iter_mut().filter(|frame| frame.kind == ProfileFrameKind::NativeMethod) {
        let key = (&*frame.scope, &*frame.name, &*frame.signature);
        frame.library = libraries.get(&key).copied().unwrap_or_default().to_owned();
    }
    frames
}

/// How good the stacks are.
fn quality(summed: &Summed, taken: &Taken, (too_late, too_slow): (u64, u64)) -> Quality {
    let lost = [
        ("more than --max-stacks allows at once", taken.over_pace),
        ("no room in the ring", taken.no_room),
        ("the JVM had ended", too_late),
        ("the JVM did not let itself be read in time", too_slow),
    ];
    Quality {
        stacks: summed.taken,
        complete: summed.complete,
        cut: summed.cut.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
        guessed: summed.guessed,
        lost: above_zero(lost.into_iter()),
        ..Quality::default()
    }
}

/// `less_nested` takes off what was made within calls and the tier does not know, and says whether that is an estimate.
fn totals(measured: &MethodSnapshot, less_nested: impl FnOnce(Own) -> (Own, bool)) -> FunctionTotals {
    let first = measured.methods.first().map(|known| &known.method);
    let sampled = Sampled::of(measured);
    let total_ns = measured.total_ns.saturating_add(sampled.ns);
    let (own, self_estimated) = less_nested(sampled.own(measured, total_ns));
    let text = |text: fn(&Method) -> &SharedStr| first.map(text).map(SharedStr::to_string).unwrap_or_default();
    FunctionTotals {
        class: text(|method| &method.class),
        method: text(|method| &method.name),
        signature: text(|method| &method.signature),
        others: u32::try_from(measured.methods.len().saturating_sub(1)).unwrap_or(u32::MAX),
        library: measured.library.clone(),
        calls: measured.calls,
        untimed: measured.untimed,
        total_ns,
        self_ns: own.ns,
        self_estimated,
        off_cpu_ns: own.off_cpu_ns,
        max_ns: measured.max_ns,
        in_flight: measured.in_flight,
        probe_ns: measured.probe_ns,
        probe_error_ns: measured.probe_error_ns.saturating_add(sampled.error_ns),
        single_stepped: measured.cost == Some(ProbeCost::SingleStepped),
        counted: measured.counted - sampled.calls,
        unseen: not_timed(measured),
        // Where all calls are in the totals, so is this.
        unseen_off_ns: measured.estimated_off_ns.filter(|_| sampled.calls == 0).unwrap_or_default(),
        traced_after_ns: nanoseconds(measured.traced_after),
        unwatched_ns: nanoseconds(measured.traced.unwatched),
        sampled: measured.estimated_ns.is_some(),
        consumed: measured.consumed.clone(),
        bytes_per_call: measured.bytes_per_call.clone(),
        only_counted: measured.traced.is_demoted() && measured.traced.tracing == Tracing::Counted,
    }
}

/// A duration in nanoseconds; more than 584 years are 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Calls that a stub only counted because it timed one of several. The stacks are those of all of them, and so are the totals.
#[derive(Default)]
struct Sampled {
    calls: u64,
    /// Their time, estimated from those that were timed, and how far it may be off because of what stubs cost.
    ns: u64,
    error_ns: u64,
}

impl Sampled {
    fn of(measured: &MethodSnapshot) -> Self {
        let estimated_ns = measured.estimated_ns.filter(|_| measured.tier == Tier::Stub);
        let calls = measured.counted;
        estimated_ns.map_or_else(Self::default, |ns| Self {
            calls,
            ns,
            error_ns: measured.price.inside_error_ns.saturating_mul(calls),
        })
    }

    /// The own time of all calls, those included, which have of theirs what the timed ones have of theirs. Where the tier does not know
    /// what was nested in which, it is all time.
    fn own(&self, measured: &MethodSnapshot, total_ns: u64) -> Own {
        let part_of = |ns: u64| {
            let part = u128::from(ns) * u128::from(self.ns) / u128::from(measured.total_ns.max(1));
            ns.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
        };
        Own { ns: measured.self_ns.map_or(total_ns, part_of), off_cpu_ns: measured.off_cpu_ns.map_or(0, part_of) }
    }
}

/// What was estimated of calls that nobody saw, and of the time of those that were only counted.
fn not_timed(measured: &MethodSnapshot) -> Option<Unseen> {
    // Where a stub timed one of several calls, all are in the totals; where it timed none, a clock cannot be relied on.
    if measured.counted == 0 || measured.tier == Tier::Stub {
        return measured.unseen;
    }
    let nobody_saw =
        measured.unseen.unwrap_or(Unseen { error_ns: measured.estimated_ns.map(|_ns| 0), ..Unseen::default() });
    let of_counted = measured.estimated_ns.and(measured.estimated_error_ns);
    Some(Unseen {
        total_ns: nobody_saw.total_ns.saturating_add(measured.estimated_ns.unwrap_or(0)),
        error_ns: nobody_saw.error_ns.zip(of_counted).map(|(one, other)| one.saturating_add(other)),
        ..nobody_saw
    })
}

/// Sums of records become sums of functions. A record without a function has had none of its calls counted.
fn by_function(totals: Vec<StackTotals>, place: impl Fn(&u32) -> Option<u32>) -> Vec<StackTotals> {
    let known = |totals: StackTotals| match totals.function {
        None => Some(totals),
        Some(record) => place(&record).map(|function| StackTotals { function: Some(function), ..totals }),
    };
    totals.into_iter().filter_map(known).collect()
}

/// The sums without what probes have put into the times, call for call, so that of a function with many short calls under
/// one stack and few long ones under another each has its share. A hundredth stays in any case: the stack was there.
fn less_probes(mut totals: Vec<StackTotals>, inside_ns: impl Fn(u32) -> Option<u64>) -> Vec<StackTotals> {
    for of in &mut totals {
        let probes_ns = of.function.and_then(&inside_ns).unwrap_or(0) as f64 * of.calls;
        for time_ns in [&mut of.time_ns, &mut of.self_ns] {
            *time_ns = (*time_ns - probes_ns).max(*time_ns / 100.0);
        }
    }
    totals
}

/// Calls in flight, each with the part of its thread's stack that begins with one of the methods of its function.
fn open_calls(
    open: &[OpenCall],
    summed: &Summed,
    snapshot: &Snapshot,
    place: impl Fn(&u32) -> Option<u32>,
) -> Vec<StackTotals> {
    let begins_with = |stack: u32, function: u32| {
        let frames = summed.stacks.get(stack as usize).map(|stack| &stack.frames[..]).unwrap_or_default();
        let frame = frames.first().and_then(|frame| summed.frames.get(*frame as usize));
        frame.is_some_and(|frame| borders::is_of(frame, function, &snapshot.methods))
    };
    let totals = |call: &OpenCall| {
        let function = place(&call.record)?;
        let stack = call.stacks.iter().copied().find(|stack| begins_with(*stack, function))?;
        let (time_ns, self_ns) = (call.time_ns as f64, call.self_ns as f64);
        // Who does not return for long usually waits; captions say so ([`Quality::open_unsplit`]).
        let off_cpu_ns = call.off_cpu_ns.unwrap_or(call.self_ns) as f64;
        let (function, thread) = (Some(function), Some(call.tid));
        Some(StackTotals { stack, function, thread, samples: 1, calls: 1.0, time_ns, self_ns, off_cpu_ns })
    };
    open.iter().filter_map(totals).collect()
}

/// The calls of a timeline by the time of their beginning, counted from the start of the recording.
fn timeline(
    told: Timeline,
    sampled: &HashMap<(u32, u64), u32>,
    snapshot: &Snapshot,
    place: impl Fn(&u32) -> Option<u32>,
) -> Vec<TimelineCall> {
    let origin = started_monotonic(snapshot.started);
    let made_with = |function: u32, noted: Option<NotedWords>| {
        let method = &snapshot.methods.get(function as usize)?.methods.first()?.method;
        noted?.of(&method.signature).map(Box::new)
    };
    let made = told.made.into_iter().map(Some).chain(std::iter::repeat(None));
    let of = |(call, noted): (CallEvent, Option<NotedWords>)| {
        let function = place(&call.index)?;
        Some(TimelineCall {
            tid: call.tid,
            function,
            start_ns: i64::try_from(i128::from(call.start_ns) - origin).unwrap_or_default(),
            duration_ns: call.time_ns,
            stack: sampled.get(&(call.tid, call.start_ns)).copied(),
            made_with: made_with(function, noted),
        })
    };
    let mut timeline: Vec<TimelineCall> = told.calls.into_iter().zip(made).filter_map(of).collect();
    // The outer of two calls that begin in the same nanosecond first.
    timeline.sort_by_key(|call| (call.start_ns, Reverse(call.duration_ns)));
    timeline
}

/// Lists the threads that samples and the timeline speak of; samples have indices of the list from now on, in place of numbers.
fn name_threads(profile: &mut Profile, names: Vec<(u32, String)>) {
    let Profile { calls, open, inside, timeline, threads, .. } = profile;
    let mut names: HashMap<u32, String> = names.into_iter().collect();
    let mut totals: Vec<&mut StackTotals> = calls.iter_mut().chain(open).chain(inside).collect();
    let sampled = totals.iter().filter_map(|of| of.thread);
    let tids: BTreeSet<u32> = sampled.chain(timeline.iter().map(|call| call.tid)).collect();
    let place: HashMap<u32, u32> = tids.iter().copied().zip(0..).collect();
    totals.iter_mut().for_each(|of| of.thread = of.thread.and_then(|tid| place.get(&tid).copied()));
    let name = |tid| ThreadName { tid, name: names.remove(&tid).unwrap_or_else(|| tid.to_string()) };
    *threads = tids.into_iter().map(name).collect();
}

/// A moment of the wall clock on the clock that the programs read.
fn started_monotonic(started: Timestamp) -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    now - (Timestamp::now().as_nanosecond() - started.as_nanosecond())
}

fn above_zero<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Vec<(String, u64)> {
    counts.filter(|(_, count)| *count > 0).map(|(reason, count)| (reason.to_owned(), count)).collect()
}

/// How many methods were not traced, by reason, in the order in which the reasons are first met.
fn skipped(snapshot: &Snapshot) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for skipped in snapshot.skipped.iter() {
        let reason = skipped.reason.as_str();
        match counts.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((reason.to_owned(), 1)),
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::borders::tests::function;
    use super::*;
    use crate::model::{NativeCode, VirtAddr};

    /// Check that the estimated time of calls that were only counted is added to what nobody saw, and that it is known to be
    /// missing where nothing is estimated.
    #[test]
    fn what_was_not_timed() {
        let unseen = Unseen { calls: 5, total_ns: 50, error_ns: Some(4), ..Unseen::default() };
        let row = |counted, estimated_ns: Option<u64>, unseen| {
            let estimated_error_ns = estimated_ns.map(|_ns| 3);
            not_timed(&MethodSnapshot { counted, estimated_ns, estimated_error_ns, unseen, ..function(&["a"]) })
        };
        assert_eq!(row(0, None, None), None);
        assert_eq!(row(0, None, Some(unseen)), Some(unseen));
        assert_eq!(row(7, None, None), Some(Unseen::default()));
        assert_eq!(row(7, Some(70), None), Some(Unseen { total_ns: 70, error_ns: Some(3), ..Unseen::default() }));
        assert_eq!(row(7, Some(70), Some(unseen)), Some(Unseen { total_ns: 120, error_ns: Some(7), ..unseen }));
    }

    /// Check that where a stub timed one of several calls the others are in the totals, and are not said to be without a time.
    #[test]
    fn totals_are_of_all_calls() {
        let row = MethodSnapshot {
            counted: 70,
            calls: 80,
            total_ns: 100,
            estimated_ns: Some(700),
            self_ns: None,
            tier: Tier::Stub,
            ..function(&["a"])
        };
        let totals = |row: &MethodSnapshot| totals(row, |own| (own, false));
        let found = totals(&row);
        assert_eq!((found.total_ns, found.self_ns, found.counted, found.unseen), (800, 800, 0, None));
        assert_eq!(found.timed_calls(), 80);
        let without = totals(&MethodSnapshot { estimated_ns: None, ..row.clone() });
        assert_eq!((without.total_ns, without.counted), (100, 70));
        let split = MethodSnapshot { self_ns: Some(60), off_cpu_ns: Some(20), estimated_off_ns: Some(140), ..row };
        let found = totals(&split);
        assert_eq!((found.self_ns, found.off_cpu_ns, found.unseen_off_ns), (480, 160, 0));
    }

    fn method(name: &str, signature: &str) -> Method {
        let (class, name, signature) = ("a.N".into(), name.into(), signature.into());
        Method { id: VirtAddr(0), class, name, signature, code: NativeCode::Unbound }
    }

    fn frame(kind: ProfileFrameKind, name: &str) -> ProfileFrame {
        let (scope, signature, library) = ("a.N".to_owned(), "()V".to_owned(), String::new());
        ProfileFrame { kind, scope, name: name.to_owned(), signature, line: None, hidden: false, library }
    }

    /// Check that the probes' part is taken off call for call, and that no stack loses all it has.
    #[test]
    fn stacks_are_less_their_probes() {
        let totals = |function, calls, time_ns, self_ns| StackTotals {
            stack: 0,
            function,
            thread: None,
            samples: 1,
            calls,
            time_ns,
            self_ns,
            off_cpu_ns: 0.0,
        };
        let measured = vec![totals(Some(0), 10.0, 500.0, 120.0), totals(Some(0), 100.0, 1000.0, 1000.0)];
        let expected = vec![totals(Some(0), 10.0, 400.0, 20.0), totals(Some(0), 100.0, 10.0, 10.0)];
        let inside_ns = |function| (function == 0).then_some(10);
        assert_eq!(less_probes(measured, inside_ns), expected);
        let unknown = vec![totals(None, 1.0, 5.0, 5.0), totals(Some(7), 1.0, 5.0, 5.0)];
        assert_eq!(less_probes(unknown.clone(), inside_ns), unknown);
    }

    /// Check that native methods get the library of their function: not one of a namesake, nor where there are two.
    #[test]
    fn native_methods_have_libraries() {
        use ProfileFrameKind::{C2, NativeMethod};
        let traced = [
            (method("read", "()V"), "liba.so"),
            (method("read", "(I)V"), "libb.so"),
            (method("both", "()V"), "liba.so"),
            (method("both", "()V"), "libb.so"),
            (method("both", "()V"), "liba.so"),
            (method("java", "()V"), "liba.so"),
        ];
        let frames = [(NativeMethod, "read"), (NativeMethod, "both"), (C2, "java"), (NativeMethod, "untraced")];
        let frames = frames.map(|(kind, name)| frame(kind, name)).to_vec();
        let frames = with_libraries(frames, traced.iter().map(|(method, library)| (method, *library)));
        assert_eq!(frames.iter().map(|frame| &*frame.library).collect::<Vec<_>>(), ["liba.so", "", "", ""]);
    }
}
