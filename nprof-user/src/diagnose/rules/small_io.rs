//! Native methods that read or write few bytes in each call: every one of them is a call of a native method and a system call.

use nprof_common::Counter;

use crate::diagnose::measured::Measured;
use crate::model::Fault;
use crate::render::units;

pub(super) const NAME: &str = "small-io";

const BYTES: [Counter; 2] = [Counter::ReadBytes, Counter::WrittenBytes];
/// Up to how many bytes in a call are few.
const FEW: f64 = 512.0;
/// How often it has to be called in a second.
const OFTEN: f64 = 1_000.0;
/// The least that a call costs: the system call in it.
const LEAST_NS: f64 = 100.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let each = measured.natives().map(|native| (native, native.of_a_call(&BYTES)));
    let few = each
        .filter(|(native, bytes)| *bytes > 0.0 && *bytes <= FEW && native.per_second(native.calls() as f64) >= OFTEN);
    few.map(|(native, bytes)| {
        let rate = native.per_second(native.calls() as f64);
        Fault {
            rule: NAME,
            method: native.name(),
            cost: native.cpu_cost(native.calls() as f64 * LEAST_NS),
            what: format!("reads or writes {} bytes in a call, {} times a second", units::rate(bytes), units::rate(rate)),
            evidence: format!(
                "{} calls, of {} bytes read and {} written each",
                units::count(native.calls()),
                units::rate(native.of_a_call(&BYTES[..1])),
                units::rate(native.of_a_call(&BYTES[1..]))
            ),
            stack: Vec::new(),
            advice: "put a buffer around it (BufferedInputStream, BufferedOutputStream, a larger ByteBuffer): some kilobytes in a call \
                     cost about as much as one byte"
                .to_owned(),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};

    /// Check that few bytes, often, are found, and neither many, nor none, nor few now and then.
    #[test]
    fn few_bytes_often() {
        for (calls, bytes, found) in [(50_000, 50_000, 1), (50_000, 50_000 * 513, 0), (50_000, 0, 0), (9_000, 9_000, 0)]
        {
            let mut sample = Sample::seconds(10);
            sample.native("write", calls, calls * 700);
            sample.consumed(Counter::WrittenBytes, bytes);
            let faults = find(&sample.measured());
            assert_eq!(faults.len(), found, "{calls} {bytes}");
            let cost = sample.measured().natives().next().map(|native| native.row.total_ns / 10);
            assert!(faults.iter().all(|fault| Some(fault.cost.ns_per_s) == cost));
        }
        let mut sample = Sample::seconds(10);
        sample.native("write", 50_000, 50_000);
        sample.consumed(Counter::ReadBytes, 50_000);
        assert_eq!(sample.only(find).cost.ns_per_s, 500_000);
        sample.row(NATIVE).consumed = None;
        assert_eq!(find(&sample.measured()), []);
    }
}
