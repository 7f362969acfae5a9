//! What a record means: the numbers of one row, derived from what the tiers have counted.

use std::time::Duration;

use nprof_common::{Consumed, MethodStats, ThreadCalls};

use super::by_thread;
use crate::model::{
    BytesPerCall, Histogram, MethodSnapshot, PlannedMethod, Price, ProbeCost, StubPrice, Tier, Traced, Unseen,
};

/// What is known of a row besides its record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct About {
    pub index: u32,
    pub methods: Vec<PlannedMethod>,
    pub library: String,
    pub cost: Option<ProbeCost>,
    /// What the probes of one call cost.
    pub price: Price,
    /// What the stub of one call costs.
    pub stub_price: StubPrice,
    pub traced_after: Duration,
    pub traced: Traced,
    /// Whether it is measured how long threads do not run, by all who have recorded something.
    pub off_cpu: bool,
    /// Whether it is known which calls are nested in which.
    pub nested: bool,
    /// The time of the calls that were only counted, if it is estimated.
    pub estimated_ns: Option<u64>,
    /// How far that may be off, if it is known.
    pub estimated_error_ns: Option<u64>,
    /// What is estimated of the time in which nobody watched.
    pub unseen: Option<Unseen>,
    /// In which share of the time that is estimated threads did not run, as far as is known.
    pub waited: Option<f64>,
    /// What the timed calls have consumed besides time, where that is collected.
    pub consumed: Option<Box<Consumed>>,
    /// How many bytes each call moved, where that is collected.
    pub bytes_per_call: Option<Vec<BytesPerCall>>,
    /// The calls by thread, where these are told apart.
    pub threads: Option<Vec<(u32, ThreadCalls)>>,
}

