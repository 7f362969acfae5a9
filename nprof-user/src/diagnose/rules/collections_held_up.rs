//! Critical sections that last long: a collector that cannot leave single objects alone waits for their end.

use crate::diagnose::measured::{Measured, rounded};
use crate::model::{Certainty, CostKind, CriticalSections, Fault, FaultCost};
use crate::render::units;

pub(super) const NAME: &str = "collections-held-up";

/// How long they have to be on average: a collection takes milliseconds itself.
const LONG_NS: u64 = 100_000;
/// How long a single one has to be among short ones: it may have waited for a CPU, whatever is done in it.
const LONG_ONE_NS: u64 = 50_000_000;

/// The native methods that hold them.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    if measured.waits_for_critical == Some(false) || !measured.jni.has_all_sections() {
        return Vec::new();
    }
    let long = measured.jni.critical.iter().filter_map(|sections| Some((sections, held_ns(sections)?)));
    long.map(|(sections, held_ns)| of(measured, sections, held_ns)).collect()
}

/// How long those that matter lasted: all of them, or the one that is long; `None` if they are short.
fn held_ns(sections: &CriticalSections) -> Option<u64> {
    let is_long = mean_ns(sections) >= LONG_NS;
    if is_long { Some(sections.total_ns) } else { Some(sections.longest_ns).filter(|ns| *ns >= LONG_ONE_NS) }
}

fn mean_ns(sections: &CriticalSections) -> u64 {
    sections.total_ns.checked_div(sections.sections).unwrap_or(0)
}

fn of(measured: &Measured<'_>, sections: &CriticalSections, held_ns: u64) -> Fault {
    let mean_ns = mean_ns(sections);
    let CriticalSections { method, sections, total_ns, longest_ns } = *sections;
    let ns_per_s = rounded(measured.per_second(held_ns as f64));
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
            units::duration(mean_ns)
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
        let sections = &mut sample.jni.critical[NATIVE];
        (sections.total_ns, sections.longest_ns) = (9_900_000, 9_000_000);
        assert_eq!(find(&sample.measured()), [], "one of them may have waited for a CPU");
        sample.jni.critical[NATIVE].longest_ns = 60_000_000;
        assert_eq!(sample.only(find).cost.ns_per_s, 6_000_000);
    }
}
