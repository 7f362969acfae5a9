//! The metrics, one row each: name, kind, unit, labels and what it means. Everything that is said about a metric, in a
//! scrape or in `docs/metrics.md`, comes from here.

use std::sync::LazyLock;

use nprof_common::Counter;
use prometheus_client::metrics::MetricType;

use crate::model::{COLLECTORS, Column};

/// One metric with all its series.
#[derive(Debug)]
pub(super) struct Family {
    /// The name, without the `_total` of counters.
    pub(super) name: &'static str,
    /// What kind of numbers: counters only rise, until nprof restarts; a histogram has calls by duration or size.
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
/// The labels of what is known of one JNI function.
const JNI_FUNCTION: &str = "JVM, function, family";

/// Writes the table: each row has one name, and its place is the number of that.
macro_rules! families {
    ($($id:ident $name:literal $kind:ident $unit:literal $labels:tt $help:literal)*) => {
        /// The families by their places in [`TABLE`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Id { $($id),* }

        impl Id {
            /// Every one, by its place.
            pub(super) const ALL: &[Self] = &[$(Self::$id),*];
        }

        /// All families, in the order of output.
        pub(super) static TABLE: &[Family] = &[
            $(Family { name: $name, kind: MetricType::$kind, unit: $unit, labels: $labels, help: $help }),*
        ];
    };
}

/// What the names begin with of families of what calls have consumed; the rest is the word for the column.
const CONSUMED: &str = "nprof_native_call_";

/// Every column that can be collected, with its family.
pub(super) static COLLECTED: LazyLock<Vec<(Id, &'static Column)>> = LazyLock::new(|| {
    let columns = COLLECTORS.iter().flat_map(|collector| collector.columns);
    columns.filter_map(|column| Some((family_of(column)?, column))).collect()
});

/// The columns of bytes of which it is known how many each call has, with the counter and its family.
pub(super) static SIZES: LazyLock<Vec<(Id, Counter)>> = LazyLock::new(|| {
    let columns = COLLECTORS.iter().flat_map(|collector| collector.columns);
    let of_calls = |column: &Column| {
        let name = format!("{}_size_bytes", column.name.strip_suffix("_bytes")?);
        Some((family_named(&name)?, column.per_call?.0))
    };
    columns.filter_map(of_calls).collect()
});

fn family_of(column: &Column) -> Option<Id> {
    family_named(column.name)
}

fn family_named(name: &str) -> Option<Id> {
    let is_its = |id: &&Id| TABLE[**id as usize].name.strip_prefix(CONSUMED) == Some(name);
    Id::ALL.iter().find(is_its).copied()
}