/// What has been recorded for a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recorded<'a> {
    Kernel(&'a MethodStats),
    Stub(&'a MethodStats),
    Both(&'a MethodStats, &'a MethodStats),
}

/// The report of one row.
///
/// Calls that have ended are those in the histogram and the untimed ones; what has begun and is in neither is in
/// flight. Calls that were only counted are calls too, and nobody looks for their ends.
///
/// What probes and stubs have put into the times is taken off, call for call, as far as there is own time that it can be a part of, and a nanosecond of it stays for each:
/// the time of further traced calls, and time off the CPU where that was measured, is none. Nor does a total ever become
/// less than the longest call.
pub(super) fn method(recorded: Recorded<'_>, about: About) -> MethodSnapshot {
    let (stats, tier) = match recorded {
        Recorded::Kernel(stats) => (*stats, Tier::Kernel),
        Recorded::Stub(stats) => (*stats, Tier::Stub),
        Recorded::Both(kernel, stub) => (sum(kernel, stub), Tier::Both),
    };
    let ended = stats.histogram.iter().sum::<u64>() + stats.untimed;
    let buckets = (0i32..).zip(stats.histogram).filter(|&(_, count)| count != 0);
    let About { index, methods, library, cost, price, stub_price, traced_after, traced, off_cpu, .. } = about;
    let About { estimated_ns, estimated_error_ns, unseen, waited, consumed, nested, threads, bytes_per_call, .. } =
        about;
    let estimated_all_ns = estimated_ns.unwrap_or(0).saturating_add(unseen.map_or(0, |unseen| unseen.total_ns));
    let probes = Probes::of(recorded, price, stub_price);
    let total_ns = stats.total_ns.saturating_sub(probes.part_ns);
    MethodSnapshot {
        index,
        tier,
        methods,
        library,
        cost: cost.filter(|_| tier != Tier::Stub),
        traced_after,
        traced,
        counted: stats.counted,
        calls: stats.counted + ended,
        in_flight: stats.entered.saturating_sub(ended),
        open: None,
        untimed: stats.untimed,
        total_ns,
        estimated_ns,
        estimated_error_ns,
        unseen,
        self_ns: nested.then(|| total_ns.saturating_sub(stats.child_ns)),
        probe_ns: probes.part_ns,
        probe_error_ns: probes.error_ns,
        price: if tier == Tier::Stub { stub_price.rounded() } else { price },
        cost_ns: Some(probes.cost_ns),
        off_cpu_ns: off_cpu.then_some(stats.off_ns),
        estimated_off_ns: waited.filter(|_| off_cpu).map(|share| part(share, estimated_all_ns)),
        consumed,
        bytes_per_call,
        threads: threads.map(|threads| by_thread::parts(&threads, probes.part_ns, off_cpu)),
        max_ns: probes.max_ns,
        histogram: Histogram { buckets: buckets.collect() },
    }
}

/// A share of a time.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; the cast saturates")]
fn part(share: f64, ns: u64) -> u64 {
    (share.clamp(0.0, 1.0) * ns as f64) as u64
}

/// What the probes or stubs of a row's calls have done to its times.
struct Probes {
    /// Their part of the total.
    part_ns: u64,
    /// How far that may be off.
    error_ns: u64,
    /// What they have cost.
    cost_ns: u64,
    /// The longest call without their part.
    max_ns: u64,
}

impl Probes {
    fn of(recorded: Recorded<'_>, price: Price, stub_price: StubPrice) -> Self {
        match recorded {
            Recorded::Kernel(kernel) => Self::of_probe(kernel, price),
            Recorded::Stub(stub) => Self::of_stub(stub, stub_price),
            Recorded::Both(kernel, stub) => Self::of_probe(kernel, price).and(&Self::of_stub(stub, stub_price)),
        }
    }

    fn of_stub(stub: &MethodStats, price: StubPrice) -> Self {
        let timed: u64 = stub.histogram.iter().sum();
        // Here too a nanosecond of each call stays.
        let own_ns = own_ns(stub).saturating_sub(timed);
        let [part_ns, error_ns] = price.inside(timed);
        let [inside_ns, _] = price.inside(1);
        let max_ns = stub.max_ns.saturating_sub(inside_ns);
        Self {
            part_ns: part_ns.min(own_ns).min(stub.total_ns.saturating_sub(max_ns)),
            error_ns,
            cost_ns: price.of_calls(stub.entered, stub.counted),
            max_ns,
        }
    }

    fn and(self, other: &Self) -> Self {
        Self {
            part_ns: self.part_ns.saturating_add(other.part_ns),
            error_ns: self.error_ns.saturating_add(other.error_ns),
            cost_ns: self.cost_ns.saturating_add(other.cost_ns),
            max_ns: self.max_ns.max(other.max_ns),
        }
    }

    fn of_probe(kernel: &MethodStats, price: Price) -> Self {
        let timed: u64 = kernel.histogram.iter().sum();
        // No call takes no time: what was called stays visible in a picture of times.
        let own_ns = own_ns(kernel).saturating_sub(timed);
        let longest_ns = kernel.max_ns.saturating_sub(price.inside_ns);
        Self {
            part_ns: price.inside_ns.saturating_mul(timed).min(own_ns).min(kernel.total_ns.saturating_sub(longest_ns)),
            error_ns: price.inside_error_ns.saturating_mul(timed),
            cost_ns: price.of_calls(kernel.entered, kernel.counted),
            max_ns: longest_ns,
        }
    }
}

/// The time that may have the part of probes and stubs in it: the calls' own, while their threads ran, as far as that is known.
fn own_ns(stats: &MethodStats) -> u64 {
    stats.total_ns.saturating_sub(stats.child_ns).saturating_sub(stats.off_ns)
}

/// Two records as one.
pub(super) fn sum(one: &MethodStats, other: &MethodStats) -> MethodStats {
    let mut histogram = one.histogram;
    for (count, more) in histogram.iter_mut().zip(other.histogram) {
        *count += more;
    }
    MethodStats {
        counted: one.counted + other.counted,
        entered: one.entered + other.entered,
        untimed: one.untimed + other.untimed,
        total_ns: one.total_ns.saturating_add(other.total_ns),
        child_ns: one.child_ns.saturating_add(other.child_ns),
        max_ns: one.max_ns.max(other.max_ns),
        off_ns: one.off_ns.saturating_add(other.off_ns),
        histogram,
        ..MethodStats::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tracing;

    fn about() -> About {
        About {
            index: 3,
            methods: Vec::new(),
            library: "libx.so".to_owned(),
            cost: Some(ProbeCost::Emulated),
            price: Price { timed_ns: 90, counted_ns: 50, inside_ns: 30, inside_error_ns: 4 },
            stub_price: StubPrice { timed_ns: 25.0, passed_ns: 2.5, ..StubPrice::default() },
            traced_after: Duration::ZERO,
            traced: Traced::as_wanted(Tracing::Timed),
            off_cpu: true,
            nested: true,
            estimated_ns: None,
            estimated_error_ns: None,
            unseen: None,
            waited: None,
            consumed: None,
            bytes_per_call: None,
            threads: None,
        }
    }

    fn stats() -> MethodStats {
        let stats = MethodStats { counted: 40, entered: 10, untimed: 2, ..MethodStats::ZERO };
        let mut stats = MethodStats { total_ns: 900, child_ns: 300, off_ns: 70, max_ns: 500, ..stats };
        stats.histogram[30] = 4;
        stats.histogram[36] = 1;
        stats
    }

    /// Check that calls, calls in flight and self time are what the record says.
    #[test]
    fn derives_from_record() {
        let report = method(Recorded::Kernel(&stats()), about());
        assert_eq!((report.calls, report.counted, report.in_flight, report.untimed), (47, 40, 3, 2));
        assert_eq!(
            (report.total_ns, report.self_ns, report.off_cpu_ns, report.max_ns),
            (750, Some(450), Some(70), 470)
        );
        let report = method(Recorded::Kernel(&stats()), About { off_cpu: false, ..about() });
        assert_eq!(report.off_cpu_ns, None);
        assert_eq!((report.probe_ns, report.probe_error_ns, report.cost_ns), (150, 20, Some(10 * 90 + 40 * 50)));
        assert_eq!(report.histogram.buckets, [(30, 4), (36, 1)]);
        assert_eq!((report.tier, report.cost), (Tier::Kernel, Some(ProbeCost::Emulated)));
    }

    /// Check that the records of both tiers are added up, the longest call is the longer one, calls in flight are those of
    /// both, and that no self time is claimed.
    #[test]
    fn both_tiers_are_one_row() {
        let mut stub = MethodStats { counted: 5, entered: 4, total_ns: 100, max_ns: 700, ..MethodStats::ZERO };
        stub.histogram[36] = 3;
        let report = method(Recorded::Both(&stats(), &stub), About { nested: false, ..about() });
        assert_eq!((report.calls, report.counted, report.in_flight, report.untimed), (55, 45, 4, 2));
        assert_eq!((report.total_ns, report.self_ns, report.max_ns), (850, None, 700));
        assert_eq!((report.probe_ns, report.probe_error_ns, report.cost_ns), (150, 20, Some(2900 + 113)));
        assert_eq!(report.histogram.buckets, [(30, 4), (36, 4)]);
        assert_eq!((report.tier, report.cost), (Tier::Both, Some(ProbeCost::Emulated)));
        let report = method(Recorded::Stub(&stub), about());
        assert_eq!((report.cost, report.cost_ns, report.price), (None, Some(113), about().stub_price.rounded()));
        assert_eq!((report.total_ns, report.max_ns, report.probe_ns, report.probe_error_ns), (100, 700, 0, 0));
        let stub_price = StubPrice { inside_ns: 8.5, inside_error_ns: 1.5, ..about().stub_price };
        stub.max_ns = 50;
        let report = method(Recorded::Stub(&stub), About { stub_price, ..about() });
        assert_eq!((report.total_ns, report.max_ns, report.probe_ns, report.probe_error_ns), (74, 41, 26, 5));
        stub.total_ns = 20;
        let report = method(Recorded::Stub(&stub), About { stub_price, ..about() });
        assert_eq!((report.total_ns, report.probe_ns), (20, 0), "no call takes no time");
    }

    /// Check that no more is taken off than there is own time on the CPU, and that the longest call is never below zero:
    /// what the function called, and what it waited for, was not its probes.
    #[test]
    fn takes_off_no_more_than_there_is() {
        let price = Price { inside_ns: 1000, ..about().price };
        let report = method(Recorded::Kernel(&stats()), About { price, ..about() });
        assert_eq!((report.total_ns, report.self_ns, report.max_ns), (375, Some(75), 0));
        assert_eq!(report.probe_ns, 525);
        let one_long = MethodStats { total_ns: 1100, child_ns: 0, off_ns: 0, max_ns: 1000, ..stats() };
        let report = method(Recorded::Kernel(&one_long), About { price: Price { inside_ns: 250, ..price }, ..about() });
        assert_eq!((report.total_ns, report.self_ns, report.max_ns, report.probe_ns), (750, Some(750), 750, 350));
        let empty = method(Recorded::Kernel(&MethodStats::ZERO), about());
        assert_eq!((empty.total_ns, empty.probe_ns, empty.probe_error_ns, empty.cost_ns), (0, 0, 0, Some(0)));
    }
}
