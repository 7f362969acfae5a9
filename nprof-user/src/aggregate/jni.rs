//! From the records of callers and functions to who has called which JNI function, and who holds what.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nprof_common::jni::{BUFFERS_MADE, COLLECTION_WAITS, CRITICAL_SECTIONS, LOCALS_BEYOND};
use nprof_common::{JniCallee, JniCalls};

use super::jni_locals::locals;
use crate::model::{
    BuffersMade, CollectionWaits, CollectionsWait, CriticalSections, JniCallPath, JniCallback, JniCallers,
    JniExceptions, JniHeldGroup, JniHeldSnapshot, JniResource, JniSnapshot, JniUse, Method, MethodSnapshot, Price,
    Snapshot, jni as functions,
};

/// What the kernel keeps besides the records.
#[derive(Debug, Clone, Default)]
pub struct JniPairs {
    /// The records of native method and JNI function, and the calls of the one by the other.
    pub pairs: Vec<((u32, u32), JniCalls)>,
    /// The same of those of functions that call Java of which the Java method is told.
    pub called: Vec<CalledSum>,
    /// The index of a record's function.
    pub records: HashMap<u32, u32>,
    /// What is held, where that is followed, and from which age on it is told.
    pub held: Option<(Vec<HeldThing>, Duration)>,
    /// Exceptions by record, how, and class.
    pub thrown: Vec<ThrownSum>,
    /// Whether collections wait for the end of critical sections. Those that did are among the pairs, and not here.
    pub collections: CollectionsWait,
}

/// The calls of one Java method by one native method, by one JNI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalledSum {
    /// The records of native method and function.
    pub records: (u32, u32),
    /// `None` if nothing is loaded (any more) that the id stands for.
    pub java: Option<Method>,
    /// The sums.
    pub calls: JniCalls,
}

/// Exceptions of one class that a native method has left pending, or cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrownSum {
    /// The native method's record.
    pub method: u32,
    /// Whether they were cleared.
    pub is_cleared: bool,
    /// `None` if that is not certain.
    pub class: Option<String>,
    /// How many.
    pub count: u64,
}

/// Something that native code has made and not let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldThing {
    /// What it is.
    pub resource: JniResource,
    /// The records of native method and function.
    pub records: (u32, u32),
    /// Of which class the object is that it was made of, and of an array the length.
    pub class: Option<(String, Option<u32>)>,
    /// How often it is held.
    pub times: u64,
    /// For how long.
    pub age: Duration,
    /// Who had called native code when it was made, the innermost first; `None` if that stack was not taken.
    pub path: Option<Arc<[String]>>,
}

/// Places in [`Snapshot::methods`]: of a native method, if there is one, and of a JNI function; `None` for critical sections.
type Places = (Option<usize>, Option<usize>);

/// What tells callbacks apart: the places of native method and function, and the name of the Java method.
type Callback<'a> = (Option<usize>, usize, Option<[&'a str; 3]>);

/// Who has called which function. Calls by what has no row, such as a native method that was only looked at for a short time, are
/// nobody's.
#[must_use]
pub fn jni(snapshot: Snapshot, known: &JniPairs, unseen: Vec<&'static str>, tells_members: bool) -> JniSnapshot {
    let (mut uses, mut critical) = (Vec::new(), Vec::new());
    let (collections, buffers) = (collections(&snapshot, known), buffers(&snapshot, known));
    for ((method, function), calls) in sums(&snapshot, known) {
        match function {
            Some(function) => uses.push(use_of(&snapshot.methods[function], (method, function), calls)),
            None => critical.push(CriticalSections {
                method,
                sections: calls.calls,
                total_ns: calls.total_ns,
                longest_ns: calls.max_ns,
            }),
        }
    }
    let held = known.held.as_ref().map(|(things, older_than)| {
        let place = places_of(&snapshot, known);
        let held = held(things, *older_than, |(caller, function)| (place(caller), place(function)));
        JniHeldSnapshot { locals: locals(&snapshot, by_caller(&snapshot, known, LOCALS_BEYOND)), ..held }
    });
    let thrown = thrown(&known.thrown, places_of(&snapshot, known));
    let callbacks = callbacks(&snapshot, known);
    JniSnapshot {
        snapshot,
        uses,
        callbacks,
        critical,
        collections,
        buffers,
        unseen,
        tells_members,
        is_by_stubs: false,
        callers: JniCallers::default(),
        held,
        thrown,
    }
}

