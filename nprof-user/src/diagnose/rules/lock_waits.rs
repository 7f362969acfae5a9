//! Native methods in which threads wait for locks: of the C library, and of Java by `MonitorEnter`.

use nprof_common::Counter;

use crate::diagnose::measured::{Measured, Native, certainty, rounded, sum_of};
use crate::diagnose::waiters;
use crate::model::{Certainty, CostKind, Fault, FaultCost};
use crate::render::units;

pub(super) const NAME: &str = "lock-waits";

/// How often threads have to wait in a second.
const LEAST_PER_SECOND: f64 = 1.0;
/// How often in all: from one wait nobody knows how often there are others. The VM stops a thread for a safepoint in whichever native it is.
const LEAST: f64 = 5.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let natives = measured.natives().filter(|native| !waiters::waits(&native.method.class, &native.method.name));
    let of_locks = natives.filter_map(of_native);
    of_locks.chain(of_monitors(measured)).collect()
}

/// Which parts of the times that a native's threads left the CPU were for locks, and for something else: in the rest they were taken
/// from it. Where nobody has counted, all is for something else.
pub(super) fn shares(native: Native<'_>) -> [f64; 2] {
    let locks = native.of_a_call(&[Counter::LockWaits]);
    let waits = native.of_a_call(&[Counter::VoluntarySwitches]);
    let all = waits + native.of_a_call(&[Counter::InvoluntarySwitches]);
    if all > 0.0 { [(locks / all).min(1.0), ((waits - locks) / all).max(0.0)] } else { [0.0, 1.0] }
}

fn of_native(native: Native<'_>) -> Option<Fault> {
    let [share, _] = shares(native);
    let waits = native.of_a_call(&[Counter::LockWaits]) * native.calls() as f64;
    (share > 0.0 && waits >= LEAST && native.per_second(waits) >= LEAST_PER_SECOND).then(|| {
        let certainty = if share < 1.0 { Certainty::About } else { Certainty::Measured };
        Fault {
            rule: NAME,
            method: native.name(),
            cost: native.cost(native.waited_ns() as f64 * share, CostKind::Wait, certainty),
            what: format!("its threads wait for locks {} times a second", units::rate(native.per_second(waits))),
            evidence: format!(
                "{} waits for a lock or condition (futex) in {} calls; its threads waited {} in all",
                units::count(rounded(waits)),
                units::count(native.calls()),
                units::duration(native.waited_ns())
            ),
            stack: Vec::new(),
            advice: "hold the lock for less, divide what it guards, or give each thread its own; `nprof record --native-stacks` shows \
                     which lock it is"
                .to_owned(),
        }
    })
}

fn of_monitors(measured: &Measured<'_>) -> impl Iterator<Item = Fault> {
    measured.callers(|name| name == "MonitorEnter").into_iter().map(|(method, uses)| {
        let waited_ns = sum_of(&uses, |sum| sum.self_ns.saturating_sub(sum.on_cpu_ns));
        Fault {
            rule: NAME,
            method: measured.name(method),
            cost: FaultCost {
                ns_per_s: rounded(measured.per_second(waited_ns)),
                kind: CostKind::Wait,
                certainty: certainty(&uses, Certainty::Measured),
            },
            what: "waits for Java objects that other threads have locked (MonitorEnter)".to_owned(),
            evidence: format!("MonitorEnter {}", units::count(rounded(sum_of(&uses, |sum| sum.calls)))),
            stack: Vec::new(),
            advice: "hold the object's lock for less, or lock in Java, where it can be seen (jstack, JFR)".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::Certainty;

    /// Check that the waiting is divided by what was waited for, and that a method whose purpose is to wait is none.
    #[test]
    fn part_of_the_waiting() {
        let mut sample = Sample::seconds(10);
        sample.native("store", 1_000, 900_000_000);
        sample.row(NATIVE).off_cpu_ns = Some(800_000_000);
        assert_eq!(find(&sample.measured()), []);
        sample.consumed(Counter::LockWaits, 500);
        sample.consumed(Counter::VoluntarySwitches, 1_000);
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.certainty), (40_000_000, Certainty::About));
        sample.consumed(Counter::LockWaits, 1_000);
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.certainty), (80_000_000, Certainty::Measured));
        sample.consumed(Counter::InvoluntarySwitches, 1_000);
        assert_eq!(sample.only(find).cost.ns_per_s, 40_000_000, "what was taken off the CPU did not wait");
        let mut rare = sample.clone();
        rare.consumed(Counter::LockWaits, 9);
        assert_eq!(find(&rare.measured()), []);
        let mut short = Sample::seconds(1);
        short.native("store", 80, 9_000_000);
        for (waits, faults) in [(1, 0), (4, 0), (5, 1)] {
            short.consumed(Counter::LockWaits, waits);
            short.consumed(Counter::VoluntarySwitches, waits);
            assert_eq!(find(&short.measured()).len(), faults, "{waits} waits in a second");
        }
        sample.row(NATIVE).methods[0].method.class = "jdk.internal.misc.Unsafe".into();
        sample.row(NATIVE).methods[0].method.name = "park".into();
        assert_eq!(find(&sample.measured()), []);
    }

    /// Check that waiting for Java objects is found by the function that does it.
    #[test]
    fn of_java() {
        let mut sample = Sample::seconds(10);
        sample.native("sync", 1_000, 1_000_000);
        let function = sample.function("MonitorEnter", 1_000);
        sample.used(Some(NATIVE), function, |used| {
            (used.calls, used.timed, used.total_ns, used.off_ns) = (1_000, 1_000, 60_000_000, 50_000_000);
        });
        assert_eq!(sample.only(find).cost.ns_per_s, 5_000_000);
    }
}
