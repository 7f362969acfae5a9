//! What all invocations have in common: how many there were, how long they took, and what slow ones do that quick ones do not.

use std::io::{self, Write};

use super::paragraph::{columns, wrapped};
use super::{ShownLimits, TreeContext, TreeRun, thread_label};
use crate::aggregate::quantile::quantile;
use crate::model::{Difference, EntrySummary, InvocationGroup, PathDifference, PathSum, Unfinished};
use crate::render::grid::{Align, Grid, Screen};
use crate::render::json::nanoseconds;
use crate::render::names::{printable, width};
use crate::render::notes::plural;
use crate::render::{units, words};

/// Columns for the names of a path.
const MOST_WIDTH: usize = 40;
/// How many methods are named that are not followed any more.
const EXAMPLES: usize = 5;
/// How many paths are compared.
const PATHS: usize = 8;

/// Writes what is said at the end: how many there were and what is missing, and with `is_whole` also how long they took and where the
/// time of slow ones went.
///
/// # Errors
/// What writing to `w` gives.
pub fn tree_summary(
    context: &TreeContext,
    run: &TreeRun<'_>,
    is_whole: bool,
    screen: Screen,
    w: &mut impl Write,
) -> io::Result<()> {
    let say = |line: &str, w: &mut dyn Write| {
        wrapped(line, columns(screen), 2).iter().try_for_each(|line| writeln!(w, "{line}"))
    };
    if run.summary.entries.is_empty() {
        say(&nothing(run), w)?;
    }
    for entry in &run.summary.entries {
        say(&counted(context, run, entry), w)?;
        for line in is_whole.then(|| times(context, entry)).into_iter().flatten().chain(lacking(entry)) {
            say(&line, w)?;
        }
        if let Some(difference) = entry.difference.as_ref().filter(|_| is_whole) {
            say(&compared(difference), w)?;
            for line in table(context, difference).lines(screen) {
                writeln!(w, "{line}")?;
            }
            if let Some(line) = rest(difference) {
                say(&line, w)?;
            }
        }
    }
    tree_notes(context, run).iter().try_for_each(|line| say(line, w))
}

/// What is not shown and not counted, a line each; the losses are the last.
#[must_use]
pub fn tree_notes(context: &TreeContext, run: &TreeRun<'_>) -> Vec<String> {
    let notes = shown(run).into_iter().chain(unfinished(run.summary.unfinished));
    let notes = notes.chain(paths_left_out(run)).chain(silenced(context, run));
    notes.chain(run.remark.map(str::to_owned)).chain(words::losses(run.losses)).collect()
}

/// What all invocations are, in one line.
#[must_use]
pub fn tree_title(context: &TreeContext, run: &TreeRun<'_>) -> String {
    let entries: Vec<String> = run.summary.entries.iter().map(|entry| counted(context, run, entry)).collect();
    if entries.is_empty() { nothing(run) } else { entries.join("; ") }
}

fn nothing(run: &TreeRun<'_>) -> String {
    format!("no invocation has ended in {}", elapsed(run))
}

fn elapsed(run: &TreeRun<'_>) -> String {
    units::duration(nanoseconds(run.elapsed))
}

fn counted(context: &TreeContext, run: &TreeRun<'_>, entry: &EntrySummary) -> String {
    let name = printable(&context.full(entry.method)).into_owned();
    let failed = match entry.failed {
        0 => String::new(),
        failed => format!(", {} of them left by an exception", units::count(failed)),
    };
    format!("{} of {name} in {}{failed}", plural(entry.invocations, "invocation"), elapsed(run))
}

fn times(context: &TreeContext, entry: &EntrySummary) -> Option<String> {
    let slowest = entry.slowest?;
    let at = |q| quantile(&entry.histogram, q, slowest.total_ns).map_or_else(|| "-".to_owned(), units::duration);
    let when = context.moment(slowest.started_ns).strftime("%H:%M:%S.%3f");
    Some(format!(
        "half took at most ~{}, 90 % ~{}, 99 % ~{} (within 10 %); the slowest {}: #{} in {}, {when} UTC",
        at(0.5),
        at(0.9),
        at(0.99),
        units::duration(slowest.total_ns),
        units::count(slowest.number),
        thread_label(slowest.thread, None),
    ))
}