/// The collections that have waited, by who held them up.
fn collections(snapshot: &Snapshot, known: &JniPairs) -> CollectionsWait {
    if !matches!(known.collections, CollectionsWait::For(_)) {
        return known.collections.clone();
    }
    let of = |(method, JniCalls { calls, total_ns, max_ns, .. })| CollectionWaits {
        method,
        collections: calls,
        total_ns,
        longest_ns: max_ns,
    };
    CollectionsWait::For(by_caller(snapshot, known, COLLECTION_WAITS).into_iter().map(of).collect())
}

/// The direct buffers, by who has made them.
fn buffers(snapshot: &Snapshot, known: &JniPairs) -> Vec<BuffersMade> {
    let of = |(method, JniCalls { calls, total_ns, max_ns, .. })| BuffersMade {
        method,
        buffers: calls,
        bytes: total_ns,
        largest_bytes: max_ns,
    };
    let mut buffers: Vec<BuffersMade> = by_caller(snapshot, known, BUFFERS_MADE).into_iter().map(of).collect();
    buffers.sort_by_key(|of| (std::cmp::Reverse(of.bytes), of.method));
    buffers
}

/// What is kept in place of a function's calls, by native method.
fn by_caller(snapshot: &Snapshot, known: &JniPairs, kept: u32) -> HashMap<Option<usize>, JniCalls> {
    let place = places_of(snapshot, known);
    let mut sums: HashMap<Option<usize>, JniCalls> = HashMap::new();
    for ((caller, _), calls) in known.pairs.iter().filter(|((_, function), _)| *function == kept) {
        let sum = sums.entry(place(*caller)).or_insert(JniCalls::NONE);
        *sum = sum.and(*calls);
    }
    sums
}

/// Who has called which Java method, by which function. What is not told of functions that call Java is in it, too.
fn callbacks(snapshot: &Snapshot, known: &JniPairs) -> Vec<JniCallback> {
    let place = places_of(snapshot, known);
    let not_told = known.pairs.iter().map(|(records, calls)| (*records, None, calls));
    let told = known.called.iter().map(|called| (called.records, called.java.as_ref(), &called.calls));
    let mut sums: HashMap<Callback<'_>, (Option<&Method>, JniCalls)> = HashMap::new();
    for ((caller, function), java, calls) in not_told.chain(told) {
        let Some(function) = place(function).filter(|function| calls_java(&snapshot.methods[*function])) else {
            continue;
        };
        let name = java.map(|java| [&*java.class, &*java.name, &*java.signature]);
        let (_, sum) = sums.entry((place(caller), function, name)).or_insert((java, JniCalls::NONE));
        *sum = sum.and(*calls);
    }
    let callback = |((method, function, _), (java, calls)): (_, (Option<&Method>, JniCalls))| JniCallback {
        made: use_of(&snapshot.methods[function], (method, function), calls),
        java: java.cloned(),
    };
    sums.into_iter().map(callback).collect()
}

/// Whether a row is that of a JNI function that calls Java.
fn calls_java(row: &MethodSnapshot) -> bool {
    row.methods.first().is_some_and(|known| functions::callee(&known.method.name) != JniCallee::Nothing)
}

/// Exceptions by method and class, the most first.
fn thrown(sums: &[ThrownSum], place: impl Fn(u32) -> Option<usize>) -> Vec<JniExceptions> {
    let mut all = HashMap::<(Option<usize>, Option<&str>), JniExceptions>::new();
    for sum in sums {
        let (method, class) = (place(sum.method), sum.class.as_deref());
        let new = || JniExceptions { method, class: sum.class.clone(), pending: 0, cleared: 0 };
        let known = all.entry((method, class)).or_insert_with(new);
        *(if sum.is_cleared { &mut known.cleared } else { &mut known.pending }) += sum.count;
    }
    let mut all: Vec<JniExceptions> = all.into_values().collect();
    all.sort_by(|a, b| {
        let sum = |of: &JniExceptions| of.pending + of.cleared;
        sum(b).cmp(&sum(a)).then_with(|| (a.method, &a.class).cmp(&(b.method, &b.class)))
    });
    all
}

