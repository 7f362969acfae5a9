//! What was made and not let go: rows of the table of `jni`, and what there is to say of them.

use std::time::Duration;

use super::locals;
use super::notes::noun;
use crate::model::{JniCallPath, JniHeldGroup, JniHeldSnapshot, JniResource, JniSnapshot};
use crate::render::grid::{Align, Elastic, Grid, Screen};
use crate::render::json::nanoseconds;
use crate::render::notes::plural;
use crate::render::{names, units};

/// How many call paths of a row are shown, and how many methods of each.
const PATHS: usize = 3;
const METHODS: usize = 6;

/// The table, the most first, each row with where in Java it comes from; nothing where nothing is held that is old enough.
pub(super) fn table(jni: &JniSnapshot, top: Option<usize>, screen: Screen) -> Vec<String> {
    let groups = jni.held.as_ref().map_or(&[][..], |held| &held.groups);
    if groups.is_empty() {
        return Vec::new();
    }
    let mut rows = grid(jni, groups, top).lines(screen).into_iter();
    let mut lines: Vec<String> = rows.next().into_iter().collect();
    for (row, group) in rows.zip(groups) {
        lines.push(row);
        lines.extend(paths(group));
    }
    lines
}

fn grid(jni: &JniSnapshot, groups: &[JniHeldGroup], top: Option<usize>) -> Grid<'static> {
    let right = |title| (title, Align::Right);
    let headers =
        vec![right("HELD"), right("OLDEST"), right("YOUNGEST"), ("WHAT", Align::Left), ("MADE BY", Align::Left)];
    Grid {
        rows: groups.iter().take(top.unwrap_or(groups.len())).map(|group| line(jni, group)).collect(),
        elastic: vec![Elastic::names(headers.len() - 1)],
        headers,
        expendable: &["YOUNGEST"],
    }
}

/// From where in Java things were made, as far as stacks were taken.
fn paths(group: &JniHeldGroup) -> Vec<String> {
    let all = group.stacks();
    let of = |path: &JniCallPath| {
        let (seen, chain) = (units::count(path.seen), names::chain(path.frames.iter(), METHODS));
        format!("      {seen} of {}: called by {chain}", plural(all, "stack"))
    };
    let mut lines: Vec<String> = group.paths.iter().take(PATHS).map(of).collect();
    let more = group.paths.get(PATHS..).unwrap_or_default();
    if !more.is_empty() {
        let seen = units::count(more.iter().map(|path| path.seen).sum());
        lines.push(format!("      {seen} by {} more (--format json lists all)", plural(more.len() as u64, "path")));
    }
    lines
}

fn line(jni: &JniSnapshot, group: &JniHeldGroup) -> Vec<String> {
    let of = group.class.as_ref().map_or_else(String::new, |class| format!(": {}", names::printable(class)));
    let elements =
        if group.elements > 0 { format!(" ({} in all)", units::count(group.elements)) } else { String::new() };
    vec![
        units::count(group.count),
        age(group.oldest),
        age(group.youngest),
        format!("{}{of}{elements}", noun(group.resource)),
        maker(jni, group),
    ]
}

fn age(age: Duration) -> String {
    units::duration(nanoseconds(age))
}

/// Who has made them, and how.
fn maker(jni: &JniSnapshot, group: &JniHeldGroup) -> String {
    let method = group.method.and_then(|place| jni.snapshot.methods.get(place)?.methods.first());
    let method = method.map(|known| names::printable(&names::qualified(&known.method)).into_owned());
    let method = method.unwrap_or_else(|| "(outside of traced native methods)".to_owned());
    match group.function {
        Some(function) => format!("{method}, {}", jni.function(function)),
        None => method,
    }
}

/// What there is to say of the rows.
pub(super) fn lines(jni: &JniSnapshot) -> Vec<String> {
    let Some(held) = &jni.held else { return Vec::new() };
    let inexact: Vec<JniResource> = JniResource::FOLLOWED.into_iter().filter(|kind| !is_exact(jni, *kind)).collect();
    let mut lines = vec![total(held, inexact.is_empty())];
    lines.extend(stacks(held));
    lines.extend(left_before(jni, inexact.is_empty()));
    lines.extend(not_exact(&inexact));
    lines.extend(locals::line(jni));
    lines.push(
        "not followed: which direct buffers the collector has let go, whose memory no JNI function frees".to_owned(),
    );
    lines
}

fn total(held: &JniHeldSnapshot, is_exact: bool) -> String {
    let count: u64 = held.groups.iter().map(|group| group.count).sum();
    let age =
        if held.older_than.is_zero() { String::new() } else { format!(" for {} or longer", age(held.older_than)) };
    let all: u64 = held.live.iter().map(|(_, count)| count).sum();
    let of = if held.older_than.is_zero() { String::new() } else { format!(" (of {} of any age)", units::count(all)) };
    let least = if is_exact { "" } else { "at least " };
    format!("made and not let go{age}: {least}{}{of}, of what was made since tracing began", units::count(count))
}

/// Of how many of the rows' things it is known where they come from.
fn stacks(held: &JniHeldSnapshot) -> Option<String> {
    let sum = |of: fn(&JniHeldGroup) -> u64| held.groups.iter().map(of).sum();
    let (taken, all): (u64, u64) = (sum(JniHeldGroup::stacks), sum(|group| group.count));
    (all > 0).then(|| {
        format!(
            "stacks: of {} of these, the first of each native method, function and class and some of the later ones; from where the \
             others were made is not known",
            units::count(taken)
        )
    })
}

/// Releases of what nobody has seen being made.
fn left_before(jni: &JniSnapshot, is_exact: bool) -> Option<String> {
    let before: u64 = jni.resources().iter().map(|(_, sums)| sums.made_before).sum();
    let when =
        if is_exact { "before tracing began" } else { "before tracing began, or in a call that was only counted" };
    (before > 0).then(|| format!("let go, but made {when}: {}", units::count(before)))
}

/// Where counts may be wrong.
fn not_exact(kinds: &[JniResource]) -> Option<String> {
    let kinds: Vec<&str> = kinds.iter().map(|kind| noun(*kind)).collect();
    (!kinds.is_empty()).then(|| {
        format!(
            "not exact: {}: to keep to the budget, some calls that made them were only counted, and what these made is not among what was \
             not let go (compare what was made and let go in all, above); --max-overhead off follows all",
            kinds.join(", ")
        )
    })
}

/// Whether everything of a kind was seen being made and let go.
pub(super) fn is_exact(jni: &JniSnapshot, kind: JniResource) -> bool {
    let harms = ["unreturned", "too-deep", "no-frame", "bad-index", "no-held-room", "unseen-release"];
    let lost = jni.snapshot.losses.counts.iter().any(|(reason, count)| *count > 0 && harms.contains(reason));
    jni.has_all_of(kind) && !lost
}
