//! Uses of JNI functions, grouped by native method, by function, or by the Java methods that they call, the dearest first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::JniBy;
use super::callbacks::{self, JavaCalls, Labels};
use super::callers::{self, Estimates};
use super::made::Made;
use crate::model::{Bound, JniFamily, JniSnapshot, JniSum, JniUse, Method, MethodSnapshot};
use crate::render::rows::Row;
use crate::render::{names, notes};

/// In place of a method: calls that no traced native method has made.
pub(super) const OUTSIDE: &str = "(outside of traced native methods)";

/// What belongs to one native method, one function, or one Java method.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// Its name, with marks.
    pub(super) label: String,
    /// The place of the native method or the function in the snapshot, whose marks those are.
    pub(super) place: Option<usize>,
    /// The native method's own calls and their time; `None` for everything else.
    pub(super) of: Option<Calls>,
    pub(super) sum: JniSum,
    /// The same with its errors, where it is estimated.
    pub(super) estimates: Option<Estimates>,
    /// The functions, or the methods.
    pub(super) parts: Vec<Part>,
}

/// The calls of a native method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) calls: u64,
    pub(super) total_ns: u64,
}

/// The calls of one function, or of one Java method, by one native method.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) label: String,
    /// As in [`Group`].
    pub(super) place: Option<usize>,
    pub(super) function: String,
    /// How often the native method was called; `None` for calls outside.
    pub(super) calls_of_method: Option<u64>,
    pub(super) sum: JniSum,
    /// As in [`Group`].
    pub(super) estimates: Option<Estimates>,
    /// The Java methods that it has called, the dearest first.
    pub(super) java: Vec<(String, JniSum)>,
}

/// The groups, and the parts of each, in the order of their time, then of their calls.
pub(super) fn of(jni: &JniSnapshot, by: JniBy) -> Vec<Group> {
    let names = Names {
        jni,
        rows: labels(jni),
        java: Labels::of(jni),
        made: Made::by_method(jni),
        callers: callers::Labels::of(jni),
    };
    if by == JniBy::Java {
        return names.by_java();
    }
    if by == JniBy::Method && jni.is_by_stubs {
        return names.callers.by_caller(jni, |function| names.label(Some(function)).to_owned());
    }
    let mut uses: BTreeMap<Option<usize>, Vec<&JniUse>> = BTreeMap::new();
    for made in &jni.uses {
        let key = if by == JniBy::Method { made.method } else { Some(made.function) };
        uses.entry(key).or_default().push(made);
    }
    let mut groups: Vec<Group> = uses.iter().map(|(&key, uses)| names.group(by, (key, uses))).collect();
    groups.sort_by(|a, b| cost(&a.sum).cmp(&cost(&b.sum)).then_with(|| a.label.cmp(&b.label)));
    groups
}

/// What everything is called.
struct Names<'a> {
    jni: &'a JniSnapshot,
    /// By place.
    rows: Vec<String>,
    java: Labels<'a>,
    made: HashMap<Option<usize>, Made<'a>>,
    callers: callers::Labels<'a>,
}

impl Names<'_> {
    fn label(&self, place: Option<usize>) -> &str {
        place.map_or(OUTSIDE, |place| self.rows.get(place).map_or("", String::as_str))
    }

    fn group(&self, by: JniBy, (key, uses): (Option<usize>, &[&JniUse])) -> Group {
        let mut parts: Vec<Part> = uses.iter().map(|made| self.part(made, by)).collect();
        parts.sort_by(|a, b| cost(&a.sum).cmp(&cost(&b.sum)).then_with(|| a.label.cmp(&b.label)));
        Group {
            label: self.label(key).to_owned(),
            place: key,
            of: key.filter(|_| by == JniBy::Method).and_then(|place| self.jni.snapshot.methods.get(place)).map(calls),
            sum: parts.iter().map(|part| part.sum).sum(),
            estimates: None,
            parts: match key {
                Some(function) if self.jni.is_by_stubs => self.callers.of_function(self.jni, function),
                _ => parts,
            },
        }
    }

    fn part(&self, made: &JniUse, by: JniBy) -> Part {
        let function = self.jni.function(made.function).to_owned();
        let (label, place) = match by {
            JniBy::Method => (function_label(&function, &marks(self.jni, made.function)), Some(made.function)),
            JniBy::Function | JniBy::Java => (self.label(made.method).to_owned(), made.method),
        };
        let of_use = self.made.get(&made.method).map(|known| callbacks::of_use(known, made.function));
        let java = callbacks::by_java(of_use.into_iter().flatten());
        Part {
            label,
            place,
            function,
            calls_of_method: self.calls_of(made.method),
            sum: made.into(),
            estimates: None,
            java: java.iter().map(|group| (self.java.label(group.java).to_owned(), group.sum)).collect(),
        }
    }

    /// The Java methods, with the native methods that call them.
    fn by_java(&self) -> Vec<Group> {
        let group = |group: JavaCalls<'_>| {
            let mut callers: BTreeMap<Option<usize>, JniSum> = BTreeMap::new();
            for callback in &group.callbacks {
                callers.entry(callback.made.method).or_default().add(&JniSum::from(&callback.made));
            }
            let part = |(method, sum)| Part {
                label: self.label(method).to_owned(),
                place: method,
                function: String::new(),
                calls_of_method: self.calls_of(method),
                sum,
                estimates: None,
                java: Vec::new(),
            };
            let mut parts: Vec<Part> = callers.into_iter().map(part).collect();
            parts.sort_by(|a, b| cost(&a.sum).cmp(&cost(&b.sum)).then_with(|| a.label.cmp(&b.label)));
            let label = self.java.label(group.java).to_owned();
            Group { label, place: None, of: None, sum: group.sum, estimates: None, parts }
        };
        callbacks::by_java(&self.jni.callbacks).into_iter().map(group).collect()
    }

    fn calls_of(&self, method: Option<usize>) -> Option<u64> {
        method.and_then(|place| self.jni.snapshot.methods.get(place)).map(|method| calls(method).calls)
    }
}

/// What a sum is ordered by: the dearest first.
fn cost(sum: &JniSum) -> Reverse<(u64, u64)> {
    Reverse((sum.on_cpu_ns, sum.calls))
}

fn calls(method: &MethodSnapshot) -> Calls {
    Calls { calls: method.calls, total_ns: method.total_ns }
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
