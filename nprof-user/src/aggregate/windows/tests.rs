//! Windows: what they add up to, and what goes where there is no room.

use nprof_common::{Consumed, Counter};

use super::*;
use crate::aggregate::testing::snapshot;
use crate::model::{
    About, BytesPerCall, FunctionTotals, Histogram, ProfileFrame, ProfileFrameKind, ProfileStack, Quality, StackTotals,
    Unseen,
};

const MINUTE: Duration = Duration::from_secs(60);
const KEY: WindowKey = (Pid(7), StartTime(1));

fn jvm(pid: u32) -> Jvm {
    Jvm { pid: Pid(pid), start_time: StartTime(1), ..snapshot().jvm }
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + 60 * minute).unwrap()
}

fn frame(name: &str) -> ProfileFrame {
    ProfileFrame {
        kind: ProfileFrameKind::C2,
        scope: "a.A".to_owned(),
        name: name.to_owned(),
        signature: "()V".to_owned(),
        line: Some(1),
        hidden: false,
        library: String::new(),
    }
}

/// A minute of a JVM in which functions were called so often, each with one stack of its own name under `main`.
fn minute(minute: i64, calls: &[(&str, u64)]) -> Profile {
    let function = |(name, calls): &(&str, u64)| FunctionTotals {
        class: "a.N".to_owned(),
        method: (*name).to_owned(),
        calls: *calls,
        total_ns: 10 * calls,
        self_ns: 9 * calls,
        max_ns: *calls,
        in_flight: 1,
        ..FunctionTotals::default()
    };
    let totals = |(at, (_, calls)): (u32, &(&str, u64))| StackTotals {
        stack: at,
        function: Some(at),
        thread: None,
        samples: 1,
        calls: *calls as f64,
        time_ns: *calls as f64,
        self_ns: 0.0,
        off_cpu_ns: 0.0,
    };
    let stack = |(at, _): (u32, &(&str, u64))| ProfileStack { frames: vec![at + 1, 0], cut: None };
    Profile {
        about: About { started: at(minute), elapsed: MINUTE, main: "Main".to_owned(), ..About::default() },
        frames: [frame("main")].into_iter().chain(calls.iter().map(|(name, _)| frame(name))).collect(),
        stacks: (0..).zip(calls).map(stack).collect(),
        functions: calls.iter().map(function).collect(),
        calls: (0..).zip(calls).map(totals).collect(),
        quality: Quality { stacks: 2, complete: 1, lost: vec![("late".to_owned(), 3)], ..Quality::default() },
        ..Profile::default()
    }
}

fn windows(bytes: usize) -> Windows {
    Windows::new(WindowLimits { age: 60 * MINUTE, bytes })
}

fn calls(profile: &Profile) -> Vec<(&str, u64)> {
    profile.functions.iter().map(|function| (&*function.method, function.calls)).collect()
}

/// Check that one window comes back as it was.
#[test]
fn a_window_is_its_profile() {
    let mut windows = windows(1 << 20);
    let profile = minute(0, &[("read", 5), ("write", 7)]);
    windows.add(&jvm(7), profile.clone());
    assert_eq!(windows.last(KEY), windows.profile(KEY, at(0)));
    let kept = windows.last(KEY).unwrap();
    assert_eq!(kept.functions, profile.functions);
    assert_eq!((kept.calls, kept.about, kept.quality), (profile.calls, profile.about, profile.quality));
    let names = |frames: &[ProfileFrame], stack: &ProfileStack| -> Vec<String> {
        stack.frames.iter().map(|at| frames[*at as usize].name.clone()).collect()
    };
    assert_eq!(names(&kept.frames, &kept.stacks[1]), ["write", "main"]);
}

