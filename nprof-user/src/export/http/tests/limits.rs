//! What a client may take, and what happens to one that takes more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::export::http::testing::{Endpoint, Fake, limited, options, secret, within};
use crate::export::http::{Auth, Error, check};

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
/// A limit that is reached soon, but not by a busy host.
const SOON: Duration = Duration::from_millis(500);

/// Check that a connection too many is told so and closed, and that the others go on.
#[tokio::test]
async fn connections_are_limited() {
    let endpoint = Endpoint::start(limited(|limits| limits.connections = 2), Fake::plain()).await;
    let (mut one, mut other) = (endpoint.connect().await, endpoint.connect().await);
    assert_eq!((one.ask(GET).await.status, other.ask(GET).await.status), (200, 200));

    let mut third = endpoint.connect().await;
    third.send(GET).await;
    let reply = third.head().await;
    assert_eq!((reply.status, reply.header("connection")), (503, "close"));
    let body = third.rest().await;
    assert_eq!(body, b"nprof has as many connections as it takes\n");
    assert_eq!(reply.header("content-length"), body.len().to_string());

    assert_eq!((one.ask(GET).await.status, other.ask(GET).await.status), (200, 200));
}

/// Check that the health pages are answered when there is no room for anything else, and the others are told why not, also to
/// those who ask before they read, and however many connections that say nothing come between.
#[tokio::test]
async fn health_has_room() {
    let endpoint = Endpoint::start(limited(|limits| limits.connections = 2), Fake::plain()).await;
    let (mut one, mut other) = (endpoint.connect().await, endpoint.connect().await);
    assert_eq!((one.ask(GET).await.status, other.ask(GET).await.status), (200, 200));

    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(endpoint.connect().await);
        for path in ["/-/healthy", "/-/ready"] {
            let reply = endpoint.get(path, "").await;
            assert_eq!((reply.status, reply.header("connection")), (200, "close"), "{path}");
        }
        let refused = endpoint.get("/metrics", "").await;
        assert_eq!((refused.status, refused.text()), (503, "nprof has as many connections as it takes\n"));
    }
    assert_eq!(silent[0].rest().await, b"", "the oldest is closed for a newer one");
    assert_eq!((one.ask(GET).await.status, other.ask(GET).await.status), (200, 200));
}

/// Check that connections without credentials, whether they say nothing, ask what is open to all or are refused, do not keep
/// out who has some.
#[tokio::test]
async fn strangers_keep_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(Auth::Bearer(secret(directory.path(), "token", "t0ken")));
    options.limits.connections = 3;
    let endpoint = Endpoint::start(options, Fake::plain()).await;
    let mut strangers = Vec::new();
    for asks in ["", "/-/healthy", "/metrics"].iter().cycle().take(30) {
        let mut stranger = endpoint.connect().await;
        if !asks.is_empty() {
            let status = stranger.ask(&format!("GET {asks} HTTP/1.1\r\nHost: x\r\n\r\n")).await.status;
            assert_eq!(status, if *asks == "/metrics" { 401 } else { 200 });
        }
        strangers.push(stranger);
        assert_eq!(endpoint.get("/metrics", "Authorization: Bearer t0ken\r\n").await.status, 200);
        assert_eq!(endpoint.get("/-/ready", "").await.status, 200);
    }
}

/// Check that a client that takes its time with the headers is cut off, while one that waits between requests is not.
#[tokio::test]
async fn slow_request_is_cut_off() {
    let options = limited(|limits| (limits.request_time, limits.response_time) = (SOON, Duration::from_secs(30)));
    let endpoint = Endpoint::start(options, Fake::plain()).await;
    let mut kept = endpoint.connect().await;
    assert_eq!(kept.ask(GET).await.status, 200);

    for beginning in ["", "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow:"] {
        let mut slow = endpoint.connect().await;
        slow.send(beginning).await;
        assert_eq!(slow.rest().await, b"", "{beginning:?}");
    }
    // Both were cut off after `request_time`, which has passed for this one too.
    assert_eq!(kept.ask(GET).await.status, 200);
    kept.send("GET /met").await;
    assert_eq!(kept.rest().await, b"", "a later request has no more time than the first");
}

/// Check that a connection is closed when no other request comes.
#[tokio::test]
async fn idle_connection_is_closed() {
    let endpoint = Endpoint::start(limited(|limits| limits.idle = SOON), Fake::plain()).await;
    let mut client = endpoint.connect().await;
    assert_eq!(client.ask(GET).await.status, 200);
    assert_eq!(client.rest().await, b"");
}

/// Check that a client that does not take its answer is cut off: its place, the only one, becomes free.
#[tokio::test]
async fn slow_reader_is_cut_off() {
    let options = limited(|limits| (limits.connections, limits.response_time) = (1, SOON));
    // More than the buffers of two sockets hold.
    let pages = Fake::new(|_| vec![0; 64 << 20]);
    let endpoint = Endpoint::start(options, pages).await;
    let mut slow = endpoint.connect().await;
    slow.send(GET).await;
    assert!(slow.head().await.is_chunked());
    // Each turn is a connection that is refused until there is room.
    while endpoint.get("/", "").await.status != 200 {}
    assert!(slow.rest().await.len() < 64 << 20);
}

