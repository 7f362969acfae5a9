//! Twenty JVMs of five hundred methods, as they would have been measured.

use std::sync::Arc;
use std::time::Duration;

use nprof::export::{Host, Limits, Measured};
use nprof::model::{
    Bound, Histogram, Jvm, JvmKind, JvmLabels, Losses, Method, MethodSnapshot, NativeCode, Pid, PlannedMethod, Price,
    Prices, Snapshot, StartTime, States, Tier, Traced, Tracing, VirtAddr,
};

/// How many JVMs, each with labels of its own.
pub(crate) const JVMS: u32 = 20;
/// How many methods of each, which all have been called.
pub(crate) const METHODS: u32 = 500;
/// The buckets that a method's calls are in: from 0.5 us to 30 us, four per octave.
const BUCKETS: std::ops::Range<i32> = 36..60;
/// The library's name, as a label is as long.
const LIBRARY: &str = "libexample.so";

/// What bounds the series: nothing here.
pub(crate) fn limits() -> Limits {
    Limits { series_per_jvm: METHODS as usize, keep_ended: Duration::from_secs(300), with_signature: false }
}

/// The host that they run on.
pub(crate) fn host() -> Host {
    Host {
        losses: Losses::default(),
        jvms: JVMS as usize,
        untraced_jvms: 0,
        joining_jvms: 0,
        joins_given_up: 0,
        reads_given_up: 0,
        stuck_reads: 0,
        probes: (JVMS * METHODS) as usize,
        demotions: 0,
        promotions: 0,
        overhead_budget: Some(0.02),
        probe_cost_ns: Some(950),
        started: jiff::Timestamp::UNIX_EPOCH,
    }
}

/// All JVMs.
pub(crate) fn measured() -> Vec<Measured> {
    (0..JVMS).map(jvm).collect()
}

fn jvm(number: u32) -> Measured {
    let labels = vec![("jvm".to_owned(), format!("com.example.shop.Service{number}"))];
    let snapshot = Snapshot {
        started: jiff::Timestamp::UNIX_EPOCH,
        elapsed: Duration::from_secs(60),
        jvm: Jvm {
            pid: Pid(number + 1),
            start_time: StartTime(u64::from(number)),
            main: String::new(),
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
        traced: METHODS as usize,
        methods: (0..METHODS).map(method).collect(),
        states: States::default(),
        cost: Some(Duration::from_millis(20)),
        cpu: Some(Duration::from_secs(30)),
        cost_share: None,
        prices: Prices::default(),
        slow: None,
        skipped: Arc::default(),
        losses: Losses::default(),
    };
    Measured { labels: Arc::new(JvmLabels(labels)), snapshot }
}

fn method(index: u32) -> MethodSnapshot {
    let buckets: Vec<(i32, u64)> = BUCKETS.zip(1 + u64::from(index)..).collect();
    let calls = buckets.iter().map(|(_, calls)| calls).sum();
    let (class, name) = (format!("com.example.shop.Native{}", index / 10), format!("method{index}"));
    let method = Method { id: VirtAddr(0), class, name, signature: "()V".to_owned(), code: NativeCode::Unbound };
    MethodSnapshot {
        index,
        tier: Tier::Kernel,
        methods: vec![PlannedMethod { method, bound: Bound::Export }],
        library: LIBRARY.to_owned(),
        cost: None,
        traced_after: Duration::ZERO,
        traced: Traced::as_wanted(Tracing::Timed),
        calls,
        counted: 0,
        in_flight: 0,
        untimed: 0,
        total_ns: calls * 5_123,
        estimated_ns: None,
        unseen: None,
        self_ns: Some(calls * 4_321),
        probe_ns: calls * 432,
        probe_error_ns: 0,
        price: Price::default(),
        cost_ns: None,
        off_cpu_ns: 0,
        max_ns: 30_000,
        histogram: Histogram { buckets },
    }
}
