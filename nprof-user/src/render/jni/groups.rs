//! Uses of JNI functions, grouped by native method or by function, the dearest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::JniBy;
use crate::model::{Bound, JniFamily, JniSnapshot, JniSum, JniUse, Method, MethodSnapshot};
use crate::render::rows::Row;
use crate::render::{names, notes};

/// In place of a method: calls that no traced native method has made.
pub(super) const OUTSIDE: &str = "(outside of traced native methods)";

/// What belongs to one native method, or to one function.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// Its name, with marks.
    pub(super) label: String,
    /// The native method's own calls and their time; `None` for a function and for calls outside.
    pub(super) of: Option<Calls>,
    pub(super) sum: JniSum,
    /// The functions, or the methods.
    pub(super) parts: Vec<Part>,
}

/// The calls of a native method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) calls: u64,
    pub(super) total_ns: u64,
}

/// The calls of one function by one native method.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) label: String,
    pub(super) function: String,
    /// How often the native method was called; `None` for calls outside.
    pub(super) calls_of_method: Option<u64>,
    pub(super) sum: JniSum,
}

/// The groups, and the parts of each, in the order of their time, then of their calls.
pub(super) fn of(jni: &JniSnapshot, by: JniBy) -> Vec<Group> {
    let labels = labels(jni);
    let mut uses: BTreeMap<Option<usize>, Vec<&JniUse>> = BTreeMap::new();
    for made in &jni.uses {
        let key = if by == JniBy::Method { made.method } else { Some(made.function) };
        uses.entry(key).or_default().push(made);
    }
    let mut groups: Vec<Group> = uses.iter().map(|(&key, uses)| group(jni, &labels, by, (key, uses))).collect();
    groups.sort_by(|a, b| cost(&a.sum).cmp(&cost(&b.sum)).then_with(|| a.label.cmp(&b.label)));
    groups
}

fn group(jni: &JniSnapshot, labels: &[String], by: JniBy, (key, uses): (Option<usize>, &[&JniUse])) -> Group {
    let label_of = |place: Option<usize>| place.map_or(OUTSIDE, |place| labels.get(place).map_or("", String::as_str));
    let mut parts: Vec<Part> =
        uses.iter().map(|made| part(jni, made, (by == JniBy::Function).then(|| label_of(made.method)))).collect();
    parts.sort_by(|a, b| cost(&a.sum).cmp(&cost(&b.sum)).then_with(|| a.label.cmp(&b.label)));
    Group {
        label: label_of(key).to_owned(),
        of: key.filter(|_| by == JniBy::Method).and_then(|place| jni.snapshot.methods.get(place)).map(calls),
        sum: parts.iter().map(|part| part.sum).sum(),
        parts,
    }
}

/// What a sum is ordered by: the dearest first.
fn cost(sum: &JniSum) -> Reverse<(u64, u64)> {
    Reverse((sum.on_cpu_ns, sum.calls))
}

fn calls(method: &MethodSnapshot) -> Calls {
    Calls { calls: method.calls, total_ns: method.total_ns }
}

/// `method` is the label where the parts are methods.
fn part(jni: &JniSnapshot, made: &JniUse, method: Option<&str>) -> Part {
    let function = jni.function(made.function).to_owned();
    let calls_of_method =
        made.method.and_then(|place| jni.snapshot.methods.get(place)).map(|method| calls(method).calls);
    let label = match method {
        Some(method) => method.to_owned(),
        None => function_label(&function, &marks(jni, made.function)),
    };
    Part { label, function, calls_of_method, sum: made.into() }
}

/// The name of each row of the snapshot, with its marks.
fn labels(jni: &JniSnapshot) -> Vec<String> {
    let methods: Vec<&Method> =
        jni.snapshot.methods.iter().filter_map(|row| row.methods.first()).map(|known| &known.method).collect();
    let rows = jni.snapshot.methods.iter().enumerate().zip(names::labels(&methods));
    rows.map(|((place, row), label)| {
        let marks = marks(jni, place);
        if is_function(row) { function_label(jni.function(place), &marks) } else { label + &marks }
    })
    .collect()
}

/// The name of a function with what it is for.
fn function_label(name: &str, marks: &str) -> String {
    format!("{name}{marks} [{}]", JniFamily::of(name).as_str())
}

fn marks(jni: &JniSnapshot, place: usize) -> String {
    let row = jni.snapshot.methods.get(place).and_then(|measured| Row::of(&jni.snapshot, measured));
    row.map_or_else(String::new, |row| notes::marks(&row))
}

/// Whether a row is a JNI function's.
pub(super) fn is_function(row: &MethodSnapshot) -> bool {
    row.methods.first().is_some_and(|known| known.bound == Bound::JniFunction)
}
