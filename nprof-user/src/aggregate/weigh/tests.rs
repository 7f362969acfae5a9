//! Small recordings by hand, and random ones for what must always hold.

use std::collections::HashMap;

use super::{Detail, NotRecorded, weigh};
use crate::model::{
    CutReason, FunctionTotals, Profile, ProfileFrame, ProfileFrameKind, ProfileMode, ProfileStack, StackTotals, Unseen,
    Weighed, Weight,
};

const PLAIN: Detail = Detail { lines: false, hidden: false, threads: false };

fn frame(kind: ProfileFrameKind, scope: &str, name: &str, line: Option<u32>) -> ProfileFrame {
    let (scope, name) = (scope.to_owned(), name.to_owned());
    ProfileFrame { kind, scope, name, signature: "()V".to_owned(), line, hidden: false, library: String::new() }
}

fn function(method: &str, calls: u64, self_ns: u64) -> FunctionTotals {
    let (class, signature) = ("a.N".to_owned(), "()V".to_owned());
    let totals = FunctionTotals { class, signature, method: method.to_owned(), calls, self_ns, ..Default::default() };
    FunctionTotals { total_ns: self_ns, off_cpu_ns: self_ns / 2, ..totals }
}

fn sample(stack: u32, function: u32, calls: f64, self_ns: f64) -> StackTotals {
    let function = Some(function);
    let (thread, time_ns, off_cpu_ns) = (None, self_ns, self_ns / 4.0);
    StackTotals { stack, function, thread, samples: 1, calls, time_ns, self_ns, off_cpu_ns }
}

fn stack(frames: &[u32], cut: Option<CutReason>) -> ProfileStack {
    ProfileStack { frames: frames.to_vec(), cut }
}

/// `main` calls `run`, compiled and not, and that calls `read`, which calls back into `fill`, which calls `copy`.
fn profile() -> Profile {
    use ProfileFrameKind::{C2, Interpreted, NativeMethod};
    Profile {
        frames: vec![
            frame(Interpreted, "a.M", "main", Some(1)),
            frame(Interpreted, "a.M", "run", Some(10)),
            frame(C2, "a.M", "run", Some(11)),
            frame(NativeMethod, "a.N", "read", None),
            frame(Interpreted, "a.M", "fill", Some(20)),
            frame(NativeMethod, "a.N", "copy", None),
        ],
        stacks: vec![stack(&[3, 1, 0], None), stack(&[3, 2, 0], None), stack(&[5, 4, 3, 2, 0], None)],
        functions: vec![function("read", 100, 1000), function("copy", 50, 333)],
        calls: vec![sample(0, 0, 30.0, 290.0), sample(1, 0, 60.0, 600.0), sample(2, 1, 40.0, 200.0)],
        ..Profile::default()
    }
}

fn name(frame: &ProfileFrame) -> String {
    frame.line.map_or_else(|| frame.name.clone(), |line| format!("{}:{line}", frame.name))
}

/// One line for each stack: its frames and its value.
fn folded(weighed: &Weighed) -> Vec<String> {
    let lines = weighed.stacks.iter().map(|stack| {
        let names: Vec<String> = stack.frames.iter().map(|at| name(&weighed.frames[*at as usize])).collect();
        format!("{} {}", names.join(";"), stack.value)
    });
    lines.collect()
}

fn weighed(profile: &Profile, weight: Weight) -> Weighed {
    weigh(profile, weight, PLAIN).unwrap()
}

/// Check that times are scaled to the exact ones, that a method is one frame however it was compiled, and that what was
/// called back stands above.
#[test]
fn time_is_scaled_and_merged() {
    let weighed = weighed(&profile(), Weight::Time);
    assert_eq!(folded(&weighed), ["main;run;read 1000", "main;run;read;fill;copy 333"]);
    assert_eq!((weighed.total, weighed.stacks[0].samples), (1333, 2));
    let run = weighed.frames.iter().find(|frame| frame.name == "run").unwrap();
    assert_eq!((run.kind, weighed.frames.len()), (ProfileFrameKind::C2, 5));
}

