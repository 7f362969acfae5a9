//! Critical sections that last long: a collector that cannot leave single objects alone waits for their end.

use crate::diagnose::measured::{Measured, rounded};
use crate::model::{Certainty, CostKind, CriticalSections, Fault, FaultCost};
use crate::render::units;

pub(super) const NAME: &str = "collections-held-up";

/// How long the longest has to be: a collection takes milliseconds itself.
const LONG_NS: u64 = 1_000_000;

/// The native methods that hold them.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    if measured.waits_for_critical == Some(false) || !measured.jni.has_all_sections() {
        return Vec::new();
    }
    let long = measured.jni.critical.iter().filter(|sections| sections.longest_ns >= LONG_NS);
    long.map(|sections| of(measured, sections)).collect()
}

fn of(measured: &Measured<'_>, sections: &CriticalSections) -> Fault {
    let CriticalSections { method, sections, total_ns, longest_ns } = *sections;
    let ns_per_s = rounded(measured.per_second(total_ns as f64));
    let known = if measured.waits_for_critical.is_none() { " (not known which collector this JVM has)" } else { "" };
    Fault {
        rule: NAME,
        method: measured.name(method),
        cost: FaultCost { ns_per_s, kind: CostKind::Held, certainty: Certainty::AtMost },
        what: format!(
            "holds critical sections of up to {}: a collection that is due meanwhile waits, and all threads with it{known}",
            units::duration(longest_ns)
        ),
        evidence: format!(
            "{} critical sections with {} in all, {} each",
            units::count(sections),
            units::duration(total_ns),
            units::duration(total_ns.checked_div(sections).unwrap_or(0))
        ),
        stack: Vec::new(),
        advice: "neither wait nor compute between Get…Critical and Release…Critical; copy a region (Get…ArrayRegion), use a direct \
                 buffer, or G1 with JDK 22 and later, which does not wait"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::{Certainty, CostKind, FaultCost};

    /// Check that long sections are found with the time in which no collection could begin, and neither short ones nor those that the
    /// collector does not wait for, nor any where not all are known.
    #[test]
    fn long_sections() {
        let mut sample = Sample::seconds(10);
        sample.native("hold", 100, 1_000_000_000);
        sample.sections(100, 900_000_000, 12_000_000);
        let cost = FaultCost { ns_per_s: 90_000_000, kind: CostKind::Held, certainty: Certainty::AtMost };
        assert_eq!(sample.only(find).cost, cost);
        let mut pinned = sample.clone();
        pinned.waits_for_critical = Some(false);
        assert_eq!(find(&pinned.measured()), []);
        let mut partial = sample.clone();
        let function = partial.function("GetPrimitiveArrayCritical", 100);
        partial.row(function).counted = 50;
        assert_eq!(find(&partial.measured()), []);
        sample.jni.critical[NATIVE].longest_ns = 999_999;
        assert_eq!(find(&sample.measured()), []);
    }
}
