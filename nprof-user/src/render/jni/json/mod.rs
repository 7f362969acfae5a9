//! The JSON document of `jni`. Times are whole nanoseconds, less what probes have put into them.

mod callers;
mod held;

use std::collections::BTreeMap;
use std::io::{self, Write};

use nprof_common::JniCallee;
use serde::Serialize;

use self::callers::Caller;
use self::held::{Leak, LocalsBeyond, References};
use super::callbacks::{self, JavaCalls};
use super::exceptions;
use super::groups::is_function;
use super::made::Made;
use crate::model::{
    CollectionWaits, CollectionsWait, CriticalSections, JniCallback, JniExceptions, JniFamily, JniSnapshot, JniSum,
    JniUse, Losses, MethodSnapshot, jni as functions,
};
use crate::render::document::{Head, Names};
use crate::render::json::{MeasuredTarget, as_map, line, nanoseconds};

/// Writes what was measured as one document on one line.
///
/// # Errors
/// What writing to `w` gives.
pub fn json(jni: &JniSnapshot, w: &mut impl Write) -> io::Result<()> {
    line(&Document::of(jni), w)
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<MeasuredTarget<'a>>,
    /// Who has counted. Stubs do not tell what is optional below.
    tier: &'static str,
    methods: Option<Vec<Method<'a>>>,
    functions: BTreeMap<&'a str, Function>,
    java: Option<Vec<JavaMethod<'a>>>,
    /// Estimated; `null` where each call is told by its native method.
    callers: Option<Vec<Caller<'a>>>,
    callers_lost: Option<u64>,
    references: Option<BTreeMap<&'static str, References>>,
    leaks: Option<Vec<Leak<'a>>>,
    /// `null` where it was not looked for, or is not known.
    locals_beyond: Option<LocalsBeyond<'a>>,
    partial: bool,
    look_ups: Option<LookUps>,
    exceptions: Option<Exceptions<'a>>,
    critical: Option<Critical>,
    /// `null` if that is not known.
    collections_wait: Option<bool>,
    collections_waited: Option<Waited>,
    direct_buffers: Option<Buffers>,
    not_seen: &'a [&'static str],
    #[serde(serialize_with = "as_map")]
    losses: Losses,
}

/// A native method; without names for the calls that no traced one has made.
#[derive(Serialize)]
struct Method<'a> {
    #[serde(flatten)]
    names: Names<'a>,
    calls: Option<u64>,
    total_ns: Option<u64>,
    state: Option<&'static str>,
    jni_calls: u64,
    jni_ns: u64,
    jni_on_cpu_ns: u64,
    jni: BTreeMap<&'a str, Use<'a>>,
    exceptions: Option<Exceptions<'a>>,
    critical: Option<Critical>,
    collections_waited: Option<Waited>,
    direct_buffers: Buffers,
}

/// The calls of a JNI function by a native method.
#[derive(Serialize)]
struct Use<'a> {
    family: &'static str,
    calls: u64,
    timed: u64,
    total_ns: u64,
    self_ns: u64,
    on_cpu_ns: u64,
    max_ns: u64,
    error_ns: u64,
    effective: u64,
    redundant: Option<u64>,
    redundant_ns: Option<u64>,
    /// `null` of functions that call no Java.
    java: Option<Vec<JavaMethod<'a>>>,
}

/// The calls of a Java method; without names for those of which it is not known.
#[derive(Serialize)]
struct JavaMethod<'a> {
    #[serde(flatten)]
    names: Names<'a>,
    calls: u64,
    timed: u64,
    self_ns: u64,
    on_cpu_ns: u64,
    max_ns: u64,
    error_ns: u64,
}

/// A JNI function, whoever called it.
#[derive(Serialize)]
struct Function {
    family: &'static str,
    calls: u64,
    in_flight: u64,
    counted: u64,
    total_ns: u64,
    self_ns: Option<u64>,
    on_cpu_ns: Option<u64>,
    max_ns: u64,
    state: &'static str,
    wanted: &'static str,
    unwatched_ns: u64,
    estimated_calls: Option<u64>,
}

#[derive(Serialize)]
struct LookUps {
    calls: u64,
    redundant: u64,
    redundant_ns: u64,
    not_found: u64,
    members_told: bool,
}

#[derive(Serialize)]
struct Exceptions<'a> {
    /// Pending when native methods returned.
    pending: u64,
    /// Cleared before.
    cleared: u64,
    /// The same by class, the most first.
    classes: Vec<ExceptionClass<'a>>,
}

#[derive(Serialize)]
struct ExceptionClass<'a> {
    /// `null` if that is not certain.
    class: Option<&'a str>,
    pending: u64,
    cleared: u64,
}

