//! Who has called JNI functions, where that is estimated from sampled calls.

use std::collections::BTreeMap;

use super::groups::{Group, Part};
use crate::model::{Estimate, JavaName, JniCaller, JniSnapshot, JniSum};
use crate::render::marks::Mark;
use crate::render::names::{printable, tell_apart};
use crate::render::notes::plural;
use crate::render::uncertain::Uncertain;

/// In place of a caller's name.
const UNKNOWN: &str = "(no Java method, or not known)";

/// What is estimated of the calls of some functions by some callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Estimates {
    on_cpu: Uncertain,
    time: Uncertain,
    calls: Uncertain,
}

impl From<&JniCaller> for Estimates {
    fn from(caller: &JniCaller) -> Self {
        let uncertain = |Estimate { value, error }| Uncertain { value, error };
        Self { on_cpu: uncertain(caller.on_cpu_ns), time: uncertain(caller.self_ns), calls: uncertain(caller.calls) }
    }
}

impl From<Estimates> for JniSum {
    fn from(of: Estimates) -> Self {
        let (calls, self_ns, on_cpu_ns) = (of.calls.value, of.time.value, of.on_cpu.value);
        Self { calls, effective: calls, self_ns, on_cpu_ns, ..Self::default() }
    }
}

impl Estimates {
    /// Both together.
    pub(super) fn and(self, more: Self) -> Self {
        let add = |one: Uncertain, other: Uncertain| [one, other].into_iter().sum();
        Self {
            on_cpu: add(self.on_cpu, more.on_cpu),
            time: add(self.time, more.time),
            calls: add(self.calls, more.calls),
        }
    }

    /// The cells of a row: no mean and no longest, of which samples do not tell.
    pub(super) fn line(self, label: String) -> Vec<String> {
        let none = || "-".to_owned();
        vec![self.on_cpu.duration(), self.time.duration(), self.calls.count(), none(), none(), none(), label]
    }
}

/// Printable names of all callers, told apart.
pub(super) struct Labels<'a>(BTreeMap<&'a JavaName, String>);

impl<'a> Labels<'a> {
    pub(super) fn of(jni: &'a JniSnapshot) -> Self {
        let mut names: Vec<&JavaName> = jni.callers.all.iter().filter_map(|caller| caller.caller.as_ref()).collect();
        names.sort_unstable();
        names.dedup();
        let mut labels: Vec<String> = names.iter().map(|name| format!("{}::{}", name.class, name.method)).collect();
        tell_apart(&mut labels, |at| format!("{}::{}{}", names[at].class, names[at].method, names[at].signature));
        Self(names.into_iter().zip(labels.iter().map(|label| printable(label).into_owned())).collect())
    }

    fn label(&self, caller: &JniCaller) -> String {
        let name = caller.caller.as_ref().and_then(|name| self.0.get(name));
        format!("{}{}", name.map_or(UNKNOWN, String::as_str), Mark::Estimated.symbol())
    }

    /// The callers of one function.
    pub(super) fn of_function(&self, jni: &JniSnapshot, function: usize) -> Vec<Part> {
        let callers = jni.callers.all.iter().filter(|caller| caller.function == function);
        sorted(callers.map(|caller| part(self.label(caller), None, caller)).collect())
    }

    /// Each caller with the functions that it calls; `function` names one.
    pub(super) fn by_caller(&self, jni: &JniSnapshot, function: impl Fn(usize) -> String) -> Vec<Group> {
        let mut parts: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        for caller in &jni.callers.all {
            let part = part(function(caller.function), Some(caller.function), caller);
            parts.entry(self.label(caller)).or_default().push(part);
        }
        let group = |(label, parts): (String, Vec<Part>)| {
            let sum = parts.iter().filter_map(|part| part.estimates).fold(Estimates::default(), Estimates::and);
            Group { label, place: None, of: None, sum: sum.into(), estimates: Some(sum), parts: sorted(parts) }
        };
        let mut groups: Vec<Group> = parts.into_iter().map(group).collect();
        groups.sort_by_key(|group| std::cmp::Reverse((group.sum.on_cpu_ns, group.sum.calls)));
        groups
    }
}

fn part(label: String, place: Option<usize>, caller: &JniCaller) -> Part {
    let estimates = Estimates::from(caller);
    let (function, calls_of_method, java) = (String::new(), None, Vec::new());
    Part { label, place, function, calls_of_method, sum: estimates.into(), estimates: Some(estimates), java }
}

fn sorted(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by_key(|part| std::cmp::Reverse((part.sum.on_cpu_ns, part.sum.calls)));
    parts
}

/// What it rests on, or that it is not known.
pub(super) fn line(jni: &JniSnapshot) -> String {
    let samples: u64 = jni.callers.all.iter().map(|caller| caller.samples).sum();
    if samples == 0 {
        return "who calls is not known: no calls were sampled".to_owned();
    }
    let mark = Mark::Estimated.symbol();
    let lost = match jni.callers.lost {
        0 => String::new(),
        lost => format!("; {} could not be looked at, which the errors have in them", plural(lost, "chosen call")),
    };
    format!(
        "{mark} of a caller: estimated from {} whose stacks were taken{lost}; numbers of functions are counted (--format json has the errors)",
        plural(samples, "call")
    )
}
