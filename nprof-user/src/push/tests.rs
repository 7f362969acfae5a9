//! The whole way to a receiver and back, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use prost::Message as _;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

mod profiles;

use super::testing::{Answers, FakeReceiver, secret, status, within};
use super::*;
use crate::model::{PushOutcome, Pushes};

fn options(port: u16) -> Options {
    let endpoint = format!("http://localhost:{port}/api/otlp/").parse().unwrap();
    Options { endpoint, headers: None, ca: None, ca_key: "otlp-ca" }
}

/// Pushes of metrics with short pauses, and their tally.
fn metrics_of(options: &Options) -> (Metrics, Arc<Tally>) {
    metrics_to(&Live::load(options).unwrap())
}

fn metrics_to(live: &Live) -> (Metrics, Arc<Tally>) {
    let tally = Arc::new(Tally::new("otlp-metrics"));
    let mut metrics = Metrics::new(live, Duration::from_secs(3600), Arc::clone(&tally));
    metrics.courier.first_pause = Duration::from_millis(2);
    (metrics, tally)
}

/// Pushes bodies once, for as long as it may take.
async fn deliver(metrics: &mut Metrics, bodies: &[&str]) {
    deliver_within(metrics, bodies, Duration::from_secs(20)).await;
}

async fn deliver_within(metrics: &mut Metrics, bodies: &[&str], limit: Duration) {
    within(metrics.courier.deliver(&of(bodies), Instant::now() + limit)).await;
}

fn of(texts: &[&str]) -> Bodies {
    let mut bodies = Bodies::default();
    texts.iter().for_each(|text| bodies.push(text.as_bytes(), 1));
    bodies
}

fn outcomes(tally: &Tally) -> Vec<(&'static str, u64)> {
    let Pushes { outcomes, .. } = tally.read();
    let counted = PushOutcome::ALL.iter().zip(outcomes).filter(|(_, n)| *n > 0);
    counted.map(|(outcome, n)| (outcome.as_str(), n)).collect()
}

fn always(code: u16) -> Answers {
    Box::new(move |_| status(code, &[]))
}

/// Check path, headers and body of a push, and that the bodies of one push come in order.
#[tokio::test]
async fn pushes_as_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut receiver = FakeReceiver::start(always(200)).await;
    let headers = Some(secret(directory.path(), "Authorization: Bearer 7\nX-Scope-OrgID: a\n"));
    let (mut metrics, tally) = metrics_of(&Options { headers, ..options(receiver.port) });
    deliver(&mut metrics, &["one", "two"]).await;
    let got = receiver.next().await;
    assert_eq!((got.path.as_str(), got.body.as_slice()), ("/api/otlp/v1/metrics", &b"one"[..]));
    for (name, value) in [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
        ("authorization", "Bearer 7"),
        ("x-scope-orgid", "a"),
        ("host", &format!("localhost:{}", receiver.port)),
    ] {
        assert_eq!(got.headers[name], value);
    }
    assert_eq!(receiver.next().await.body, b"two");
    assert_eq!(outcomes(&tally), [("delivered", 1)]);
}

/// Check that a receiver that closes the connection after each answer gets all bodies without a further attempt.
#[tokio::test]
async fn connection_may_close_between_bodies() {
    let mut receiver = FakeReceiver::start(Box::new(|_| status(200, &[("connection", "close")]))).await;
    let (mut metrics, tally) = metrics_of(&options(receiver.port));
    deliver(&mut metrics, &["one", "two", "three"]).await;
    assert_eq!((receiver.rest(), tally.read().retries), (3, 0));
    assert_eq!(outcomes(&tally), [("delivered", 1)]);
}

/// Check that what passes is tried again until it is taken, and that each body is taken once.
#[tokio::test]
async fn tries_again_what_passes() {
    let codes = [503, 429, 502, 504, 200, 200];
    let mut receiver = FakeReceiver::start(Box::new(move |number| status(codes[number], &[]))).await;
    let (mut metrics, tally) = metrics_of(&options(receiver.port));
    deliver(&mut metrics, &["one", "two"]).await;
    let mut bodies = Vec::new();
    for _ in codes {
        bodies.push(receiver.next().await.body);
    }
    assert_eq!(bodies, [&b"one"[..], b"one", b"one", b"one", b"one", b"two"]);
    assert_eq!(outcomes(&tally), [("delivered", 1)]);
    assert_eq!(tally.read().retries, 4);
}

