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

    /// Whether each method has series of its own.
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
        "Calls of native methods that have ended, and calls that were only counted when they began."
    NativeCallDuration "nprof_native_call_duration_seconds" Histogram "seconds" METHOD
        "Wall-clock time of the timed calls, from entry to return, with what probes have put into it."
    NativeCallSelf "nprof_native_call_self_seconds" Counter "seconds" METHOD
        "Time of the timed calls less the time in other traced native methods called from there, with what probes have put into it."
    NativeCallProbe "nprof_native_call_probe_seconds" Counter "seconds" METHOD
        "What probes have put into the duration and the self time of the timed calls, by what they cost on this machine. To be subtracted."
    NativeCallsInFlight "nprof_native_calls_in_flight" Gauge "" METHOD
        "Calls to be timed that have begun and not ended."
    NativeCallsUntimed "nprof_native_calls_untimed" Counter "" METHOD
        "Calls without a time: only counted, or their end was not seen. Only for methods that have any."
    NativeUnwatched "nprof_native_unwatched_seconds" Counter "seconds" METHOD
        "Time in which calls were not seen because the method was switched off or detached. Only for methods that have any."
    DemotedMethod "nprof_demoted_method" Gauge "" "JVM, class, method, library, state"
        "1 for each method of which less is measured now than was asked for, because tracing it costs too much."
    Methods "nprof_methods" Gauge "" "JVM, state"
        "Traced native functions by what is done at their calls."
    SkippedMethods "nprof_skipped_methods" Gauge "" "JVM, reason"
        "Selected native methods that are not traced, by reason."
    SeriesHidden "nprof_series_hidden" Gauge "" "JVM"
        "Methods of running JVMs that share the series with method=\"other\" because of the limit."
    Overhead "nprof_overhead_seconds" Counter "seconds" "JVM"
        "Estimated time that tracing has cost the JVM's threads."
    JvmCpu "nprof_jvm_cpu_seconds" Counter "seconds" "JVM"
        "CPU time that the JVM has used while it was traced, that cost included."
    Jvms "nprof_jvms" Gauge "" ""
        "JVMs that are traced."
    UntracedJvms "nprof_untraced_jvms" Gauge "" ""
        "JVMs that run and are selected but cannot be traced."
    JoiningJvms "nprof_joining_jvms" Gauge "" ""
        "JVMs that are being read and attached to, or wait for that. One that stays above zero says that JVMs keep nprof waiting."
    JoinsGivenUp "nprof_joins_given_up" Counter "" ""
        "JVMs that were left alone because it took too long to read and attach to them."
    ReadsGivenUp "nprof_reads_given_up" Counter "" ""
        "Reads of a process's memory or files that were given up because it kept them waiting, as with a file on FUSE."
    StuckReads "nprof_stuck_reads" Gauge "" ""
        "Reads that were given up and wait still, each in a small process of its own. Their targets are not read again before."
    Probes "nprof_probes" Gauge "" ""
        "Native functions that carry a probe."
    Losses "nprof_losses" Counter "" "reason"
        "Events that were not measured as they should have been, by reason. All are zero in a clean run."
    Demotions "nprof_demotions" Counter "" ""
        "Times that a method was demoted because tracing it cost too much."
    Promotions "nprof_promotions" Counter "" ""
        "Times that a demoted method was given back some of what was asked for."
    ProbeCost "nprof_probe_cost_seconds" Gauge "seconds" ""
        "Measured cost of the probes of one timed call."
    OverheadBudget "nprof_overhead_budget_ratio" Gauge "ratio" ""
        "Most that tracing may cost a JVM, as a share of its own time. Absent without such a limit."
    SeriesLimit "nprof_series_limit" Gauge "" ""
        "Methods that get series of their own, for each set of JVM labels. All others share method=\"other\"."
    BuildInfo "nprof_build_info" Gauge "" "version"
        "Always 1; the label is the version of nprof."
    StartTime "nprof_start_time_seconds" Gauge "seconds" ""
        "When nprof began to measure, in seconds since 1970."
    ProcessCpu "process_cpu_seconds" Counter "seconds" ""
        "CPU time that nprof has used."
    ProcessOpenFds "process_open_fds" Gauge "" ""
        "File descriptors that nprof holds."
    ProcessMaxFds "process_max_fds" Gauge "" ""
        "File descriptors that nprof may hold."
    ProcessVirtualMemory "process_virtual_memory_bytes" Gauge "bytes" ""
        "Virtual memory of nprof."
    ProcessResidentMemory "process_resident_memory_bytes" Gauge "bytes" ""
        "Resident memory of nprof."
    ProcessThreads "process_threads" Gauge "" ""
        "Threads of nprof."
    ProcessStartTime "process_start_time_seconds" Gauge "seconds" ""
        "When nprof was started, in seconds since 1970."
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::TABLE;

    /// Check that the families of methods are the first, as they are written first, and that there are others.
    #[test]
    fn methods_come_first() {
        assert!(TABLE.is_sorted_by_key(|family| !family.is_of_methods()));
        assert_eq!(TABLE.iter().filter(|family| family.is_of_methods()).count(), 8);
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
