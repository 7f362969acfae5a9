//! Profiles on their way: each window once, in order, and what becomes of them while the receiver is away.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;
use tokio::sync::oneshot;

use super::super::pyroscope::PushRequest;
use super::super::testing::{FakeReceiver, status, within};
use super::super::{Live, Profiles, Tally};
use super::{always, options, outcomes};
use crate::model::{About, FunctionTotals, JvmLabels, Profile};

/// A window with so many calls of one method.
fn window(calls: u64) -> Profile {
    let function = FunctionTotals {
        class: "A".to_owned(),
        method: "call".to_owned(),
        calls,
        total_ns: 1000 * calls,
        self_ns: 1000 * calls,
        ..FunctionTotals::default()
    };
    let about = About { main: "Main".to_owned(), ..About::default() };
    Profile { about, functions: vec![function], ..Profile::default() }
}

fn labels() -> JvmLabels {
    JvmLabels(vec![("jvm".to_owned(), "web".to_owned())])
}

fn tally() -> Arc<Tally> {
    Arc::new(Tally::new("profiles"))
}

/// The calls of the window in a request of OTLP.
fn calls(body: &[u8]) -> i64 {
    let request = ExportProfilesServiceRequest::decode(body).unwrap();
    let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.samples.iter().map(|sample| sample.values[0]).sum()
}

/// Check where each receiver gets a window, and that it can be read there.
#[tokio::test]
async fn both_ways() {
    let mut receiver = FakeReceiver::start(always(200)).await;
    let live = Live::load(&options(receiver.port)).unwrap();
    let (otlp, pyroscope) = (Profiles::otlp(&live, tally()), Profiles::pyroscope(&live, tally()));
    otlp.sink().push(&window(5), &labels());
    pyroscope.sink().push(&window(6), &labels());
    // Both wait already, and are pushed at the end.
    within(otlp.run(async {})).await;
    let got = receiver.next().await;
    assert_eq!((got.path.as_str(), calls(&got.body)), ("/api/otlp/v1development/profiles", 5));
    assert_eq!(got.headers["content-type"], "application/x-protobuf");
    within(pyroscope.run(async {})).await;
    let got = receiver.next().await;
    assert_eq!(got.path, "/api/otlp/push.v1.PusherService/Push");
    assert_eq!(got.headers["content-type"], "application/proto");
    let series = PushRequest::decode(&got.body[..]).unwrap().series.remove(0);
    assert!(series.labels.iter().any(|pair| pair.name == "service_name" && pair.value == "web"));
    assert!(series.samples[0].raw_profile.starts_with(&[0x1f, 0x8b]), "gzipped, as pprof wants it");
}

/// Check that windows wait for a receiver that is away and come in order, each once, and that one that is refused holds up none.
#[tokio::test]
async fn windows_wait() {
    let codes = [503, 200, 400, 200];
    let mut receiver = FakeReceiver::start(Box::new(move |number| status(codes[number], &[]))).await;
    let live = Live::load(&options(receiver.port)).unwrap();
    let tally = tally();
    let mut profiles = Profiles::otlp(&live, Arc::clone(&tally));
    (profiles.courier.first_pause, profiles.pause) = (Duration::from_millis(2), Duration::from_millis(2));
    let sink = profiles.sink();
    (1..=3).for_each(|calls| sink.push(&window(calls), &labels()));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(profiles.run(async { drop(stopped.await) }));
    let mut got = Vec::new();
    for _ in codes {
        got.push(calls(&receiver.next().await.body));
    }
    assert_eq!(got, [1, 1, 2, 3]);
    drop(stop);
    within(running).await.unwrap();
    assert_eq!(outcomes(&tally), [("delivered", 2), ("failed", 1)]);
}

/// Check that what waits at the end for a receiver that is away is counted as lost.
#[tokio::test]
async fn lost_at_the_end_is_counted() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let live = Live::load(&options(nobody)).unwrap();
    let tally = tally();
    let profiles = Profiles::pyroscope(&live, Arc::clone(&tally));
    let sink = profiles.sink();
    (1..=3).for_each(|calls| sink.push(&window(calls), &labels()));
    within(profiles.run(async {})).await;
    assert_eq!(outcomes(&tally), [("failed", 3)]);
}