/// Check that lines keep stacks apart where they are wanted.
#[test]
fn lines_are_told_apart() {
    let weighed = weigh(&profile(), Weight::Time, Detail { lines: true, ..PLAIN }).unwrap();
    let expected = ["main:1;run:10;read 326", "main:1;run:11;read 674", "main:1;run:11;read;fill:20;copy 333"];
    assert_eq!(folded(&weighed), expected);
}

/// Check that the kind of a frame is the heaviest one at its place, and the most compiled one of equals.
#[test]
fn heaviest_kind_names_the_frame() {
    let kind = |interpreted: f64, compiled: f64| {
        let mut profile = profile();
        (profile.calls[0].self_ns, profile.calls[1].self_ns) = (interpreted, compiled);
        profile.calls.truncate(2);
        profile.functions.truncate(1);
        weighed(&profile, Weight::Time).frames[1].kind
    };
    assert_eq!(kind(501.0, 499.0), ProfileFrameKind::Interpreted);
    assert_eq!(kind(500.0, 500.0), ProfileFrameKind::C2);
}

/// Check that the number of calls is scaled to the exact one, and that calls in flight are none of them.
#[test]
fn calls_are_scaled() {
    let mut profile = profile();
    profile.open = vec![sample(0, 0, 1.0, 5e6)];
    profile.inside = vec![sample(2, 0, 0.0, 5e6)];
    assert_eq!(folded(&weighed(&profile, Weight::Calls)), ["main;run;read 100", "main;run;read;fill;copy 50"]);
}

/// Check that with self times each native method stands on its own, from where it was called back.
#[test]
fn self_time_stands_on_its_own() {
    let weighed = weighed(&profile(), Weight::SelfTime);
    assert_eq!(folded(&weighed), ["main;run;read 1000", "[called back from a.N.read];fill;copy 333"]);
}

/// Check that off-CPU time is scaled to its own total, and refused where it was not measured.
#[test]
fn off_cpu_needs_a_measurement() {
    let mut profile = profile();
    assert_eq!(weigh(&profile, Weight::OffCpu, PLAIN), Err(NotRecorded::OffCpu));
    profile.about.off_cpu = true;
    assert_eq!(folded(&weighed(&profile, Weight::OffCpu)), ["main;run;read 500", "main;run;read;fill;copy 166"]);
}

/// Check that what was open at the end is added as it is.
#[test]
fn open_calls_are_not_scaled() {
    let mut profile = profile();
    profile.open = vec![sample(2, 1, 1.0, 7.0)];
    assert_eq!(folded(&weighed(&profile, Weight::Time)), ["main;run;read 1000", "main;run;read;fill;copy 340"]);
}

/// Check that samples from inside a function replace those of its calls, and leave other functions alone.
#[test]
fn native_stacks_replace_those_of_calls() {
    let mut profile = profile();
    profile.frames.push(frame(ProfileFrameKind::Native, "libc.so", "memcpy", None));
    profile.stacks.push(stack(&[6, 3, 2, 0], None));
    profile.stacks.push(stack(&[6], Some(CutReason::NoUnwindInfo)));
    profile.inside = vec![sample(3, 0, 0.0, 3.0), sample(4, 0, 0.0, 1.0)];
    let expected = [
        "main;run;read;memcpy 750",
        "[stack cut: native code has no unwind information];read;memcpy 250",
        "main;run;read;fill;copy 333",
    ];
    assert_eq!(folded(&weighed(&profile, Weight::Time)), expected);
}

/// Check that native code which waited has the part of the time that the function's calls waited, however many of its samples
/// were lost.
#[test]
fn native_stacks_wait_as_long_as_their_calls() {
    let mut profile = profile();
    let natives = ["compute", "sleep"].map(|name| frame(ProfileFrameKind::Native, "libc.so", name, None));
    profile.frames.extend(natives);
    profile.stacks.extend([stack(&[6, 3, 2, 0], None), stack(&[7, 3, 2, 0], None)]);
    profile.functions[0].off_cpu_ns = 900;
    let [computes, sleeps] = [(3, 100.0, 0.0), (4, 30.0, 30.0)]
        .map(|(stack, self_ns, off_cpu_ns)| StackTotals { off_cpu_ns, ..sample(stack, 0, 0.0, self_ns) });
    profile.inside = vec![computes, sleeps];
    let time = folded(&weighed(&profile, Weight::Time));
    assert_eq!(time[..2], ["main;run;read;compute 100", "main;run;read;sleep 900"]);
}

