//! OTLP: the same series as messages of `opentelemetry.proto.metrics.v1`, in requests of limited size.
//!
//! Counters are cumulative monotonic sums with their start, labels are attributes of points, and what is known of the host
//! and of nprof is the resource. Call durations are exponential histograms, and here nothing has to be rounded: scale 2 has
//! the bounds 2^(i/4) of whatever the unit is, and with nanoseconds as the unit these are the bounds that nprof measures
//! with. So this one metric has another unit and name than a scrape, which is bound to seconds (`native`).

use std::mem::take;

use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus_client::metrics::MetricType;
use prost::Message as _;

use crate::export::distribution::Distribution;
use crate::export::exposition::Exposition;
use crate::export::families::Family;
use crate::export::labels::Labels;
use crate::export::series::{Series, Value, as_float};

/// The points of one request take about as many bytes. Collectors refuse 20 MiB, and gRPC, to which one may pass it on, 4.
const REQUEST_BYTES: usize = 1 << 20;
/// 2^2 buckets per octave.
const SCALE: i32 = 2;
/// The zero bucket holds calls of 0 and 1, nanoseconds or bytes.
const ZERO_THRESHOLD: f64 = 1.0;

/// Who says it.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The host's name.
    pub host: String,
    /// The process id of nprof.
    pub pid: u32,
}

impl Origin {
    /// This process.
    #[must_use]
    pub fn here() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { host, pid: std::process::id() }
    }

    /// The resource by the names of OpenTelemetry. The instance tells hosts apart: series that do not have it would be one.
    fn resource(&self) -> Resource {
        let attributes = vec![
            attribute("service.name", "nprof"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("service.instance.id", &self.host),
            attribute("host.name", &self.host),
            attribute("os.type", "linux"),
            KeyValue {
                key: "process.pid".to_owned(),
                value: Some(AnyValue { value: Some(any_value::Value::IntValue(self.pid.into())) }),
                ..KeyValue::default()
            },
        ];
        Resource { attributes, ..Resource::default() }
    }
}

impl Exposition {
    /// Hands out requests of `opentelemetry.proto.collector.metrics.v1`, each with the number of points in it, made one at a
    /// time. All points have the time `at`.
    pub fn otlp(&self, origin: &Origin, at: Timestamp, each: impl FnMut(&[u8], u64)) {
        let mut requests = Requests::new(origin, each);
        for (family, series) in self.families() {
            let mut points = Points::new(family.kind);
            for one in series.iter() {
                let point = Point::new(&one, self.began(&one.labels), at);
                let length = point.encoded_len();
                if requests.bytes > 0 && requests.bytes + length > REQUEST_BYTES {
                    requests.add(family, points.take());
                    requests.finish();
                }
                requests.bytes += length;
                points.push(point);
            }
            requests.add(family, points.take());
        }
        requests.finish();
    }
}

/// The request at hand, and where it goes.
struct Requests<F> {
    resource: Resource,
    metrics: Vec<Metric>,
    points: u64,
    /// About how long the request will be.
    bytes: usize,
    each: F,
}

impl<F: FnMut(&[u8], u64)> Requests<F> {
    fn new(origin: &Origin, each: F) -> Self {
        Self { resource: origin.resource(), metrics: Vec::new(), points: 0, bytes: 0, each }
    }

    fn add(&mut self, family: &Family, data: (metric::Data, u64)) {
        let (data, points) = data;
        if points > 0 {
            let (name, unit) = name_and_unit(family);
            let description = family.help.to_owned();
            self.metrics.push(Metric { name, description, unit, data: Some(data), ..Metric::default() });
            self.points += points;
        }
    }

