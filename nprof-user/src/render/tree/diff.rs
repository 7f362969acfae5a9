//! The trees of two recordings compared: what an invocation of each entry method took before and takes now, and on which paths.

use std::io::{self, Write};

use super::TreeContext;
use super::paragraph::{columns, wrapped};
use super::summary::{from_to, mean, per, short_path};
use crate::model::{EntryComparison, InvocationGroup, PathDifference, TreeClock, TreeComparison, TreePlan};
use crate::render::grid::{Align, Grid, Screen, bold};
use crate::render::names::printable;
use crate::render::notes::plural;
use crate::render::{units, words};

/// How many methods are named that are not followed to the end.
const EXAMPLES: usize = 5;

/// Writes the comparison, of each entry method the `top` paths that explain the most; all of them for 0.
///
/// # Errors
/// What writing to `w` gives.
pub fn tree_difference(comparison: &TreeComparison, top: usize, screen: Screen, w: &mut impl Write) -> io::Result<()> {
    let context = context(comparison);
    for entry in &comparison.entries {
        let name = printable(&context.full(entry.method)).into_owned();
        writeln!(w, "{}", bold(&format!("invocations of {name}, A before and B after"), screen.ansi))?;
        for line in summary(entry).iter().flat_map(|line| wrapped(line, columns(screen), 2)) {
            writeln!(w, "{line}")?;
        }
        if is_in_both(entry) {
            paths(&context, entry, top, screen, w)?;
        }
        writeln!(w)?;
    }
    for line in notes(&context, comparison).iter().flat_map(|line| wrapped(line, columns(screen), 2)) {
        writeln!(w, "{line}")?;
    }
    Ok(())
}

/// What was not followed to the end in one of the recordings, and what is missing in it, a line each.
#[must_use]
pub fn tree_difference_notes(comparison: &TreeComparison) -> Vec<String> {
    notes(&context(comparison), comparison)
}

fn context(comparison: &TreeComparison) -> TreeContext {
    let plan = TreePlan { methods: comparison.methods.clone(), ..TreePlan::default() };
    TreeContext::new(plan, TreeClock::default())
}

fn notes(context: &TreeContext, comparison: &TreeComparison) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, (silenced, losses)) in ["A", "B"].iter().zip(comparison.silenced.iter().zip(&comparison.losses)) {
        if !silenced.is_empty() {
            let names: Vec<&str> = silenced.iter().take(EXAMPLES).map(|&method| context.short(method)).collect();
            let more =
                if silenced.len() > names.len() { format!(", … ({} in all)", silenced.len()) } else { String::new() };
            notes.push(format!(
                "in {name} not followed to the end, as they were called too often for the budget (--max-overhead): {}{more}; \
                 their time is part of their callers' SELF since then",
                names.join(", ")
            ));
        }
        let losses = losses.named();
        if losses.total() > 0 {
            notes.extend(words::losses(&losses).into_iter().map(|line| format!("in {name}, {line}")));
        }
    }
    notes
}

fn is_in_both(entry: &EntryComparison) -> bool {
    entry.difference.these.invocations > 0 && entry.difference.others.invocations > 0
}

/// How many there were, what each took, and how much more that is.
fn summary(entry: &EntryComparison) -> Vec<String> {
    let (before, after) = (&entry.difference.others, &entry.difference.these);
    let [failed_before, failed_after] = entry.failed;
    let mut lines = vec![group("A", before, failed_before), group("B", after, failed_after)];
    if is_in_both(entry) {
        let (old, new) = (before.mean_ns(), after.mean_ns());
        let change = change(old, new);
        lines.push(format!("B took {change} each{}. Where the difference is, per invocation:", share(old, new)));
    }
    lines
}

fn group(name: &str, group: &InvocationGroup, failed: u64) -> String {
    if group.invocations == 0 {
        return format!("{name}: none");
    }
    let off = group.mean_off_ns().filter(|off_ns| *off_ns > 0);
    let off = off.map_or_else(String::new, |off_ns| format!(", {} of it off-CPU", units::duration(off_ns)));
    let failed = match failed {
        0 => String::new(),
        failed => format!(", {} of them left by an exception", units::count(failed)),
    };
    let (count, each) = (plural(group.invocations, "invocation"), units::duration(group.mean_ns()));
    format!("{name}: {count}, {each} each{}{off}{failed}", from_to(group))
}

/// `+1.24 ms`, `-3.00 us`, `0 ns`.
fn change(old: u64, new: u64) -> String {
    let sign = match new.cmp(&old) {
        std::cmp::Ordering::Less => "-",
        std::cmp::Ordering::Equal => "",
        std::cmp::Ordering::Greater => "+",
    };
    format!("{sign}{}", units::duration(new.abs_diff(old)))
}

/// The same as a share of before.
#[expect(clippy::cast_precision_loss, reason = "one decimal is printed")]
fn share(old: u64, new: u64) -> String {
    if old == 0 { String::new() } else { format!(" ({:+.1} %)", (new as f64 / old as f64 - 1.0) * 100.0) }
}

/// The paths that explain the most, and the sum of the others.
fn paths(
    context: &TreeContext,
    entry: &EntryComparison,
    top: usize,
    screen: Screen,
    w: &mut impl Write,
) -> io::Result<()> {
    let all = &entry.difference.paths;
    let (shown, rest) = all.split_at(if top == 0 { all.len() } else { top.min(all.len()) });
    let right = |title| (title, Align::Right);
    let grid = Grid {
        rows: shown.iter().map(|path| row(context, entry, path)).collect(),
        headers: vec![
            right("CALLS A"),
            right("CALLS B"),
            right("TIME A"),
            right("TIME B"),
            right("CHANGE"),
            ("SELF TIME OF", Align::Left),
        ],
        elastic: vec![],
        expendable: &[],
    };
    for line in grid.lines(screen) {
        writeln!(w, "{line}")?;
    }
    if !rest.is_empty() {
        let sum =
            |of: fn(&PathDifference, &EntryComparison) -> u64| rest.iter().map(|path| of(path, entry)).sum::<u64>();
        let (old, new) = (sum(old_ns), sum(new_ns));
        let (paths, change) = (plural(rest.len() as u64, "other path"), change(old, new));
        writeln!(w, "and {paths}: {change} (--top 0 shows all)")?;
    }
    Ok(())
}

fn row(context: &TreeContext, entry: &EntryComparison, path: &PathDifference) -> Vec<String> {
    let (before, after) = (entry.difference.others, entry.difference.these);
    let (old, new) = (old_ns(path, entry), new_ns(path, entry));
    vec![
        per(path.others, before),
        per(path.these, after),
        units::duration(old),
        units::duration(new),
        change(old, new),
        short_path(context, &path.path),
    ]
}

fn old_ns(path: &PathDifference, entry: &EntryComparison) -> u64 {
    mean(path.others, entry.difference.others)
}

fn new_ns(path: &PathDifference, entry: &EntryComparison) -> u64 {
    mean(path.these, entry.difference.these)
}
