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
mod tests;
