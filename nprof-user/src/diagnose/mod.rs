//! From what was measured to what is wrong: [`Measured`] in, a [`Diagnosis`] out.
//!
//! Each rule is a file in `rules/` and a row of its table. Nothing here reads a process or the kernel, and no fault is without a number.

mod measured;
mod rules;
#[cfg(test)]
mod testing;
mod unknown;
mod waiters;

use std::cmp::Reverse;

pub use measured::Measured;
pub use waiters::patterns as waiters;

use crate::model::Diagnosis;

/// From which cost on something is a fault: a thousandth of a core.
const LEAST_NS_PER_S: u64 = 1_000_000;

/// What is wrong, the dearest first.
#[must_use]
pub fn diagnose(measured: &Measured<'_>) -> Diagnosis {
    let mut faults = Vec::new();
    for rule in &rules::RULES {
        let least_ns_per_s = if rule.has_own_threshold { 0 } else { LEAST_NS_PER_S };
        faults.extend((rule.find)(measured).into_iter().filter(|fault| fault.cost.ns_per_s >= least_ns_per_s));
    }
    faults.sort_by_key(|fault| Reverse(fault.cost.ns_per_s));
    let natives = measured.natives().filter(|native| native.calls() > 0).count();
    let functions = measured.functions().filter(|function| function.all_calls() > 0).count();
    Diagnosis {
        faults,
        rules: rules::RULES.iter().map(|rule| (rule.name, rule.looks_for)).collect(),
        called: [natives, functions],
        calls: measured.jni.snapshot.methods.iter().map(crate::model::MethodSnapshot::all_calls).sum(),
        least_ns_per_s: LEAST_NS_PER_S,
        unknown: unknown::lines(measured),
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{NATIVE, Sample};
    use super::{LEAST_NS_PER_S, diagnose};

    /// Check that a program that costs nothing worth a word has no fault, and that it is said what was looked for and at.
    #[test]
    fn nothing_found() {
        let mut sample = Sample::seconds(10);
        sample.native("read", 1_000, 5_000_000);
        let function = sample.function("GetMethodID", 10);
        sample.used(Some(NATIVE), function, |calls| (calls.calls, calls.timed, calls.total_ns) = (10, 10, 5_000));
        let diagnosis = diagnose(&sample.measured());
        assert_eq!(diagnosis.faults, []);
        assert_eq!((diagnosis.called, diagnosis.calls), ([1, 1], 1_010));
        assert_eq!((diagnosis.rules.len(), diagnosis.least_ns_per_s), (super::rules::RULES.len(), LEAST_NS_PER_S));
    }

    /// Check that the dearest comes first, whichever rule has found it, and that what costs too little is no fault.
    #[test]
    fn dearest_first() {
        let mut sample = Sample::seconds(10);
        sample.native("cheap", 2_000_000, 200_000_000);
        sample.native("dear", 90_000_000, 9_000_000_000);
        sample.native("other", 9_000_000, 900_000_000);
        let methods: Vec<String> = diagnose(&sample.measured()).faults.into_iter().map(|fault| fault.method).collect();
        assert_eq!(methods, ["a.N::dear", "a.N::other", "a.N::cheap"]);
        let mut sample = Sample::seconds(10);
        sample.native("rare", 90_000, 9_000_000);
        assert_eq!(diagnose(&sample.measured()).faults, []);
    }
}
