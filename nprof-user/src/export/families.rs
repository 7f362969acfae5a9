//! The metrics, one row each: name, kind, unit, labels and what it means. Everything that is said about a metric, in a
//! scrape or in `docs/metrics.md`, comes from here.

use prometheus_client::metrics::MetricType;

/// One metric with all its series.
#[derive(Debug)]
pub(super) struct Family {
    /// The name, without the `_total` of counters.
    pub(super) name: &'static str,
    /// What kind of numbers: counters only rise, until nprof restarts; a histogram has call times by duration.
    pub(super) kind: MetricType,
    /// The unit, which the name ends with; empty where there is none.
    pub(super) unit: &'static str,
    /// The labels, for people.
    pub(super) labels: &'static str,
    /// What it means.
    pub(super) help: &'static str,
}

impl Family {
    /// What the name of a sample ends with.
    pub(super) fn suffix(&self) -> &'static str {
        if matches!(self.kind, MetricType::Counter) { "_total" } else { "" }
    }

    /// Whether each method has its own series.
    pub(super) fn is_of_methods(&self) -> bool {
        self.labels.starts_with(METHOD)
    }
}

/// The labels of what is known of one method; `signature` only if it is asked for.
const METHOD: &str = "JVM, class, method, library";

/// Writes the table: each row has one name, and its place is the number of that.
macro_rules! families {
    ($($id:ident $name:literal $kind:ident $unit:literal $labels:tt $help:literal)*) => {
        /// The families by their places in [`TABLE`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Id { $($id),* }

        /// All families, in the order of output.
        pub(super) static TABLE: &[Family] = &[
            $(Family { name: $name, kind: MetricType::$kind, unit: $unit, labels: $labels, help: $help }),*
        ];
    };
}