    fn finish(&mut self) {
        if self.metrics.is_empty() {
            return;
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let scope = InstrumentationScope { name: "nprof".to_owned(), version, ..InstrumentationScope::default() };
        let metrics = take(&mut self.metrics);
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let of_resource = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
        let request = ExportMetricsServiceRequest { resource_metrics: vec![of_resource] };
        (self.each)(&request.encode_to_vec(), take(&mut self.points));
        self.bytes = 0;
    }
}

/// A series at one moment.
enum Point {
    Number(NumberDataPoint),
    Histogram(ExponentialHistogramDataPoint),
}

impl Point {
    fn new(series: &Series, began: Timestamp, at: Timestamp) -> Self {
        let attributes = attributes(&series.labels);
        let (start_time_unix_nano, time_unix_nano) = (unix_nanoseconds(began), unix_nanoseconds(at));
        let value = match &series.value {
            Value::Durations(of, _) | Value::Bytes(of) => {
                return Self::Histogram(ExponentialHistogramDataPoint {
                    attributes,
                    start_time_unix_nano,
                    time_unix_nano,
                    ..histogram(of)
                });
            }
            Value::Whole(n) => Some(number_data_point::Value::AsInt(i64::try_from(*n).unwrap_or(i64::MAX))),
            other => other.number().map(number_data_point::Value::AsDouble),
        };
        let point = NumberDataPoint { attributes, start_time_unix_nano, time_unix_nano, value, ..Default::default() };
        Self::Number(point)
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Number(point) => point.encoded_len(),
            Self::Histogram(point) => point.encoded_len(),
        }
    }
}

/// Points of one family.
struct Points {
    kind: MetricType,
    numbers: Vec<NumberDataPoint>,
    histograms: Vec<ExponentialHistogramDataPoint>,
}

impl Points {
    fn new(kind: MetricType) -> Self {
        Self { kind, numbers: Vec::new(), histograms: Vec::new() }
    }

    fn push(&mut self, point: Point) {
        match point {
            Point::Number(mut point) => {
                if !matches!(self.kind, MetricType::Counter) {
                    point.start_time_unix_nano = 0;
                }
                self.numbers.push(point);
            }
            Point::Histogram(point) => self.histograms.push(point),
        }
    }

    /// The points so far as the data of a metric, and how many they are.
    fn take(&mut self) -> (metric::Data, u64) {
        let points = self.numbers.len() + self.histograms.len();
        let cumulative = AggregationTemporality::Cumulative.into();
        let data_points = take(&mut self.numbers);
        let data = match self.kind {
            MetricType::Histogram => metric::Data::ExponentialHistogram(ExponentialHistogram {
                data_points: take(&mut self.histograms),
                aggregation_temporality: cumulative,
            }),
            MetricType::Counter => {
                metric::Data::Sum(Sum { data_points, aggregation_temporality: cumulative, is_monotonic: true })
            }
            _ => metric::Data::Gauge(Gauge { data_points }),
        };
        (data, points as u64)
    }
}

/// Our bucket `i` holds what is above 2^((i-1)/4) and at most 2^(i/4), nanoseconds or bytes; OTLP numbers buckets by their lower bound.
fn histogram(of: &Distribution) -> ExponentialHistogramDataPoint {
    let (zero, above): (Vec<_>, Vec<_>) = of.buckets().iter().partition(|(index, _)| *index <= 0);
    let positive = above.first().zip(above.last()).map(|((first, _), (last, _))| {
        let mut bucket_counts = vec![0; usize::try_from(last - first).unwrap_or_default() + 1];
        for (index, n) in &above {
            bucket_counts[usize::try_from(index - first).unwrap_or_default()] = *n;
        }
        Buckets { offset: first - 1, bucket_counts }
    });
    ExponentialHistogramDataPoint {
        count: of.count(),
        sum: Some(as_float(of.sum)),
        scale: SCALE,
        zero_count: zero.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n)),
        zero_threshold: ZERO_THRESHOLD,
        positive,
        ..ExponentialHistogramDataPoint::default()
    }
}

/// Name and unit as OpenTelemetry has them, the unit by UCUM. A plain number has none: a gauge of unit 1 is a ratio to
/// receivers, which say so in the name that they give it.
fn name_and_unit(family: &Family) -> (String, String) {
    let (name, unit) = match (family.kind, family.name.strip_suffix("seconds")) {
        (MetricType::Histogram, Some(name)) => (format!("{name}nanoseconds"), "ns"),
        _ => (family.name.to_owned(), ucum(family.unit)),
    };
    (name, unit.to_owned())
}

fn ucum(unit: &'static str) -> &'static str {
    match unit {
        "seconds" => "s",
        "bytes" => "By",
        "ratio" => "1",
        other => other,
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.pairs().map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn unix_nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