/// Check that a function with calls and no usable sample is drawn as such, and that a cut stack says why it is.
#[test]
fn marks_what_is_missing() {
    let mut profile = profile();
    profile.stacks[0].cut = Some(CutReason::TooDeep);
    profile.calls.remove(1);
    profile.calls[1].self_ns = 0.0;
    let expected = ["[stack cut: the stack is too deep];main;run;read 1000", "[no stack taken];copy 333"];
    assert_eq!(folded(&weighed(&profile, Weight::Time)), expected);
}

/// Check that what was too expensive to watch has its width beside what was seen, by each weight that it is estimated for.
#[test]
fn estimates_have_width() {
    let mut profile = profile();
    profile.functions[1].unseen = Some(Unseen { calls: 950, error_calls: 9, total_ns: 2_000, ..Unseen::default() });
    let of =
        |weight| folded(&weighed(&profile, weight)).into_iter().filter(|line| line.contains("too expensive")).collect();
    let (time, calls): (Vec<String>, Vec<String>) = (of(Weight::Time), of(Weight::Calls));
    assert_eq!(time, ["[estimated: too expensive to watch];copy 2000"]);
    assert_eq!(calls, ["[estimated: too expensive to watch];copy 950"]);
    profile.about.off_cpu = true;
    assert!(!folded(&weighed(&profile, Weight::OffCpu)).iter().any(|line| line.contains("too expensive")));
}

/// Check that frames which the VM hides are left out unless they are asked for, native methods never.
#[test]
fn hidden_frames_are_left_out() {
    let mut profile = profile();
    profile.frames[2].hidden = true;
    profile.frames[3].hidden = true;
    profile.calls.remove(0);
    assert_eq!(folded(&weighed(&profile, Weight::Time)), ["main;read 1000", "main;read;fill;copy 333"]);
    let all = weigh(&profile, Weight::Time, Detail { hidden: true, ..PLAIN }).unwrap();
    assert_eq!(folded(&all)[0], "main;run;read 1000");
}

/// Check that samples by timer stand for their periods, and that nothing else is made of them.
#[test]
fn samples_by_timer() {
    let mut profile = profile();
    profile.about.mode = ProfileMode::OnCpu;
    profile.inside = vec![StackTotals { function: None, time_ns: 2e7, self_ns: 0.0, ..sample(2, 0, 0.0, 0.0) }];
    for weight in [Weight::Time, Weight::SelfTime] {
        assert_eq!(folded(&weighed(&profile, weight)), ["main;run;read;fill;copy 20000000"]);
    }
    for weight in [Weight::Calls, Weight::OffCpu] {
        assert_eq!(weigh(&profile, weight, PLAIN), Err(NotRecorded::Calls));
    }
}

/// Check that indices which lead nowhere, and numbers that are none, are no reason to panic.
#[test]
fn anything_can_be_weighed() {
    let mut profile = profile();
    profile.stacks.push(stack(&[99, 3, u32::MAX], None));
    profile.calls.push(sample(3, 0, f64::NAN, f64::INFINITY));
    profile.calls.push(sample(77, 0, -1.0, 1e300));
    profile.calls.push(sample(0, 99, 1.0, 1.0));
    profile.open = vec![sample(0, 0, 1.0, f64::INFINITY), sample(1, 0, 1.0, 1e300)];
    profile.functions[1].self_ns = u64::MAX;
    profile.about.off_cpu = true;
    for weight in [Weight::Time, Weight::Calls, Weight::SelfTime, Weight::OnCpu, Weight::OffCpu] {
        weighed(&profile, weight);
    }
}

