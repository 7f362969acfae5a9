//! What a picture says about itself: what was measured, how exact it is, and what is missing.

use super::super::marks::Mark;
use super::super::uncertain::Uncertain;
use super::super::units;
use super::labels::clean;
use super::order::ordered;
use crate::aggregate::open_ns;
use crate::model::{FunctionTotals, Profile, ProfileFrameKind, ProfileMode, Quality, StackTotals, Unseen, Weight};

/// How many functions a note names.
const NAMED: usize = 8;
/// What is not known by method.
const NARROWED: &str = "Some methods or threads only: guesses, samples that could not be taken, losses and methods not traced are of the whole recording.";
/// What a picture of work does not show.
const WAITING: &str = "Waiting is left out: `--weight time` draws it too, `--weight off-cpu` nothing else.";
/// What a picture of wall-clock time cannot leave out.
const NOT_TOLD: &str = "Work and waiting are not told apart here: calls that waited are as wide as they were long.";
/// How many characters of a main class or jar the title shows.
const MAIN_SHOWN: usize = 60;

/// The words around a picture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captions {
    /// One line: what the widths are, of which JVM.
    pub title: String,
    /// Further lines: how long, how many calls and stacks, how they were scaled, what is missing.
    pub notes: Vec<String>,
}

impl Captions {
    /// The captions of a recording, weighed by `weight`.
    #[must_use]
    pub fn of(profile: &Profile, weight: Weight) -> Self {
        let mut notes = match profile.about.mode {
            ProfileMode::Calls => calls(profile, weight),
            ProfileMode::OnCpu => on_cpu(profile),
        };
        notes.extend(reasons("Cut stacks", &profile.quality.cut));
        notes.extend(guessed(&profile.quality));
        notes.extend(reasons("Samples that could not be taken", &profile.quality.lost));
        notes.extend(reasons("Losses of the totals", &profile.quality.losses));
        notes.extend(reasons("Methods that were not traced", &profile.quality.skipped));
        notes.extend(threads(profile));
        if profile.quality.narrowed {
            notes.push(NARROWED.to_owned());
        }
        notes.push(origin(profile));
        Self { title: title(profile, weight), notes }
    }

    /// The same for a picture, which also says what it does not show.
    #[must_use]
    pub fn of_picture(profile: &Profile, weight: Weight) -> Self {
        let mut captions = Self::of(profile, weight);
        if (profile.about.mode, weight) == (ProfileMode::Calls, Weight::OnCpu) {
            captions.notes.insert(captions.notes.len().min(1), WAITING.to_owned());
        }
        captions
    }
}

/// `Native time of com.acme.Main (pid 1234), 10.0 s`.
fn title(profile: &Profile, weight: Weight) -> String {
    let about = &profile.about;
    let what = match (about.mode, weight) {
        (ProfileMode::OnCpu, _) => "CPU time",
        (ProfileMode::Calls, Weight::Time) => "Native time",
        (ProfileMode::Calls, Weight::Calls) => "Native calls",
        (ProfileMode::Calls, Weight::SelfTime) => "Native self time",
        (ProfileMode::Calls, Weight::OnCpu) => "Native CPU time",
        (ProfileMode::Calls, Weight::OffCpu) => "Native off-CPU time",
    };
    let elapsed = u64::try_from(about.elapsed.as_nanos()).unwrap_or(u64::MAX);
    format!("{what} of {} (pid {}), {}", main(&about.main), about.pid, units::duration(elapsed))
}

/// The name of the program; of a long one the end, which says more than the package.
fn main(name: &str) -> String {
    let name = if name.is_empty() { "a JVM".to_owned() } else { clean(name) };
    let excess = name.chars().count().saturating_sub(MAIN_SHOWN);
    if excess == 0 { name } else { format!("…{}", name.chars().skip(excess + 1).collect::<String>()) }
}

