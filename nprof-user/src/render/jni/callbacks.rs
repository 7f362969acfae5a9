//! Java methods that native code calls, by name.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::made::Made;
use crate::model::{JniCallback, JniSnapshot, JniSum, Method};
use crate::render::notes::plural;
use crate::render::uncertain::Uncertain;
use crate::render::{names, units};

/// In place of a Java method's name.
pub(super) const UNKNOWN: &str = "(Java method not known)";

/// How many are named in the line with the sums.
const NAMED: usize = 3;

/// What tells Java methods apart.
type Key<'a> = Option<[&'a str; 3]>;

/// The calls of one Java method.
#[derive(Debug)]
pub(super) struct JavaCalls<'a> {
    /// `None` of those of which it is not known.
    pub(super) java: Option<&'a Method>,
    /// By whoever called it.
    pub(super) callbacks: Vec<&'a JniCallback>,
    pub(super) sum: JniSum,
}

/// Callbacks by Java method, the dearest first.
pub(super) fn by_java<'a>(callbacks: impl IntoIterator<Item = &'a JniCallback>) -> Vec<JavaCalls<'a>> {
    let mut groups: HashMap<Key<'a>, JavaCalls<'a>> = HashMap::new();
    for callback in callbacks {
        let java = callback.java.as_ref();
        let new = || JavaCalls { java, callbacks: Vec::new(), sum: JniSum::default() };
        let group = groups.entry(key(java)).or_insert_with(new);
        group.sum.add(&JniSum::from(&callback.made));
        group.callbacks.push(callback);
    }
    let mut groups: Vec<JavaCalls<'a>> = groups.into_values().collect();
    groups.sort_by_key(|group| (Reverse((group.sum.on_cpu_ns, group.sum.calls)), key(group.java)));
    groups
}

/// Printable names of all Java methods that were called, told apart.
#[derive(Debug)]
pub(super) struct Labels<'a>(HashMap<Key<'a>, String>);

impl<'a> Labels<'a> {
    pub(super) fn of(jni: &'a JniSnapshot) -> Self {
        let methods: HashMap<Key<'a>, &'a Method> = jni
            .callbacks
            .iter()
            .filter_map(|callback| callback.java.as_ref())
            .map(|java| (key(Some(java)), java))
            .collect();
        let (keys, methods): (Vec<_>, Vec<_>) = methods.into_iter().unzip();
        Self(keys.into_iter().zip(names::labels(&methods)).collect())
    }

    pub(super) fn label(&self, java: Option<&'a Method>) -> &str {
        self.0.get(&key(java)).map_or(UNKNOWN, String::as_str)
    }
}

fn key(java: Option<&Method>) -> Key<'_> {
    java.map(|java| [&*java.class, &*java.name, &*java.signature])
}

/// How much Java was called, and which methods most.
pub(super) fn line(jni: &JniSnapshot) -> Option<String> {
    let (labels, all) = (Labels::of(jni), by_java(&jni.callbacks));
    let calls: u64 = all.iter().map(|group| group.sum.calls).sum();
    let named: Vec<&JavaCalls<'_>> = all.iter().filter(|group| group.java.is_some()).collect();
    let each = named.iter().take(NAMED).map(|group| {
        let time = Uncertain { value: group.sum.on_cpu_ns, error: group.sum.error_ns }.duration();
        format!("{} {} ({time})", labels.label(group.java), units::count(group.sum.calls))
    });
    let mut each: Vec<String> = each.collect();
    let more = named.len().saturating_sub(NAMED);
    each.extend((more > 0).then(|| format!("and {more} more (--by java)")));
    let unknown: u64 = all.iter().filter(|group| group.java.is_none()).map(|group| group.sum.calls).sum();
    each.extend((unknown > 0).then(|| format!("{} of which the method is not known", units::count(unknown))));
    (calls > 0).then(|| {
        let of = if named.is_empty() { String::new() } else { format!(" of {}", plural(named.len() as u64, "method")) };
        format!("Java called: {}{of}: {}", plural(calls, "call"), each.join(", "))
    })
}

/// Those of each use of a function by a native method.
pub(super) fn of_use<'a>(made: &Made<'a>, function: usize) -> impl Iterator<Item = &'a JniCallback> {
    made.callbacks.iter().copied().filter(move |callback| callback.made.function == function)
}
