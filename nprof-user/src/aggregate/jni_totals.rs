//! What native code has asked of one VM, in sums that only grow: from the records of callers and functions.

use std::collections::HashMap;

use nprof_common::jni::CRITICAL_SECTIONS;
use nprof_common::{JniCalls, JniKind};

use super::jni::{JniPairs, ThrownSum};
use crate::model::{
    JniReferences, JniResource, JniThrownSum, JniTotals, MethodSnapshot, Resources, SharedStr, States, jni,
};

/// The functions that look something up.
const LOOK_UPS: [&str; 5] = ["FindClass", "GetMethodID", "GetStaticMethodID", "GetFieldID", "GetStaticFieldID"];

/// The JNI functions of a VM besides what the kernel keeps of pairs.
#[derive(Debug, Clone, Default)]
pub struct JniRows {
    /// Those that were called.
    pub functions: Vec<MethodSnapshot>,
    /// In which state all are that are traced.
    pub states: States,
    /// The names of those that are not.
    pub unseen: Vec<SharedStr>,
    /// Whether it is told which look-ups of members are the same.
    pub tells_members: bool,
}

/// Adds up what is of one VM. `methods` are the rows of its native methods.
#[must_use]
pub fn jni_totals(rows: JniRows, methods: &[MethodSnapshot], known: &JniPairs) -> JniTotals {
    let JniRows { functions, states, unseen, tells_members } = rows;
    let (by_name, critical) = sums(&functions, known);
    let references = JniResource::FOLLOWED.map(|resource| JniReferences {
        resource,
        sums: resources(resource, &by_name),
        is_whole: is_whole(resource, &functions, &unseen),
    });
    let is_told = |name: &&&str| tells_members || jni::kind(name) == JniKind::Class;
    let redundant = LOOK_UPS.iter().filter(is_told).map(|name| {
        let name = SharedStr::from(*name);
        let sum = by_name.get(&name).copied().unwrap_or_default();
        (name, [sum.redundant, sum.redundant_ns])
    });
    let redundant = redundant.collect();
    let (thrown, unseen) = (thrown(&known.thrown, methods, &known.records), unseen.len());
    let functions = functions.into_iter().filter(was_called).map(without_histogram).collect();
    JniTotals { functions, states, unseen, redundant, references: references.to_vec(), critical, thrown }
}

/// Whether there is anything to be said of a function. Programs call few of them.
fn was_called(row: &MethodSnapshot) -> bool {
    row.all_calls() > 0 || row.in_flight > 0 || !row.traced.unwatched.is_zero()
}

/// Nobody shows it, and it would be most of the row.
fn without_histogram(row: MethodSnapshot) -> MethodSnapshot {
    MethodSnapshot { histogram: crate::model::Histogram::default(), ..row }
}

/// The calls of each function by whomever, and number and time of the critical sections.
fn sums<'a>(functions: &'a [MethodSnapshot], known: &JniPairs) -> (HashMap<&'a SharedStr, JniCalls>, [u64; 2]) {
    let named = |row: &'a MethodSnapshot| Some((row.index, &row.methods.first()?.method.name));
    let names: HashMap<u32, &SharedStr> = functions.iter().filter_map(named).collect();
    let (mut by_name, mut critical) = (HashMap::<_, JniCalls>::new(), [0u64; 2]);
    for ((_, function), calls) in &known.pairs {
        if function & CRITICAL_SECTIONS != 0 {
            critical = [critical[0].saturating_add(calls.calls), critical[1].saturating_add(calls.total_ns)];
        } else if let Some(name) = known.records.get(function).and_then(|index| names.get(index)) {
            let sum = by_name.entry(*name).or_default();
            *sum = sum.and(*calls);
        }
    }
    (by_name, critical)
}

fn resources(resource: JniResource, by_name: &HashMap<&SharedStr, JniCalls>) -> Resources {
    let mut sums = Resources::default();
    for (name, calls) in by_name {
        let times = calls.calls.saturating_sub(calls.vain);
        sums.made += if JniResource::made_by(name) == Some(resource) { times } else { 0 };
        sums.let_go += if JniResource::let_go_by(name) == Some(resource) { times } else { 0 };
    }
    sums
}

/// Whether every call was seen of the functions that make and let go of something. Of one that is only counted when it begins it is
/// not known whether it made anything; whether it has something to let go is known by then.
fn is_whole(resource: JniResource, functions: &[MethodSnapshot], unseen: &[SharedStr]) -> bool {
    let makes = |name: &str| JniResource::made_by(name) == Some(resource);
    let is_one = |name: &str| makes(name) || JniResource::let_go_by(name) == Some(resource);
    let is_missed = |row: &MethodSnapshot| {
        let name = row.methods.first().map_or("", |known| &*known.method.name);
        let was_unwatched = !row.traced.unwatched.is_zero() || row.unseen.is_some();
        is_one(name) && (was_unwatched || makes(name) && row.counted > 0)
    };
    !unseen.iter().any(|name| is_one(name)) && !functions.iter().any(is_missed)
}