/// Check that windows add up exactly, function by function and stack by stack, that what is in flight is that of the end, and
/// that only the windows that are asked for are in it.
#[test]
fn windows_add_up() {
    let mut windows = windows(1 << 20);
    windows.add(&jvm(7), minute(0, &[("old", 1)]));
    windows.add(&jvm(7), minute(1, &[("read", 5), ("write", 7)]));
    windows.add(&jvm(8), minute(1, &[("read", 1_000)]));
    windows.add(&jvm(7), minute(2, &[("write", 70), ("open", 2)]));
    let profile = windows.profile(KEY, at(1)).unwrap();
    assert_eq!(calls(&profile), [("read", 5), ("write", 77), ("open", 2)]);
    let write = &profile.functions[1];
    assert_eq!((write.total_ns, write.self_ns, write.max_ns), (770, 693, 70));
    assert_eq!(profile.functions.iter().map(|function| function.in_flight).collect::<Vec<_>>(), [0, 1, 1]);
    assert_eq!(
        profile.calls.iter().map(|of| (of.function, of.samples, of.calls)).collect::<Vec<_>>(),
        [(Some(0), 1, 5.0), (Some(1), 2, 77.0), (Some(2), 1, 2.0)]
    );
    assert_eq!((profile.about.started, profile.about.elapsed), (at(1), 2 * MINUTE));
    let quality = &profile.quality;
    assert_eq!((quality.stacks, quality.complete, &*quality.lost), (4, 2, &[("late".to_owned(), 6)][..]));
    assert_eq!(windows.profile(KEY, at(3)), None);
    let single = windows.ended_after(at(2));
    let told: Vec<_> = single.iter().map(|(jvm, profile)| (jvm.pid.0, profile.about.started, calls(profile))).collect();
    assert_eq!(told, [(7, at(2), vec![("write", 70), ("open", 2)])]);
}

/// Check that work is told from waiting where every window does so, and that both parts add up.
#[test]
fn work_adds_up() {
    let mut windows = windows(1 << 20);
    for (at, off_cpu) in [(0, true), (1, true), (2, false)] {
        let mut profile = minute(at, &[("read", 5)]);
        (profile.about.off_cpu, profile.functions[0].off_cpu_ns, profile.calls[0].off_cpu_ns) = (off_cpu, 7, 7.0);
        windows.add(&jvm(7), profile);
    }
    assert!(!windows.profile(KEY, at(0)).unwrap().about.off_cpu, "of one minute it is not known");
    windows.jvms.get_mut(&KEY).unwrap().windows.pop_back();
    let profile = windows.profile(KEY, at(0)).unwrap();
    assert!(profile.about.off_cpu);
    assert_eq!((profile.functions[0].off_cpu_ns, profile.functions[0].on_cpu_ns()), (14, 76));
    assert_eq!(profile.calls[0].off_cpu_ns, 14.0);
}

/// Check that what calls have consumed adds up, as far as it is known.
#[test]
fn what_was_consumed_adds_up() {
    let mut windows = windows(1 << 20);
    for (at, own) in [(0, Some(3)), (1, None), (2, Some(4))] {
        let mut profile = minute(at, &[("read", 1)]);
        profile.functions[0].consumed = own.map(|own| {
            Box::new(Consumed { own: [own; nprof_common::COUNTERS], total: [10 * own; nprof_common::COUNTERS] })
        });
        windows.add(&jvm(7), profile);
    }
    let consumed = windows.profile(KEY, at(0)).unwrap().functions.remove(0).consumed;
    assert_eq!(
        consumed.as_deref(),
        Some(&Consumed { own: [7; nprof_common::COUNTERS], total: [70; nprof_common::COUNTERS] })
    );
}

/// Check that the bytes of single calls add up, and are not known if they are not known of one window, or if one had no room for them.
#[test]
fn bytes_of_calls_add_up() {
    let counter = Counter::ReadBytes;
    let of =
        |max, buckets: &[(i32, u64)]| BytesPerCall { counter, max, histogram: Histogram { buckets: buckets.to_vec() } };
    let merged = |parts: &[Option<(u64, Option<BytesPerCall>)>]| {
        let mut windows = windows(1 << 20);
        for (at, part) in (0..).zip(parts) {
            let mut profile = minute(at, &[("read", 5)]);
            let mut consumed = Consumed::default();
            consumed.total[counter as usize] = part.as_ref().map_or(0, |(total, _)| *total);
            profile.functions[0].consumed = Some(Box::new(consumed));
            profile.functions[0].bytes_per_call = part.clone().map(|(_, bytes)| bytes.into_iter().collect());
            windows.add(&jvm(7), profile);
        }
        windows.profile(KEY, at(0)).unwrap().functions.remove(0).bytes_per_call
    };
    let (small, large, none) = (of(9, &[(2, 1), (13, 2)]), of(90, &[(13, 3), (26, 1)]), (0, None));
    let both = of(90, &[(2, 1), (13, 5), (26, 1)]);
    let known = |bytes: &BytesPerCall| Some((bytes.max, Some(bytes.clone())));
    assert_eq!(merged(&[known(&small), Some(none.clone()), known(&large)]), Some(vec![both]));
    assert_eq!(merged(&[Some(none), known(&large)]), Some(vec![large.clone()]));
    assert_eq!(merged(&[known(&small), Some((7, None))]), Some(Vec::new()));
    assert_eq!(merged(&[known(&small), None]), None);
}

