//! Native methods that throw, or clear, exceptions in the ordinary course.

use nprof_common::Counter;

use crate::diagnose::measured::{Measured, Used, certainty, rounded};
use crate::model::{Certainty, CostKind, Fault, FaultCost, JniFamily};
use crate::render::units;

pub(super) const NAME: &str = "exceptions";

/// The least that an exception takes: it is an object, with the stack of its thread in it.
const LEAST_NS: f64 = 1_000.0;

/// The native methods. What is pending is known of traced ones alone.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let callers = measured.callers(|name| matches!(JniFamily::of(name), JniFamily::Exceptions | JniFamily::LookUps));
    let natives = measured.natives().map(|native| {
        let uses = callers.iter().find(|(method, _)| *method == Some(native.place));
        let uses = uses.map_or(&[][..], |(_, uses)| uses.as_slice());
        let pending = native.of_a_call(&[Counter::Exceptions]) * native.calls() as f64;
        (Some(native.place), Thrown { pending, cleared: cleared(uses) }, uses)
    });
    let outside = callers.iter().filter(|(method, _)| method.is_none());
    let outside = outside.map(|(method, uses)| (*method, Thrown { pending: 0.0, cleared: cleared(uses) }, &uses[..]));
    let thrown = natives.chain(outside).filter(|(_, thrown, _)| thrown.all() > 0.0);
    thrown.map(|(method, thrown, uses)| of(measured, method, thrown, uses)).collect()
}

/// Exceptions of a native method.
#[derive(Debug, Clone, Copy)]
struct Thrown {
    /// Left when it returned.
    pending: f64,
    /// Cleared before.
    cleared: f64,
}

impl Thrown {
    fn all(self) -> f64 {
        self.pending + self.cleared
    }
}

fn cleared(uses: &[Used<'_>]) -> f64 {
    let clears = uses.iter().filter(|used| used.name == "ExceptionClear");
    clears.map(|used| used.of_all(used.sum().effective)).sum()
}

fn of(measured: &Measured<'_>, method: Option<usize>, thrown: Thrown, uses: &[Used<'_>]) -> Fault {
    let (ns, error_ns) = uses.iter().fold((0.0, 0.0), |(ns, error_ns), used| {
        let share = share(used);
        let (sum, of_all) = (used.sum(), |seen| used.of_all(seen) * share);
        (ns + of_all(sum.on_cpu_ns), error_ns + of_all(sum.error_ns))
    });
    let least_ns = thrown.all() * LEAST_NS;
    let (ns, certainty) = if ns < error_ns.max(least_ns) {
        (least_ns, certainty(uses, Certainty::AtLeast))
    } else {
        (ns, certainty(uses, Certainty::Measured))
    };
    Fault {
        rule: NAME,
        method: measured.name(method),
        cost: FaultCost { ns_per_s: rounded(measured.per_second(ns)), kind: CostKind::Cpu, certainty },
        what: format!("{} exceptions a second in the ordinary course", units::rate(measured.per_second(thrown.all()))),
        evidence: format!(
            "{} pending when it returned, {} cleared before{}; each is made with the stack of its thread",
            units::count(rounded(thrown.pending)),
            units::count(rounded(thrown.cleared)),
            most(measured, method)
        ),
        stack: Vec::new(),
        advice:
            "return a value that says so instead; look up what may be missing once, and remember that it is missing"
                .to_owned(),
    }
}

/// The class that there are most of, as far as that is known.
fn most(measured: &Measured<'_>, method: Option<usize>) -> String {
    let class = measured.jni.thrown.iter().find(|of| of.method == method).and_then(|of| of.class.as_deref());
    class.map_or_else(String::new, |class| format!(", most often {class}"))
}

/// Which part of a function's time is that of exceptions: of look-ups that of those which found nothing.
fn share(used: &Used<'_>) -> f64 {
    let sum = used.sum();
    match JniFamily::of(used.name) {
        JniFamily::LookUps => sum.calls.saturating_sub(sum.effective) as f64 / sum.calls.max(1) as f64,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::{Certainty, JniExceptions};

    /// Check that what was left and what was cleared count, with the time of throwing and of look-ups in vain, and at least what an
    /// exception takes.
    #[test]
    fn left_and_cleared() {
        let mut sample = Sample::seconds(10);
        sample.native("parse", 10_000, 100_000_000);
        assert_eq!(find(&sample.measured()), []);
        sample.consumed(Counter::Exceptions, 6_000);
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.certainty), (600_000, Certainty::AtLeast));
        for (name, calls, vain, each_ns) in
            [("ThrowNew", 6_000, 0, 2_000), ("GetMethodID", 8_000, 4_000, 1_000), ("ExceptionClear", 5_000, 1_000, 100)]
        {
            let function = sample.function(name, calls);
            sample.used(Some(NATIVE), function, |used| {
                (used.calls, used.timed, used.total_ns, used.vain) = (calls, calls, calls * each_ns, vain);
            });
        }
        let thrown = JniExceptions { method: Some(NATIVE), class: Some("a.E".to_owned()), pending: 6_000, cleared: 1 };
        sample.jni.thrown.push(thrown);
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.certainty), (1_650_000, Certainty::Measured));
        let expected = "6,000 pending when it returned, 4,000 cleared before, most often a.E; ";
        assert!(fault.evidence.starts_with(expected), "{}", fault.evidence);
    }
}
