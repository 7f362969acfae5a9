//! Native methods that look up what had been found before.

use crate::diagnose::measured::{Measured, Used, certainty, rounded, sum_of};
use crate::model::{Certainty, CostKind, Fault, FaultCost, JniFamily};
use crate::render::units;

pub(super) const NAME: &str = "redundant-look-ups";

/// The least that a look-up takes, where what was measured is lost in the probes' own part.
const LEAST_NS: f64 = 80.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let callers = measured.callers(|name| JniFamily::of(name) == JniFamily::LookUps);
    let again = callers.into_iter().filter(|(_, uses)| uses.iter().any(|used| used.sum().redundant > 0));
    again
        .map(|(method, uses)| Fault {
            rule: NAME,
            method: measured.name(method),
            cost: cost(measured, &uses),
            what: format!(
                "looks up {} times a second what had been found before",
                units::rate(measured.per_second(sum_of(&uses, |sum| sum.redundant)))
            ),
            evidence: evidence(&uses),
            stack: Vec::new(),
            advice: "look it up once, in JNI_OnLoad or a static initialiser, and keep the id; keep classes as global references".to_owned(),
        })
        .collect()
}

fn cost(measured: &Measured<'_>, uses: &[Used<'_>]) -> FaultCost {
    let ns = sum_of(uses, |sum| sum.redundant_ns);
    let is_lost = ns < sum_of(uses, |sum| sum.redundant_error_ns);
    let least_ns = sum_of(uses, |sum| sum.redundant) * LEAST_NS;
    let (ns, certainty) = if is_lost {
        (least_ns, certainty(uses, Certainty::AtLeast))
    } else {
        (ns, certainty(uses, Certainty::Measured))
    };
    FaultCost { ns_per_s: rounded(measured.per_second(ns)), kind: CostKind::Cpu, certainty }
}

fn evidence(uses: &[Used<'_>]) -> String {
    let again = uses.iter().filter(|used| used.sum().redundant > 0);
    let each = again.map(|used| {
        let sum = used.sum();
        format!("{} {} of {}", used.name, units::count(sum.redundant), units::count(sum.calls))
    });
    format!("redundant: {}", each.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::{Certainty, Unseen};

    /// Check that only the redundant ones cost, that calls which nobody saw count in proportion, and that a time below its error is the
    /// least that look-ups take.
    #[test]
    fn cost_of_redundant_ones() {
        let mut sample = Sample::seconds(10);
        sample.native("some", 1_000, 1_000_000);
        let function = sample.function("GetMethodID", 1_000);
        sample
            .used(Some(NATIVE), function, |calls| (calls.calls, calls.timed, calls.total_ns) = (1_000, 1_000, 300_000));
        assert_eq!(find(&sample.measured()), []);
        (sample.jni.uses[0].calls.redundant, sample.jni.uses[0].calls.redundant_ns) = (900, 270_000);
        let fault = sample.only(find);
        assert_eq!(
            (&*fault.method, fault.cost.ns_per_s, fault.cost.certainty),
            ("a.N::some", 27_000, Certainty::Measured)
        );
        assert_eq!(fault.evidence, "redundant: GetMethodID 900 of 1,000");
        sample.row(function).unseen = Some(Unseen { calls: 9_000, ..Unseen::default() });
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.certainty), (270_000, Certainty::About));
        sample.jni.uses[0].error_ns = 400;
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.certainty), (72_000, Certainty::About));
        sample.row(function).unseen = None;
        assert_eq!(sample.only(find).cost.certainty, Certainty::AtLeast);
    }
}
