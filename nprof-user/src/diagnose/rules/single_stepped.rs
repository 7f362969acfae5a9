//! Functions at which a probe is expensive: what tracing itself costs there, and what it does to the times.

use crate::diagnose::measured::{Measured, rounded};
use crate::model::{Certainty, CostKind, Fault, FaultCost, MethodSnapshot, ProbeCost};
use crate::render::units;

pub(super) const NAME: &str = "single-stepped";

/// Which share of a time what is not known of the probes' part has to be.
const SHARE: f64 = 0.1;

/// From so many calls on they have a rate: a handful at the start of a short run would be extrapolated to a cost.
const LEAST_CALLS: u64 = 100;

/// Native methods and JNI functions.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let rows = measured.jni.snapshot.methods.iter().enumerate();
    let distorted = rows.filter(|(_, row)| row.cost == Some(ProbeCost::SingleStepped) && is_distorted(row));
    distorted
        .map(|(place, row)| Fault {
            rule: NAME,
            method: measured.name(Some(place)),
            cost: FaultCost {
                ns_per_s: rounded(measured.per_second(row.cost_ns.unwrap_or(0) as f64)),
                kind: CostKind::Tracing,
                certainty: Certainty::About,
            },
            what: "is traced at a place where the kernel single-steps an instruction: its times are more the probe's than its own".to_owned(),
            evidence: format!(
                "{} calls, {} without the probes' part, which is {} (+- {})",
                units::count(row.calls),
                units::duration(row.total_ns),
                units::duration(row.probe_ns),
                units::duration(row.probe_error_ns)
            ),
            stack: Vec::new(),
            advice: "this is no fault of the program: time it by stubs (`nprof trace --tier stub`), or leave it out (--exclude)".to_owned(),
        })
        .collect()
}

/// Whether the probes' part matters to the time that threads ran.
fn is_distorted(row: &MethodSnapshot) -> bool {
    let ran_ns = row.total_ns.saturating_sub(row.off_cpu_ns.unwrap_or(0));
    row.calls >= LEAST_CALLS && row.probe_error_ns as f64 >= SHARE * ran_ns as f64 && row.probe_error_ns > 0
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::{CostKind, ProbeCost};

    /// Check that an expensive site is found where it matters to the times, with what it costs, and no other site, nor one of a few
    /// calls.
    #[test]
    fn where_it_matters() {
        let mut sample = Sample::seconds(10);
        sample.native("odd", 1_000, 2_000_000);
        let row = sample.row(NATIVE);
        (row.probe_ns, row.probe_error_ns, row.cost_ns) = (10_000_000, 3_000_000, Some(13_000_000));
        assert_eq!(find(&sample.measured()), []);
        sample.row(NATIVE).cost = Some(ProbeCost::SingleStepped);
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.kind), (1_300_000, CostKind::Tracing));
        sample.row(NATIVE).calls = 99;
        assert_eq!(find(&sample.measured()), []);
        let row = sample.row(NATIVE);
        (row.calls, row.total_ns) = (1_000, 40_000_000);
        assert_eq!(find(&sample.measured()), []);
        sample.row(NATIVE).off_cpu_ns = Some(30_000_000);
        assert_eq!(sample.only(find).cost, fault.cost);
    }
}