#[derive(Serialize, Clone, Copy)]
struct Critical {
    sections: u64,
    total_ns: u64,
    longest_ns: u64,
}

/// Collections that waited for the end of critical sections.
#[derive(Serialize, Clone, Copy)]
struct Waited {
    collections: u64,
    total_ns: u64,
    longest_ns: u64,
}

/// Direct buffers that native code has made.
#[derive(Serialize, Clone, Copy, Default)]
struct Buffers {
    made: u64,
    bytes: u64,
    largest_bytes: u64,
}

impl From<CollectionWaits> for Waited {
    fn from(waits: CollectionWaits) -> Self {
        let CollectionWaits { collections, total_ns, longest_ns, .. } = waits;
        Self { collections, total_ns, longest_ns }
    }
}

impl<'a> Document<'a> {
    fn of(jni: &'a JniSnapshot) -> Self {
        let snapshot = &jni.snapshot;
        let places = (0..snapshot.methods.len()).filter(|place| !is_function(&snapshot.methods[*place]));
        let made = Made::by_method(jni);
        let method = |place| Method::of(jni, place, made.get(&place).unwrap_or(&Made::default()));
        let methods = sorted(places.map(Some).chain([None]).filter_map(method).collect());
        let functions = snapshot.methods.iter().enumerate().filter(|(_, row)| is_function(row));
        let [pending, cleared] = exceptions::all(jni);
        let look_ups = jni.sum_of(|name| JniFamily::of(name) == JniFamily::LookUps);
        let is_told = !jni.is_by_stubs;
        Self {
            head: Head::of_measured(snapshot),
            tier: if jni.is_by_stubs { "stub" } else { "kernel" },
            exceptions: is_told.then(|| Exceptions { pending, cleared, classes: classes(&jni.thrown) }),
            methods: is_told.then_some(methods),
            functions: functions
                .map(|(place, row)| (jni.function(place), Function::of(jni.function(place), row)))
                .collect(),
            java: is_told.then(|| java(&jni.callbacks)),
            callers_lost: (!is_told).then_some(jni.callers.lost),
            callers: (!is_told).then(|| jni.callers.all.iter().map(|of| Caller::of(jni, of)).collect()),
            references: is_told.then(|| {
                let all = jni.resources().into_iter();
                all.map(|(of, sums)| (of.as_str(), References::of(jni, of, sums))).collect()
            }),
            leaks: jni.held.as_ref().map(|held| held.groups.iter().map(|group| Leak::of(jni, group)).collect()),
            locals_beyond: jni.held.as_ref().and_then(|held| LocalsBeyond::of(jni, &held.locals)),
            partial: jni.is_partial(),
            look_ups: is_told.then(|| LookUps {
                calls: look_ups.calls,
                redundant: look_ups.redundant,
                redundant_ns: look_ups.redundant_ns,
                not_found: look_ups.calls - look_ups.effective,
                members_told: jni.tells_members,
            }),
            critical: critical(made.values().flat_map(|made| made.sections.iter().copied())),
            collections_wait: match jni.collections {
                CollectionsWait::Perhaps => None,
                CollectionsWait::Never => Some(false),
                CollectionsWait::For(_) => Some(true),
            },
            collections_waited: waited(jni, |_| true),
            direct_buffers: is_told.then(|| buffers(jni, |_| true)),
            not_seen: &jni.unseen,
            losses: snapshot.losses.clone(),
        }
    }
}

/// The dearest first.
fn sorted(mut methods: Vec<Method<'_>>) -> Vec<Method<'_>> {
    methods.sort_by_key(|method| std::cmp::Reverse((method.jni_on_cpu_ns, method.jni_calls)));
    methods
}

/// Exceptions added up by class.
fn classes<'a>(thrown: impl IntoIterator<Item = &'a JniExceptions>) -> Vec<ExceptionClass<'a>> {
    let sums = exceptions::by_class(thrown).into_iter();
    sums.map(|(class, [pending, cleared])| ExceptionClass { class, pending, cleared }).collect()
}

/// Critical sections added up, if there are any.
fn critical<'a>(sections: impl IntoIterator<Item = &'a CriticalSections>) -> Option<Critical> {
    let sections = sections.into_iter().map(|of| Critical {
        sections: of.sections,
        total_ns: of.total_ns,
        longest_ns: of.longest_ns,
    });
    sections.reduce(|one, other| Critical {
        sections: one.sections + other.sections,
        total_ns: one.total_ns.saturating_add(other.total_ns),
        longest_ns: one.longest_ns.max(other.longest_ns),
    })
}

