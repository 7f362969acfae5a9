//! What native code asks of the VM: the table of `jni`, and its document.

mod callbacks;
mod callers;
mod csv;
mod exceptions;
mod groups;
mod held;
mod id_cache;
mod json;
mod locals;
mod made;
mod notes;

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::grid::{Align, Elastic, Grid, Screen};
use super::notes::plural;
use super::uncertain::Uncertain;
use super::{json as documents, units};
use crate::model::{JniFamily, JniSnapshot, JniSum};
pub use csv::csv;
pub use id_cache::{id_cache_json, id_cache_table};
pub use json::json;

use callers::Estimates;
use groups::{Group, Part};

/// What the rows of the table are, each with its parts below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JniBy {
    /// Native methods, with the functions that they call.
    #[default]
    Method,
    /// JNI functions, with the native methods that call them.
    Function,
    /// Java methods that are called, with the native methods that call them.
    Java,
}

/// How the table is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JniView {
    /// What its rows are.
    pub by: JniBy,
    /// How many there are; all if nothing is said.
    pub top: Option<usize>,
}

/// How many parts of a row are shown.
const PARTS: usize = 8;

/// Writes the table, the dearest first, and what belongs to it.
///
/// # Errors
/// What writing to `w` gives.
pub fn table(jni: &JniSnapshot, view: JniView, screen: Screen, w: &mut impl Write) -> io::Result<()> {
    let groups = groups::of(jni, view.by);
    let shown = view.top.unwrap_or(groups.len()).min(groups.len());
    if groups.is_empty() {
        let elapsed = units::duration(documents::nanoseconds(jni.snapshot.elapsed));
        // What was not watched may have been called all the same. Stubs do not tell which Java method a function calls.
        let (was, help) = match (jni.is_partial(), view.by) {
            (false, _) => ("was", ""),
            (true, JniBy::Java) => ("was seen to be", ""),
            (true, _) => ("was seen to be", "; --tier stub counts every call"),
        };
        let (what, by_whom) =
            if view.by == JniBy::Java { ("Java method", " by native code") } else { ("JNI function", "") };
        writeln!(w, "no {what} {was} called{by_whom} in {elapsed}{help}")?;
    } else {
        for line in grid(&groups[..shown], view.by).lines(screen) {
            writeln!(w, "{line}")?;
        }
    }
    writeln!(w)?;
    if shown < groups.len() {
        let left_ns = groups[shown..].iter().map(|group| group.sum.on_cpu_ns).fold(0, u64::saturating_add);
        writeln!(w, "left out: {} further rows with {} (--top)", groups.len() - shown, units::duration(left_ns))?;
    }
    let held = held::table(jni, view.top, screen);
    for line in &held {
        writeln!(w, "{line}")?;
    }
    if !held.is_empty() {
        writeln!(w)?;
    }
    for line in notes::lines(jni, &named(&groups[..shown])) {
        writeln!(w, "{line}")?;
    }
    Ok(())
}

/// The rows of the snapshot that are named in these, and so many of their parts as are shown.
fn named(groups: &[Group]) -> BTreeSet<usize> {
    let parts = groups.iter().flat_map(|group| group.parts.iter().take(PARTS)).filter_map(|part| part.place);
    groups.iter().filter_map(|group| group.place).chain(parts).collect()
}

fn grid(groups: &[Group], by: JniBy) -> Grid<'static> {
    let right = |title| (title, Align::Right);
    let what = match by {
        JniBy::Method => "METHOD / JNI FUNCTION",
        JniBy::Function => "JNI FUNCTION / METHOD",
        JniBy::Java => "JAVA METHOD / CALLED BY",
    };
    let headers = vec![
        right("ON-CPU"),
        right("TIME"),
        right("CALLS"),
        right("PER CALL"),
        right("AVG"),
        right("MAX"),
        (what, Align::Left),
    ];
    Grid {
        rows: groups.iter().flat_map(|group| lines(group, by)).collect(),
        elastic: vec![Elastic::names(headers.len() - 1)],
        headers,
        expendable: &["MAX", "AVG", "TIME"],
    }
}

