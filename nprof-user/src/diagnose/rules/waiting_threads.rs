//! Native methods in which many threads wait at a time, and not for locks. How many is sound to say: the time that they waited, by the
//! time that passed.

use super::lock_waits;
use crate::diagnose::measured::Measured;
use crate::diagnose::waiters;
use crate::model::{Certainty, CostKind, Fault};
use crate::render::units;

pub(super) const NAME: &str = "waiting-threads";

/// How many threads have to wait on average.
const THREADS: f64 = 2.0;
/// Which share of their time in the method.
const SHARE: f64 = 0.8;
/// How often it has to be called in a second: who waits for long at a time may have nothing to do.
const OFTEN: f64 = 10.0;

/// The native methods.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let natives = measured.natives().filter(|native| !waiters::waits(&native.method.class, &native.method.name));
    natives
        .filter_map(|native| {
            let [_, share] = lock_waits::shares(native);
            let waited_ns = native.waited_ns() as f64 * share;
            let certainty = if share < 1.0 { Certainty::About } else { Certainty::Measured };
            let threads = native.per_second(waited_ns) / 1e9;
            let rate = native.per_second(native.calls() as f64);
            if threads < THREADS || rate < OFTEN || waited_ns < SHARE * native.total_ns() as f64 {
                return None;
            }
            Some(Fault {
                rule: NAME,
                method: native.name(),
                cost: native.cost(waited_ns, CostKind::Wait, certainty),
                what: format!("{threads:.1} threads wait in it at a time, on average"),
                evidence: format!(
                    "{} calls ({} a second), {} in all, {} of it waiting",
                    units::count(native.calls()),
                    units::rate(rate),
                    units::duration(native.total_ns()),
                    units::duration(native.waited_ns())
                ),
                stack: Vec::new(),
                advice: "have fewer threads wait: one that asks for many, an asynchronous interface, a pool of the size that what is \
                         waited for can serve; `nprof trace --slow` says what they wait for"
                    .to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use nprof_common::Counter;

    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};

    /// Check that the number of threads is the waiting by the time, and that rare calls, work, locks, and methods whose purpose is to wait
    /// are no fault.
    #[test]
    fn threads_at_a_time() {
        let mut sample = Sample::seconds(10);
        sample.native("ask", 1_000, 32_000_000_000);
        sample.row(NATIVE).off_cpu_ns = Some(31_000_000_000);
        let fault = sample.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.what.split(' ').next()), (3_100_000_000, Some("3.1")));
        for change in [
            |sample: &mut Sample| sample.row(NATIVE).calls = 50,
            |sample: &mut Sample| sample.row(NATIVE).off_cpu_ns = Some(24_000_000_000),
            |sample: &mut Sample| {
                sample.consumed(Counter::LockWaits, 1_000);
                sample.consumed(Counter::VoluntarySwitches, 1_000);
            },
            |sample: &mut Sample| {
                let method = &mut sample.row(NATIVE).methods[0].method;
                (method.class, method.name) = ("sun.nio.ch.Net".into(), "accept".into());
            },
        ] {
            let mut other = sample.clone();
            change(&mut other);
            assert_eq!(find(&other.measured()), []);
        }
    }
}
