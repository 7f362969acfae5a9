//! What a record means: the numbers of one row, derived from what the tiers have counted.

use std::time::Duration;

use nprof_common::MethodStats;

use crate::model::{Histogram, MethodSnapshot, PlannedMethod, ProbeCost, Tier, Traced};

/// What is known of a row besides its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    pub index: u32,
    pub methods: Vec<PlannedMethod>,
    pub library: String,
    pub cost: Option<ProbeCost>,
    pub traced_after: Duration,
    pub traced: Traced,
    /// The time of the calls that were only counted, if it is estimated.
    pub estimated_ns: Option<u64>,
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
pub(super) fn method(recorded: Recorded<'_>, about: About) -> MethodSnapshot {
    let (stats, tier) = match recorded {
        Recorded::Kernel(stats) => (*stats, Tier::Kernel),
        Recorded::Stub(stats) => (*stats, Tier::Stub),
        Recorded::Both(kernel, stub) => (sum(kernel, stub), Tier::Both),
    };
    let ended = stats.histogram.iter().sum::<u64>() + stats.untimed;
    let buckets = (0i32..).zip(stats.histogram).filter(|&(_, count)| count != 0);
    let About { index, methods, library, cost, traced_after, traced, estimated_ns } = about;
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
        untimed: stats.untimed,
        total_ns: stats.total_ns,
        estimated_ns,
        self_ns: (tier == Tier::Kernel).then(|| stats.total_ns.saturating_sub(stats.child_ns)),
        off_cpu_ns: stats.off_ns,
        max_ns: stats.max_ns,
        histogram: Histogram { buckets: buckets.collect() },
    }
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
            traced_after: Duration::ZERO,
            traced: Traced::as_wanted(Tracing::Timed),
            estimated_ns: None,
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
        assert_eq!((report.total_ns, report.self_ns, report.off_cpu_ns, report.max_ns), (900, Some(600), 70, 500));
        assert_eq!(report.histogram.buckets, [(30, 4), (36, 1)]);
        assert_eq!((report.tier, report.cost), (Tier::Kernel, Some(ProbeCost::Emulated)));
    }

    /// Check that the records of both tiers are added up, the longest call is the longer one, calls in flight are those of
    /// both, and that no self time is claimed.
    #[test]
    fn both_tiers_are_one_row() {
        let mut stub = MethodStats { counted: 5, entered: 4, total_ns: 100, max_ns: 700, ..MethodStats::ZERO };
        stub.histogram[36] = 3;
        let report = method(Recorded::Both(&stats(), &stub), about());
        assert_eq!((report.calls, report.counted, report.in_flight, report.untimed), (55, 45, 4, 2));
        assert_eq!((report.total_ns, report.self_ns, report.max_ns), (1000, None, 700));
        assert_eq!(report.histogram.buckets, [(30, 4), (36, 4)]);
        assert_eq!((report.tier, report.cost), (Tier::Both, Some(ProbeCost::Emulated)));
        assert_eq!(method(Recorded::Stub(&stub), about()).cost, None);
    }
}