/// A recording of random stacks over a few frames.
fn random(seed: u64) -> Profile {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut below = |limit: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 33).unwrap() % limit
    };
    let kinds = [ProfileFrameKind::Interpreted, ProfileFrameKind::C1, ProfileFrameKind::C2, ProfileFrameKind::Inlined];
    let java = (0..12).map(|at| frame(kinds[at % 4], "a.J", &format!("j{}", at / 3), Some(below(3))));
    let mut frames: Vec<ProfileFrame> = java.collect();
    frames.extend((0..5).map(|at| frame(ProfileFrameKind::NativeMethod, "a.N", &format!("n{at}"), None)));
    let (mut stacks, mut calls) = (Vec::new(), Vec::new());
    for at in 0..60 {
        let function = below(4);
        let outer: Vec<u32> = (0..below(9)).map(|_| below(17)).collect();
        stacks.push(stack(&[&[12 + function], outer.as_slice()].concat(), None));
        calls.push(sample(at, function, f64::from(below(1000) + 1) / 7.0, f64::from(below(1 << 30)) * 1.37 + 1.0));
    }
    let mut total = || u64::from(below(u32::MAX)) * u64::from(below(1 << 20));
    let functions = (0..5).map(|at| function(&format!("n{at}"), total(), total())).collect();
    Profile { frames, stacks, functions, calls, ..Profile::default() }
}

/// The sum of what ends in each frame.
fn by_leaf(weighed: &Weighed) -> HashMap<String, u64> {
    let mut sums = HashMap::new();
    for stack in &weighed.stacks {
        let leaf = &weighed.frames[*stack.frames.last().unwrap() as usize];
        *sums.entry(leaf.name.clone()).or_default() += stack.value;
    }
    sums
}

/// Check, on random recordings, that each function has its exact total and all of them the sum, with every weight and
/// detail; that no stack and no frame appears twice; and that the same recording gives the same result.
#[test]
fn totals_are_exact() {
    for seed in 0..200 {
        let mut profile = random(seed);
        profile.about.off_cpu = true;
        profile.functions.iter_mut().for_each(|function| function.off_cpu_ns = function.self_ns / 3);
        for weight in [Weight::Time, Weight::Calls, Weight::SelfTime, Weight::OnCpu, Weight::OffCpu] {
            let exact = |f: &FunctionTotals| match weight {
                Weight::Calls => f.calls,
                Weight::OnCpu => f.self_ns.saturating_sub(f.off_cpu_ns),
                Weight::OffCpu => f.off_cpu_ns,
                Weight::Time | Weight::SelfTime => f.self_ns,
            };
            for detail in [PLAIN, Detail { lines: true, hidden: true, threads: true }] {
                let weighed = weigh(&profile, weight, detail).unwrap();
                let sums = by_leaf(&weighed);
                for function in &profile.functions {
                    assert_eq!(sums.get(&function.method).copied().unwrap_or(0), exact(function), "seed {seed}");
                }
                assert_eq!(weighed.total, profile.functions.iter().map(exact).sum::<u64>());
                let stacks: HashMap<_, _> = weighed.stacks.iter().map(|stack| (&stack.frames, ())).collect();
                assert_eq!(stacks.len(), weighed.stacks.len());
                let frames: HashMap<_, _> = weighed.frames.iter().map(|frame| (frame, ())).collect();
                assert_eq!(frames.len(), weighed.frames.len());
                assert_eq!(weigh(&profile, weight, detail).unwrap(), weighed);
            }
        }
    }
}

/// Check that work and waiting are what a function did of each, that samples of both divide work by what they say of it, that
/// calls in flight have theirs, and that the two are the whole time.
#[test]
fn work_is_what_is_not_waiting() {
    let mut profile = random(7);
    profile.about.off_cpu = true;
    for (function, share) in profile.functions.iter_mut().zip([0, 1, 2, 3, 4]) {
        function.self_ns %= 1 << 40;
        function.off_cpu_ns = function.self_ns / 4 * share;
    }
    for (at, totals) in profile.calls.iter_mut().enumerate() {
        totals.off_cpu_ns = if at % 3 == 0 { totals.self_ns } else { 0.0 };
    }
    profile.open = vec![StackTotals { off_cpu_ns: 900.0, ..sample(0, 0, 1.0, 1000.0) }];
    let [work, waiting, time] =
        [Weight::OnCpu, Weight::OffCpu, Weight::Time].map(|weight| weigh(&profile, weight, PLAIN).unwrap());
    assert_eq!(work.total + waiting.total, time.total);
    profile.calls.retain(|totals| totals.off_cpu_ns <= 0.0);
    assert_eq!(weigh(&profile, Weight::OnCpu, PLAIN).unwrap(), work, "stacks that only waited have no work");
    assert_eq!(super::open_ns(&profile, Weight::OnCpu)[0], 100);
}