fn thrown(sums: &[ThrownSum], methods: &[MethodSnapshot], records: &HashMap<u32, u32>) -> Vec<JniThrownSum> {
    let rows: HashMap<u32, &MethodSnapshot> = methods.iter().map(|row| (row.index, row)).collect();
    let mut all = HashMap::<_, JniThrownSum>::new();
    for sum in sums {
        let row = records.get(&sum.method).and_then(|index| rows.get(index));
        let known =
            row.and_then(|row| row.methods.iter().map(|known| &known.method).min_by_key(|m| (&m.class, &m.name)));
        let method = known.map(|known| (known.class.clone(), known.name.clone()));
        let new = || JniThrownSum { method: method.clone(), class: sum.class.clone(), pending: 0, cleared: 0 };
        let known = all.entry((method.clone(), sum.class.clone())).or_insert_with(new);
        let count = if sum.is_cleared { &mut known.cleared } else { &mut known.pending };
        *count = count.saturating_add(sum.count);
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::aggregate::testing::function;

    fn calls(calls: u64, vain: u64) -> JniCalls {
        JniCalls { calls, vain, total_ns: 10 * calls, redundant: calls / 2, redundant_ns: calls, ..JniCalls::NONE }
    }

    fn known() -> (Vec<MethodSnapshot>, JniPairs) {
        let names = ["NewGlobalRef", "DeleteGlobalRef", "GetMethodID", "FindClass", "GetStringUTFChars"];
        let functions = (1..).zip(names).map(|(index, name)| function(index, name, 9, 900)).collect();
        let pairs = vec![
            ((70, 10), calls(5, 1)),
            ((0, 10), calls(2, 0)),
            ((70, 20), calls(3, 0)),
            ((70, 30), calls(8, 2)),
            ((70, 40), calls(4, 0)),
            ((70, 10 | CRITICAL_SECTIONS), calls(6, 0)),
            ((0, 20 | CRITICAL_SECTIONS), calls(1, 0)),
            ((70, 99), calls(50, 0)),
        ];
        let records = HashMap::from([(10, 1), (20, 2), (30, 3), (40, 4), (50, 5), (70, 7)]);
        (functions, JniPairs { pairs, records, ..JniPairs::default() })
    }

    fn rows(functions: Vec<MethodSnapshot>, tells_members: bool) -> JniRows {
        JniRows { functions, tells_members, ..JniRows::default() }
    }

    /// Check the sums over all callers, that calls of records of others are not among them, and that vain calls make nothing.
    #[test]
    fn adds_up_all_callers() {
        let (functions, known) = known();
        let totals = jni_totals(rows(functions.clone(), true), &[], &known);
        let of = |totals: &JniTotals, resource| *totals.references.iter().find(|of| of.resource == resource).unwrap();
        let global = of(&totals, JniResource::Global);
        assert_eq!((global.sums.made, global.sums.let_go, global.live()), (6, 3, Some(3)));
        assert_eq!(totals.critical, [7, 70]);
        let redundant = |totals: &JniTotals| {
            let mut all: Vec<_> = totals.redundant.iter().map(|(name, sums)| (name.to_string(), *sums)).collect();
            all.sort_unstable();
            all
        };
        let none = |name: &str| (name.to_owned(), [0, 0]);
        let (class, member) = (("FindClass".to_owned(), [2, 4]), ("GetMethodID".to_owned(), [4, 8]));
        let others = [none("GetStaticFieldID"), none("GetStaticMethodID")];
        let [field, method] = others;
        assert_eq!(redundant(&totals), [class.clone(), none("GetFieldID"), member, field, method]);
        assert_eq!(redundant(&jni_totals(rows(functions, false), &[], &known)), [class]);
    }

    /// Check that exactly the functions that look something up are listed as such.
    #[test]
    fn look_ups() {
        let is_one = |name: &&str| matches!(jni::kind(name), JniKind::Class | JniKind::Member);
        let all: Vec<&str> = jni::jni_functions(25).map(|(_, name)| name).filter(is_one).collect();
        assert!(all.len() == LOOK_UPS.len() && all.iter().all(|name| LOOK_UPS.contains(name)), "{all:?}");
    }

    /// Check that how many there are is not told where a call may not have been seen, of that kind alone.
    #[test]
    fn what_is_not_whole() {
        let live = |change: &dyn Fn(&mut Vec<MethodSnapshot>), unseen: &[&str]| {
            let (mut functions, known) = known();
            change(&mut functions);
            let unseen = unseen.iter().map(|name| SharedStr::from(*name)).collect();
            let totals = jni_totals(JniRows { unseen, ..rows(functions, true) }, &[], &known);
            let is_whole = |resource| totals.references.iter().any(|of| of.resource == resource && of.is_whole);
            [JniResource::Global, JniResource::Chars].map(is_whole)
        };
        assert_eq!(live(&|_| {}, &["GetIntField"]), [true, true]);
        assert_eq!(live(&|_| {}, &["ReleaseStringChars"]), [true, false]);
        assert_eq!(live(&|of| of[1].traced.unwatched = Duration::from_millis(1), &[]), [false, true]);
        assert_eq!(live(&|of| of[0].counted = 1, &[]), [false, true]);
        assert_eq!(live(&|of| of[1].counted = 1, &[]), [true, true]);
    }

    /// Check that exceptions are those of methods that have rows, and of nobody otherwise, by class.
    #[test]
    fn exceptions_by_method() {
        let (functions, mut known) = known();
        let threw = |method, is_cleared, class: Option<&str>, count| ThrownSum {
            method,
            is_cleared,
            class: class.map(str::to_owned),
            count,
        };
        known.thrown = vec![
            threw(70, false, Some("E"), 3),
            threw(70, true, Some("E"), 2),
            threw(0, true, None, 4),
            threw(88, true, None, 1),
        ];
        let mut thrown = jni_totals(rows(functions, true), &[function(7, "native", 9, 900)], &known).thrown;
        thrown.sort_by_key(|of| of.method.is_none());
        let counts = |of: &JniThrownSum| (of.method.is_some(), of.class.clone(), of.pending, of.cleared);
        let all: Vec<_> = thrown.iter().map(counts).collect();
        assert_eq!(all, [(true, Some("E".to_owned()), 3, 2), (false, None, 0, 5)]);
        assert_eq!(thrown[0].method.as_ref().map(|(_, name)| &**name), Some("native"));
    }
}
