//! What a receiver reads, by the official messages.

use std::time::Instant;

use super::*;
use crate::aggregate::quantile::upper_bound_ns;
use crate::export::Exporter;
use crate::export::exporter::samples::{everything, function, host, jvm, limits, measured};
use crate::export::families::TABLE;
use crate::model::Histogram;

const AT: Timestamp = Timestamp::constant(1_800_000_000, 5);

fn origin() -> Origin {
    Origin { host: "web-1".to_owned(), pid: 42 }
}

/// All requests, decoded, with the number of points that was said of each.
fn pushed(exposition: &Exposition) -> Vec<(ExportMetricsServiceRequest, u64)> {
    let mut requests = Vec::new();
    exposition.otlp(&origin(), AT, |bytes, points| {
        requests.push((ExportMetricsServiceRequest::decode(bytes).unwrap(), points));
    });
    requests
}

/// The metrics of requests that have one resource and one scope each.
fn metrics(requests: Vec<(ExportMetricsServiceRequest, u64)>) -> Vec<Metric> {
    let of_request = |(request, _): (ExportMetricsServiceRequest, u64)| {
        let [resource] = <[_; 1]>::try_from(request.resource_metrics).unwrap();
        let [scope] = <[_; 1]>::try_from(resource.scope_metrics).unwrap();
        scope.metrics
    };
    requests.into_iter().flat_map(of_request).collect()
}

fn named<'a>(metrics: &'a [Metric], name: &str) -> &'a Metric {
    metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn numbers(metric: &Metric) -> &[NumberDataPoint] {
    match metric.data.as_ref().unwrap() {
        metric::Data::Sum(sum) => &sum.data_points,
        metric::Data::Gauge(gauge) => &gauge.data_points,
        other => panic!("{other:?}"),
    }
}

fn histograms(metric: &Metric) -> &[ExponentialHistogramDataPoint] {
    let Some(metric::Data::ExponentialHistogram(histogram)) = &metric.data else { panic!("{:?}", metric.data) };
    assert_eq!(histogram.aggregation_temporality(), AggregationTemporality::Cumulative);
    &histogram.data_points
}

fn text(attributes: &[KeyValue]) -> String {
    let value = |pair: &KeyValue| match pair.value.clone().unwrap().value.unwrap() {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(n) => n.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|pair| format!("{}={}", pair.key, value(pair))).collect::<Vec<_>>().join(" ")
}

/// Check that every family of a scrape is there by its name, of its kind, with its unit and as many points.
#[test]
fn families_are_those_of_a_scrape() {
    let exposition = everything();
    let metrics = metrics(pushed(&exposition));
    let families: Vec<_> = exposition.families().collect();
    assert_eq!(metrics.len(), families.len());
    for ((family, series), metric) in families.into_iter().zip(&metrics) {
        assert_eq!(metric.description, family.help);
        match family.kind {
            MetricType::Histogram => {
                let expected = match family.unit {
                    "seconds" => ("nprof_native_call_duration_nanoseconds", "ns"),
                    _ => (family.name, "By"),
                };
                assert_eq!((metric.name.as_str(), metric.unit.as_str()), expected);
                assert_eq!(histograms(metric).len(), series.iter().count());
                continue;
            }
            MetricType::Counter => {
                let Some(metric::Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
                assert!(sum.is_monotonic && sum.aggregation_temporality() == AggregationTemporality::Cumulative);
            }
            _ => {
                assert!(matches!(metric.data, Some(metric::Data::Gauge(_))), "{metric:?}");
                assert!(numbers(metric).iter().all(|point| point.start_time_unix_nano == 0));
            }
        }
        assert_eq!(metric.name, family.name);
        assert_eq!(numbers(metric).len(), series.iter().count(), "{}", family.name);
        assert!(numbers(metric).iter().all(|point| point.time_unix_nano == 1_800_000_000_000_000_005));
    }
}

/// Check the units of the whole table: a receiver makes names of them.
#[test]
fn units_are_of_ucum() {
    for family in TABLE {
        let (name, unit) = name_and_unit(family);
        let end = match unit.as_str() {
            "s" => "_seconds",
            "ns" => "_nanoseconds",
            "By" => "_bytes",
            "1" => "_ratio",
            "" => "",
            other => panic!("{other} of {name}"),
        };
        assert!(name.ends_with(end), "{unit} of {name}");
    }
}

/// Check labels, whole and fractional values and the start of counters, and what the resource says.
#[test]
fn values_and_labels_are_exact() {
    let requests = pushed(&everything());
    let resource = requests[0].0.resource_metrics[0].resource.clone().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        text(&resource.attributes),
        format!(
            "service.name=nprof service.version={version} service.instance.id=web-1 host.name=web-1 os.type=linux process.pid=42"
        )
    );
    let metrics = metrics(requests);
    let calls = numbers(named(&metrics, "nprof_native_calls"));
    let busy = calls.iter().find(|point| text(&point.attributes).contains("Zip$Inner")).unwrap();
    assert_eq!(
        text(&busy.attributes),
        "jvm=com.acme.Main pod=web-1 class=com.acme.Zip$Inner method=call library=liba.so"
    );
    assert_eq!(busy.value, Some(number_data_point::Value::AsInt(12)));
    let own = numbers(named(&metrics, "nprof_native_call_self_seconds"));
    assert!(own.iter().any(|point| point.value == Some(number_data_point::Value::AsDouble(1.5))));
    let losses = &numbers(named(&metrics, "nprof_losses"))[0];
    assert_eq!(text(&losses.attributes), "reason=unreturned");
    // The process began before it measured.
    assert_eq!(losses.start_time_unix_nano, 1_700_000_000_000_000_000);
}

