//! Made-up values: what the tests of the exporter and of the formats export, and `cargo xtask bench exposition`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Host, Limits, Measured};
use crate::model::{
    Bound, Collectors, Histogram, Jvm, JvmKind, JvmLabels, Losses, Method, MethodSnapshot, NativeCode, Pid,
    PlannedMethod, Price, Prices, ProbeCost, Pushes, Snapshot, StartTime, States, Tier, Traced, Tracing, VirtAddr,
};

/// Room for a hundred methods.
#[must_use]
pub fn limits() -> Limits {
    Limits { series_per_jvm: 100, keep_ended: Duration::from_secs(300), with_signature: false }
}

/// The function `class::call` in `liba.so` whose calls take 1.000 us each.
#[must_use]
pub fn function(index: u32, class: &str, calls: u64) -> MethodSnapshot {
    MethodSnapshot {
        index,
        tier: Tier::Kernel,
        methods: vec![planned(class, "call")],
        library: "liba.so".to_owned(),
        cost: Some(ProbeCost::Emulated),
        traced_after: Duration::ZERO,
        traced: Traced::as_wanted(Tracing::Timed),
        calls,
        counted: 0,
        in_flight: 0,
        open: None,
        untimed: 0,
        total_ns: calls * 1000,
        estimated_ns: None,
        estimated_error_ns: None,
        unseen: None,
        self_ns: Some(calls * 1000),
        probe_ns: 0,
        probe_error_ns: 0,
        price: Price::default(),
        cost_ns: Some(0),
        off_cpu_ns: None,
        consumed: None,
        bytes_per_call: None,
        threads: None,
        estimated_off_ns: None,
        max_ns: 1000,
        histogram: Histogram { buckets: if calls > 0 { vec![(40, calls)] } else { Vec::new() } },
    }
}

/// A call that took so long, in November 2023.
#[cfg(test)]
pub(super) fn exemplar(time_ns: u64) -> crate::model::Exemplar {
    let ended = Timestamp::constant(1_700_000_123, 456_000_000);
    let (thread, caller) = ("pool-1".to_owned(), "com.acme.Shop::load:17".to_owned());
    crate::model::Exemplar { method: planned("com.acme.Zip$Inner", "call").method, time_ns, ended, thread, caller }
}

/// A method without arguments, bound to an export.
#[must_use]
pub fn planned(class: &str, name: &str) -> PlannedMethod {
    let (class, name, signature) = (class.into(), name.into(), "()V".into());
    PlannedMethod {
        method: Method { id: VirtAddr(0), class, name, signature, code: NativeCode::Unbound },
        bound: Bound::Export,
    }
}

/// A JVM with these functions.
#[must_use]
pub fn jvm(pid: u32, methods: Vec<MethodSnapshot>) -> Snapshot {
    let mut states = States::default();
    states.functions[Tracing::Timed as usize] = methods.len();
    Snapshot {
        started: Timestamp::UNIX_EPOCH,
        elapsed: Duration::from_secs(10),
        jvm: Jvm {
            pid: Pid(pid),
            start_time: StartTime(u64::from(pid) * 10),
            main: "com.acme.Main".to_owned(),
            kind: JvmKind::HotSpot,
            vm_name: String::new(),
            vm_version: String::new(),
            uid: 0,
            user: None,
            container: None,
        },
        ended: false,
        downcalls: false,
        timed: true,
        traced: methods.len(),
        methods,
        states,
        cost: None,
        cpu: None,
        cost_share: None,
        prices: Prices::default(),
        collectors: Collectors::default(),
        slow: None,
        jni: None,
        programs: Vec::new(),
        skipped: Arc::default(),
        losses: Losses::default(),
    }
}

/// The snapshot under the label `jvm`.
#[must_use]
pub fn measured(name: &str, snapshot: Snapshot) -> Measured {
    Measured { labels: Arc::new(JvmLabels(vec![("jvm".to_owned(), name.to_owned())])), snapshot }
}

/// A host with one of everything, on which nprof has been running since November 2023.
#[must_use]
pub fn host() -> Host {
    Host {
        losses: Losses { counts: vec![("unreturned", 2), ("too-deep", 0)] },
        jvms: 2,
        untraced_jvms: 1,
        joining_jvms: 2,
        joins_given_up: 3,
        reads_given_up: 4,
        stuck_reads: 1,
        profiles: None,
        probes: 5,
        demotions: 3,
        promotions: 1,
        pushes: vec![Pushes { target: "otlp-metrics", outcomes: [6, 2, 1, 0], retries: 4, rejected: 7 }],
        overhead_budget: Some(0.02),
        probe_cost_ns: Some(1_450),
        started: Timestamp::constant(1_700_000_000, 250_000_000),
    }
}