/// What a recording of calls says first: the exact totals, and how the stacks go with them.
fn calls(profile: &Profile, weight: Weight) -> Vec<String> {
    let mut notes = totals(profile, weight);
    if profile.quality.stacks > 0 {
        notes.push(sampled(profile));
    }
    if weight != Weight::Calls {
        notes.extend(single_stepped(profile));
    }
    notes.extend(incomplete(profile));
    if weight == Weight::SelfTime {
        notes.push("Native calls that a native method made count for themselves only, not for it.".to_owned());
    }
    notes
}

fn totals(profile: &Profile, weight: Weight) -> Vec<String> {
    let sum = |of: fn(&FunctionTotals) -> u64| -> u64 { profile.functions.iter().map(of).fold(0, u64::saturating_add) };
    let untimed = sum(|f| f.untimed.saturating_add(if f.unseen.is_none() { f.counted } else { 0 }));
    let (calls, in_flight) = (sum(|f| f.calls), sum(|f| f.in_flight));
    let unseen = estimated(profile);
    if calls == 0 && in_flight == 0 && unseen.is_none() {
        return vec!["No traced native method was called.".to_owned()];
    }
    let exactly = if profile.about.threads.is_empty() { "Exact" } else { "Of these threads, estimated" };
    let mut line = format!(
        "{exactly}: {} of {}, {} in them",
        counted(calls, "call"),
        counted(profile.functions.iter().filter(is_seen).count() as u64, "native method"),
        units::duration(sum(|f| f.self_ns)),
    );
    if profile.about.off_cpu {
        let (waited, all) = (sum(|f| f.off_cpu_ns.min(f.self_ns)), sum(|f| f.self_ns));
        line += &format!(", {} of it waiting ({})", units::duration(waited), share(waited, all));
    }
    let mut notes = vec![line + "."];
    let shows_waiting = matches!(weight, Weight::Time | Weight::SelfTime) && sum(|f| f.self_ns) > 0;
    if !profile.about.off_cpu && shows_waiting {
        notes.push(NOT_TOLD.to_owned());
    }
    notes.extend(unseen);
    if untimed > 0 {
        notes.push(format!("Counted without a time: {}.", counted(untimed, "call")));
    }
    if in_flight > 0 {
        let in_open = |weight| units::duration(open_ns(profile, weight).into_iter().fold(0, u64::saturating_add));
        let open = in_open(Weight::Time);
        let ran = match (profile.about.off_cpu, profile.quality.open_unsplit) {
            (false, _) => String::new(),
            (true, 0) => format!(", {} of it on the CPU", in_open(Weight::OnCpu)),
            (true, unsplit) => {
                let those = counted(unsplit, "call");
                format!(
                    ", {} of it on the CPU beside {those} of which this kernel does not tell",
                    in_open(Weight::OnCpu)
                )
            }
        };
        let timed = profile.open.iter().map(|totals| totals.samples).fold(0, u64::saturating_add);
        let time = match timed {
            0 => "without the time until then".to_owned(),
            timed if timed >= in_flight => {
                let them = if in_flight == 1 { "it" } else { "them" };
                format!("{open} in {them} until then{ran}, beside the exact time")
            }
            timed => format!("{open} in {} of them until then{ran}, beside the exact time", units::count(timed)),
        };
        notes.push(format!("Not returned when the recording ended: {}, {time}.", counted(in_flight, "call")));
    }
    notes
}

/// Whether there is something exact to say of a function.
fn is_seen(function: &&FunctionTotals) -> bool {
    function.unseen.is_none() || function.calls > 0 || function.in_flight > 0
}

/// Which threads it is narrowed to, and how their part is known.
fn threads(profile: &Profile) -> Option<String> {
    let globs = clean(&profile.about.threads.join(" "));
    let how = match profile.about.mode {
        ProfileMode::OnCpu => "",
        ProfileMode::Calls => {
            ": the calls and times of each method are divided as its sampled calls are, those without a sample left out"
        }
    };
    (!globs.is_empty()).then(|| format!("Threads {globs} only{how}."))
}

