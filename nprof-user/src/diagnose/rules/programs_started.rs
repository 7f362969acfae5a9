//! Programs that are started again and again.

use crate::diagnose::measured::{Measured, Native};
use crate::model::{Certainty, CostKind, Fault};
use crate::render::units;

pub(super) const NAME: &str = "programs-started";

/// The native method of the class library that starts them, whoever asks for it.
const STARTS: (&str, &str) = ("java.lang.ProcessImpl", "forkAndExec");
/// How many in a second are many: a program that asks others now and then has no fault.
const MANY: f64 = 1.0;

/// The native method.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let starts = |native: &Native<'_>| (&*native.method.class, &*native.method.name) == STARTS;
    let natives = measured.natives().filter(starts);
    natives.filter(|native| native.per_second(native.calls() as f64) >= MANY).map(of).collect()
}

fn of(native: Native<'_>) -> Fault {
    // Where nobody knows: usually the thread waits while the kernel makes the process.
    let ran = native.row.off_cpu_ns.is_some() && native.waited_ns() <= native.total_ns() / 2;
    let kind = if ran { CostKind::Cpu } else { CostKind::Wait };
    let rate = native.per_second(native.calls() as f64);
    let each = native.average_ns().map_or_else(String::new, |ns| format!(", {} until each runs", units::duration(ns)));
    Fault {
        rule: NAME,
        method: native.name(),
        cost: native.cost(native.total_ns() as f64, kind, Certainty::AtLeast),
        what: format!("starts {} programs a second{each}", units::rate(rate)),
        evidence: format!("{} calls; what these programs do comes on top", units::count(native.calls())),
        stack: Vec::new(),
        advice: "call what the class library has for it (java.nio.file.Files for chmod, ls, ln or df), or keep one program running and \
                 talk to it; `nprof record` says who starts them"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::CostKind;

    /// Check that many programs are found with what their start takes at least, and neither a few nor what has another name.
    #[test]
    fn many_programs() {
        let sample = |class: &str, calls| {
            let mut sample = Sample::seconds(10);
            sample.native("forkAndExec", calls, calls * 1_500_000);
            sample.row(NATIVE).methods[0].method.class = class.into();
            sample.row(NATIVE).off_cpu_ns = Some(calls * 1_000_000);
            sample
        };
        let fault = sample("java.lang.ProcessImpl", 460).only(find);
        assert_eq!(
            (fault.cost.ns_per_s, fault.cost.kind, &*fault.what),
            (69_000_000, CostKind::Wait, "starts 46.0 programs a second, 1.50 ms until each runs")
        );
        for (off_cpu_ns, kind) in [(Some(0), CostKind::Cpu), (None, CostKind::Wait)] {
            let mut sample = sample("java.lang.ProcessImpl", 460);
            sample.row(NATIVE).off_cpu_ns = off_cpu_ns;
            assert_eq!(sample.only(find).cost.kind, kind);
        }
        assert_eq!(find(&sample("java.lang.ProcessImpl", 9).measured()), []);
        assert_eq!(find(&sample("a.N", 460).measured()), []);
    }
}
