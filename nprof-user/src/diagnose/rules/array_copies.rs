//! Native methods that have large arrays copied, into native memory or out of it.

use crate::diagnose::measured::{Measured, certainty, rounded, sum_of};
use crate::model::{Certainty, CostKind, Fault, FaultCost};
use crate::render::units;

pub(super) const NAME: &str = "array-copies";

/// How long a copy has to take on average: some ten thousand bytes.
const LARGE_NS: f64 = 1_000.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    measured.callers(copies).into_iter().filter_map(|(method, uses)| {
        let (ran_ns, error_ns) = (sum_of(&uses, |sum| sum.on_cpu_ns), sum_of(&uses, |sum| sum.error_ns));
        let copies = sum_of(&uses, |sum| sum.timed);
        if ran_ns < error_ns || ran_ns < LARGE_NS * copies {
            return None;
        }
        let each = uses.iter().map(|used| format!("{} {}", used.name, units::count(used.sum().calls)));
        Some(Fault {
            rule: NAME,
            method: measured.name(method),
            cost: FaultCost {
                ns_per_s: rounded(measured.per_second(ran_ns)),
                kind: CostKind::Cpu,
                certainty: certainty(&uses, Certainty::Measured),
            },
            what: format!(
                "has arrays copied {} times a second, for {} each",
                units::rate(measured.per_second(copies)),
                units::duration(rounded(ran_ns / copies.max(1.0)))
            ),
            evidence: format!("calls: {}", each.collect::<Vec<_>>().join(", ")),
            stack: Vec::new(),
            advice: "use a direct buffer, which both sides read in place, copy only the part that is needed (Get…ArrayRegion), or hold \
                     the array for a moment by GetPrimitiveArrayCritical"
                .to_owned(),
        })
    }).collect()
}

/// Whether a function copies elements of arrays.
fn copies(function: &str) -> bool {
    let is_access = ["Get", "Set", "Release"].iter().any(|verb| function.starts_with(verb));
    is_access && (function.ends_with("ArrayRegion") || function.ends_with("ArrayElements"))
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};

    /// Check that copies that take long are found with the time that they take, and neither short ones nor what is no copy.
    #[test]
    fn long_copies() {
        for (name, each_ns, found) in
            [("GetByteArrayRegion", 40_000, 1), ("GetByteArrayRegion", 900, 0), ("GetByteArrayCritical", 40_000, 0)]
        {
            let mut sample = Sample::seconds(10);
            sample.native("copy", 1_000, 50_000_000);
            let function = sample.function(name, 1_000);
            sample.used(Some(NATIVE), function, |used| {
                (used.calls, used.timed, used.total_ns) = (1_000, 1_000, 1_000 * each_ns);
            });
            let faults = find(&sample.measured());
            assert_eq!(faults.len(), found, "{name} {each_ns}");
            assert!(
                faults.iter().all(|fault| fault.cost.ns_per_s == 4_000_000 && fault.what.ends_with("40.0 us each"))
            );
        }
    }
}
