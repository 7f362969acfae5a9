//! What was measured, as rules ask for it: native methods with their numbers in each second, and what they have asked of the VM.

use std::time::Duration;

use nprof_common::Counter;

use crate::model::{
    Bound, Certainty, CostKind, FaultCost, JniSnapshot, JniSum, JniUse, Method, MethodSnapshot, Unseen,
};

/// What calls belong to that no traced native method has made.
const OUTSIDE: &str = "(outside of traced native methods)";

/// Everything that is known of a JVM.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// At the end.
    pub jni: &'a JniSnapshot,
    /// The same in the middle, if somebody looked.
    pub earlier: Option<&'a JniSnapshot>,
}

/// A native method that was called.
#[derive(Debug, Clone, Copy)]
pub(super) struct Native<'a> {
    /// Its place among everything that was measured.
    pub(super) place: usize,
    /// What was measured of it.
    pub(super) row: &'a MethodSnapshot,
    /// The first of its methods.
    pub(super) method: &'a Method,
    elapsed: Duration,
}

/// The calls of a JNI function by one native method.
#[derive(Debug, Clone, Copy)]
pub(super) struct Used<'a> {
    /// The function.
    pub(super) name: &'a str,
    /// The native method's place; `None` where there is none.
    pub(super) method: Option<usize>,
    /// The numbers of the calls that were seen.
    pub(super) made: &'a JniUse,
    /// How many calls there were of the function for each that was seen: 1 where all were.
    scale: f64,
}

impl<'a> Measured<'a> {
    /// The native methods.
    pub(super) fn natives(&self) -> impl Iterator<Item = Native<'a>> {
        let snapshot = &self.jni.snapshot;
        snapshot.methods.iter().enumerate().filter(|(_, row)| !is_function(row)).filter_map(move |(place, row)| {
            Some(Native { place, row, method: &row.methods.first()?.method, elapsed: snapshot.elapsed })
        })
    }

    /// The JNI functions.
    pub(super) fn functions(&self) -> impl Iterator<Item = &'a MethodSnapshot> {
        self.jni.snapshot.methods.iter().filter(|row| is_function(row))
    }

    /// Who has called JNI functions, each with the calls of those that are wanted.
    pub(super) fn callers(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<(Option<usize>, Vec<Used<'a>>)> {
        let mut callers: Vec<(Option<usize>, Vec<Used<'a>>)> = Vec::new();
        for used in self.uses().filter(|used| is_wanted(used.name)) {
            match callers.iter_mut().find(|(method, _)| *method == used.method) {
                Some((_, uses)) => uses.push(used),
                None => callers.push((used.method, vec![used])),
            }
        }
        callers
    }

    fn uses(&self) -> impl Iterator<Item = Used<'a>> {
        let jni = self.jni;
        jni.uses.iter().map(move |made| {
            let row = jni.snapshot.methods.get(made.function);
            let scale = row.map_or(1.0, |row| row.all_calls() as f64 / row.calls.max(1) as f64).max(1.0);
            Used { name: jni.function(made.function), method: made.method, made, scale }
        })
    }

    /// The name of a native method.
    pub(super) fn name(&self, place: Option<usize>) -> String {
        let method = place.and_then(|place| Some(&self.jni.snapshot.methods.get(place)?.methods.first()?.method));
        method.map_or_else(|| OUTSIDE.to_owned(), label)
    }

    /// So much in each second of the run.
    pub(super) fn per_second(&self, amount: f64) -> f64 {
        each_second(amount, self.jni.snapshot.elapsed)
    }
}