/// Check that a client that takes a byte at a time is cut off as well: an answer has one time for all of its pieces.
#[tokio::test]
async fn answer_has_one_time() {
    let endpoint =
        Endpoint::start(limited(|limits| limits.response_time = SOON), Fake::new(|_| vec![0; 64 << 20])).await;
    let mut slow = endpoint.connect().await;
    slow.send(GET).await;
    let mut taken = 0;
    while within(slow.0.read_u8()).await.is_ok() {
        taken += 1;
    }
    assert!(taken < 64 << 20, "all of it came");
}

/// Check that a client in the middle of a request cannot hold up the end.
#[tokio::test]
async fn slow_client_is_cut_off_at_the_end() {
    let mut endpoint = Endpoint::start(limited(|_| ()), Fake::plain()).await;
    let (mut slow, mut idle) = (endpoint.connect().await, endpoint.connect().await);
    assert_eq!((slow.ask(GET).await.status, idle.ask(GET).await.status), (200, 200));
    slow.send("GET /met").await;
    endpoint.begin_to_stop();
    assert_eq!(idle.rest().await, b"");
    endpoint.ended().await;
    assert_eq!(slow.rest().await, b"");
}

/// Check that headers beyond the limit are refused as such, and those within are not.
#[tokio::test]
async fn big_headers_are_refused() {
    for limit in [2 << 10, 16 << 10] {
        let endpoint = Endpoint::start(limited(|limits| limits.header_bytes = limit), Fake::plain()).await;
        let fine = endpoint.get("/metrics", &format!("X-Big: {}\r\n", "x".repeat(limit - 100))).await;
        assert_eq!(fine.status, 200);
        let mut client = endpoint.connect().await;
        let big = client.ask(&format!("GET /metrics HTTP/1.1\r\nX-Big: {}\r\n\r\n", "x".repeat(limit))).await;
        assert_eq!(big.status, 431);
        assert_eq!(client.rest().await, b"");
    }
}

/// Check that four scrapes are made at a time, that more are refused when their time is up, and that the health pages
/// do not wait for any.
#[tokio::test]
async fn scrapes_are_limited() {
    let begun = Arc::new(AtomicUsize::new(0));
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let counter = Arc::clone(&begun);
    let pages = Fake::new(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        // Ends when the sender is dropped.
        assert!(released.lock().unwrap().recv().is_err());
        b"late".to_vec()
    });
    let endpoint = Endpoint::start(limited(|limits| limits.response_time = SOON), pages).await;
    let get = || endpoint.get("/metrics", "");
    let replies = tokio::join!(get(), get(), get(), get(), get(), get());
    let replies = [replies.0, replies.1, replies.2, replies.3, replies.4, replies.5];
    assert!(replies.iter().all(|reply| reply.status == 503), "{replies:?}");
    assert_eq!(begun.load(Ordering::SeqCst), 4);
    assert_eq!(endpoint.get("/-/healthy", "").await.status, 200);

    drop(release);
    // The slots become free when the four have ended, not when their requests have.
    while endpoint.get("/metrics", "").await.status != 200 {}
}

/// Check that a body which its client does not take is made a little way only, holds nobody up, and is given up with the
/// connection.
#[tokio::test]
async fn slow_readers_hold_little() {
    let (pages, made) = Fake::counting(64 << 20);
    let endpoint = Endpoint::start(limited(|_| ()), pages).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let mut client = endpoint.connect().await;
        client.send(GET).await;
        client.head().await;
        slow.push(client);
    }
    assert_eq!(endpoint.get("/metrics", "").await.body.len(), 64 << 20, "the fourth place is left");
    assert_eq!(endpoint.get("/-/ready", "").await.status, 200);
    let held = made.load(Ordering::SeqCst) - (64 << 20);
    // Most of that is in the buffers of the sockets.
    assert!(held < 48 << 20, "{held} bytes are made for three that take none");

    drop(slow);
    for _ in 0..4 {
        assert_eq!(endpoint.get("/metrics", "").await.body.len(), 64 << 20);
    }
}

/// Check that limits under which nothing could be answered are refused.
#[test]
fn limits_must_make_sense() {
    for options in [
        limited(|limits| limits.connections = 0),
        limited(|limits| limits.peer_connections = 0),
        limited(|limits| limits.header_bytes = 100),
        limited(|limits| limits.request_time = Duration::ZERO),
        limited(|limits| limits.response_time = Duration::from_nanos(1)),
        limited(|limits| limits.idle = Duration::ZERO),
    ] {
        assert!(matches!(check(&options), Err(Error::Limit { .. })), "{options:?}");
    }
}