/// Check that what does not pass is not tried again, and that the other bodies of the push are sent all the same if it was this one
/// that was wrong.
#[tokio::test]
async fn does_not_insist() {
    for (code, sent) in [(400, 2), (413, 2), (401, 1), (404, 1), (500, 1), (301, 1)] {
        let mut receiver = FakeReceiver::start(always(code)).await;
        let (mut metrics, tally) = metrics_of(&options(receiver.port));
        deliver(&mut metrics, &["one", "two"]).await;
        assert_eq!(receiver.rest(), sent, "{code}");
        assert_eq!(outcomes(&tally), [("failed", 1)], "{code}");
        assert_eq!(tally.read().retries, 0);
    }
}

/// Check that a page that greets everybody with 200, and garbage in place of HTTP, are no receivers.
#[tokio::test]
async fn garbage_is_no_receiver() {
    let page = |_| Some(Response::builder().header("content-type", "text/html").body(Full::from("<html>")).unwrap());
    let receiver = FakeReceiver::start(Box::new(page)).await;
    let (mut metrics, tally) = metrics_of(&options(receiver.port));
    deliver(&mut metrics, &["one"]).await;
    assert_eq!(outcomes(&tally), [("failed", 1)]);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut metrics, tally) = metrics_of(&options(listener.local_addr().unwrap().port()));
    let garble = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"SSH-2.0-x\r\n\r\n").await.unwrap();
        }
    });
    deliver_within(&mut metrics, &["two"], Duration::from_millis(200)).await;
    assert_eq!(outcomes(&tally), [("failed", 1)]);
    garble.abort();
}

/// Check that rejected points are counted, in all bodies of a push.
#[tokio::test]
async fn counts_rejected_points() {
    let partial = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "old".to_owned() };
    let message = Bytes::from(ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec());
    let answer = move |_| {
        let response = Response::builder().header("content-type", "application/x-protobuf");
        Some(response.body(Full::new(message.clone())).unwrap())
    };
    let receiver = FakeReceiver::start(Box::new(answer)).await;
    let (mut metrics, tally) = metrics_of(&options(receiver.port));
    deliver(&mut metrics, &["one", "two"]).await;
    assert_eq!((outcomes(&tally), tally.read().rejected), (vec![("partial", 1)], 6));
}

/// Check that a pause that the receiver asks for is kept: within a push if there is time, else over the next ones.
#[tokio::test]
async fn keeps_the_pause() {
    let mut receiver =
        FakeReceiver::start(Box::new(|number| status(if number == 1 { 200 } else { 429 }, &[("retry-after", "1")])))
            .await;
    let (mut metrics, tally) = metrics_of(&options(receiver.port));
    let begin = Instant::now();
    deliver(&mut metrics, &["one"]).await;
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!((outcomes(&tally), tally.read().retries), (vec![("delivered", 1)], 1));

    deliver_within(&mut metrics, &["two"], Duration::from_millis(500)).await;
    deliver(&mut metrics, &["three"]).await;
    assert_eq!(receiver.rest(), 3, "the third push was not sent");
    assert_eq!(outcomes(&tally), [("delivered", 1), ("failed", 1), ("deferred", 1)]);
}

/// Check that nothing is waited for beyond the deadline: a receiver that never answers, and one that is not there.
#[tokio::test]
async fn gives_up_at_the_deadline() {
    let receiver = FakeReceiver::start(Box::new(|_| None)).await;
    let (mut metrics, tally) = metrics_of(&options(receiver.port));
    deliver_within(&mut metrics, &["two"], Duration::from_millis(100)).await;
    assert_eq!(outcomes(&tally), [("failed", 1)]);

    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (mut metrics, tally) = metrics_of(&options(nobody));
    // Enough for many, also where others want the CPU.
    deliver_within(&mut metrics, &["two"], Duration::from_secs(1)).await;
    assert!(tally.read().retries > 1, "it is tried again while there is time");
    let before = tally.read().retries;
    deliver_within(&mut metrics, &["two"], Duration::from_millis(100)).await;
    assert_eq!((outcomes(&tally), tally.read().retries), (vec![("failed", 2)], before), "one attempt while it is away");
}