fn lacking(entry: &EntrySummary) -> Vec<String> {
    let mut lines = Vec::new();
    if entry.incomplete > 0 {
        lines.push(format!("{} of them lack something within (marked !)", units::count(entry.incomplete)));
    }
    if entry.endless > 0 {
        let more = units::count(entry.endless);
        lines.push(format!("{more} more have no time: events were lost before they ended"));
    }
    lines
}

fn compared(difference: &Difference) -> String {
    let Difference { these: slow, others: quick, .. } = difference;
    let more = slow.mean_ns().saturating_sub(quick.mean_ns());
    format!(
        "the {} slowest took {} each{}{}, the others {}{}{}. Where the {} more went, per invocation:",
        units::count(slow.invocations),
        units::duration(slow.mean_ns()),
        from_to(slow),
        off(slow),
        units::duration(quick.mean_ns()),
        from_to(quick),
        off(quick),
        units::duration(more),
    )
}

pub(super) fn from_to(group: &InvocationGroup) -> String {
    match (units::duration(group.min_ns), units::duration(group.max_ns)) {
        (min, max) if min == max => String::new(),
        (min, max) => format!(" ({min} to {max})"),
    }
}

/// How long threads did not run, if that is known and worth a word.
fn off(group: &InvocationGroup) -> String {
    let off_ns = group.mean_off_ns().filter(|&off_ns| is_much(off_ns, group));
    off_ns.map_or_else(String::new, |off_ns| format!(", {} of it off-CPU", units::duration(off_ns)))
}

/// Whether a time is at least half a percent of what an invocation took.
fn is_much(ns: u64, group: &InvocationGroup) -> bool {
    ns > 0 && ns.saturating_mul(200) >= group.mean_ns()
}

/// What a path took in each invocation of a group.
pub(super) fn mean(sum: PathSum, group: InvocationGroup) -> u64 {
    sum.self_ns.checked_div(group.invocations).unwrap_or(0)
}

fn table(context: &TreeContext, difference: &Difference) -> Grid<'static> {
    let slow = &difference.these;
    let has_off = slow.mean_off_ns().is_some_and(|off_ns| is_much(off_ns, slow));
    let rows = difference.paths.iter().take(PATHS).map(|path| row(context, difference, path, has_off));
    let right = |title| (title, Align::Right);
    let mut headers = vec![right("MORE"), right("SLOW"), right("QUICK"), right("CALLS"), ("SELF TIME OF", Align::Left)];
    if has_off {
        headers.insert(2, right("OFF-CPU"));
    }
    Grid { rows: rows.collect(), headers, elastic: vec![], expendable: &[] }
}

fn row(context: &TreeContext, difference: &Difference, path: &PathDifference, has_off: bool) -> Vec<String> {
    let (slow, quick) = (mean(path.these, difference.these), mean(path.others, difference.others));
    let sign = if slow < quick { "-" } else { "" };
    let mut row = vec![
        format!("{sign}{}", units::duration(slow.abs_diff(quick))),
        units::duration(slow),
        units::duration(quick),
        format!("{} / {}", per(path.these, difference.these), per(path.others, difference.others)),
        short_path(context, &path.path),
    ];
    if has_off {
        // How much of SLOW.
        let off_ns = path.these.off_ns.checked_div(difference.these.invocations).filter(|&off_ns| off_ns > 0);
        row.insert(2, off_ns.map_or_else(String::new, units::duration));
    }
    row
}

/// Calls per invocation.
#[expect(clippy::cast_precision_loss, reason = "three digits are printed")]
pub(super) fn per(sum: PathSum, group: InvocationGroup) -> String {
    if sum.calls.is_multiple_of(group.invocations.max(1)) {
        return units::count(sum.calls / group.invocations.max(1));
    }
    units::rate(sum.calls as f64 / group.invocations as f64)
}

