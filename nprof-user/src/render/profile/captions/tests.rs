//! What is said of a profile: its numbers, and what is missing in them.

use std::time::Duration;

use super::super::samples;
use super::{Captions, share};
use crate::model::{
    About, FunctionTotals, Profile, ProfileFrameKind, ProfileMode, ProfileStack, Quality, StackTotals, Unseen, Weight,
};

fn about() -> About {
    About {
        nprof: "0.1.0".to_owned(),
        started: "2026-11-20T17:00:00.123Z".parse().unwrap(),
        elapsed: Duration::from_secs(10),
        pid: 1234,
        main: "com.acme.Main".to_owned(),
        vm: "OpenJDK 25.0.1".to_owned(),
        kernel: "6.18.5".to_owned(),
        host: "web-1".to_owned(),
        max_stacks: 1000,
        ..About::default()
    }
}

fn eventful() -> Profile {
    let function = FunctionTotals {
        calls: 2_000_000,
        untimed: 2,
        total_ns: 5_000_000_000,
        self_ns: 4_000_000_000,
        off_cpu_ns: 1_000_000_000,
        in_flight: 1,
        ..FunctionTotals::default()
    };
    let stepped = FunctionTotals {
        class: "a.B".to_owned(),
        method: "c\u{1b}".to_owned(),
        single_stepped: true,
        ..function.clone()
    };
    let counts = |pairs: &[(&str, u64)]| pairs.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect();
    Profile {
        about: About { off_cpu: true, patterns: vec!["java.*::*".to_owned(), "a::b".to_owned()], ..about() },
        functions: vec![stepped, function],
        open: vec![open(0), open(1)],
        quality: Quality {
            stacks: 9876,
            complete: 9860,
            cut: counts(&[("the stack is too deep", 12), ("a method cannot be read", 4), ("never", 0)]),
            lost: counts(&[("no room in the ring", 3)]),
            losses: counts(&[("unreturned", 2)]),
            skipped: counts(&[("unbound", 1000), ("evil\u{1b}", 1)]),
            timeline_lost: 0,
            guessed: 123,
            ..Quality::default()
        },
        ..Profile::default()
    }
}

/// Check that what the numbers of a function leave out is said with its name, and that waiting is, where it is not told from
/// work.
#[test]
fn incomplete_numbers_are_told() {
    let mut profile = eventful();
    (profile.functions[0].traced_after_ns, profile.functions[0].sampled) = (7, true);
    profile.functions[0].unwatched_ns = 8;
    let notes = Captions::of(&profile, Weight::Time).notes.join("\n");
    for said in ["when it was bound (+): a.B.c", "so that there were more calls (<): a.B.c", "is estimated (*): a.B.c"]
    {
        assert!(notes.contains(said), "{notes}");
    }
    assert!(!notes.contains("not told apart"), "{notes}");
    profile.about.off_cpu = false;
    assert!(Captions::of(&profile, Weight::Time).notes[1].contains("not told apart"));
    assert!(!Captions::of(&profile, Weight::Calls).notes.join("\n").contains("not told apart"));
}

/// Check that calls which were only counted are told with the time that is estimated of them, and the mean is of all calls.
#[test]
fn only_counted() {
    let mut profile = eventful();
    let unseen = Some(Unseen { total_ns: 600_000, error_ns: Some(60_000), ..Unseen::default() });
    let (calls, counted, total_ns) = (1_000, 600, 400_000);
    let hot = FunctionTotals { class: "a.B".to_owned(), method: "hot".to_owned(), unseen, ..Default::default() };
    let hot = FunctionTotals { calls, counted, total_ns, self_ns: total_ns, ..hot };
    assert_eq!((hot.timed_calls(), hot.all_ns(hot.total_ns)), (1_000, 1_000_000));
    assert_eq!(FunctionTotals { unseen: Some(Unseen::default()), ..hot.clone() }.timed_calls(), 400);
    profile.functions.push(hot);
    let note = &Captions::of(&profile, Weight::Time).notes[1];
    let said = "all the time: 600 calls that were only counted, about 600 us (± 10.0 %) in them: a.B.hot.";
    assert!(note.ends_with(said), "{note}");
}

/// Check that calls in flight of which nobody knows what they did are told apart, and what is not known by method.
#[test]
fn what_is_not_known() {
    let mut profile = eventful();
    (profile.quality.open_unsplit, profile.quality.narrowed) = (1, true);
    let notes = Captions::of(&profile, Weight::OnCpu).notes.join("\n");
    assert!(notes.contains("on the CPU beside 1 call of which this kernel does not tell"), "{notes}");
    assert!(notes.contains("are of the whole recording"), "{notes}");
    profile.functions[0].counted = 5;
    assert!(Captions::of(&profile, Weight::Time).notes[1].contains("without a time: 9 calls"));
}