/// Check that a receiver that was away and comes back gets the next push, with all that there is by then.
#[tokio::test]
async fn receiver_comes_back() {
    let receiver = FakeReceiver::start(always(200)).await;
    let port = receiver.port;
    drop(receiver);
    let (mut metrics, tally) = metrics_of(&options(port));
    deliver_within(&mut metrics, &["two"], Duration::from_millis(50)).await;
    let mut receiver = FakeReceiver::listen(port, None, always(200)).await;
    deliver(&mut metrics, &["both"]).await;
    assert_eq!(receiver.next().await.body, b"both");
    assert_eq!(outcomes(&tally), [("delivered", 1), ("failed", 1)]);
}

/// Check that TLS is spoken with who the given authority vouches for, and with nobody else.
#[tokio::test]
async fn tls_needs_the_right_authority() {
    let directory = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, made.cert.pem()).unwrap();
        (made, path)
    };
    let ((certified, right), (_, other)) = (made("right"), made("other"));
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let mut receiver = FakeReceiver::listen(0, Some(TlsAcceptor::from(Arc::new(config))), always(200)).await;
    let endpoint = format!("https://localhost:{}", receiver.port).parse().unwrap();
    let options = |ca| Options { endpoint: Clone::clone(&endpoint), ca, ..options(0) };
    let (mut metrics, tally) = metrics_of(&options(Some(right.clone())));
    deliver(&mut metrics, &["one"]).await;
    assert_eq!(outcomes(&tally), [("delivered", 1)]);
    assert_eq!(receiver.next().await.path, "/v1/metrics");

    let live = Live::load(&options(Some(other.clone()))).unwrap();
    let (mut metrics, tally) = metrics_to(&live);
    deliver_within(&mut metrics, &["two"], Duration::from_millis(100)).await;
    assert_eq!((outcomes(&tally), receiver.rest()), (vec![("failed", 1)], 0));
    // The right one, while it runs.
    live.reload(&options(Some(right))).unwrap();
    deliver(&mut metrics, &["two"]).await;
    assert_eq!(receiver.next().await.body, b"two");
    std::fs::write(&other, "").unwrap();
    assert!(matches!(live.reload(&options(Some(other))), Err(Error::NoAuthority { .. })));
    deliver(&mut metrics, &["three"]).await;
    assert_eq!(receiver.next().await.body, b"three");
}

/// Check that pushes come at the interval, that one comes at the end, with what there is by then, and that a source that panics
/// ends nothing.
#[tokio::test]
async fn pushes_at_an_interval_and_at_the_end() {
    let mut receiver = FakeReceiver::start(always(200)).await;
    let tally = Arc::new(Tally::new("otlp-metrics"));
    let live = Live::load(&options(receiver.port)).unwrap();
    let metrics = Metrics::new(&live, Duration::from_millis(300), Arc::clone(&tally));
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let source: Source = Arc::new(move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        assert_ne!(number, 1, "this is the panic of a test");
        of(&[&number.to_string()])
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(metrics.run(source, async { drop(stopped.await) }));
    assert_eq!(receiver.next().await.body, b"0");
    assert_eq!(receiver.next().await.body, b"2");
    drop(stop);
    within(running).await.unwrap();
    let last = made.load(Ordering::Relaxed) - 1;
    let mut bodies = Vec::new();
    while bodies.last() != Some(&last.to_string().into_bytes()) {
        bodies.push(receiver.next().await.body);
    }
    assert_eq!(receiver.rest(), 0);
    assert!(tally.read().outcomes[PushOutcome::Failed as usize] >= 1, "what could not be made is counted");
}

/// Check that the end waits for no receiver for long.
#[tokio::test]
async fn the_end_is_bounded() {
    let mut receiver = FakeReceiver::start(Box::new(|_| None)).await;
    let (metrics, _) = metrics_of(&options(receiver.port));
    let source: Source = Arc::new(|| of(&["last"]));
    let begin = Instant::now();
    within(metrics.run(source, async {})).await;
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(receiver.next().await.body, b"last");
}
