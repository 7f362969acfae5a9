//! From the records of callers and functions to who has called which JNI function.

use std::collections::HashMap;

use nprof_common::JniCalls;
use nprof_common::jni::CRITICAL_SECTIONS;

use crate::model::{CriticalSections, JniSnapshot, JniUse, MethodSnapshot, Price, Snapshot};

/// What the kernel keeps besides the records.
#[derive(Debug, Clone, Default)]
pub struct JniPairs {
    /// The records of native method and JNI function, and the calls of the one by the other.
    pub pairs: Vec<((u32, u32), JniCalls)>,
    /// The index of a record's function.
    pub records: HashMap<u32, u32>,
}

/// Places in [`Snapshot::methods`]: of a native method, if there is one, and of a JNI function; `None` for critical sections.
type Places = (Option<usize>, Option<usize>);

/// Who has called which function. Calls by what has no row, such as a native method that was only looked at for a short time, are
/// nobody's.
#[must_use]
pub fn jni(snapshot: Snapshot, known: &JniPairs, unseen: Vec<&'static str>, tells_members: bool) -> JniSnapshot {
    let (mut uses, mut critical) = (Vec::new(), Vec::new());
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
    JniSnapshot { snapshot, uses, critical, unseen, tells_members }
}

fn sums(snapshot: &Snapshot, known: &JniPairs) -> HashMap<Places, JniCalls> {
    let rows = snapshot.methods.iter().enumerate();
    let places: HashMap<u32, usize> = rows.map(|(place, method)| (method.index, place)).collect();
    let place = |record: u32| places.get(known.records.get(&record)?).copied();
    let mut sums: HashMap<Places, JniCalls> = HashMap::new();
    for &((caller, function), calls) in &known.pairs {
        let of_function = place(function);
        if function == CRITICAL_SECTIONS || of_function.is_some() {
            let sum = sums.entry((place(caller), of_function)).or_default();
            *sum = sum.and(calls);
        }
    }
    sums
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
    use crate::model::Price;

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
        let pairs =
            vec![((50, 60), calls(2, 500)), ((0, 60), calls(1, 300)), ((77, 60), nested), ((50, 0), calls(3, 30))];
        let known = JniPairs { pairs, records: HashMap::from([(50, 5), (60, 6)]) };
        let mut known = jni(snapshot, &known, Vec::new(), true);
        known.uses.sort_by_key(|made| made.method);
        let of = |at: usize| (known.uses[at].method, known.uses[at].function, known.uses[at].calls.calls);
        assert_eq!((known.uses.len(), of(0), of(1)), (2, (None, 1, 2), (Some(0), 1, 2)));
        assert_eq!([0, 1].map(|at: usize| known.uses[at].calls.total_ns), [1300 - 200, 500 - 200]);
        assert_eq!(known.uses[1].calls.max_ns, 50);
        let longest_ns = 150;
        assert_eq!(known.critical, [CriticalSections { method: Some(0), sections: 3, total_ns: 30, longest_ns }]);
    }
}