impl Native<'_> {
    /// Its class and name.
    pub(super) fn name(&self) -> String {
        label(self.method)
    }

    /// Its calls, those that nobody saw included as they are estimated.
    pub(super) fn calls(&self) -> u64 {
        self.row.all_calls()
    }

    /// Whether some of that is an estimate.
    pub(super) fn is_estimate(&self) -> bool {
        is_partial(self.row)
    }

    /// So much of its calls in each second of the time that they are known of.
    pub(super) fn per_second(&self, amount: f64) -> f64 {
        let MethodSnapshot { traced_after, traced, unseen, .. } = self.row;
        let unknown = if unseen.is_some() { Duration::ZERO } else { traced.unwatched };
        each_second(amount, self.elapsed.saturating_sub(traced_after.saturating_add(unknown)))
    }

    /// The time of all calls, as far as it is measured or estimated.
    pub(super) fn total_ns(&self) -> u64 {
        self.row.total_ns.saturating_add(self.estimated_ns())
    }

    /// The mean of the calls that this is the time of.
    pub(super) fn average_ns(&self) -> Option<u64> {
        self.of_each_timed(self.total_ns())
    }

    /// The same without what threads have waited in the method itself: on a machine that is busy with other work one call of a thousand
    /// waits for a CPU, for longer than all others take together.
    pub(super) fn average_without_waits_ns(&self) -> Option<u64> {
        self.of_each_timed(self.total_ns().saturating_sub(self.waited_ns()))
    }

    fn of_each_timed(&self, ns: u64) -> Option<u64> {
        let of_estimate = if self.row.estimated_ns.is_some() { self.row.counted } else { 0 };
        let unseen = self.row.unseen.filter(Unseen::has_time).map_or(0, |unseen| unseen.calls);
        ns.checked_div(self.row.timed_calls() + of_estimate + unseen)
    }

    /// Its own time in which threads ran; `None` where that is not known, or lost in what is not known of the probes' part.
    pub(super) fn ran_ns(&self) -> Option<u64> {
        let measured_ns = self.row.self_ns?.saturating_sub(self.row.off_cpu_ns?);
        let estimated_ns = self.estimated_ns().saturating_sub(self.row.estimated_off_ns.unwrap_or(0));
        let ran_ns = measured_ns.saturating_add(estimated_ns);
        (ran_ns > self.error_ns()).then_some(ran_ns)
    }

    /// Its own time in which threads did not run.
    pub(super) fn waited_ns(&self) -> u64 {
        self.row.off_cpu_ns.unwrap_or(0).saturating_add(self.row.estimated_off_ns.unwrap_or(0))
    }

    /// How much a timed call has counted of this, without nested calls.
    pub(super) fn of_a_call(&self, counters: &[Counter]) -> f64 {
        let own = self.row.consumed.as_deref().map_or(0, |consumed| {
            counters.iter().map(|counter| consumed.own[*counter as usize]).fold(0, u64::saturating_add)
        });
        own as f64 / self.row.timed_calls().max(1) as f64
    }

    /// The same of all calls, in each second.
    pub(super) fn consumed_per_second(&self, counters: &[Counter]) -> f64 {
        self.per_second(self.of_a_call(counters) * self.calls() as f64)
    }

    /// A cost of this many nanoseconds.
    pub(super) fn cost(&self, ns: f64, kind: CostKind, certainty: Certainty) -> FaultCost {
        let certainty = if self.is_estimate() { Certainty::About } else { certainty };
        FaultCost { ns_per_s: rounded(self.per_second(ns)), kind, certainty }
    }

    /// What it costs in CPU time: the time that threads ran in it or, where that is lost in the probes' part, the least that it can be.
    pub(super) fn cpu_cost(&self, least_ns: f64) -> FaultCost {
        match self.ran_ns() {
            Some(ran_ns) if ran_ns as f64 >= least_ns => self.cost(ran_ns as f64, CostKind::Cpu, Certainty::Measured),
            _ => self.cost(least_ns, CostKind::Cpu, Certainty::AtLeast),
        }
    }

    fn estimated_ns(&self) -> u64 {
        let unseen = self.row.unseen.map_or(0, |unseen| unseen.total_ns);
        self.row.estimated_ns.unwrap_or(0).saturating_add(unseen)
    }

    fn error_ns(&self) -> u64 {
        let parts = [self.row.unseen.and_then(|unseen| unseen.error_ns), self.row.estimated_error_ns];
        parts.into_iter().flatten().fold(self.row.probe_error_ns, u64::saturating_add)
    }
}

impl Used<'_> {
    /// The sums of the calls that were seen.
    pub(super) fn sum(&self) -> JniSum {
        self.made.into()
    }

    /// The same of all calls, as far as it grows with them.
    pub(super) fn of_all(&self, seen: u64) -> f64 {
        seen as f64 * self.scale
    }

    /// Whether not all calls were seen.
    pub(super) fn is_estimate(&self) -> bool {
        self.scale > 1.0
    }
}

/// The sum of what is asked of each.
pub(super) fn sum_of(uses: &[Used<'_>], asked: impl Fn(&JniSum) -> u64) -> f64 {
    uses.iter().map(|used| used.of_all(asked(&used.sum()))).sum()
}

/// How well a number is known that is so well known of each call of some uses: an estimate where not all calls were seen.
pub(super) fn certainty(uses: &[Used<'_>], of_each: Certainty) -> Certainty {
    if uses.iter().any(Used::is_estimate) { Certainty::About } else { of_each }
}

/// Whether a row is that of a JNI function.
pub(super) fn is_function(row: &MethodSnapshot) -> bool {
    row.methods.first().is_some_and(|method| method.bound == Bound::JniFunction)
}

/// Whether not all calls of a row were seen and timed.
pub(super) fn is_partial(row: &MethodSnapshot) -> bool {
    !row.traced.unwatched.is_zero() || row.counted > 0 || row.unseen.is_some()
}

/// A whole number of something that is not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
pub(super) fn rounded(amount: f64) -> u64 {
    amount.round() as u64
}

fn each_second(amount: f64, of: Duration) -> f64 {
    if of.is_zero() { 0.0 } else { amount / of.as_secs_f64() }
}

fn label(method: &Method) -> String {
    format!("{}::{}", method.class, method.name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::testing::{NATIVE, Sample};
    use crate::model::{Certainty, Unseen};

    /// Check that what was not seen counts as it is estimated, that a rate leaves out what nobody knows of, and that a time below its
    /// error is none.
    #[test]
    fn numbers_of_a_native() {
        let mut sample = Sample::seconds(10);
        sample.native("some", 100, 4_000);
        let row = sample.row(NATIVE);
        (row.off_cpu_ns, row.traced.unwatched) = (Some(1_000), Duration::from_secs(5));
        let of = |sample: &Sample| {
            let measured = sample.measured();
            let native = measured.natives().next().unwrap();
            let cost = native.cpu_cost(10.0);
            (native.calls(), native.ran_ns(), native.average_ns(), cost.ns_per_s, cost.certainty)
        };
        assert_eq!(of(&sample), (100, Some(3_000), Some(40), 600, Certainty::About));
        let unseen = Unseen { calls: 300, total_ns: 12_000, error_ns: Some(500), ..Unseen::default() };
        sample.row(NATIVE).unseen = Some(unseen);
        assert_eq!(of(&sample), (400, Some(15_000), Some(40), 1_500, Certainty::About));
        sample.row(NATIVE).probe_error_ns = 20_000;
        assert_eq!(of(&sample), (400, None, Some(40), 1, Certainty::About));
    }
}