families! {
    NativeCalls "nprof_native_calls" Counter "" METHOD
        "Calls of native methods: timed calls once they have ended, calls that are only counted as soon as they start."
    NativeCallDuration "nprof_native_call_duration_seconds" Histogram "seconds" METHOD
        "Wall-clock duration of timed calls, from entry to return, including the overhead of the probes."
    NativeCallSelf "nprof_native_call_self_seconds" Counter "seconds" METHOD
        "Self time of timed calls: their duration minus that of nested calls to other traced native methods, including the overhead of the probes."
    NativeCallProbe "nprof_native_call_probe_seconds" Counter "seconds" METHOD
        "Probe overhead contained in the duration and the self time of timed calls, as measured on this machine. Subtract it to get net times."
    NativeCallsInFlight "nprof_native_calls_in_flight" Gauge "" METHOD
        "Timed calls that have started and not returned yet."
    NativeCallsUntimed "nprof_native_calls_untimed" Counter "" METHOD
        "Calls without a duration, because they were only counted or their return was not seen. Exported only for methods with such calls."
    NativeUnwatched "nprof_native_unwatched_seconds" Counter "seconds" METHOD
        "Time during which calls went unseen because the method was switched off or its probe was detached. Exported only for methods with such a gap."
    NativeCallsEstimated "nprof_native_calls_estimated" Counter "" METHOD
        "Estimated calls of a method that is too expensive to watch. They went unseen and are in no other series. Updated with each look. Exported only for methods with such calls."
    NativeCallsEstimatedError "nprof_native_calls_estimated_error" Gauge "" METHOD
        "Error of nprof_native_calls_estimated_total, up or down: one standard deviation."
    NativeCallEstimated "nprof_native_call_estimated_seconds" Counter "seconds" METHOD
        "Estimated duration of the unseen calls, without the overhead of the probes. Exported only for methods that a look has timed."
    NativeCallEstimatedError "nprof_native_call_estimated_error_seconds" Gauge "seconds" METHOD
        "Error of nprof_native_call_estimated_seconds_total, up or down: one standard deviation."
    DemotedMethod "nprof_demoted_method" Gauge "" "JVM, class, method, library, state"
        "1 for each method that is currently measured in less detail than requested because tracing it costs too much."
    Methods "nprof_methods" Gauge "" "JVM, state"
        "Traced native functions by state: timed, counted, off or detached."
    SkippedMethods "nprof_skipped_methods" Gauge "" "JVM, reason"
        "Selected native methods that are not traced, by reason."
    SeriesHidden "nprof_series_hidden" Gauge "" "JVM"
        "Methods of running JVMs that are aggregated into method=\"other\" because the series limit was reached."
    Overhead "nprof_overhead_seconds" Counter "seconds" "JVM"
        "Estimated time that tracing has added to the JVM's threads."
    JvmCpu "nprof_jvm_cpu_seconds" Counter "seconds" "JVM"
        "CPU time used by the JVM while traced, including the tracing overhead."
    Jvms "nprof_jvms" Gauge "" ""
        "Number of traced JVMs."
    UntracedJvms "nprof_untraced_jvms" Gauge "" ""
        "Number of running JVMs that are selected but cannot be traced."
    JoiningJvms "nprof_joining_jvms" Gauge "" ""
        "Number of JVMs that nprof is attaching to, or that are queued for it. If this stays above zero, a JVM is blocking nprof."
    JoinsGivenUp "nprof_joins_given_up" Counter "" ""
        "JVMs that nprof gave up on because attaching took too long."
    ReadsGivenUp "nprof_reads_given_up" Counter "" ""
        "Reads of a process's memory or files that were abandoned because they blocked, for example on a FUSE file system."
    StuckReads "nprof_stuck_reads" Gauge "" ""
        "Abandoned reads that are still blocked, each in its own helper process. Their targets are not read until they finish."
    Probes "nprof_probes" Gauge "" ""
        "Number of native functions with an attached probe."
    Losses "nprof_losses" Counter "" "reason"
        "Events that were not measured correctly, by reason. All zero in a clean run."
    Demotions "nprof_demotions" Counter "" ""
        "Times that a method was demoted because tracing it cost too much."
    Promotions "nprof_promotions" Counter "" ""
        "Times that a demoted method was promoted, fully or in part."
    ProbeCost "nprof_probe_cost_seconds" Gauge "seconds" ""
        "Measured cost of the probes for one timed call."
    OverheadBudget "nprof_overhead_budget_ratio" Gauge "ratio" ""
        "Maximum tracing overhead per JVM, as a fraction of the JVM's own time. Absent if unlimited."
    SeriesLimit "nprof_series_limit" Gauge "" ""
        "Maximum number of methods with their own series per set of JVM labels. The rest share method=\"other\"."
    BuildInfo "nprof_build_info" Gauge "" "version"
        "Always 1, labelled with the version of nprof."
    StartTime "nprof_start_time_seconds" Gauge "seconds" ""
        "Unix time in seconds at which nprof started measuring."
    ProcessCpu "process_cpu_seconds" Counter "seconds" ""
        "Total user and system CPU time spent by nprof."
    ProcessOpenFds "process_open_fds" Gauge "" ""
        "Number of open file descriptors of nprof."
    ProcessMaxFds "process_max_fds" Gauge "" ""
        "Maximum number of open file descriptors of nprof."
    ProcessVirtualMemory "process_virtual_memory_bytes" Gauge "bytes" ""
        "Virtual memory size of nprof."
    ProcessResidentMemory "process_resident_memory_bytes" Gauge "bytes" ""
        "Resident memory size of nprof."
    ProcessThreads "process_threads" Gauge "" ""
        "Number of threads in nprof."
    ProcessStartTime "process_start_time_seconds" Gauge "seconds" ""
        "Unix time in seconds at which the nprof process started."
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::TABLE;

    /// Check that the families of methods are the first, as they are written first, and that there are others.
    #[test]
    fn methods_come_first() {
        assert!(TABLE.is_sorted_by_key(|family| !family.is_of_methods()));
        assert_eq!(TABLE.iter().filter(|family| family.is_of_methods()).count(), 12);
    }

    /// Check what all names must be: different, with the unit at their end and nothing at it that a format adds.
    #[test]
    fn names_are_legal() {
        let mut seen = HashSet::new();
        for family in TABLE {
            let name = family.name;
            assert!(seen.insert(name), "{name} is there twice");
            assert!(name.starts_with("nprof_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{name}");
            assert!(name.ends_with(family.unit), "{name}");
            assert!(
                !["_total", "_bucket", "_count", "_sum", "_created"].iter().any(|end| name.ends_with(end)),
                "{name}"
            );
            assert!(family.help.ends_with('.'), "{name}");
        }
    }
}
