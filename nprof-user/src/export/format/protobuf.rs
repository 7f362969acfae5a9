//! The Protobuf format: messages of `io.prometheus.client`, each after its length. Histograms carry both their classic
//! buckets and the native ones, so that a scraper can take either.
//!
//! The messages are written down here with the numbers of their fields in `metrics.proto` of Prometheus' client model;
//! fields that nprof never sets are left out.

use prost::Message;

use crate::export::durations::{CLASSIC, Durations, classic_bound_seconds};
use crate::export::exposition::{Exposition, Series, Value};
use crate::export::families::{Family, Kind};
use crate::export::native::{self, Native};

/// Writes the Protobuf format. One family is built at a time: together they would take more memory than their bytes.
pub(in crate::export) fn protobuf(exposition: &Exposition) -> Vec<u8> {
    let mut out = Vec::new();
    for (family, series) in exposition.families() {
        out.extend(message(family, series).encode_length_delimited_to_vec());
    }
    out
}

fn message(family: &Family, series: &[Series]) -> MetricFamily {
    MetricFamily {
        name: Some(format!("{}{}", family.name, family.suffix())),
        help: Some(family.help.to_owned()),
        kind: Some(match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        } as i32),
        metric: series.iter().map(|series| metric(family.kind, series)).collect(),
        unit: (!family.unit.is_empty()).then(|| family.unit.to_owned()),
    }
}

fn metric(kind: Kind, series: &Series) -> Metric {
    let pairs = series.labels.pairs();
    let label = pairs.map(|(name, value)| LabelPair { name: Some(name.to_owned()), value: Some(value.to_owned()) });
    let mut metric = Metric { label: label.collect(), ..Metric::default() };
    let value = match &series.value {
        Value::Durations(durations) => {
            metric.histogram = Some(histogram(durations));
            return metric;
        }
        Value::Whole(n) => as_float(*n),
        Value::Nanoseconds(ns) => seconds(*ns),
        Value::Share(share) => *share,
    };
    match kind {
        Kind::Counter => metric.counter = Some(Counter { value: Some(value) }),
        Kind::Gauge | Kind::Histogram => metric.gauge = Some(Gauge { value: Some(value) }),
    }
    metric
}

fn histogram(durations: &Durations) -> Histogram {
    let native = Native::new(durations);
    let bounds = CLASSIC.iter().map(|(last, _)| classic_bound_seconds(*last)).zip(durations.cumulative());
    Histogram {
        sample_count: Some(durations.count()),
        sample_sum: Some(seconds(durations.sum_ns)),
        bucket: bounds.map(|(bound, n)| Bucket { cumulative_count: Some(n), upper_bound: Some(bound) }).collect(),
        schema: Some(native::SCHEMA),
        zero_threshold: Some(native::ZERO_THRESHOLD),
        zero_count: Some(native.zero_count),
        positive_span: native
            .spans
            .iter()
            .map(|&(offset, length)| BucketSpan { offset: Some(offset), length: Some(length) })
            .collect(),
        positive_delta: native.deltas,
    }
}

#[expect(clippy::cast_precision_loss, reason = "the format has floats only; exact below 2^53")]
fn as_float(n: u64) -> f64 {
    n as f64
}

/// Nanoseconds in seconds, rounded once.
fn seconds(ns: u64) -> f64 {
    as_float(ns) / 1e9
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(enumeration = "MetricType", optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, optional, tag = "5")]
    unit: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Counter>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Gauge {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Counter {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    upper_bound: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::export::exporter::samples;
    use crate::export::format::Format;

    fn decoded(mut bytes: &[u8]) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        while !bytes.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
        }
        families
    }

    /// A metric in one line, with all that is set in it.
    fn line(metric: &Metric) -> String {
        let Metric { label, gauge, counter, histogram } = metric;
        let labels: Vec<String> = label.iter().map(|pair| format!("{}={:?}", pair.name(), pair.value())).collect();
        let mut line = labels.join(" ");
        for (kind, value) in [("gauge", gauge.map(|g| g.value())), ("counter", counter.map(|c| c.value()))] {
            if let Some(value) = value {
                write!(line, " {kind} {value}").unwrap();
            }
        }
        if let Some(h) = histogram {
            let buckets: Vec<(u64, f64)> = h.bucket.iter().map(|b| (b.cumulative_count(), b.upper_bound())).collect();
            let spans: Vec<(i32, u32)> = h.positive_span.iter().map(|s| (s.offset(), s.length())).collect();
            let (schema, zero, threshold) = (h.schema(), h.zero_count(), h.zero_threshold());
            write!(line, " count {} sum {} classic {buckets:?}", h.sample_count(), h.sample_sum()).unwrap();
            write!(line, " schema {schema} zero {zero} of {threshold:e}").unwrap();
            write!(line, " spans {spans:?} deltas {:?}", h.positive_delta).unwrap();
        }
        line
    }

    /// Check what a decoder reads, for a host with one of everything.
    #[test]
    fn protobuf_of_everything() {
        let mut text = String::new();
        for family in decoded(&samples::everything().encode(Format::Protobuf)) {
            writeln!(text, "{} {:?} {:?}: {}", family.name(), family.kind(), family.unit(), family.help()).unwrap();
            for metric in &family.metric {
                writeln!(text, "    {}", line(metric).trim()).unwrap();
            }
        }
        samples::assert_golden("metrics.protobuf", include_str!("golden/metrics.protobuf"), &text);
    }

    /// Check what Prometheus demands of a native histogram: its buckets and the zero bucket add up to its count.
    #[test]
    fn native_buckets_add_up() {
        let families = decoded(&samples::everything().encode(Format::Protobuf));
        let histograms: Vec<&Histogram> =
            families.iter().flat_map(|family| &family.metric).filter_map(|metric| metric.histogram.as_ref()).collect();
        assert!(histograms.iter().any(|h| h.positive_span.len() > 1));
        for histogram in histograms {
            let mut count = 0;
            let mut sum = 0;
            for delta in &histogram.positive_delta {
                count += delta;
                assert!(count >= 0);
                sum += count;
            }
            assert_eq!(u64::try_from(sum).unwrap() + histogram.zero_count(), histogram.sample_count());
            let spanned: u32 = histogram.positive_span.iter().map(BucketSpan::length).sum();
            assert_eq!(spanned as usize, histogram.positive_delta.len());
        }
    }
}