/// What nobody saw, because it was too expensive to watch.
fn estimated(profile: &Profile) -> Option<String> {
    let unseen = profile.functions.iter().filter_map(|function| function.unseen);
    let calls = unseen.clone().map(|unseen| Uncertain { value: unseen.calls, error: unseen.error_calls });
    let calls: Uncertain = calls.sum();
    let more = (calls.value > 0 || calls.error > 0)
        .then(|| calls.in_words(|calls| format!("{} more", counted(calls, "call"))));
    let only_counted = profile.functions.iter().map(|function| function.counted).fold(0, u64::saturating_add);
    let only_counted = (only_counted > 0).then(|| format!("{} that were only counted", counted(only_counted, "call")));
    let calls: Vec<String> = [more, only_counted].into_iter().flatten().collect();
    let calls = calls.join(" and ");
    let time = match unseen.clone().filter(Unseen::has_time).count() {
        0 => "of unknown length".to_owned(),
        _ => format!("{} in them", time_in(unseen)),
    };
    let names = named(profile, |function| function.unseen.is_some())?;
    let is_marked = |mark: &Mark| profile.functions.iter().any(|function| mark.applies_to_recorded(function));
    let marks = [Mark::Estimated, Mark::PartlyCounted, Mark::Sampled].into_iter().filter(is_marked).map(Mark::symbol);
    let marks: Vec<String> = marks.map(String::from).collect();
    let marks = marks.join(", ");
    Some(format!("Estimated ({marks}), too expensive to watch all the time: {calls}, {time}: {names}."))
}

/// The time of calls that nobody saw, with its error where that is known of all.
fn time_in(unseen: impl Iterator<Item = Unseen> + Clone) -> String {
    let knows_error = unseen.clone().all(|unseen| unseen.error_ns.is_some() || !unseen.has_time());
    let times = unseen.map(|unseen| Uncertain { value: unseen.total_ns, error: unseen.error_ns.unwrap_or(0) });
    let time: Uncertain = times.sum();
    if knows_error { time.in_words(units::duration) } else { units::duration(time.value) }
}

/// Which functions' calls cost far more than others', the longest first.
fn single_stepped(profile: &Profile) -> Option<String> {
    let what = "Single-stepped by the kernel (!), so that a call costs about ten times as much as others do";
    Some(format!("{what}: {}.", named(profile, |function| function.single_stepped)?))
}

/// Which functions' numbers are not those of all calls, the longest first.
fn incomplete(profile: &Profile) -> impl Iterator<Item = String> {
    let marks = [
        (Mark::Late, "Traced from a later moment on, when it was bound"),
        (
            Mark::Unwatched,
            "Not watched for some of the time, to keep the cost of tracing low, so that there were more calls",
        ),
        (Mark::Sampled, "Timed in some of its calls, from which the time of the others is estimated"),
    ];
    marks.into_iter().filter_map(|(mark, what)| {
        // What is estimated has been named.
        let names = named(profile, |function| function.unseen.is_none() && mark.applies_to_recorded(function))?;
        Some(format!("{what} ({}): {names}.", mark.symbol()))
    })
}

/// The names of such functions, the longest time first; `None` if there is none.
fn named(profile: &Profile, which: impl Fn(&FunctionTotals) -> bool) -> Option<String> {
    let all: Vec<_> = ordered(profile).into_iter().filter(|function| which(function)).collect();
    let named = all.iter().take(NAMED).map(|function| clean(&format!("{}.{}", function.class, function.method)));
    let mut names: Vec<String> = named.collect();
    if all.len() > NAMED {
        names.push(format!("{} more", units::count((all.len() - NAMED) as u64)));
    }
    (!names.is_empty()).then(|| names.join(", "))
}

/// How many calls have a stack, and what was made of them.
fn sampled(profile: &Profile) -> String {
    let quality = &profile.quality;
    let limit = match profile.about.max_stacks {
        0 => String::new(),
        limit => format!(" (at most {} per second)", units::count(limit.into())),
    };
    let complete = share(quality.complete, quality.stacks);
    let stacks = counted(quality.stacks, "sampled stack");
    format!("Callers: {stacks}{limit}, scaled to the exact totals of each method; {complete} are complete.")
}