/// Check that what was too expensive to watch is named with its estimate, and does not count as exact.
#[test]
fn estimates_are_told() {
    let mut profile = eventful();
    let unseen = Some(Unseen {
        calls: 3_000_000,
        error_calls: 500,
        total_ns: 2_000_000_000,
        error_ns: Some(500_000_000),
        ..Unseen::default()
    });
    let hot = FunctionTotals { method: "hot".to_owned(), class: "a.B".to_owned(), unseen, ..Default::default() };
    profile.functions.push(hot.clone());
    let notes = Captions::of(&profile, Weight::Time).notes;
    assert!(notes[0].starts_with("Exact: 4,000,000 calls of 2 native methods"), "{notes:?}");
    assert!(notes[1].starts_with("Estimated (≈)"), "{notes:?}");
    assert!(
        notes[1].ends_with("about 3,000,000 calls more (± 0.02 %), about 2.00 s (± 25.0 %) in them: a.B.hot."),
        "{notes:?}"
    );
    let unseen = Some(Unseen { calls: 3, error_calls: 1_197, ..Unseen::default() });
    let few = Profile { functions: vec![FunctionTotals { unseen, ..hot.clone() }], ..eventful() };
    let notes = Captions::of(&few, Weight::Time).notes;
    assert!(notes[1].contains(": at most 1,200 calls more, of unknown length: a.B.hot."), "{notes:?}");
    let alone = Profile { functions: vec![hot], about: about(), ..Profile::default() };
    let notes = Captions::of(&alone, Weight::Time).notes;
    assert!(
        notes[0].starts_with("Exact: 0 calls of 0 native methods") && notes[1].starts_with("Estimated"),
        "{notes:?}"
    );
}

fn open(function: u32) -> StackTotals {
    StackTotals { function: Some(function), self_ns: 3e9, ..totals(function, 1) }
}

fn totals(stack: u32, samples: u64) -> StackTotals {
    let (function, thread, calls, time_ns, self_ns, off_cpu_ns) = (None, None, 0.0, 0.0, 0.0, 0.0);
    StackTotals { stack, function, thread, samples, calls, time_ns, self_ns, off_cpu_ns }
}

fn by_timer() -> Profile {
    let stack = |frames: &[u32]| ProfileStack { frames: frames.to_vec(), cut: None };
    Profile {
        about: About { mode: ProfileMode::OnCpu, period_ns: Some(1_000_000), ..about() },
        frames: vec![
            samples::frame(ProfileFrameKind::C2, "a.B", "c"),
            samples::frame(ProfileFrameKind::NativeMethod, "a.B", "native"),
            samples::frame(ProfileFrameKind::Native, "libz.so", "inflate"),
        ],
        stacks: vec![stack(&[2, 1, 0]), stack(&[0]), stack(&[2]), stack(&[2, 0, 1])],
        inside: vec![totals(0, 250), totals(1, 500), totals(2, 200), totals(3, 50)],
        quality: Quality { stacks: 1000, complete: 1000, ..Quality::default() },
        ..Profile::default()
    }
}

/// Check all that can be said of calls, of samples by timer, and of a recording in which nothing happened.
#[test]
fn captions() {
    let quiet = Profile { about: about(), ..Profile::default() };
    let idle =
        Profile { about: About { mode: ProfileMode::OnCpu, main: String::new(), ..about() }, ..Profile::default() };
    let mut text = String::new();
    for (profile, weight) in [
        (eventful(), Weight::Time),
        (eventful(), Weight::SelfTime),
        (eventful(), Weight::OnCpu),
        (by_timer(), Weight::Time),
        (quiet, Weight::Calls),
        (idle, Weight::Time),
    ] {
        let captions = Captions::of_picture(&profile, weight);
        text += &format!("{}\n  {}\n", captions.title, captions.notes.join("\n  "));
    }
    samples::assert_golden("captions.txt", include_str!("../golden/captions.txt"), &text);
}

/// Check that the time of open calls is claimed only for those that have one.
#[test]
fn open_calls_without_a_time() {
    for (open, said) in [
        (vec![], "2 calls, without the time until then."),
        (vec![open(0)], "2 calls, 3.00 s in 1 of them until then, 3.00 s of it on the CPU, beside the exact time."),
    ] {
        let notes = Captions::of(&Profile { open, ..eventful() }, Weight::Time).notes;
        assert!(notes.iter().any(|note| note.ends_with(said)), "{notes:?}");
    }
}

/// Check that a title stays in its line, however long a main class is.
#[test]
fn long_main_classes_are_cut_at_the_front() {
    let about = About { main: format!("{}.Main", "ü".repeat(500)), ..about() };
    let title = Captions::of(&Profile { about, ..Profile::default() }, Weight::Time).title;
    assert!(title.chars().count() < 100, "{title}");
    assert!(title.contains("of …ü") && title.contains("ü.Main (pid 1234)"), "{title}");
}

/// Check that rounding never says all or nothing of a part.
#[test]
fn shares() {
    let shares = [(0, 9), (1, 100_000), (1, 200), (1, 3), (999, 1000), (9_999_999, 10_000_000), (5, 5), (0, 0)];
    let texts = shares.map(|(part, whole)| share(part, whole));
    assert_eq!(texts, ["0 %", "< 0.01 %", "0.50 %", "33.3 %", "99.90 %", "> 99.99 %", "100 %", "0 %"]);
}
