//! Native methods that make many system calls in each call.

use nprof_common::Counter;

use crate::diagnose::measured::Measured;
use crate::model::{Certainty, CostKind, Fault};
use crate::render::units;

pub(super) const NAME: &str = "system-calls";

/// How many in a call are many.
const MANY: f64 = 10.0;
/// The least that one takes.
const LEAST_NS: f64 = 100.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let natives = measured.natives().map(|native| (native, native.of_a_call(&[Counter::Syscalls])));
    natives
        .filter(|(_, calls)| *calls >= MANY)
        .map(|(native, calls)| Fault {
            rule: NAME,
            method: native.name(),
            cost: native.cost(calls * native.calls() as f64 * LEAST_NS, CostKind::Cpu, Certainty::AtLeast),
            what: format!(
                "{} system calls in a call, {} a second",
                units::rate(calls),
                units::rate(native.consumed_per_second(&[Counter::Syscalls]))
            ),
            evidence: format!(
                "{} calls; no system call takes less than {LEAST_NS} ns",
                units::count(native.calls())
            ),
            stack: Vec::new(),
            advice: "do more in one system call (readv, sendmmsg, io_uring), or keep what it has answered; `strace -c -f -p PID` says \
                     which they are"
                .to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::find;
    use crate::diagnose::testing::Sample;

    /// Check that many in a call are found, and few are not, however many there are in all.
    #[test]
    fn many_in_a_call() {
        let mut sample = Sample::seconds(10);
        sample.native("list", 1_000, 100_000_000);
        sample.consumed(Counter::Syscalls, 9_999);
        assert_eq!(find(&sample.measured()), []);
        sample.consumed(Counter::Syscalls, 200_000);
        assert_eq!(sample.only(find).cost.ns_per_s, 2_000_000);
    }
}