/// What is held, by who has made it, of what class and how: the most first.
fn held(
    things: &[HeldThing],
    older_than: Duration,
    places: impl Fn((u32, u32)) -> (Option<usize>, Option<usize>),
) -> JniHeldSnapshot {
    let (mut groups, mut live) = (HashMap::<_, JniHeldGroup>::new(), Vec::<(JniResource, u64)>::new());
    for thing in things {
        match live.iter_mut().find(|(kind, _)| *kind == thing.resource) {
            Some((_, count)) => *count += thing.times,
            None => live.push((thing.resource, thing.times)),
        }
        if thing.age < older_than {
            continue;
        }
        let ((method, function), class) = (places(thing.records), thing.class.as_ref().map(|(class, _)| class.clone()));
        let key = (thing.resource.as_str(), method, function, class.clone());
        let group = groups.entry(key).or_insert_with(|| JniHeldGroup {
            resource: thing.resource,
            method,
            function,
            class,
            count: 0,
            elements: 0,
            oldest: thing.age,
            youngest: thing.age,
            paths: Vec::new(),
        });
        if let Some(path) = &thing.path {
            add_path(&mut group.paths, path);
        }
        let length = thing.class.as_ref().and_then(|(_, length)| *length).unwrap_or(0);
        group.count += thing.times;
        group.elements += u64::from(length);
        (group.oldest, group.youngest) = (group.oldest.max(thing.age), group.youngest.min(thing.age));
    }
    let mut groups: Vec<JniHeldGroup> = groups.into_values().collect();
    for group in &mut groups {
        group.paths.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.frames.cmp(&b.frames)));
    }
    groups.sort_by(|a, b| {
        let others = |group: &JniHeldGroup| (group.resource.as_str(), group.method, group.function);
        b.count.cmp(&a.count).then_with(|| others(a).cmp(&others(b))).then_with(|| a.class.cmp(&b.class))
    });
    JniHeldSnapshot { groups, live, older_than, ..JniHeldSnapshot::default() }
}

fn add_path(paths: &mut Vec<JniCallPath>, frames: &Arc<[String]>) {
    match paths.iter_mut().find(|path| Arc::ptr_eq(&path.frames, frames)) {
        Some(path) => path.seen += 1,
        None => paths.push(JniCallPath { frames: Arc::clone(frames), seen: 1 }),
    }
}

fn sums(snapshot: &Snapshot, known: &JniPairs) -> HashMap<Places, JniCalls> {
    let place = places_of(snapshot, known);
    let mut sums: HashMap<Places, JniCalls> = HashMap::new();
    let called = known.called.iter().map(|called| (called.records, called.calls));
    for ((caller, function), calls) in known.pairs.iter().copied().chain(called) {
        if matches!(function, COLLECTION_WAITS | BUFFERS_MADE | LOCALS_BEYOND) {
            continue;
        }
        let is_section = function & CRITICAL_SECTIONS != 0;
        let of_function = if is_section { None } else { place(function) };
        if is_section || of_function.is_some() {
            let sum = sums.entry((place(caller), of_function)).or_default();
            *sum = sum.and(calls);
        }
    }
    sums
}

/// The place of a record's row.
fn places_of<'a>(snapshot: &Snapshot, known: &'a JniPairs) -> impl Fn(u32) -> Option<usize> + use<'a> {
    let rows = snapshot.methods.iter().enumerate();
    let places: HashMap<u32, usize> = rows.map(|(place, method)| (method.index, place)).collect();
    move |record: u32| places.get(known.records.get(&record)?).copied()
}

fn use_of(known: &MethodSnapshot, (method, function): (Option<usize>, usize), calls: JniCalls) -> JniUse {
    JniUse { method, function, calls: net(known, calls), error_ns: known.price.inside_error_ns }
}

