//! Native methods that touch memory which is not there yet, again and again.

use nprof_common::Counter;

use crate::diagnose::measured::Measured;
use crate::model::{Certainty, CostKind, Fault};
use crate::render::units;

pub(super) const NAME: &str = "page-faults";

const FAULTS: [Counter; 2] = [Counter::MinorFaults, Counter::MajorFaults];
/// The least that a page fault takes: a trap, a page, and its zeros.
const LEAST_NS: f64 = 250.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let natives = measured.natives().map(|native| (native, native.of_a_call(&FAULTS)));
    natives
        .filter(|(_, faults)| *faults > 0.0)
        .map(|(native, faults)| Fault {
            rule: NAME,
            method: native.name(),
            cost: native.cost(faults * native.calls() as f64 * LEAST_NS, CostKind::Cpu, Certainty::AtLeast),
            what: format!("{} page faults a second", units::rate(native.consumed_per_second(&FAULTS))),
            evidence: format!(
                "{} faults a call in {} calls, {} of a call waited for storage; none takes less than {LEAST_NS} ns",
                units::rate(faults),
                units::count(native.calls()),
                units::rate(native.of_a_call(&FAULTS[1..]))
            ),
            stack: Vec::new(),
            advice: "keep memory and use it again instead of mapping or allocating it for each call; touch it once at the start \
                     (MAP_POPULATE); use larger pages"
                .to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::find;
    use crate::diagnose::testing::Sample;

    /// Check that faults are found by their number, and cost the least that they can take.
    #[test]
    fn by_number() {
        let mut sample = Sample::seconds(10);
        sample.native("fill", 1_000, 100_000_000);
        assert_eq!(find(&sample.measured()), []);
        sample.consumed(Counter::MinorFaults, 60_000);
        sample.consumed(Counter::MajorFaults, 4_000);
        let fault = sample.only(find);
        assert_eq!(fault.cost.ns_per_s, 1_600_000);
        assert!(fault.evidence.starts_with("64.0 faults a call in 1,000 calls, 4.00 of a call"), "{}", fault.evidence);
    }
}