/// Check that the histogram is what was measured: each bucket by its bounds, calls of at most 1 ns, count and sum.
#[test]
fn histogram_is_the_measured_one() {
    let metrics = metrics(pushed(&everything()));
    let points = histograms(named(&metrics, "nprof_native_call_duration_nanoseconds"));
    let busy = points.iter().find(|point| text(&point.attributes).contains("Zip$Inner")).unwrap();
    assert_eq!((busy.scale, busy.zero_count, busy.zero_threshold), (2, 1, 1.0));
    assert_eq!((busy.count, busy.sum), (11, Some(2_147_490_000.0)));
    let positive = busy.positive.as_ref().unwrap();
    assert_eq!(positive.bucket_counts.iter().sum::<u64>() + busy.zero_count, busy.count);
    let filled: Vec<(f64, u64)> = (positive.offset..)
        .zip(&positive.bucket_counts)
        .filter(|(_, n)| **n > 0)
        // OTLP: bucket i ends with 2^(2^-scale) to the power of i + 1.
        .map(|(index, n)| (2_f64.powf(f64::from(index + 1) / 4.0), *n))
        .collect();
    let measured = [(40, 1), (41, 7), (120, 2)].map(|(index, n)| (upper_bound_ns(index), n));
    assert_eq!(filled, measured);
    assert_eq!(busy.start_time_unix_nano, 0, "the measurement of this JVM began in 1970");
}

/// Check that a histogram without calls, and one with zeros alone, has no buckets.
#[test]
fn histogram_may_be_empty() {
    let of = |buckets: &[(i32, u64)]| {
        let mut durations = Distribution::default();
        durations.add(7, &Histogram { buckets: buckets.to_vec() });
        histogram(&durations)
    };
    assert_eq!((of(&[]).count, of(&[]).positive), (0, None));
    let zeros = of(&[(0, 3)]);
    assert_eq!((zeros.count, zeros.zero_count, zeros.positive), (3, 3, None));
    let last = of(&[(180, u64::MAX)]).positive.unwrap();
    assert_eq!((last.offset, last.bucket_counts), (179, vec![u64::MAX]));
}

/// Check that counters begin with the first JVM of their labels, and begin again when these labels were forgotten meanwhile.
#[test]
fn counters_begin_with_their_jvms() {
    let second = |s: i64| Timestamp::from_second(1_700_000_000 + s).unwrap();
    let of = |pid, name: &str, began| {
        let mut snapshot = jvm(pid, vec![function(0, "A", 5)]);
        snapshot.started = second(began);
        measured(name, snapshot)
    };
    let mut exporter = Exporter::new(limits());
    let began = |exporter: &mut Exporter, living: &[_], now| {
        let metrics = metrics(pushed(&exporter.collect(living, &host(), now)));
        let calls = numbers(named(&metrics, "nprof_native_calls"));
        let began = |point: &NumberDataPoint| point.start_time_unix_nano / 1_000_000_000 - 1_700_000_000;
        calls.iter().map(|point| (text(&point.attributes[..1]), began(point))).collect::<Vec<_>>()
    };
    let now = Instant::now();
    let (x, y) = ("jvm=x".to_owned(), "jvm=y".to_owned());
    let living = [of(1, "x", 20), of(2, "x", 10), of(3, "y", 30)];
    assert_eq!(began(&mut exporter, &living, now), [(x.clone(), 10), (y.clone(), 30)]);
    // The first one ends, and its calls stay in the sum.
    exporter.retire(living[1].clone(), now);
    assert_eq!(began(&mut exporter, &[living[0].clone()], now), [(x.clone(), 10), (y, 30)]);
    exporter.retire(living[0].clone(), now);
    let later = now + 2 * limits().keep_ended;
    exporter.collect(&[], &host(), later);
    assert_eq!(began(&mut exporter, &[of(4, "x", 900)], later), [(x, 900)]);
}

/// Check that a request is limited in size and that no point is lost or sent twice where one does not suffice.
#[test]
fn requests_are_limited() {
    let methods = (0..9_000).map(|n| function(n, &format!("com.acme.some.longer.package.Class{n}"), 1)).collect();
    let mut exporter = Exporter::new(crate::export::Limits { series_per_jvm: 9_000, ..limits() });
    let exposition = exporter.collect(&[measured("x", jvm(1, methods))], &host(), Instant::now());
    let mut lengths = Vec::new();
    exposition.otlp(&origin(), AT, |bytes, _| lengths.push(bytes.len()));
    assert!(lengths.len() > 3 && lengths.iter().all(|length| *length < REQUEST_BYTES * 11 / 10), "{lengths:?}");
    let requests = pushed(&exposition);
    let series: usize = exposition.families().map(|(_, series)| series.iter().count()).sum();
    assert_eq!(requests.iter().map(|(_, points)| points).sum::<u64>(), series as u64);
    let metrics = metrics(requests);
    let calls = metrics.iter().filter(|metric| metric.name == "nprof_native_calls").flat_map(numbers);
    let classes: std::collections::HashSet<String> = calls.map(|point| text(&point.attributes)).collect();
    assert_eq!(classes.len(), 9_000);
}
