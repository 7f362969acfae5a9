//! What a record means: the numbers of one function, derived from what the BPF programs counted.

use std::time::Duration;

use crate::model::{Histogram, MethodSnapshot, Probe, Sample, Traced};

/// The report of one function: its record, and what the plan knows of it.
///
/// Calls that have ended are those in the histogram and the untimed ones; what has begun and is in neither is in
/// flight. Calls that were only counted are calls too, and nobody looks for their ends.
#[must_use]
pub fn method(sample: &Sample, probe: &Probe, library: &str, traced_after: Duration, traced: Traced) -> MethodSnapshot {
    let stats = &sample.stats;
    let ended = stats.histogram.iter().sum::<u64>() + stats.untimed;
    let buckets = (0i32..).zip(stats.histogram).filter(|&(_, count)| count != 0);
    MethodSnapshot {
        index: probe.index,
        methods: probe.methods.clone(),
        library: library.to_owned(),
        cost: probe.site.cost,
        traced_after,
        traced,
        counted: stats.counted,
        calls: stats.counted + ended,
        in_flight: stats.entered.saturating_sub(ended),
        untimed: stats.untimed,
        total_ns: stats.total_ns,
        self_ns: stats.total_ns.saturating_sub(stats.child_ns),
        off_cpu_ns: stats.off_ns,
        max_ns: stats.max_ns,
        histogram: Histogram { buckets: buckets.collect() },
    }
}

#[cfg(test)]
mod tests {
    use nprof_common::MethodStats;

    use super::*;
    use crate::model::{FileOffset, LibraryId, ProbeCost, Site, Tracing};

    /// Check that calls, calls in flight and self time are what the record says.
    #[test]
    fn derives_from_record() {
        let stats = MethodStats { counted: 40, entered: 10, untimed: 2, ..MethodStats::ZERO };
        let mut stats = MethodStats { total_ns: 900, child_ns: 300, off_ns: 70, max_ns: 500, ..stats };
        stats.histogram[30] = 4;
        stats.histogram[36] = 1;
        let offset = FileOffset(0x40);
        let site = Site { library: LibraryId(0), offset, entry: offset, cost: ProbeCost::Emulated };
        let probe = Probe { index: 3, site, methods: Vec::new() };
        let report =
            method(&Sample { record: 7, stats }, &probe, "libx.so", Duration::ZERO, Traced::as_wanted(Tracing::Timed));
        assert_eq!((report.calls, report.counted, report.in_flight, report.untimed), (47, 40, 3, 2));
        assert_eq!((report.total_ns, report.self_ns, report.off_cpu_ns, report.max_ns), (900, 600, 70, 500));
        assert_eq!(report.histogram.buckets, [(30, 4), (36, 1)]);
    }
}
