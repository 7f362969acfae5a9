//! Critical sections that collections wait for: a collector that cannot leave single objects alone waits for their end. Where it is not
//! known how long it did, those that last long.

use crate::diagnose::measured::{Measured, rounded};
use crate::model::{Certainty, CollectionWaits, CollectionsWait, CostKind, CriticalSections, Fault, FaultCost};
use crate::render::units;

pub(super) const NAME: &str = "collections-held-up";

/// How long they have to be on average: a collection takes milliseconds itself.
const LONG_NS: u64 = 100_000;
/// How long a single one has to be among short ones: it may have waited for a CPU, whatever is done in it.
const LONG_ONE_NS: u64 = 50_000_000;

const ADVICE: &str = "neither wait nor compute between Get…Critical and Release…Critical; copy a region (Get…ArrayRegion), use a direct \
                      buffer, or G1 with JDK 22 and later, which does not wait";

/// The native methods that hold them.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    if !measured.jni.has_all_sections() {
        return Vec::new();
    }
    match &measured.jni.collections {
        CollectionsWait::Never => Vec::new(),
        CollectionsWait::For(waits) => {
            waits.iter().filter(|of| of.collections > 0).map(|of| waited(measured, *of)).collect()
        }
        CollectionsWait::Perhaps => held_long(measured),
    }
}

/// What it has cost.
fn waited(measured: &Measured<'_>, waits: CollectionWaits) -> Fault {
    let CollectionWaits { method, collections, total_ns, longest_ns } = waits;
    let ns_per_s = rounded(measured.per_second(total_ns as f64));
    let evidence = format!(
        "{} collections waited {} in all, the longest {}",
        units::count(collections),
        units::duration(total_ns),
        units::duration(longest_ns)
    );
    let of_method = measured.jni.critical.iter().find(|sections| sections.method == method);
    let sections = of_method.map(|sections| format!("; {}", lasted(sections)));
    Fault {
        rule: NAME,
        method: measured.name(method),
        cost: FaultCost { ns_per_s, kind: CostKind::Held, certainty: Certainty::Measured },
        what: format!(
            "held up collections for up to {} by critical sections: threads that needed memory waited with them",
            units::duration(longest_ns)
        ),
        evidence: evidence + &sections.unwrap_or_default(),
        stack: Vec::new(),
        advice: ADVICE.to_owned(),
    }
}

fn held_long(measured: &Measured<'_>) -> Vec<Fault> {
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
    let ns_per_s = rounded(measured.per_second(held_ns as f64));
    Fault {
        rule: NAME,
        method: measured.name(sections.method),
        cost: FaultCost { ns_per_s, kind: CostKind::Held, certainty: Certainty::AtMost },
        what: format!(
            "holds critical sections of up to {}: a collection that is due meanwhile may wait, and all threads with it (not known of \
             this JVM whether one did)",
            units::duration(sections.longest_ns)
        ),
        evidence: lasted(sections),
        stack: Vec::new(),
        advice: ADVICE.to_owned(),
    }
}

fn lasted(sections: &CriticalSections) -> String {
    format!(
        "{} critical sections with {} in all, {} each",
        units::count(sections.sections),
        units::duration(sections.total_ns),
        units::duration(mean_ns(sections))
    )
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::{Certainty, CollectionWaits, CollectionsWait, CostKind, FaultCost};

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
        pinned.jni.collections = CollectionsWait::Never;
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

    /// Check that where it is known how long collections waited that is what it costs, and that sections that none waited for cost nothing
    /// however long they are.
    #[test]
    fn collections_that_waited() {
        let mut sample = Sample::seconds(10);
        sample.native("hold", 100, 1_000_000_000);
        sample.sections(100, 900_000_000, 12_000_000);
        sample.jni.collections = CollectionsWait::For(Vec::new());
        assert_eq!(find(&sample.measured()), []);
        let waits = |method, total_ns| CollectionWaits { method, collections: 7, total_ns, longest_ns: 11_000_000 };
        sample.jni.collections = CollectionsWait::For(vec![waits(Some(NATIVE), 70_000_000)]);
        let fault = sample.only(find);
        let cost = FaultCost { ns_per_s: 7_000_000, kind: CostKind::Held, certainty: Certainty::Measured };
        assert_eq!((fault.cost, &*fault.method), (cost, "a.N::hold"));
        assert!(
            fault.evidence.starts_with("7 collections waited 70.0 ms in all, the longest 11.0 ms; 100 "),
            "{}",
            fault.evidence
        );
        sample.jni.collections = CollectionsWait::For(vec![waits(None, 1)]);
        assert!(sample.only(find).evidence.starts_with("7 collections waited 1 ns"));
    }
}
