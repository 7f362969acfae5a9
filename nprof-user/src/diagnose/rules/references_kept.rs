//! References, and copies of strings and arrays, that are made and not let go: their number grows all the time.

use crate::diagnose::measured::{Measured, Used, certainty, is_partial, rounded, sum_of};
use crate::model::{Certainty, CostKind, Fault, FaultCost, JniResource, JniSnapshot, Resources};
use crate::render::units;

pub(super) const NAME: &str = "references-kept";

/// What has to be let go by native code. The VM lets go of local references itself, and critical sections cannot pile up.
const KINDS: [JniResource; 4] = [JniResource::Global, JniResource::Weak, JniResource::Chars, JniResource::Elements];
/// How many have to be left: the VM and libraries keep some from their first use on.
const LEAST_KEPT: u64 = 50;
/// How many in each second.
const LEAST_PER_SECOND: f64 = 1.0;
/// Which share of what is made has to be left.
const LEAST_SHARE: f64 = 0.05;
/// Which share of what is left has to have come in the second half: what is made once, at the beginning, is no leak.
const LEAST_LATER: f64 = 0.25;
/// The least that it takes to make one.
const LEAST_NS: f64 = 30.0;

/// One fault for each kind.
pub(super) fn find(measured: &Measured<'_>) -> Vec<Fault> {
    KINDS.into_iter().filter_map(|kind| of_kind(measured, kind)).collect()
}

/// Whether it is known how many of a kind were made and let go: all calls of the functions that do it were seen.
fn is_known(jni: &JniSnapshot, kind: JniResource) -> bool {
    let rows = jni.snapshot.methods.iter().enumerate();
    !rows.filter(|(place, _)| concerns(jni.function(*place), kind)).any(|(_, row)| is_partial(row))
}

/// Of which kinds that is not known.
pub(super) fn unknown(jni: &JniSnapshot) -> Vec<&'static str> {
    KINDS.into_iter().filter(|kind| !is_known(jni, *kind)).map(JniResource::as_str).collect()
}

fn concerns(function: &str, kind: JniResource) -> bool {
    JniResource::made_by(function) == Some(kind) || JniResource::let_go_by(function) == Some(kind)
}

fn of_kind(measured: &Measured<'_>, kind: JniResource) -> Option<Fault> {
    let jni = measured.jni;
    let Resources { made, let_go, .. } = resources(jni, kind);
    let kept = made.checked_sub(let_go).filter(|kept| *kept >= LEAST_KEPT && is_known(jni, kind))?;
    let rate = measured.per_second(kept as f64);
    if rate < LEAST_PER_SECOND || (kept as f64) < LEAST_SHARE * made as f64 || !still_grows(measured, kind, kept) {
        return None;
    }
    let (maker, most) = most_kept(measured, kind)?;
    Some(Fault {
        rule: NAME,
        method: measured.name(maker),
        cost: cost(measured, kind, kept as f64 / made.max(1) as f64),
        what: format!("{} more {} each second than are let go", units::rate(rate), noun(kind)),
        evidence: format!(
            "{} made, {} let go, most of the difference ({}) made here{}",
            units::count(made),
            units::count(let_go),
            units::count(most),
            if measured.earlier.is_some() { "; their number grew in both halves of the run" } else { "" }
        ),
        stack: Vec::new(),
        advice: format!("{}; `nprof jni` lists which methods make and which let go of them", remedy(kind)),
    })
}

fn resources(jni: &JniSnapshot, kind: JniResource) -> Resources {
    jni.resources().into_iter().find(|(resource, _)| *resource == kind).map(|(_, sums)| sums).unwrap_or_default()
}

fn still_grows(measured: &Measured<'_>, kind: JniResource, kept: u64) -> bool {
    measured.earlier.is_none_or(|earlier| {
        let Resources { made, let_go, .. } = resources(earlier, kind);
        let before = made as f64 - let_go as f64;
        kept as f64 - before >= LEAST_LATER * kept as f64
    })
}