families! {
    NativeCalls "nprof_native_calls" Counter "" METHOD
        "Calls of native methods: timed calls once they have ended, calls that are only counted as soon as they start."
    NativeCallDuration "nprof_native_call_duration_seconds" Histogram "seconds" METHOD
        "Wall-clock duration of timed calls, from entry to return, including the overhead of the probes."
    NativeCallSelf "nprof_native_call_self_seconds" Counter "seconds" METHOD
        "Self time of timed calls: their duration minus that of nested calls to other traced native methods, including the overhead of the probes."
    NativeCallOnCpu "nprof_native_call_on_cpu_seconds" Counter "seconds" METHOD
        "Part of the self time during which threads were running: work. It includes the overhead of the probes. Missing where work and waiting are not told apart: with no-off-cpu, and of methods with stubs where there is no memory for it."
    NativeCallOffCpu "nprof_native_call_off_cpu_seconds" Counter "seconds" METHOD
        "Part of the self time during which threads were not running: they waited, for something or for a CPU. Missing where the on-CPU time is."
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
    NativeCallFaults "nprof_native_call_faults" Counter "" METHOD
        "Page faults of timed calls, without those of nested calls to other traced native methods, as for all that is collected. Exported only with collect = [\"faults\"]."
    NativeCallMajorFaults "nprof_native_call_major_faults" Counter "" METHOD
        "Page faults that waited for storage. With collect = [\"faults\"]."
    NativeCallSwitches "nprof_native_call_switches" Counter "" METHOD
        "Times that the thread left its CPU. With collect = [\"switches\"]."
    NativeCallPreemptions "nprof_native_call_preemptions" Counter "" METHOD
        "Of these, times that the CPU was taken from it. With collect = [\"switches\"]."
    NativeCallReadBytes "nprof_native_call_read_bytes" Counter "bytes" METHOD
        "Bytes that read(2) and its kin returned, from files, pipes and sockets. With collect = [\"io\"]."
    NativeCallWrittenBytes "nprof_native_call_written_bytes" Counter "bytes" METHOD
        "Bytes that write(2) and its kin took. With collect = [\"io\"]."
    NativeCallDiskReadBytes "nprof_native_call_disk_read_bytes" Counter "bytes" METHOD
        "Bytes that storage had to read. With collect = [\"disk\"]."
    NativeCallDiskWrittenBytes "nprof_native_call_disk_written_bytes" Counter "bytes" METHOD
        "Bytes that storage will have to write. With collect = [\"disk\"]."
    NativeCallReceivedBytes "nprof_native_call_received_bytes" Counter "bytes" METHOD
        "Bytes received from sockets, by whichever system call. With collect = [\"net\"]."
    NativeCallSentBytes "nprof_native_call_sent_bytes" Counter "bytes" METHOD
        "Bytes sent to sockets. With collect = [\"net\"]."
    NativeCallSyscalls "nprof_native_call_syscalls" Counter "" METHOD
        "System calls. With collect = [\"syscalls\"]."
    NativeCallLockWaits "nprof_native_call_lock_waits" Counter "" METHOD
        "Waits for a lock or condition of user space (futex). With collect = [\"locks\"]."
    NativeCallMappedBytes "nprof_native_call_mapped_bytes" Counter "bytes" METHOD
        "Bytes of address space asked for by mmap(2) and mremap(2). With collect = [\"mapped\"]."
    NativeCallAllocBytes "nprof_native_call_alloc_bytes" Counter "bytes" METHOD
        "Bytes asked for by malloc and its kin. With collect = [\"alloc\"], and only as long as its probes are within the budget."
    NativeCallAllocations "nprof_native_call_allocations" Counter "" METHOD
        "Calls of malloc and its kin. With collect = [\"alloc\"], and only as long as its probes are within the budget."
    NativeCallReadSize "nprof_native_call_read_size_bytes" Histogram "bytes" METHOD
        "Bytes that each timed call read by read(2) and its kin, with those of nested calls, as for all sizes. Exported only with collect = [\"io\"], and for methods of which a call has read any; not of what stubs have timed."
    NativeCallWrittenSize "nprof_native_call_written_size_bytes" Histogram "bytes" METHOD
        "Bytes that each timed call wrote by write(2) and its kin. With collect = [\"io\"], for methods of which a call has."
    NativeCallDiskReadSize "nprof_native_call_disk_read_size_bytes" Histogram "bytes" METHOD
        "Bytes that storage had to read for each timed call. With collect = [\"disk\"], for methods of which a call has."
    NativeCallDiskWrittenSize "nprof_native_call_disk_written_size_bytes" Histogram "bytes" METHOD
        "Bytes that storage will have to write for each timed call. With collect = [\"disk\"], for methods of which a call has."
    NativeCallReceivedSize "nprof_native_call_received_size_bytes" Histogram "bytes" METHOD
        "Bytes that each timed call received from sockets. With collect = [\"net\"], for methods of which a call has."
    NativeCallSentSize "nprof_native_call_sent_size_bytes" Histogram "bytes" METHOD
        "Bytes that each timed call sent to sockets. With collect = [\"net\"], for methods of which a call has."
    NativeCallMappedSize "nprof_native_call_mapped_size_bytes" Histogram "bytes" METHOD
        "Bytes of address space that each timed call asked for. With collect = [\"mapped\"], for methods of which a call has."
    NativeCallAllocSize "nprof_native_call_alloc_size_bytes" Histogram "bytes" METHOD
        "Bytes that each timed call asked for by malloc and its kin. With collect = [\"alloc\"], for methods of which a call has."
    DemotedMethod "nprof_demoted_method" Gauge "" "JVM, class, method, library, state"
        "1 for each method that is currently measured in less detail than requested because tracing it costs too much."
    Methods "nprof_methods" Gauge "" "JVM, state"
        "Traced native functions by state: timed, sampled (one of several calls timed), counted, returned (counted at their return), off or detached."
    SkippedMethods "nprof_skipped_methods" Gauge "" "JVM, reason"
        "Selected native methods that are not traced, by reason."
    SeriesHidden "nprof_series_hidden" Gauge "" "JVM"
        "Methods of running JVMs that are aggregated into method=\"other\" because the series limit was reached."
    JniCalls "nprof_jni_calls" Counter "" JNI_FUNCTION
        "Calls of JNI functions: timed calls once they have ended, calls that are only counted as soon as they start. Exported only for JVMs selected by jni-for, as are all nprof_jni_ metrics."
    JniCallSelf "nprof_jni_call_self_seconds" Counter "seconds" JNI_FUNCTION
        "Duration of timed calls of JNI functions minus that of traced native methods that were called meanwhile, including the overhead of the probes. For functions that call Java it includes the Java code."
    JniCallOnCpu "nprof_jni_call_on_cpu_seconds" Counter "seconds" JNI_FUNCTION
        "Part of that during which threads were running. Missing with no-off-cpu."
    JniCallOffCpu "nprof_jni_call_off_cpu_seconds" Counter "seconds" JNI_FUNCTION
        "Part of that during which threads were not running: they waited, for example for a garbage collection or a lock. Missing where the on-CPU time is."
    JniCallProbe "nprof_jni_call_probe_seconds" Counter "seconds" JNI_FUNCTION
        "Probe overhead contained in these times, as measured on this machine. Subtract it to get net times: many JNI functions take less than their probes."
    JniCallsInFlight "nprof_jni_calls_in_flight" Gauge "" JNI_FUNCTION
        "Timed calls of JNI functions that have started and not returned yet."
    JniCallsUntimed "nprof_jni_calls_untimed" Counter "" JNI_FUNCTION
        "Calls of JNI functions without a duration, because they were only counted or their return was not seen. Exported only for functions with such calls."
    JniUnwatched "nprof_jni_unwatched_seconds" Counter "seconds" JNI_FUNCTION
        "Time during which calls went unseen because the JNI function was switched off or its probe was detached. Exported only for functions with such a gap."
    JniCallsEstimated "nprof_jni_calls_estimated" Counter "" JNI_FUNCTION
        "Estimated calls of a JNI function that is too expensive to watch. They are in no other series. Exported only for functions with such calls."
    JniCallsEstimatedError "nprof_jni_calls_estimated_error" Gauge "" JNI_FUNCTION
        "Error of nprof_jni_calls_estimated_total, up or down: one standard deviation."
    JniCallEstimated "nprof_jni_call_estimated_seconds" Counter "seconds" JNI_FUNCTION
        "Estimated duration of the unseen calls, without the overhead of the probes. Exported only for JNI functions that a look has timed."
    JniCallEstimatedError "nprof_jni_call_estimated_error_seconds" Gauge "seconds" JNI_FUNCTION
        "Error of nprof_jni_call_estimated_seconds_total, up or down: one standard deviation."
    DemotedJniFunction "nprof_demoted_jni_function" Gauge "" "JVM, function, family, state"
        "1 for each JNI function that is currently measured in less detail than requested because tracing it costs too much. What is known of look-ups, references, exceptions and critical sections is then too low."
    JniFunctions "nprof_jni_functions" Gauge "" "JVM, state"
        "JNI functions by state, as nprof_methods, or unseen: code that the VM has made at run time, in which there can be no probe, or that the kernel has refused to probe."
    JniRedundant "nprof_jni_redundant_lookups" Counter "" "JVM, function"
        "Timed look-ups of classes, methods and fields whose answer had been given before. Missing for methods and fields with ZGC."
    JniRedundantTime "nprof_jni_redundant_lookup_seconds" Counter "seconds" "JVM, function"
        "Time that threads ran in these look-ups, including the overhead of the probes."
    JniMade "nprof_jni_references_made" Counter "" "JVM, kind"
        "Things given to native code to be let go, by kind: global and weak references, characters of strings (utf), elements of arrays and critical holds (critical)."
    JniReleased "nprof_jni_references_released" Counter "" "JVM, kind"
        "Things that native code has let go, including those it was given before tracing began."
    JniLive "nprof_jni_references_live" Gauge "" "JVM, kind"
        "How many more of them native code holds than when tracing began; negative if it has let go of more. Of running JVMs. Missing from the first call on that was not seen of a function that makes or releases them: what it was then is not known."
    JniCritical "nprof_jni_critical_sections" Counter "" "JVM"
        "Critical sections (Get...Critical to Release...Critical) that have ended. Nested ones are a part of the outermost."
    JniCriticalTime "nprof_jni_critical_section_seconds" Counter "seconds" "JVM"
        "Time that threads were in critical sections: garbage collections may have to wait for their end."
    JniExceptions "nprof_jni_exceptions" Counter "" "JVM, class, method, exception, state"
        "Exceptions that were pending when a native method returned (state=\"pending\"), or that native code cleared before (\"cleared\"), by native method and class of the exception. method=\"none\": outside of traced native methods. exception=\"unknown\": its class could not be read."
    JniExceptionsHidden "nprof_jni_exceptions_hidden" Gauge "" "JVM"
        "Native methods with a class of exceptions, of running JVMs, that are aggregated into method=\"other\", exception=\"other\" because there are 100 others."
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
        "Number of native and JNI functions with an attached probe."
    ProfileWindows "nprof_profile_windows" Gauge "" ""
        "Number of profile windows in memory, of all JVMs. Absent without --profiles, as are the next three."
    ProfileMemory "nprof_profile_memory_bytes" Gauge "bytes" ""
        "Memory used by profile windows."
    ProfileWindowsDropped "nprof_profile_windows_dropped" Counter "" ""
        "Profile windows that were dropped before they were an hour old because the memory limit was reached."
    ProfileStacks "nprof_profile_stacks" Counter "" "state"
        "Stacks chosen for profiles: taken, or skipped because there were too many at once (over-pace) or no room in the ring (no-room). Those that could not be read after they were taken are also counted as unread."
    Losses "nprof_losses" Counter "" "reason"
        "Events that were not measured correctly, by reason. All zero in a clean run."
    Demotions "nprof_demotions" Counter "" ""
        "Times that a method was demoted because tracing it cost too much."
    Promotions "nprof_promotions" Counter "" ""
        "Times that a demoted method was promoted, fully or in part."
    Pushes "nprof_pushes" Counter "" "target, outcome"
        "Pushes by what became of them: delivered, partial (some of it was rejected), failed, or deferred because the receiver had asked for a pause. Exported only if something is pushed."
    PushRetries "nprof_push_retries" Counter "" "target"
        "Attempts to push after a first one that failed."
    PushRejectedItems "nprof_push_rejected_items" Counter "" "target"
        "Points of pushes that the receiver rejected, or that had no room in a push."
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

    use nprof_common::THREAD_COUNTERS;

    use super::{COLLECTED, SIZES, TABLE};
    use crate::model::{COLLECTORS, Column, CountedIn};

    /// Check that the families of methods are the first, as they are written first, and that there are others.
    #[test]
    fn methods_come_first() {
        assert!(TABLE.is_sorted_by_key(|family| !family.is_of_methods()));
        assert_eq!(TABLE.iter().filter(|family| family.is_of_methods()).count(), 37);
    }

    /// Check that whatever can be collected of threads has a metric, with the unit that it is counted in.
    #[test]
    fn every_column_has_a_family() {
        let columns = COLLECTORS.iter().flat_map(|collector| collector.columns);
        let of_threads = |column: &&Column| column.counters.iter().all(|of| (*of as usize) < THREAD_COUNTERS);
        assert_eq!(COLLECTED.len(), columns.filter(of_threads).count());
        let bytes = COLLECTORS.iter().flat_map(|of| of.columns).filter(|column| column.per_call.is_some());
        assert_eq!(SIZES.len(), bytes.count());
        for (id, column) in COLLECTED.iter() {
            assert_eq!(TABLE[*id as usize].unit == "bytes", column.unit == CountedIn::Bytes, "{}", column.name);
        }
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