/// Calls without what probes have put into their times. A nanosecond of each call stays.
fn net(function: &MethodSnapshot, calls: JniCalls) -> JniCalls {
    let Price { inside_ns, .. } = function.price;
    let less = |ns: u64, kept_ns: u64, calls: u64| {
        let own_ns = ns.saturating_sub(kept_ns).saturating_sub(calls);
        ns - inside_ns.saturating_mul(calls).min(own_ns)
    };
    JniCalls {
        total_ns: less(calls.total_ns, calls.child_ns.saturating_add(calls.off_ns), calls.timed),
        max_ns: calls.max_ns.saturating_sub(inside_ns),
        redundant_ns: less(calls.redundant_ns, 0, calls.redundant),
        ..calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::testing::{function, snapshot};
    use crate::model::{LocalsBeyond, Price, VirtAddr};

    /// Check that calls of a Java method by two ids of it are one row and part of the function's, and that those of which it is not known are
    /// kept, without what calls no Java.
    #[test]
    fn callbacks_by_method() {
        let mut snapshot = snapshot();
        let price = Price { inside_ns: 100, ..Price::default() };
        let java = MethodSnapshot { price, ..function(6, "CallIntMethod", 9, 900) };
        snapshot.methods = vec![function(5, "native", 9, 900), java, function(7, "GetVersion", 9, 900)];
        let calls = |calls| JniCalls { calls, timed: calls, total_ns: 1000 * calls, ..JniCalls::NONE };
        let method = |id, name: &str| {
            let known = function(0, name, 0, 0).methods[0].method.clone();
            Method { id: VirtAddr(id), ..known }
        };
        let called = |records, java, of| CalledSum { records, java, calls: calls(of) };
        let called = vec![
            called((50, 60), Some(method(8, "back")), 2),
            called((50, 60), Some(method(16, "back")), 3),
            called((50, 60), None, 1),
            called((0, 60), Some(method(8, "back")), 4),
        ];
        let pairs = vec![((50, 60), calls(5)), ((50, 70), calls(7))];
        let records = HashMap::from([(50, 5), (60, 6), (70, 7)]);
        let known = JniPairs { pairs, called, records, ..JniPairs::default() };
        let known = jni(snapshot, &known, Vec::new(), true);
        let mut rows: Vec<_> = known
            .callbacks
            .iter()
            .map(|of| {
                (of.made.method, of.java.as_ref().map(|java| &*java.name), of.made.calls.calls, of.made.self_ns())
            })
            .collect();
        rows.sort_unstable();
        let expected = [(None, Some("back"), 4, 3600), (Some(0), None, 6, 5400), (Some(0), Some("back"), 5, 4500)];
        assert_eq!(rows, expected);
        let of_function = known.uses.iter().filter(|made| made.function == 1);
        assert_eq!(of_function.map(|made| made.calls.calls).sum::<u64>(), 15);
    }

    /// Check that calls get to the rows of both records, that those of unknown callers are nobody's, and that what probes have put into
    /// times is taken off, but a nanosecond of each call and the time of others.
    #[test]
    fn pairs_find_their_rows() {
        let price = Price { inside_ns: 100, ..Price::default() };
        let mut snapshot = snapshot();
        snapshot.methods =
            vec![function(5, "native", 9, 900), MethodSnapshot { price, ..function(6, "GetVersion", 9, 900) }];
        let calls = |calls, total_ns| JniCalls { calls, timed: calls, total_ns, max_ns: 150, ..JniCalls::NONE };
        let nested = JniCalls { child_ns: 950, ..calls(1, 1000) };
        let pairs = vec![
            ((50, 60), calls(2, 500)),
            ((0, 60), calls(1, 300)),
            ((77, 60), nested),
            ((50, 60 | CRITICAL_SECTIONS), calls(3, 30)),
            ((50, COLLECTION_WAITS), calls(2, 20)),
            ((0, COLLECTION_WAITS), calls(1, 5)),
            ((77, COLLECTION_WAITS), calls(1, 6)),
            ((0, BUFFERS_MADE), calls(1, 5)),
            ((50, BUFFERS_MADE), calls(3, 4096)),
            ((50, LOCALS_BEYOND), calls(7, 900)),
        ];
        let paths = ["a.One::a:1", "a.Other::b:2"].map(|path| Arc::from([path.to_owned()]));
        let thing = |records, times, seconds| HeldThing {
            resource: JniResource::Global,
            records,
            class: Some(("a.Class".to_owned(), None)),
            times,
            age: Duration::from_secs(seconds),
            path: paths.get(usize::try_from(seconds).unwrap() % 3).cloned(),
        };
        let held = vec![thing((50, 60), 1, 9), thing((50, 60), 1, 4), thing((77, 60), 1, 5), thing((50, 60), 1, 2)];
        let held = Some((held, Duration::from_secs(4)));
        let threw = |method, is_cleared, count| ThrownSum { method, is_cleared, class: Some("E".to_owned()), count };
        let thrown = vec![threw(50, true, 2), threw(50, false, 1), threw(77, true, 4), threw(78, true, 1)];
        let records = HashMap::from([(50, 5), (60, 6)]);
        let collections = CollectionsWait::For(Vec::new());
        let known = JniPairs { pairs, called: Vec::new(), records, held, thrown, collections };
        let never = JniPairs { collections: CollectionsWait::Never, ..known.clone() };
        assert_eq!(jni(snapshot.clone(), &never, Vec::new(), true).collections, CollectionsWait::Never);
        let mut known = jni(snapshot, &known, Vec::new(), true);
        known.uses.sort_by_key(|made| made.method);
        let of = |at: usize| (known.uses[at].method, known.uses[at].function, known.uses[at].calls.calls);
        assert_eq!((known.uses.len(), of(0), of(1)), (2, (None, 1, 2), (Some(0), 1, 2)));
        assert_eq!([0, 1].map(|at: usize| known.uses[at].calls.total_ns), [1300 - 200, 500 - 200]);
        assert_eq!(known.uses[1].calls.max_ns, 50);
        let exceptions = |of: &JniExceptions| (of.method, of.pending, of.cleared);
        assert_eq!(known.thrown.iter().map(exceptions).collect::<Vec<_>>(), [(None, 0, 5), (Some(0), 1, 2)]);
        let longest_ns = 150;
        let held = known.held.unwrap();
        let ages = |group: &JniHeldGroup| (group.method, group.count, group.oldest.as_secs(), group.youngest.as_secs());
        assert_eq!(held.groups.iter().map(ages).collect::<Vec<_>>(), [(Some(0), 2, 9, 4), (None, 1, 5, 5)]);
        let paths = |group: &JniHeldGroup| group.paths.iter().map(|path| (path.frames[0].clone(), path.seen)).collect();
        let paths: Vec<Vec<(String, u64)>> = held.groups.iter().map(paths).collect();
        let [one, other] = ["a.One::a:1", "a.Other::b:2"].map(|path| (path.to_owned(), 1));
        assert_eq!((paths, held.groups[1].stacks()), (vec![vec![one, other], vec![]], 0));
        assert_eq!((held.live(JniResource::Global), held.live(JniResource::Weak)), (4, 0));
        assert_eq!(held.locals.beyond, [LocalsBeyond { method: Some(0), calls: 7, most: 150 }]);
        let CollectionsWait::For(mut waits) = known.collections else { panic!("not known") };
        waits.sort_by_key(|of| of.method);
        let waits: Vec<_> = waits.iter().map(|of| (of.method, of.collections, of.total_ns, of.longest_ns)).collect();
        assert_eq!(waits, [(None, 2, 11, 150), (Some(0), 2, 20, 150)]);
        let buffers: Vec<_> =
            known.buffers.iter().map(|of| (of.method, of.buffers, of.bytes, of.largest_bytes)).collect();
        assert_eq!(buffers, [(Some(0), 3, 4096, 150), (None, 1, 5, 150)]);
        assert_eq!(known.critical, [CriticalSections { method: Some(0), sections: 3, total_ns: 30, longest_ns }]);
    }
}