/// Who has made the most that he has not let go himself, and how many.
fn most_kept(measured: &Measured<'_>, kind: JniResource) -> Option<(Option<usize>, u64)> {
    let kept = |uses: &[Used<'_>]| {
        let of = |makes: bool| -> u64 {
            let those = uses.iter().filter(|used| (JniResource::made_by(used.name) == Some(kind)) == makes);
            those.map(|used| used.sum().effective).sum()
        };
        of(true).saturating_sub(of(false))
    };
    let callers = measured.callers(|name| concerns(name, kind));
    callers.into_iter().map(|(method, uses)| (method, kept(&uses))).max_by_key(|(_, kept)| *kept)
}

/// The time in which what is kept was made: of the memory that it holds only its owner knows the size.
fn cost(measured: &Measured<'_>, kind: JniResource, share: f64) -> FaultCost {
    let callers = measured.callers(|name| JniResource::made_by(name) == Some(kind));
    let uses: Vec<Used<'_>> = callers.into_iter().flat_map(|(_, uses)| uses).collect();
    let (ns, error_ns) = (sum_of(&uses, |sum| sum.on_cpu_ns), sum_of(&uses, |sum| sum.error_ns));
    let least_ns = sum_of(&uses, |sum| sum.effective) * LEAST_NS;
    let (ns, certainty) = if ns < error_ns {
        (least_ns, certainty(&uses, Certainty::AtLeast))
    } else {
        (ns, certainty(&uses, Certainty::Measured))
    };
    FaultCost { ns_per_s: rounded(measured.per_second(ns * share)), kind: CostKind::Cpu, certainty }
}

fn noun(kind: JniResource) -> &'static str {
    match kind {
        JniResource::Weak => "weak references are made",
        JniResource::Chars => "copies of strings are taken",
        JniResource::Elements => "arrays' elements are taken",
        _ => "global references are made",
    }
}

fn remedy(kind: JniResource) -> &'static str {
    match kind {
        JniResource::Weak => "call DeleteWeakGlobalRef",
        JniResource::Chars => "call ReleaseStringUTFChars or ReleaseStringChars on every way out",
        JniResource::Elements => "call Release…ArrayElements on every way out (JNI_COMMIT lets nothing go)",
        _ => "call DeleteGlobalRef: until then the object cannot be collected",
    }
}

#[cfg(test)]
mod tests {
    use super::{find, unknown};
    use crate::diagnose::testing::{NATIVE, Sample};

    fn sample(made: u64, let_go: u64) -> Sample {
        let mut sample = Sample::seconds(10);
        sample.native("keep", made, 1_000_000);
        for (name, calls) in [("NewGlobalRef", made), ("DeleteGlobalRef", let_go)] {
            let function = sample.function(name, calls);
            sample.used(Some(NATIVE), function, |used| {
                (used.calls, used.timed, used.total_ns) = (calls, calls, calls * 50);
            });
        }
        sample
    }

    /// Check that what is left is found by its number, and costs what making it took.
    #[test]
    fn what_is_left() {
        let fault = sample(2_000, 1_000).only(find);
        assert_eq!((&*fault.method, fault.cost.ns_per_s), ("a.N::keep", 5_000));
        assert!(fault.what.starts_with("100 more global references"), "{}", fault.what);
        assert_eq!(fault.evidence, "2,000 made, 1,000 let go, most of the difference (1,000) made here");
        for (made, let_go) in [(1_000, 1_000), (1_000, 2_000), (1_000, 995), (49, 0), (100_000, 99_000)] {
            assert_eq!(find(&sample(made, let_go).measured()), [], "{made} {let_go}");
        }
    }

    /// Check that what was made at the beginning is no leak, nor what is not known because calls were not seen.
    #[test]
    fn only_what_grows_and_is_known() {
        let mut leak = sample(2_000, 1_000);
        leak.earlier = Some(Box::new(sample(1_000, 500).jni));
        assert_eq!(find(&leak.measured()).len(), 1);
        leak.earlier = Some(Box::new(sample(1_000, 100).jni));
        assert_eq!(find(&leak.measured()), []);
        leak.earlier = None;
        leak.row(1).counted = 1;
        assert_eq!((find(&leak.measured()), unknown(&leak.jni)), (vec![], vec!["global"]));
    }
}