/// A path in one line: its last method, and the one before it, unless that is the entry method, where all begin. Of a recursion it is said how
/// deep it is.
pub(super) fn short_path(context: &TreeContext, path: &[u32]) -> String {
    let mut steps: Vec<(u32, usize)> = Vec::new();
    for &method in path {
        match steps.last_mut() {
            Some((last, times)) if *last == method => *times += 1,
            _ => steps.push((method, 1)),
        }
    }
    let name = |(method, times): (u32, usize)| match times {
        1 => context.short(method).to_owned(),
        times => format!("{} ({times} deep)", context.short(method)),
    };
    match steps[..] {
        [] => String::new(),
        [only] | [_, only] => name(only),
        [_, caller, last] => format!("{} > {}", name(caller), name(last)),
        [.., caller, last] => {
            let both = format!("… {} > {}", name(caller), name(last));
            // Two long names do not fit beside the numbers.
            if width(&both) > MOST_WIDTH { format!("… {}", name(last)) } else { both }
        }
    }
}

/// What other paths took.
fn rest(difference: &Difference) -> Option<String> {
    let rest = difference.paths.get(PATHS..).filter(|rest| !rest.is_empty())?;
    let sum = |of: fn(&PathDifference) -> PathSum, group| rest.iter().map(|path| mean(of(path), group)).sum::<u64>();
    let (slow, quick) = (sum(|path| path.these, difference.these), sum(|path| path.others, difference.others));
    Some(format!(
        "and {}: {} and {}",
        plural(rest.len() as u64, "other path"),
        units::duration(slow),
        units::duration(quick)
    ))
}

fn shown(run: &TreeRun<'_>) -> Option<String> {
    let all: u64 = run.summary.entries.iter().map(|entry| entry.invocations + entry.endless).sum();
    let below = all.saturating_sub(run.shown);
    let ShownLimits { min_ns, most, most_in_second } = run.reached;
    let min = min_ns.map(|min| format!("--min {}", units::duration(min)));
    let most = most.map(|most| format!("-n {most}"));
    let in_second = most_in_second.map(|most| format!("at most {most} in a second"));
    let why: Vec<String> = [min, most, in_second].into_iter().flatten().collect();
    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join(", ")) };
    (below > 0).then(|| format!("shown: {} of {}{why}", units::count(run.shown), units::count(all)))
}

fn unfinished(unfinished: Unfinished) -> Vec<String> {
    let Unfinished { begun_before, still_inside, died_inside, lost_beginnings, crowded, unknown } = unfinished;
    [
        (begun_before, "that had begun before they were followed"),
        (still_inside, "that had not ended"),
        (died_inside, "that ended with the thread"),
        (lost_beginnings, "of which the beginning was lost"),
        (crowded, "beside too many others at the same time"),
    ]
    .into_iter()
    .filter(|(n, _)| *n > 0)
    .map(|(n, what)| format!("not counted: {} {what}", plural(n, "invocation")))
    .chain((unknown > 0).then(|| format!("events that fit no method: {unknown}, a defect of nprof, please report it")))
    .collect()
}

/// What is not followed any more, to keep to the budget.
fn silenced(context: &TreeContext, run: &TreeRun<'_>) -> Option<String> {
    let count = run.silenced.len();
    let names: Vec<&str> = run.silenced.iter().take(EXAMPLES).map(|&method| context.short(method)).collect();
    let all = if count > names.len() { format!(", … ({count} in all)") } else { String::new() };
    (count > 0).then(|| {
        format!(
            "not followed any more, as they were called too often for the budget (--max-overhead): {}{all}; their time is part of their \
             callers' SELF since then; follow fewer methods ({}), or --max-overhead off",
            printable(&names.join(", ")),
            run.fewer
        )
    })
}

fn paths_left_out(run: &TreeRun<'_>) -> Option<String> {
    let calls = run.summary.paths_left_out;
    (calls > 0).then(|| format!("not compared: {} on more paths than are kept", plural(calls, "call")))
}
