//! What will be enhanced, and what is left out and why: printed before the first tree.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use super::TreeContext;
use super::names::readable;
use super::paragraph::{columns, wrapped};
use crate::model::{LeftOutReason, TreeKind, TreeMethod, TreePlan};
use crate::render::grid::{Align, Elastic, Grid, Screen};
use crate::render::names::printable;
use crate::render::notes::plural;
use crate::render::units;

/// How many methods are listed where the plan is not all that was asked for.
const LISTED: usize = 25;
/// How many things that are left out are named.
const NAMED: usize = 3;
/// What the first change of a class does to some VMs.
const DROPS_CODE: &str = "the first change of classes in this JVM makes it drop all code that it has compiled: it is slow until it has compiled \
                          that again, for seconds or, if it is large, minutes; not if it was started with the agent (docs/in-process.md)";

/// Writes the plan; without `is_whole` not more methods than fit on a screen.
///
/// # Errors
/// What writing to `w` gives.
pub fn tree_plan(context: &TreeContext, is_whole: bool, screen: Screen, w: &mut impl Write) -> io::Result<()> {
    let plan = context.plan();
    let mut order: Vec<u32> = (0..).take(plan.methods.len()).collect();
    order.sort_by_key(|number| context.method(*number).map_or(0, |method| method.depth));
    let shown = if is_whole { order.len() } else { order.len().min(LISTED) };
    for line in grid(context, &order[..shown]).lines(screen) {
        writeln!(w, "{line}")?;
    }
    writeln!(w)?;
    for line in notes(plan, order.len() - shown).iter().flat_map(|note| wrapped(note, columns(screen), 2)) {
        writeln!(w, "{line}")?;
    }
    Ok(())
}

fn grid(context: &TreeContext, order: &[u32]) -> Grid<'static> {
    let rows = order.iter().filter_map(|number| {
        let method = context.method(*number)?;
        let name = printable(&format!("{}::{}", method.class, method.method)).into_owned();
        // Overloads have their arguments in their short names.
        let arguments = context.short(*number).find('(').map_or("", |at| &context.short(*number)[at..]);
        let kind = match method.kind {
            TreeKind::Java if method.is_entry => "entry",
            TreeKind::Java => "java",
            TreeKind::Native => "native",
            TreeKind::Intrinsic => "intrinsic",
            TreeKind::Jni(_) => "jni",
        };
        Some(vec![method.depth.to_string(), kind.to_owned(), format!("{name}{arguments}"), called_by(context, method)])
    });
    Grid {
        rows: rows.collect(),
        headers: vec![
            ("DEPTH", Align::Right),
            ("KIND", Align::Left),
            ("METHOD", Align::Left),
            ("CALLED BY", Align::Left),
        ],
        elastic: vec![Elastic::names(2), Elastic::names(3)],
        expendable: &["CALLED BY"],
    }
}

/// The first caller, with its first line, and how many more there are.
fn called_by(context: &TreeContext, method: &TreeMethod) -> String {
    let Some(first) = method.callers.first() else { return String::new() };
    let line = first.lines.first().map_or_else(String::new, |line| format!(":{line}"));
    let sites: usize = method.callers.iter().map(|caller| caller.lines.len().max(1)).sum();
    let more = if sites > 1 { format!(" and {} more", sites - 1) } else { String::new() };
    format!("{}{line}{more}", context.short(first.method))
}

fn notes(plan: &TreePlan, not_listed: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if not_listed > 0 {
        notes.push(format!("and {} (--plan lists all)", plural(not_listed as u64, "more method")));
    }
    let of = |kind| plan.methods.iter().filter(|method| method.kind == kind).count() as u64;
    let intrinsics = match of(TreeKind::Intrinsic) {
        0 => String::new(),
        intrinsics => format!(" and {}", plural(intrinsics, "intrinsic")),
    };
    // What turns out to be impossible is left out, but keeps its number.
    let left_out_of_all: HashSet<&str> = plan.left_out.iter().map(|left_out| left_out.what.as_str()).collect();
    let is_enhanced = |method: &&TreeMethod| {
        let TreeMethod { class, method: name, signature, kind, .. } = method;
        *kind == TreeKind::Java && !left_out_of_all.contains(format!("{class}::{name}{signature}").as_str())
    };
    let enhanced = plan.methods.iter().filter(is_enhanced).count();
    notes.push(format!(
        "plan: {} enhanced; {}{intrinsics} seen where these call them",
        plural(enhanced as u64, "Java method"),
        plural(of(TreeKind::Native), "native method"),
    ));
    for (why, found) in left_out(plan) {
        let examples: Vec<String> = found.iter().take(NAMED).map(|what| readable(what)).collect();
        let more = if found.len() > NAMED { ", …" } else { "" };
        let (words, _, detail) = reason(why);
        let detail = detail.map_or_else(String::new, |detail| format!(": {}", printable(detail)));
        let count = units::count(found.len() as u64);
        notes.push(format!("left out: {count} {words}{detail} ({}{more})", examples.join(", ")));
    }
    if let Some(first) = plan.for_tasks.first() {
        let (count, first) = (plural(plan.for_tasks.len() as u64, "method"), readable(first));
        let more = if plan.for_tasks.len() > 1 { ", …" } else { "" };
        notes.push(format!(
            "to know tasks again that other threads run: {count} of the JDK changed as well ({first}{more})"
        ));
    }
    if plan.drops_code {
        notes.push(DROPS_CODE.to_owned());
    }
    notes.extend(plan.limit.as_ref().map(|limit| format!("limit: {}", printable(limit))));
    notes
}

/// What was left out, by reason.
pub(super) fn left_out(plan: &TreePlan) -> BTreeMap<&LeftOutReason, Vec<&str>> {
    let mut by_reason: BTreeMap<&LeftOutReason, Vec<&str>> = BTreeMap::new();
    for left_out in &plan.left_out {
        by_reason.entry(&left_out.why).or_default().push(&left_out.what);
    }
    by_reason
}

/// Why something is no node of a tree, in words.
#[must_use]
pub fn left_out_words(why: &LeftOutReason) -> String {
    let (words, _, detail) = reason(why);
    detail.map_or_else(|| words.to_owned(), |detail| format!("{words}: {}", printable(detail)))
}

/// A reason in words, as a word, and with what it says itself.
pub(super) fn reason(why: &LeftOutReason) -> (&'static str, &'static str, Option<&str>) {
    match why {
        LeftOutReason::Package => ("in other packages (--package)", "package", None),
        LeftOutReason::Depth => ("deeper than --depth", "depth", None),
        LeftOutReason::Abstract => ("without code: abstract, and no loaded class has it", "abstract", None),
        LeftOutReason::Reflection => {
            ("called by reflection or method handles: what that leads to is not known before", "reflection", None)
        }
        LeftOutReason::NotLoaded => ("of classes that are not loaded, or not used, yet", "not-loaded", None),
        LeftOutReason::Ambiguous => ("native or intrinsic, at calls that may mean another method", "ambiguous", None),
        LeftOutReason::Unmodifiable => ("of classes that the VM lets nobody change", "unmodifiable", None),
        LeftOutReason::Reserved => ("that nprof itself needs in the JVM to tell of others", "reserved", None),
        LeftOutReason::ClassFile(reason) => ("of classes that nprof cannot change", "class-file", Some(reason)),
        LeftOutReason::Limit => ("beyond the limit", "limit", None),
    }
}
