//! What `nprof serve` pushes, as its receiver reads it by the official messages.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use nprof_tests::child::PATIENCE;
use nprof_tests::jar::Jar;
use nprof_tests::require::traced_on_every_jdk;
use nprof_tests::serve::{Serve, UNGOVERNED};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogramDataPoint, NumberDataPoint, metric, number_data_point,
};
use prost::Message as _;

use crate::TARGETS;
use crate::serve::{ADD, CALLS, DURATION, settled, until_counted};

/// As many pushes are refused before the first one is taken.
const REFUSED: usize = 2;

/// A request: its path, and its body, unpacked.
struct Pushed {
    path: String,
    body: Vec<u8>,
}

impl Pushed {
    fn metrics(&self) -> Result<ExportMetricsServiceRequest> {
        Ok(ExportMetricsServiceRequest::decode(&self.body[..])?)
    }
}

/// A receiver that refuses so many requests at first. Each one that it takes goes into the channel.
fn receive(listener: TcpListener, refused: usize) -> Receiver<Pushed> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut to_refuse = refused;
        for stream in listener.incoming().flatten() {
            // A connection that breaks is nprof's to tell.
            drop(answer(&stream, &mut to_refuse, &tell));
        }
    });
    told
}

/// Answers the requests of a connection.
fn answer(stream: &TcpStream, to_refuse: &mut usize, tell: &Sender<Pushed>) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut path) = (0, String::new());
        loop {
            let mut line = String::new();
            ensure!(reader.read_line(&mut line)? > 0, "closed");
            if let Some((_, value)) =
                line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse()?;
            }
            if let Some(request) = line.strip_prefix("POST ") {
                request.split(' ').next().unwrap_or_default().clone_into(&mut path);
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut gzipped = vec![0; length];
        reader.read_exact(&mut gzipped)?;
        if *to_refuse > 0 {
            *to_refuse -= 1;
            (&mut &*stream).write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        }
        let mut body = Vec::new();
        GzDecoder::new(&gzipped[..]).read_to_end(&mut body)?;
        tell.send(Pushed { path, body })?;
        (&mut &*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
}

/// The one point of a metric with these labels, made of what `point` finds in its data.
fn point<T: Clone>(
    request: &ExportMetricsServiceRequest,
    name: &str,
    labels: &[(&str, &str)],
    point: impl Fn(&metric::Data) -> Vec<(&Vec<KeyValue>, T)>,
) -> Option<T> {
    let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    let named = scopes.flat_map(|scope| &scope.metrics).filter(|metric| metric.name == name);
    let points: Vec<(&Vec<KeyValue>, T)> = named.filter_map(|metric| metric.data.as_ref()).flat_map(point).collect();
    let has = |attributes: &[KeyValue], (key, value): &(&str, &str)| {
        attributes.iter().filter(|pair| pair.key == *key).any(|pair| {
            let text = pair.value.as_ref().and_then(|value| value.value.as_ref());
            matches!(text, Some(any_value::Value::StringValue(text)) if text == value)
        })
    };
    points.into_iter().find(|(attributes, _)| labels.iter().all(|label| has(attributes, label))).map(|(_, point)| point)
}

fn number(data: &metric::Data) -> Vec<(&Vec<KeyValue>, NumberDataPoint)> {
    let metric::Data::Sum(sum) = data else { return Vec::new() };
    sum.data_points.iter().map(|point| (&point.attributes, point.clone())).collect()
}

fn histogram(data: &metric::Data) -> Vec<(&Vec<KeyValue>, ExponentialHistogramDataPoint)> {
    let metric::Data::ExponentialHistogram(histogram) = data else { return Vec::new() };
    histogram.data_points.iter().map(|point| (&point.attributes, point.clone())).collect()
}

/// Checks that a request has exactly so many calls of the method, and that the histogram has each of them in a bucket.
fn has_calls(request: &ExportMetricsServiceRequest, labels: &[(&str, &str)], calls: u64) -> Result<()> {
    let name = CALLS.trim_end_matches("_total");
    let counted = point(request, name, labels, number).context("the calls")?;
    ensure!(counted.value == Some(number_data_point::Value::AsInt(calls.try_into()?)), "{calls} calls: {counted:?}");
    ensure!(counted.start_time_unix_nano > 0 && counted.start_time_unix_nano < counted.time_unix_nano, "{counted:?}");
    let name = DURATION.replace("_seconds", "_nanoseconds");
    let timed = point(request, &name, labels, histogram).context("the durations")?;
    let in_buckets: u64 = timed.positive.iter().flat_map(|buckets| &buckets.bucket_counts).sum();
    ensure!((timed.scale, timed.count, in_buckets + timed.zero_count) == (2, calls, calls), "{calls} calls: {timed:?}");
    // No call is longer than the sum of all, and none is shorter than its bucket says.
    let last = timed.positive.as_ref().context("a bucket")?;
    let below = 2_f64.powf(f64::from(last.offset) / 4.0) * in_buckets as f64;
    ensure!(timed.sum.is_some_and(|sum| sum >= below), "the sum of all calls is below {below}: {timed:?}");
    Ok(())
}

/// Check that a receiver that refuses the first pushes has every call by the first one that it takes, that the last push comes with
/// the end of nprof and has what was called until then, and that the metrics say what became of the pushes.
#[test]
fn receiver_has_every_call() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "pushed")?;
        let mut target = jar.start()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let requests = receive(listener, REFUSED);
        let push = ["--otlp-endpoint", &endpoint, "--otlp-interval", "1s"];
        let serve = Serve::start(&[&UNGOVERNED[..], &push, &[TARGETS]].concat())?;
        until_counted(&serve, jar.name(), &mut target)?;
        let labels = crate::serve::of(jar.name(), &ADD);
        let before = settled(&serve, jar.name(), &mut target)?;
        loop {
            match requests.recv_timeout(PATIENCE) {
                Ok(request) if has_calls(&request.metrics()?, &labels, before).is_ok() => break,
                Ok(_earlier) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => bail!("no push has {before} calls"),
            }
        }
        let pushes = serve.samples()?;
        let retries = pushes.count("nprof_push_retries_total", &[("target", "otlp-metrics")])?;
        let failed = pushes.count("nprof_pushes_total", &[("target", "otlp-metrics"), ("outcome", "failed")])?;
        ensure!(retries + failed >= 2, "{retries} retries and {failed} failed pushes after {REFUSED} refusals");

        target.calls("static", 2, 500)?;
        let status = serve.finish()?;
        ensure!(status.success(), "{status}");
        let last = requests.try_iter().last().context("a last push")?;
        has_calls(&last.metrics()?, &labels, before + 1000)
    })
}

