//! Small values for the tests of the exporter and of the formats.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{Exporter, Usage};
use crate::export::{Exposition, Format, Host, Limits, Measured};
use crate::model::{
    Bound, Histogram, Jvm, JvmKind, JvmLabels, Losses, Method, MethodSnapshot, NativeCode, Pid, PlannedMethod, Price,
    Prices, ProbeCost, SkipReason, Skipped, Snapshot, StartTime, States, Tier, Traced, Tracing, VirtAddr,
};

pub(in crate::export) fn limits() -> Limits {
    Limits { series_per_jvm: 100, keep_ended: Duration::from_secs(300), with_signature: false }
}

/// The function `class::call` in `liba.so` whose calls take 1.000 us each.
pub(in crate::export) fn function(index: u32, class: &str, calls: u64) -> MethodSnapshot {
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
        untimed: 0,
        total_ns: calls * 1000,
        estimated_ns: None,
        unseen: None,
        self_ns: Some(calls * 1000),
        probe_ns: 0,
        probe_error_ns: 0,
        price: Price::default(),
        cost_ns: Some(0),
        off_cpu_ns: 0,
        max_ns: 1000,
        histogram: Histogram { buckets: if calls > 0 { vec![(40, calls)] } else { Vec::new() } },
    }
}

fn planned(class: &str, name: &str) -> PlannedMethod {
    let (class, name, signature) = (class.to_owned(), name.to_owned(), "()V".to_owned());
    PlannedMethod {
        method: Method { id: VirtAddr(0), class, name, signature, code: NativeCode::Unbound },
        bound: Bound::Export,
    }
}

/// A JVM with these functions.
pub(in crate::export) fn jvm(pid: u32, methods: Vec<MethodSnapshot>) -> Snapshot {
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
        slow: None,
        skipped: Arc::default(),
        losses: Losses::default(),
    }
}

/// The snapshot under the label `jvm`.
pub(in crate::export) fn measured(name: &str, snapshot: Snapshot) -> Measured {
    Measured { labels: Arc::new(JvmLabels(vec![("jvm".to_owned(), name.to_owned())])), snapshot }
}

pub(in crate::export) fn host() -> Host {
    Host {
        losses: Losses { counts: vec![("unreturned", 2), ("too-deep", 0)] },
        jvms: 2,
        untraced_jvms: 1,
        joining_jvms: 2,
        joins_given_up: 3,
        reads_given_up: 4,
        stuck_reads: 1,
        probes: 5,
        demotions: 3,
        promotions: 1,
        overhead_budget: Some(0.02),
        probe_cost_ns: Some(1_450),
        started: Timestamp::from_millisecond(1_700_000_000_250).unwrap(),
    }
}

/// The samples of a scrape as lines of text, without comments.
pub(in crate::export) fn lines(exposition: &Exposition) -> Vec<String> {
    let text = String::from_utf8(exposition.encode(Format::Text)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// A scrape with one of everything: odd names, a demoted method, one that was only counted, hidden ones, skipped ones,
/// calls in flight, an ended JVM and nprof's own use.
pub(in crate::export) fn everything() -> Exposition {
    let mut busy = function(0, "com.acme.Zip$Inner", 3);
    busy.histogram.buckets = vec![(0, 1), (40, 1), (41, 7), (120, 2)];
    (busy.calls, busy.untimed, busy.in_flight) = (12, 1, 2);
    (busy.total_ns, busy.self_ns) = (2_147_490_000, Some(1_500_000_000));
    let mut odd = function(1, "a\\b", 2);
    odd.methods[0].method.name = "say \"no\"\nнет\u{1b}[0m\0\r".to_owned();
    let mut demoted = function(2, "Hot", 4);
    (demoted.traced.tracing, demoted.counted, demoted.calls) = (Tracing::Counted, 96, 100);
    demoted.traced.unwatched = Duration::from_millis(1_250);
    let mut first = jvm(1, vec![busy, odd, demoted, function(3, "Hidden", 1), function(4, "AlsoHidden", 1)]);
    first.states.functions = [1, 0, 1, 4];
    first.cost = Some(Duration::from_micros(174));
    first.cpu = Some(Duration::from_millis(8_700));
    first.skipped = vec![Skipped { method: planned("Skipped", "call"), reason: SkipReason::NoFile }].into();
    let mut labels = measured("com.acme.Main", first);
    labels.labels = Arc::new(JvmLabels(vec![
        ("jvm".to_owned(), "com.acme.Main".to_owned()),
        ("pod".to_owned(), "web-1".to_owned()),
    ]));
    let now = Instant::now();
    let mut exporter = Exporter::new(Limits { series_per_jvm: 3, ..limits() });
    exporter.retire(measured("Ended", jvm(2, vec![function(0, "A", 5)])), now);
    let usage = Usage {
        cpu_ns: Some(1_230_000_000),
        open_fds: Some(20),
        max_fds: Some(1024),
        virtual_bytes: Some(100_000_000),
        resident_bytes: Some(30_000_000),
        threads: Some(4),
        started_ns: Some(1_700_000_000_000_000_000),
    };
    exporter.collect_with(&[labels], &host(), &usage, now)
}

/// Compares with a golden file, in which control characters stand as words, and says the first line that differs.
///
/// With `NPROF_RENEW=1` in the environment the file is written instead.
pub(in crate::export) fn assert_golden(file: &str, golden: &str, actual: &str) {
    let actual = actual.replace('\u{1b}', "<ESC>").replace('\0', "<NUL>").replace('\r', "<CR>");
    if std::env::var_os("NPROF_RENEW").is_some() {
        let path = format!("{}/src/export/format/golden/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, actual).unwrap();
        return;
    }
    for (number, (expected, line)) in golden.lines().zip(actual.lines()).enumerate() {
        assert_eq!(line, expected, "{file}:{}", number + 1);
    }
    assert_eq!(actual.len(), golden.len(), "{file}: one is longer");
}