/// What a recording by timer says first.
fn on_cpu(profile: &Profile) -> Vec<String> {
    let samples =
        |totals: &mut dyn Iterator<Item = &StackTotals>| totals.map(|t| t.samples).fold(0, u64::saturating_add);
    let all = samples(&mut profile.inside.iter());
    if all == 0 {
        return vec!["No thread used the CPU when a sample was taken.".to_owned()];
    }
    let native = samples(&mut profile.inside.iter().filter(|totals| is_in_native_method(profile, totals)));
    let period = profile.about.period_ns.map(|ns| format!(", one per {} on each CPU", units::duration(ns)));
    let mut line = format!("{}{}", counted(all, "sample"), period.unwrap_or_default());
    line += &format!("; {} of them inside native methods", share(native, all));
    if profile.quality.stacks > 0 {
        line += &format!(", {} have a complete stack", share(profile.quality.complete, profile.quality.stacks));
    }
    vec![line + "."]
}

/// Whether the innermost Java frame is a native method.
fn is_in_native_method(profile: &Profile, totals: &StackTotals) -> bool {
    let stack = profile.stacks.get(totals.stack as usize);
    let frames = stack.into_iter().flat_map(|stack| &stack.frames).filter_map(|&at| profile.frames.get(at as usize));
    frames.map(|frame| frame.kind).find(|kind| kind.is_java()) == Some(ProfileFrameKind::NativeMethod)
}

/// `Cut stacks: 12 (the stack is too deep: 9, a method cannot be read: 3).`, or nothing where there are none.
fn reasons(what: &str, counts: &[(String, u64)]) -> Option<String> {
    let total = counts.iter().map(|(_, n)| *n).fold(0, u64::saturating_add);
    let each: Vec<String> = counts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(reason, n)| format!("{}: {}", clean(reason), units::count(*n)))
        .collect();
    (total > 0).then(|| format!("{what}: {} ({}).", units::count(total), each.join(", ")))
}

/// How many stacks are not certain and why, or nothing where all are.
fn guessed(quality: &Quality) -> Option<String> {
    let (count, of_all) = (units::count(quality.guessed), share(quality.guessed, quality.stacks));
    let why = "the caller of native code without unwind information";
    (quality.guessed > 0).then(|| format!("Stacks that rest on a guess: {count}, {of_all} ({why})."))
}

/// Where and with what it was recorded.
fn origin(profile: &Profile) -> String {
    let about = &profile.about;
    let mut parts = vec![format!("nprof {}", about.nprof)];
    if !about.patterns.is_empty() {
        parts.push(format!("methods {}", about.patterns.join(" ")));
    }
    parts.push(about.vm.clone());
    if !about.kernel.is_empty() {
        parts.push(format!("Linux {}", about.kernel));
    }
    parts.push(about.host.clone());
    parts.push(format!("{:.0}", about.started));
    parts.retain(|part| !part.is_empty());
    clean(&parts.join(" · "))
}

/// `1 call`, `1,234 calls`.
fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", units::count(n), if n == 1 { "" } else { "s" })
}

/// A part of a whole in percent. Neither all nor nothing is said of what is only nearly that.
pub(super) fn share(part: u64, whole: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "few digits are printed")]
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    match part {
        0 => "0 %".to_owned(),
        part if part >= whole => "100 %".to_owned(),
        _ if percent < 0.005 => "< 0.01 %".to_owned(),
        _ if percent < 9.995 => format!("{percent:.2} %"),
        _ if percent < 99.9 => format!("{percent:.1} %"),
        _ if percent < 99.99 => format!("{percent:.2} %"),
        _ => "> 99.99 %".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::samples;
    use super::{Captions, share};
    use crate::model::{
        About, FunctionTotals, Profile, ProfileFrameKind, ProfileMode, ProfileStack, Quality, StackTotals, Unseen,
        Weight,
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
        for said in
            ["when it was bound (+): a.B.c", "so that there were more calls (<): a.B.c", "is estimated (*): a.B.c"]
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
        samples::assert_golden("captions.txt", include_str!("golden/captions.txt"), &text);
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
}
