//! One call that took far longer than all others of its method: it explains the tail.

use crate::aggregate::quantile::upper_bound_ns;
use crate::diagnose::measured::{Measured, Native, rounded};
use crate::diagnose::waiters;
use crate::model::{Certainty, CostKind, Fault, SlowCall};
use crate::render::units;

pub(super) const NAME: &str = "one-slow-call";

/// How long it has to have taken: what waits for a CPU on a busy machine takes tens of milliseconds, whatever it does.
const SLOW_NS: u64 = 50_000_000;
/// How many calls there have to be to say what is usual.
const CALLS: u64 = 20;
/// How many times as long as every other call.
const TIMES: u64 = 10;

/// The native methods. Those whose purpose it is to wait have no usual time.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    let natives = measured.natives().filter(|native| !waiters::waits(&native.method.class, &native.method.name));
    natives.filter_map(|native| of(measured, native)).collect()
}

fn of(measured: &Measured<'_>, native: Native<'_>) -> Option<Fault> {
    let (max_ns, others) = (native.row.max_ns, native.row.timed_calls().checked_sub(1)?);
    let others_ns = others_at_most(native)?;
    if others < CALLS || max_ns < SLOW_NS || others_ns.saturating_mul(TIMES) > max_ns {
        return None;
    }
    let usual_ns = native.row.total_ns.saturating_sub(max_ns) / others;
    let known = slow_call(measured, native);
    let waited_ns = known.and_then(|call| call.off_cpu_ns);
    let kind = if waited_ns.unwrap_or(native.waited_ns()) > max_ns / 2 { CostKind::Wait } else { CostKind::Cpu };
    Some(Fault {
        rule: NAME,
        method: native.name(),
        cost: native.cost(max_ns.saturating_sub(usual_ns) as f64, kind, Certainty::Measured),
        what: format!(
            "one call took {}, each of the {} others less than {}",
            units::duration(max_ns),
            units::count(others),
            units::duration(others_ns)
        ),
        evidence: evidence(native, known),
        stack: known.map_or_else(Vec::new, |call| call.callers.clone()),
        advice: "look at what it waited for or did (`nprof trace --slow`, with --args for what it was called with): it is the maximum of \
                 the method's times and, where a request makes it, of the request's"
            .to_owned(),
    })
}

/// What every call but the longest has taken at most; `None` where more than one took about as long as that.
fn others_at_most(native: Native<'_>) -> Option<u64> {
    let mut buckets = native.row.histogram.buckets.iter().rev();
    buckets.next().filter(|(_, calls)| *calls == 1)?;
    Some(rounded(upper_bound_ns(buckets.next()?.0)))
}

/// What is known of it.
fn slow_call<'a>(measured: &Measured<'a>, native: Native<'_>) -> Option<&'a SlowCall> {
    let slow = measured.jni.snapshot.slow.as_ref()?;
    let is_it = |call: &&SlowCall| call.time_ns >= native.row.max_ns / 10 * 9;
    let of_native = slow.slowest.iter().filter(|call| {
        let (one, other) = (&call.method, native.method);
        (&one.class, &one.name, &one.signature) == (&other.class, &other.name, &other.signature)
    });
    of_native.filter(is_it).max_by_key(|call| call.time_ns)
}

fn evidence(native: Native<'_>, known: Option<&SlowCall>) -> String {
    let Some(call) = known else {
        return format!("{} calls, the longest {}", units::count(native.calls()), units::duration(native.row.max_ns));
    };
    let waited = call.off_cpu_ns.map_or_else(String::new, |ns| format!(", {} of it waiting", units::duration(ns)));
    let wait = call.wait.as_ref().filter(|wait| !wait.frames.is_empty());
    let place = wait.map_or_else(String::new, |wait| {
        let frames: Vec<&str> = wait.frames.iter().take(3).map(String::as_str).collect();
        format!(", {} at once in {}", units::duration(wait.ns), frames.join(" < "))
    });
    format!("thread {} ({}), ended {}{waited}{place}", call.tid, call.thread, call.ended)
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::diagnose::testing::{NATIVE, Sample};
    use crate::model::CostKind;

    fn sample(buckets: Vec<(i32, u64)>) -> Sample {
        let mut sample = Sample::seconds(10);
        let calls = buckets.iter().map(|(_, calls)| calls).sum();
        sample.native("read", calls, 520_000_000);
        let row = sample.row(NATIVE);
        (row.max_ns, row.histogram.buckets, row.off_cpu_ns) = (500_000_000, buckets, Some(450_000_000));
        sample
    }

    /// Check that one call is found if all others are far below it, with what is known of it, and not if several are as long, if it is
    /// not that much longer, or if there are too few to say what is usual.
    #[test]
    fn one_among_many() {
        let mut one = sample(vec![(50, 1_000), (116, 1)]);
        one.slow(500_000_000, 440_000_000);
        let fault = one.only(find);
        assert_eq!((fault.cost.ns_per_s, fault.cost.kind), (49_998_000, CostKind::Wait));
        assert_eq!(fault.stack, ["a.Caller::run:7"]);
        assert!(fault.evidence.starts_with("thread 7 (worker), ended "), "{}", fault.evidence);
        for buckets in [vec![(50, 1_000), (116, 2)], vec![(50, 1_000), (105, 1), (116, 1)], vec![(50, 10), (116, 1)]] {
            assert_eq!(find(&sample(buckets).measured()), []);
        }
        one.row(NATIVE).methods[0].method.class = "java.lang.Object".into();
        one.row(NATIVE).methods[0].method.name = "wait0".into();
        assert_eq!(find(&one.measured()), []);
    }
}