/// Check that a function is late from the first window on in which it was, and that what went unseen adds up.
#[test]
fn late_functions() {
    let mut windows = windows(1 << 20);
    for (at, calls) in [(0, &[("early", 1)][..]), (1, &[("early", 1), ("late", 1)]), (2, &[("late", 1)])] {
        let mut profile = minute(at, calls);
        for function in &mut profile.functions {
            let is_new = at == 1 && function.method == "late";
            (function.traced_after_ns, function.unwatched_ns) = (if is_new { 5_000_000_000 } else { 0 }, 3);
            (function.sampled, function.only_counted) = (at == 1, at == 1);
        }
        windows.add(&jvm(7), profile);
    }
    let functions = windows.profile(KEY, at(0)).unwrap().functions;
    let found = |at: usize| (functions[at].traced_after_ns / 1_000_000_000, functions[at].unwatched_ns);
    assert_eq!([found(0), found(1)], [(0, 6), (65, 6)]);
    let state = |at: usize| (functions[at].sampled, functions[at].only_counted);
    assert_eq!([state(0), state(1)], [(true, true), (true, false)]);
    assert_eq!(functions[1].called_for(3 * MINUTE).as_secs(), 114);
}

/// Check that estimates and their errors add up, and that one without an error leaves the other's.
#[test]
fn estimates_add_up() {
    let mut windows = windows(1 << 20);
    for (at, error_ns) in [(0, Some(3)), (1, None), (2, Some(4))] {
        let mut profile = minute(at, &[("read", 1)]);
        profile.functions[0].unseen =
            Some(Unseen { calls: 10, total_ns: 100, error_calls: 1, error_ns, ..Unseen::default() });
        windows.add(&jvm(7), profile);
    }
    let unseen = windows.profile(KEY, at(0)).unwrap().functions[0].unseen.unwrap();
    assert_eq!((unseen.calls, unseen.total_ns, unseen.error_calls, unseen.error_ns), (30, 300, 3, Some(7)));
}

/// Check that an hour is kept, also of a JVM that has ended, and nothing is left of it afterwards.
#[test]
fn windows_grow_old() {
    let mut windows = windows(1 << 20);
    windows.add(&jvm(8), minute(0, &[("gone", 1)]));
    for now in 0..120 {
        windows.add(&jvm(7), minute(now, &[("read", 1)]));
        let has_ended = windows.jvms().iter().any(|of| of.jvm.pid == Pid(8));
        assert_eq!(has_ended, now < 60, "{now}");
    }
    assert_eq!((windows.tally().windows, windows.tally().dropped), (60, 0));
    windows.expire(at(1_000));
    assert_eq!((windows.tally().bytes, windows.jvms()), (0, Vec::new()));
}

/// Check that memory is bounded whatever comes: the oldest window of all JVMs goes first, it is counted, and what only it had
/// goes with it.
#[test]
fn the_oldest_goes_first() {
    let mut windows = windows(20_000);
    let mut told = 0;
    for now in 0..50 {
        let (one, other) = (format!("one{now}"), format!("other{now}"));
        told += windows.add(&jvm(7), minute(2 * now, &[(&one, 1)]));
        told += windows.add(&jvm(8), minute(2 * now + 1, &[(&other, 1)]));
        assert!(windows.tally().bytes <= 20_000, "{:?}", windows.tally());
    }
    let tally = windows.tally();
    assert_eq!((told, tally.windows as u64), (tally.dropped, 60.min(100 - told)));
    assert!(tally.dropped > 0 && tally.windows > 2, "{tally:?}");
    let firsts: Vec<Timestamp> = windows.jvms.values().map(|of| of.windows[0].started()).collect();
    assert!(firsts[0].duration_since(firsts[1]).abs() <= SignedDuration::from_mins(2), "{firsts:?}");
    // Not even one that is too large for itself stays.
    let mut tiny = Windows::new(WindowLimits { age: MINUTE, bytes: 10 });
    assert_eq!((tiny.add(&jvm(7), minute(0, &[("read", 1)])), tiny.tally().bytes), (1, 0));
}

/// Check that what windows have in common is kept once.
#[test]
fn names_are_shared() {
    let mut windows = windows(1 << 20);
    let many: Vec<String> = (0..100).map(|at| format!("a.native.method.with.a.long.name{at}")).collect();
    let calls: Vec<(&str, u64)> = many.iter().map(|name| (&**name, 1)).collect();
    windows.add(&jvm(7), minute(0, &calls));
    let shared = windows.pool.bytes();
    windows.add(&jvm(7), minute(1, &calls));
    windows.add(&jvm(8), minute(1, &calls));
    assert_eq!(windows.pool.bytes(), shared);
}
