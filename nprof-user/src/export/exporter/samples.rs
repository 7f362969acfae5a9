//! Scrapes for the tests of the exporter and of the formats.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nprof_common::{Consumed, Counter};

use super::{Exporter, Usage};
use crate::export::samples::{exemplar, planned};
pub(in crate::export) use crate::export::samples::{function, host, jvm, limits, measured};
use crate::export::{Exposition, Format, Limits};
use crate::model::{
    BytesPerCall, Collectors, Histogram, JniReferences, JniResource, JniThrownSum, JniTotals, JvmLabels, NativeCode,
    Resources, Settled, SkipReason, Skipped, SlowCalls, States, Tracing, Unseen, VirtAddr,
};

/// A scrape as it is written in a format.
pub(in crate::export) fn written(exposition: &Exposition, format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    exposition.write(format, &mut out).unwrap();
    out
}

/// The samples of a scrape as lines of text, without comments.
pub(in crate::export) fn lines(exposition: &Exposition) -> Vec<String> {
    let text = String::from_utf8(written(exposition, Format::Text)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// A scrape with one of everything: odd names, a demoted method, one that was only counted, hidden ones, skipped ones,
/// calls in flight, an ended JVM and nprof's own use.
pub(in crate::export) fn everything() -> Exposition {
    let mut busy = function(0, "com.acme.Zip$Inner", 3);
    busy.histogram.buckets = vec![(0, 1), (40, 1), (41, 7), (120, 2)];
    (busy.calls, busy.untimed, busy.in_flight) = (12, 1, 2);
    (busy.total_ns, busy.self_ns, busy.off_cpu_ns) = (2_147_490_000, Some(1_500_000_000), Some(400_000_000));
    let mut consumed = Consumed::default();
    (consumed.own[Counter::ReadBytes as usize], consumed.own[Counter::Syscalls as usize]) = (4_096, 7);
    consumed.total = consumed.own;
    busy.consumed = Some(Box::new(consumed));
    let histogram = Histogram { buckets: vec![(41, 3), (42, 1)] };
    busy.bytes_per_call = Some(vec![BytesPerCall { counter: Counter::ReadBytes, max: 1_100, histogram }]);
    let mut odd = function(1, "a\\b", 2);
    odd.methods[0].method.name = "say \"no\"\nнет\u{1b}[0m\0\r".into();
    let mut demoted = function(2, "Hot", 4);
    (demoted.traced.tracing, demoted.counted, demoted.calls) = (Tracing::Counted, 96, 100);
    demoted.traced.unwatched = Duration::from_millis(1_250);
    let settled = Settled { calls: 5_000, total_ns: 1_500_000 };
    demoted.unseen =
        Some(Unseen { calls: 5_400, error_calls: 300, total_ns: 1_620_000, error_ns: Some(120_000), settled });
    let mut first = jvm(1, vec![busy, odd, demoted, function(3, "Hidden", 1), function(4, "AlsoHidden", 1)]);
    first.states.functions = [1, 0, 0, 1, 0, 4];
    first.collectors = Collectors::named(&["io"]).unwrap();
    first.cost = Some(Duration::from_micros(174));
    first.cpu = Some(Duration::from_millis(8_700));
    let mut exemplars = [400, 900, 1_000_000_000].map(exemplar).to_vec();
    // The method has been bound anew since these calls.
    exemplars.iter_mut().for_each(|of| of.method.code = NativeCode::Bound(VirtAddr(0x1000)));
    first.slow = Some(SlowCalls { exemplars, ..SlowCalls::default() });
    first.jni = Some(Box::new(asked()));
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

/// What native code has asked of a VM: a look-up that is demoted, references of which fewer are held than before, and exceptions.
fn asked() -> JniTotals {
    let mut row = function(500, "JNIEnv", 9);
    row.methods[0].method.name = "GetMethodID".into();
    (row.traced.tracing, row.counted, row.calls) = (Tracing::Counted, 5, 14);
    let sums = Resources { made: 7, let_go: 9, made_before: 0 };
    let references = vec![JniReferences { resource: JniResource::Global, sums, is_whole: true }];
    let method = Some(("com.acme.Zip$Inner".into(), "call".into()));
    let thrown = vec![JniThrownSum { method, class: Some("java.io.IOException".to_owned()), pending: 3, cleared: 1 }];
    let (mut states, redundant) = (States::default(), vec![("GetMethodID".into(), [8, 4_000])]);
    states.functions[Tracing::Counted as usize] = 1;
    let critical = [2, 1_500_000_000];
    JniTotals { functions: vec![row], states, unseen: 8, redundant, references, critical, thrown }
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
