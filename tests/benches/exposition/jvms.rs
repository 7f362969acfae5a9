//! Twenty JVMs of five hundred methods, as they would have been measured.

use std::time::Duration;

use nprof::export::{Host, Limits, Measured, samples};
use nprof::model::{Histogram, MethodSnapshot};

/// How many JVMs, each with its own labels.
pub(crate) const JVMS: u32 = 20;
/// How many methods of each, which all have been called.
pub(crate) const METHODS: u32 = 500;
/// The buckets that a method's calls are in: from 0.5 us to 30 us, four per octave.
const BUCKETS: std::ops::Range<i32> = 36..60;
/// The library's name, as a label is as long.
const LIBRARY: &str = "libexample.so";

/// What bounds the series: nothing here.
pub(crate) fn limits() -> Limits {
    Limits { series_per_jvm: METHODS as usize, ..samples::limits() }
}

/// The host that they run on.
pub(crate) fn host() -> Host {
    Host { jvms: JVMS as usize, probes: (JVMS * METHODS) as usize, ..samples::host() }
}

/// All JVMs.
pub(crate) fn measured() -> Vec<Measured> {
    (0..JVMS).map(jvm).collect()
}

fn jvm(number: u32) -> Measured {
    let mut snapshot = samples::jvm(number + 1, (0..METHODS).map(method).collect());
    snapshot.cost = Some(Duration::from_millis(20));
    snapshot.cpu = Some(Duration::from_secs(30));
    samples::measured(&format!("com.example.shop.Service{number}"), snapshot)
}

fn method(index: u32) -> MethodSnapshot {
    let buckets: Vec<(i32, u64)> = BUCKETS.zip(1 + u64::from(index)..).collect();
    let calls = buckets.iter().map(|(_, calls)| calls).sum();
    let class = format!("com.example.shop.Native{}", index / 10);
    MethodSnapshot {
        methods: vec![samples::planned(&class, &format!("method{index}"))],
        library: LIBRARY.to_owned(),
        total_ns: calls * 5_123,
        self_ns: Some(calls * 4_321),
        probe_ns: calls * 432,
        max_ns: 30_000,
        histogram: Histogram { buckets },
        ..samples::function(index, &class, calls)
    }
}
