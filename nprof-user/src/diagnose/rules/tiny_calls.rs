//! Native methods that do next to nothing, and are called so often that the way there and back is what costs.

use crate::diagnose::measured::Measured;
use crate::model::{Certainty, CostKind, Fault};
use crate::render::units;

pub(super) const NAME: &str = "tiny-calls";

/// From which mean time on a call is not tiny.
const TINY_NS: u64 = 1_000;
/// The least that a call of a native method costs: compiled code saves what it needs, leaves Java, and comes back.
const CROSSING_NS: f64 = 10.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let tiny = measured.natives().filter_map(|native| Some((native, native.average_without_waits_ns()?)));
    let tiny = tiny.filter(|(_, average_ns)| *average_ns < TINY_NS);
    tiny.map(|(native, average_ns)| {
        let rate = native.per_second(native.calls() as f64);
        let cost = native.cost(native.calls() as f64 * CROSSING_NS, CostKind::Cpu, Certainty::AtLeast);
        Fault {
            rule: NAME,
            method: native.name(),
            cost,
            what: format!("is called {} times a second and does next to nothing", units::rate(rate)),
            evidence: format!(
                "{} calls, {} each without waits, as far as that can be told from the probes' own part; no call costs less than {CROSSING_NS} ns",
                units::count(native.calls()),
                units::duration(average_ns)
            ),
            stack: Vec::new(),
            advice: "do more in each call (pass an array or a direct buffer), keep the answer in Java, or do it in Java: \
                     compiled code is inlined, native code never is"
                .to_owned(),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::Certainty;

    /// Check that what does something is not tiny, and that what does nothing costs at least the crossing.
    #[test]
    fn costs_the_crossing() {
        let mut sample = Sample::seconds(10);
        sample.native("nothing", 5_000_000, 5_000_000);
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.certainty), (5_000_000, Certainty::AtLeast));
        assert!(fault.what.contains("500,000 times a second"), "{}", fault.what);
        let row = sample.row(NATIVE);
        (row.total_ns, row.self_ns) = (5_000_000 * 1_000, Some(5_000_000 * 1_000));
        assert_eq!(find(&sample.measured()), []);
        // Its threads have waited for a CPU.
        sample.row(NATIVE).off_cpu_ns = Some(5_000_000 * 999);
        assert_eq!(sample.only(find).cost, fault.cost);
    }
}
