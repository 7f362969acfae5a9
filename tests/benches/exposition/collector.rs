//! The series of methods in a registry of the crate `prometheus-client`, as a collector: the crate's way for numbers that are
//! counted elsewhere. Its histogram takes single values, and calls come in buckets already.

use std::fmt;
use std::sync::Arc;

use nprof::export::Measured;
use nprof::model::MethodSnapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// The bounds of the classic buckets that nprof has, as powers of 4 of nanoseconds.
const CLASSIC: std::ops::RangeInclusive<i32> = 4..=17;

/// What there is of all methods.
#[derive(Debug)]
struct Methods(Arc<Vec<Measured>>);

/// A registry with the same series of methods that nprof has.
pub(crate) fn registry(measured: &Arc<Vec<Measured>>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Methods(Arc::clone(measured))));
    registry
}

impl Collector for Methods {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.family(&mut encoder, "nprof_native_calls", None, MetricType::Counter, |encoder, method| {
            counter(encoder, method.calls)
        })?;
        let duration = "nprof_native_call_duration";
        self.family(&mut encoder, duration, Some(&Unit::Seconds), MetricType::Histogram, histogram)?;
        let own = "nprof_native_call_self";
        self.family(&mut encoder, own, Some(&Unit::Seconds), MetricType::Counter, |encoder, method| {
            seconds_counter(encoder, method.self_ns.unwrap_or(0) + method.probe_ns)
        })?;
        let probe = "nprof_native_call_probe";
        self.family(&mut encoder, probe, Some(&Unit::Seconds), MetricType::Counter, |encoder, method| {
            seconds_counter(encoder, method.probe_ns)
        })?;
        self.family(&mut encoder, "nprof_native_calls_in_flight", None, MetricType::Gauge, |encoder, method| {
            encoder.encode_gauge(&method.in_flight)
        })
    }
}

impl Methods {
    /// One family, of all methods of all JVMs.
    fn family(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        unit: Option<&Unit>,
        kind: MetricType,
        encode: impl Fn(&mut MetricEncoder<'_>, &MethodSnapshot) -> fmt::Result,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, "As nprof has it.", unit, kind)?;
        for jvm in self.0.iter() {
            let of_jvm = jvm.labels.0.as_slice();
            for method in &jvm.snapshot.methods {
                let named = &method.methods[0].method;
                let own = [("class", &*named.class), ("method", &*named.name), ("library", &*method.library)];
                encode(&mut family.encode_family(&(of_jvm, own))?, method)?;
            }
        }
        Ok(())
    }
}

fn counter(encoder: &mut MetricEncoder<'_>, n: u64) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, _, f64>(&n, None)
}

fn seconds_counter(encoder: &mut MetricEncoder<'_>, ns: u64) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, _, f64>(&seconds(ns), None)
}

/// Classic and native buckets, as nprof makes them.
fn histogram(encoder: &mut MetricEncoder<'_>, method: &MethodSnapshot) -> fmt::Result {
    let measured = &method.histogram.buckets;
    let calls_within = |from: i32, to: i32| -> u64 {
        measured.iter().filter(|(index, _)| (from..=to).contains(index)).map(|(_, calls)| calls).sum()
    };
    let classic = CLASSIC.map(|power| {
        let from = if power == *CLASSIC.start() { i32::MIN } else { 8 * power - 7 };
        (seconds(1 << (2 * power)), calls_within(from, 8 * power))
    });
    let classic: Vec<(f64, u64)> =
        classic.chain([(f64::INFINITY, calls_within(8 * CLASSIC.end() + 1, i32::MAX))]).collect();
    let (spans, deltas) = native(measured);
    let none = NativeHistogramBuckets { spans: &[], deltas: &[] };
    let positive = NativeHistogramBuckets { spans: &spans, deltas: &deltas };
    let native =
        NativeHistogram { schema: 3, zero_threshold: 1e-9, zero_count: 0, negative: none, positive, created: None };
    let sum = seconds(method.total_ns + method.probe_ns);
    encoder.encode_histogram_with_native::<NoLabelSet>(sum, method.timed_calls(), &classic, None, native)
}

/// Spans and deltas of neighbouring buckets, each of which becomes two.
fn native(measured: &[(i32, u64)]) -> (Vec<(i32, u32)>, Vec<i64>) {
    let counts = measured.iter().flat_map(|&(_, calls)| [calls / 2, calls - calls / 2]).map(u64::cast_signed);
    let mut before = 0;
    let deltas: Vec<i64> = counts.map(|calls| calls - std::mem::replace(&mut before, calls)).collect();
    let first = measured.first().map_or(0, |(index, _)| 2 * index - 240);
    (vec![(first, u32::try_from(deltas.len()).unwrap_or(u32::MAX))], deltas)
}

#[expect(clippy::cast_precision_loss, reason = "as the crate holds numbers")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