/// Check that the windows of a JVM's profile arrive by OTLP and at Pyroscope, under the JVM's label and with the names of its methods,
/// and are counted as delivered.
#[test]
fn profiles_arrive() -> Result<()> {
    traced_on_every_jdk(|jdk| {
        let jar = Jar::new(jdk, "profiled")?;
        let mut target = jar.start()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let requests = receive(listener, 0);
        let profiles = ["--profiles", "--profile-window", "1s", "--otlp-profiles"];
        let push = ["--otlp-endpoint", &endpoint, "--otlp-interval", "1h", "--pyroscope-endpoint", &endpoint];
        let serve = Serve::start(&[&UNGOVERNED[..], &profiles, &push, &[TARGETS]].concat())?;
        let mut missing = vec!["/v1development/profiles", "/push.v1.PusherService/Push"];
        while !missing.is_empty() {
            target.calls("static", 1, 100)?;
            for pushed in requests.try_iter() {
                let has = |text: &str| pushed.body.windows(text.len()).any(|part| part == text.as_bytes());
                // A profile for Pyroscope is packed once more.
                if has(jar.name()) && (has("targets.Shapes") || pushed.path.ends_with("Push")) {
                    missing.retain(|path| *path != pushed.path);
                }
            }
        }
        for target in ["otlp-profiles", "pyroscope"] {
            let labels = [("target", target), ("outcome", "delivered")];
            let delivered = serve.samples()?.count("nprof_pushes_total", &labels)?;
            ensure!(delivered > 0, "{target}: {delivered}");
        }
        let status = serve.finish()?;
        ensure!(status.success(), "{status}");
        Ok(())
    })
}
