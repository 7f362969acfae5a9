//! The Protobuf format: messages of `io.prometheus.client`, each after its length. Histograms carry both their classic
//! buckets and the native ones, so that a scraper can take either.
//!
//! The registry is written by its crate, `prometheus-client`. The families of methods are written here, in the crate's
//! messages, of which there is one at a time: all of them together are several times as much memory as their bytes
//! (`docs/decisions/8-what-the-registry-holds.md`).

use std::io::{self, Write};

use prometheus_client::encoding::prometheus_protobuf::encode_to_vec;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
    self, Bucket, BucketSpan, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily,
};
use prometheus_client::metrics::MetricType;
use prost::{Message, encode_length_delimiter};

use crate::export::distribution::{By, Distribution};
use crate::export::exposition::{AllSeries, Exposition};
use crate::export::families::Family;
use crate::export::native::Native;
use crate::export::series::{Series, as_float, seconds};

/// Writes the Protobuf format.
pub(in crate::export) fn protobuf(exposition: &Exposition, out: &mut impl Write) -> io::Result<()> {
    for (family, series) in exposition.families().filter(|(family, _)| family.is_of_methods()) {
        push_family(out, family, series)?;
    }
    out.write_all(&encode_to_vec(&exposition.registry).map_err(io::Error::other)?)
}

/// Writes a family after its length. Messages that stand behind each other are one, with the metrics of all. Each is made
/// twice, as the length comes first: less than it takes to keep them.
fn push_family(out: &mut impl Write, family: &Family, series: AllSeries<'_>) -> io::Result<()> {
    let head = MetricFamily {
        name: format!("{}{}", family.name, family.suffix()),
        help: family.help.to_owned(),
        r#type: prometheus_data_model::MetricType::from(family.kind).into(),
        unit: family.unit.to_owned(),
        metric: Vec::new(),
    };
    let mut one = One::default();
    let length = series.iter().map(|series| one.with(family.kind, &series).encoded_len()).sum::<usize>();
    let mut bytes = Vec::new();
    encode_length_delimiter(head.encoded_len() + length, &mut bytes)?;
    head.encode(&mut bytes)?;
    for series in series.iter() {
        one.with(family.kind, &series).encode(&mut bytes)?;
        out.write_all(&bytes)?;
        bytes.clear();
    }
    out.write_all(&bytes)
}

/// A message with one metric, which is that of one series after the other: its texts and lists keep their memory.
#[derive(Default)]
struct One(MetricFamily);

impl One {
    fn with(&mut self, kind: MetricType, series: &Series) -> &MetricFamily {
        let metrics = &mut self.0.metric;
        metrics.resize_with(1, Metric::default);
        fill(&mut metrics[0], kind, series);
        &self.0
    }
}

fn fill(metric: &mut Metric, kind: MetricType, series: &Series) {
    metric.label.resize_with(series.labels.pairs().count(), LabelPair::default);
    for (pair, (name, value)) in metric.label.iter_mut().zip(series.labels.pairs()) {
        name.clone_into(&mut pair.name);
        value.clone_into(&mut pair.value);
    }
    (metric.counter, metric.gauge) = match (kind, series.value.number()) {
        (MetricType::Counter, Some(value)) => (Some(Counter { value, ..Counter::default() }), None),
        (_, value) => (None, value.map(|value| Gauge { value })),
    };
    match series.value.distribution() {
        Some((by, of)) => fill_histogram(metric.histogram.get_or_insert_default(), by, of),
        None => metric.histogram = None,
    }
}

fn fill_histogram(histogram: &mut Histogram, by: By, of: &Distribution) {
    let Native { schema, zero_threshold, zero_count, spans, deltas } = Native::new(by, of);
    let classic = by.classic().iter().zip(of.cumulative(by.classic()));
    let bucket = |(&(last, _), n): (&(i32, _), _)| Bucket {
        cumulative_count: n,
        upper_bound: by.bound(last),
        ..Bucket::default()
    };
    let mut buckets = std::mem::take(&mut histogram.bucket);
    buckets.clear();
    buckets.extend(classic.map(bucket));
    *histogram = Histogram {
        sample_count: of.count(),
        sample_sum: if by == By::Time { seconds(of.sum) } else { as_float(of.sum) },
        bucket: buckets,
        schema,
        zero_threshold,
        zero_count,
        positive_span: spans.into_iter().map(|(offset, length)| BucketSpan { offset, length }).collect(),
        positive_delta: deltas,
        ..Histogram::default()
    };
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

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
        let Metric { label, gauge, counter, histogram, .. } = metric;
        let labels: Vec<String> = label.iter().map(|pair| format!("{}={:?}", pair.name, pair.value)).collect();
        let mut line = labels.join(" ");
        for (kind, value) in [("gauge", gauge.map(|g| g.value)), ("counter", counter.as_ref().map(|c| c.value))] {
            if let Some(value) = value {
                write!(line, " {kind} {value}").unwrap();
            }
        }
        if let Some(h) = histogram {
            let buckets: Vec<(u64, f64)> = h.bucket.iter().map(|b| (b.cumulative_count, b.upper_bound)).collect();
            let spans: Vec<(i32, u32)> = h.positive_span.iter().map(|s| (s.offset, s.length)).collect();
            let (schema, zero, threshold) = (h.schema, h.zero_count, h.zero_threshold);
            write!(line, " count {} sum {} classic {buckets:?}", h.sample_count, h.sample_sum).unwrap();
            write!(line, " schema {schema} zero {zero} of {threshold:e}").unwrap();
            write!(line, " spans {spans:?} deltas {:?}", h.positive_delta).unwrap();
        }
        line
    }

    /// Check what a decoder reads, for a host with one of everything.
    #[test]
    fn protobuf_of_everything() {
        let mut text = String::new();
        for family in decoded(&samples::written(&samples::everything(), Format::Protobuf)) {
            writeln!(text, "{} {:?} {:?}: {}", family.name, family.r#type(), family.unit, family.help).unwrap();
            for metric in &family.metric {
                writeln!(text, "    {}", line(metric).trim()).unwrap();
            }
        }
        samples::assert_golden("metrics.protobuf", include_str!("golden/metrics.protobuf"), &text);
    }

    /// Check what Prometheus demands of a native histogram: its buckets and the zero bucket add up to its count.
    #[test]
    fn native_buckets_add_up() {
        let families = decoded(&samples::written(&samples::everything(), Format::Protobuf));
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
            assert_eq!(u64::try_from(sum).unwrap() + histogram.zero_count, histogram.sample_count);
            let spanned: u32 = histogram.positive_span.iter().map(|span| span.length).sum();
            assert_eq!(spanned as usize, histogram.positive_delta.len());
        }
    }
}