impl<'a> Method<'a> {
    /// What there is to say of a native method; nothing where it has called no function and thrown nothing.
    fn of(jni: &'a JniSnapshot, place: Option<usize>, made: &Made<'a>) -> Option<Self> {
        let row = place.and_then(|place| jni.snapshot.methods.get(place));
        let uses = || made.uses.iter().copied();
        let sum: JniSum = uses().map(JniSum::from).sum();
        let [pending, cleared] = made.exceptions(jni, place);
        if sum.calls == 0 && pending == 0 {
            return None;
        }
        Some(Self {
            names: row.and_then(|row| Some(&row.methods.first()?.method)).into(),
            calls: row.map(|row| row.calls),
            total_ns: row.map(|row| row.total_ns),
            state: row.map(|row| row.traced.tracing.as_str()),
            jni_calls: sum.calls,
            jni_ns: sum.self_ns,
            jni_on_cpu_ns: sum.on_cpu_ns,
            jni: uses().map(|used| (jni.function(used.function), Use::of(jni, used, made))).collect(),
            exceptions: row.map(|_| Exceptions { pending, cleared, classes: classes(made.thrown.iter().copied()) }),
            critical: critical(made.sections.iter().copied()),
            collections_waited: waited(jni, |of| of == place),
            direct_buffers: buffers(jni, |of| of == place),
        })
    }
}

/// The direct buffers that some native methods have made.
fn buffers(jni: &JniSnapshot, is_theirs: impl Fn(Option<usize>) -> bool) -> Buffers {
    let theirs = jni.buffers.iter().filter(|of| is_theirs(of.method));
    theirs.fold(Buffers::default(), |sum, more| Buffers {
        made: sum.made + more.buffers,
        bytes: sum.bytes.saturating_add(more.bytes),
        largest_bytes: sum.largest_bytes.max(more.largest_bytes),
    })
}

/// The collections that waited for sections of some native methods; `None` where that is not known.
fn waited(jni: &JniSnapshot, is_theirs: impl Fn(Option<usize>) -> bool) -> Option<Waited> {
    let waits = match &jni.collections {
        CollectionsWait::For(waits) if jni.has_all_sections() => waits,
        _ => return None,
    };
    let theirs = waits.iter().copied().filter(|of| is_theirs(of.method));
    Some(theirs.fold(CollectionWaits::default(), CollectionWaits::and).into())
}

/// Whether it is told which of these calls are redundant look-ups.
pub(super) fn tells_redundant(jni: &JniSnapshot, made: &JniUse) -> bool {
    let name = jni.function(made.function);
    match JniFamily::of(name) {
        JniFamily::LookUps if name == "FindClass" => made.method.is_some(),
        JniFamily::LookUps => jni.tells_members,
        _ => false,
    }
}

/// Java methods that were called, the dearest first.
fn java<'a>(callbacks: impl IntoIterator<Item = &'a JniCallback>) -> Vec<JavaMethod<'a>> {
    let row = |group: JavaCalls<'a>| {
        let JniSum { calls, timed, self_ns, on_cpu_ns, max_ns, error_ns, .. } = group.sum;
        JavaMethod { names: group.java.into(), calls, timed, self_ns, on_cpu_ns, max_ns, error_ns }
    };
    callbacks::by_java(callbacks).into_iter().map(row).collect()
}

impl<'a> Use<'a> {
    /// A use by the native method that has made all of `by`.
    fn of(jni: &'a JniSnapshot, made: &JniUse, by: &Made<'a>) -> Self {
        let name = jni.function(made.function);
        let sum = JniSum::from(made);
        let is_told = tells_redundant(jni, made);
        Self {
            family: JniFamily::of(name).as_str(),
            calls: sum.calls,
            timed: sum.timed,
            total_ns: made.calls.total_ns,
            self_ns: sum.self_ns,
            on_cpu_ns: sum.on_cpu_ns,
            max_ns: sum.max_ns,
            error_ns: sum.error_ns,
            effective: sum.effective,
            redundant: is_told.then_some(sum.redundant),
            redundant_ns: is_told.then_some(sum.redundant_ns),
            java: (functions::callee(name) != JniCallee::Nothing)
                .then(|| java(by.callbacks.iter().copied().filter(|callback| callback.made.function == made.function))),
        }
    }
}

impl Function {
    fn of(name: &str, row: &MethodSnapshot) -> Self {
        Self {
            family: JniFamily::of(name).as_str(),
            calls: row.calls,
            in_flight: row.in_flight,
            counted: row.counted,
            total_ns: row.total_ns,
            self_ns: row.self_ns,
            on_cpu_ns: row.self_ns.zip(row.off_cpu_ns).map(|(own, off)| own.saturating_sub(off)),
            max_ns: row.max_ns,
            state: row.traced.tracing.as_str(),
            wanted: row.traced.wanted.as_str(),
            unwatched_ns: nanoseconds(row.traced.unwatched),
            estimated_calls: row.unseen.map(|_unseen| row.all_calls()),
        }
    }
}