fn lines(group: &Group, by: JniBy) -> Vec<Vec<String>> {
    let label = match (by, group.of) {
        (JniBy::Method, Some(of)) if of.total_ns > 0 => {
            let own = Uncertain { value: group.sum.self_ns, error: group.sum.error_ns };
            let share = share(own, of.total_ns);
            format!("{} ({}, {share} of the time)", group.label, plural(of.calls, "call"))
        }
        _ => group.label.clone(),
    };
    let calls = group.of.map(|of| of.calls).filter(|_| by == JniBy::Method);
    let mut lines = vec![row(&group.sum, group.estimates, calls, label)];
    for part in group.parts.iter().take(PARTS) {
        let calls = if by == JniBy::Method { calls } else { part.calls_of_method };
        lines.push(row(&part.sum, part.estimates, calls, format!("  {}{}", part.label, remark(part))));
        lines.extend(part.java.iter().take(PARTS).map(|(label, sum)| line(sum, calls, format!("    {label}"))));
        lines.extend(more(part.java.iter().skip(PARTS).map(|(_, sum)| (*sum, None)), "    "));
    }
    lines.extend(more(group.parts.iter().skip(PARTS).map(|part| (part.sum, part.estimates)), "  "));
    lines
}

/// The row of those that have none of their own.
fn more(others: impl ExactSizeIterator<Item = (JniSum, Option<Estimates>)>, indent: &str) -> Option<Vec<String>> {
    let count = others.len();
    let label = format!("{indent}and {count} more (--format json lists all)");
    let (sums, estimates): (Vec<JniSum>, Vec<Option<Estimates>>) = others.unzip();
    (count > 0)
        .then(|| row(&sums.into_iter().sum(), estimates.into_iter().flatten().reduce(Estimates::and), None, label))
}

/// The row of a sum, which may be estimated.
fn row(sum: &JniSum, estimates: Option<Estimates>, calls: Option<u64>, label: String) -> Vec<String> {
    match estimates {
        Some(estimates) => estimates.line(label),
        None => line(sum, calls, label),
    }
}

/// What else there is to say of the calls of a function.
fn remark(part: &Part) -> String {
    let JniSum { calls, effective, redundant, .. } = part.sum;
    let mut remarks = Vec::new();
    if redundant > 0 {
        remarks.push(format!("{} redundant, {} lost", units::count(redundant), lost(&part.sum).duration()));
    }
    if effective < calls && JniFamily::of(&part.function) == JniFamily::LookUps {
        remarks.push(format!("{} not found", units::count(calls - effective)));
    }
    if remarks.is_empty() { String::new() } else { format!(": {}", remarks.join(", ")) }
}

/// The time that redundant look-ups took.
fn lost(sum: &JniSum) -> Uncertain {
    Uncertain { value: sum.redundant_ns, error: sum.redundant_error_ns }
}

/// A time as a share of another.
fn share(time: Uncertain, of_ns: u64) -> String {
    let percent = |ns: u64| units::percent(ns as f64 / of_ns as f64);
    if time.is_lost() { format!("<{}", percent(time.at_most())) } else { percent(time.value) }
}

/// A row. `of` is how many calls of a native method these were made in.
fn line(sum: &JniSum, of: Option<u64>, label: String) -> Vec<String> {
    let is_timed = sum.timed > 0;
    let or_none = |text: String| if is_timed { text } else { "-".to_owned() };
    let of_one = |ns: u64| ns.checked_div(sum.timed).unwrap_or(0);
    let per_call = of.filter(|of| *of > 0).map(|of| units::rate(sum.calls as f64 / of as f64));
    vec![
        or_none(Uncertain { value: sum.on_cpu_ns, error: sum.error_ns }.duration()),
        or_none(Uncertain { value: sum.self_ns, error: sum.error_ns }.duration()),
        units::count(sum.calls),
        per_call.unwrap_or_else(|| "-".to_owned()),
        or_none(Uncertain { value: of_one(sum.self_ns), error: of_one(sum.error_ns) }.duration()),
        or_none(Uncertain { value: sum.max_ns, error: sum.max_error_ns }.duration()),
        label,
    ]
}

#[cfg(test)]
mod tests;
