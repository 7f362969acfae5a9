//! The endpoint as a client sees it, over real sockets on loopback.

mod access;
mod limits;

use std::io::Read;
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};

use flate2::read::GzDecoder;
use tokio::net::TcpStream;

use super::testing::{Endpoint, Fake, options, within};
use super::{Auth, Error, Options, Server, check};

async fn plain() -> Endpoint {
    Endpoint::start(options(Auth::None), Fake::plain()).await
}

/// Check what each page is, and that none may be kept or guessed at by a browser.
#[tokio::test]
async fn each_path_has_its_page() {
    let endpoint = plain().await;
    for (path, kind, part) in [
        ("/", "text/html; charset=utf-8", "<td>&lt;1&gt;</td>"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", "Text\n"),
        ("/metrics?from=somewhere", "text/plain; version=0.0.4; charset=utf-8", "Text\n"),
        ("/-/healthy", "text/plain; charset=utf-8", "ok\n"),
        ("/-/ready", "text/plain; charset=utf-8", "ok\n"),
    ] {
        let reply = endpoint.get(path, "").await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind), "{path}");
        assert!(reply.text().contains(part), "{path}: {}", reply.text());
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert!(reply.header("content-security-policy").starts_with("default-src 'none'"));
    }
    let text = endpoint.get("/", "Accept: text/plain\r\n").await;
    assert_eq!(text.header("content-type"), "text/plain; charset=utf-8");
    assert!(text.text().contains("version: <1>\n"), "{}", text.text());
}

/// Check that another path is answered with those that there are.
#[tokio::test]
async fn unknown_path_names_the_known() {
    let endpoint = plain().await;
    for path in ["/metric", "/-/reload", "http://elsewhere/x", "//metrics"] {
        let reply = endpoint.get(path, "").await;
        assert_eq!(reply.status, 404, "{path}");
        for known in ["/metrics", "/-/healthy", "/-/ready"] {
            assert!(reply.text().contains(known), "{}", reply.text());
        }
    }
}

/// Check that what is wrong stands on the health pages, in one line, while the metrics go on.
#[tokio::test]
async fn sickness_is_told() {
    let pages = Fake::plain();
    let endpoint = Endpoint::start(options(Auth::None), Arc::clone(&pages)).await;
    pages.fall_sick("the maps\ncannot be read");
    for path in ["/-/healthy", "/-/ready"] {
        let reply = endpoint.get(path, "").await;
        assert_eq!((reply.status, reply.text()), (503, "the maps cannot be read\n"), "{path}");
    }
    assert_eq!(endpoint.get("/metrics", "").await.status, 200);
}

/// Check that HEAD has the headers of GET and no body: the next answer on the connection is found. A scrape is not made for
/// it, so nobody knows how long it would be.
#[tokio::test]
async fn head_is_get_without_the_body() {
    let endpoint = plain().await;
    let mut client = endpoint.connect().await;
    for path in ["/", "/metrics", "/-/ready", "/none"] {
        let head = client.ask(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let get = client.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert_eq!((head.status, head.header("content-type")), (get.status, get.header("content-type")), "{path}");
        assert!(!get.body.is_empty(), "{path}");
        match path {
            "/metrics" => assert!(!head.has("content-length"), "{head:?}"),
            _ => assert_eq!(head.length(), get.body.len(), "{path}"),
        }
    }
}

/// Check that no scrape is made for HEAD.
#[tokio::test]
async fn head_makes_no_scrape() {
    let endpoint = Endpoint::start(options(Auth::None), Fake::new(|_| panic!("a scrape"))).await;
    let mut client = endpoint.connect().await;
    assert_eq!(client.ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.status, 200);
    assert_eq!(client.ask("GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n").await.text(), "ok\n");
}

/// Check that a scrape is compressed as the client asks, short or long, and comes whole.
#[tokio::test]
async fn scrapes_are_compressed() {
    for length in [10, 300_000] {
        let expected: Vec<u8> = (0..length).flat_map(|n: u32| n.to_string().into_bytes()).collect();
        let body = expected.clone();
        let endpoint = Endpoint::start(options(Auth::None), Fake::new(move |_| body.clone())).await;
        let mut client = endpoint.connect().await;
        for accepted in ["gzip", "zstd"] {
            let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {accepted}\r\n\r\n");
            let head = client.ask(&request.replace("GET", "HEAD")).await;
            let reply = client.ask(&request).await;
            assert_eq!((reply.status, reply.header("vary")), (200, "Accept, Accept-Encoding"));
            assert_eq!((reply.header("content-encoding"), head.header("content-encoding")), (accepted, accepted));
            assert_eq!(reply.is_chunked(), length > 10, "a short one says how long it is");
            let mut decoded = Vec::new();
            match accepted {
                "gzip" => GzDecoder::new(&reply.body[..]).read_to_end(&mut decoded).unwrap(),
                _ => zstd::Decoder::new(&reply.body[..]).unwrap().read_to_end(&mut decoded).unwrap(),
            };
            assert!(decoded == expected, "{accepted}: another body");
            assert!(length == 10 || reply.body.len() < expected.len(), "{accepted}: {}", reply.body.len());
        }
        assert!(!client.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.has("content-encoding"));
    }
}

/// Check that a scrape that fails on its way does not look whole.
#[tokio::test]
async fn broken_scrape_is_not_whole() {
    for accepted in ["identity", "gzip", "zstd"] {
        let endpoint = Endpoint::start(options(Auth::None), Fake::breaking()).await;
        let mut client = endpoint.connect().await;
        client.send(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {accepted}\r\n\r\n")).await;
        let reply = client.head().await;
        let rest = client.rest().await;
        let is_whole = reply.status == 200 && rest.ends_with(b"\r\n0\r\n\r\n");
        assert!(!is_whole, "{accepted}: {} bytes look whole", rest.len());
    }
}

/// Check that a client of HTTP/1.0, which knows no chunks, gets a long scrape until the connection closes.
#[tokio::test]
async fn old_clients_get_all() {
    let endpoint = Endpoint::start(options(Auth::None), Fake::new(|_| vec![7; 1_000_000])).await;
    let mut client = endpoint.connect().await;
    client.send("GET /metrics HTTP/1.0\r\n\r\n").await;
    assert!(!client.head().await.is_chunked());
    assert!(client.rest().await == [7; 1_000_000]);
}

/// Check that other methods are refused with those that are possible, and that their bodies are not read.
#[tokio::test]
async fn only_get_and_head_are_possible() {
    let endpoint = plain().await;
    for request in
        ["POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", "DELETE / HTTP/1.0\r\n\r\n"]
    {
        let mut client = endpoint.connect().await;
        let reply = client.ask(request).await;
        assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"), "{request}");
        assert_eq!(client.rest().await, b"");
    }
}

/// Check that a GET with a body is refused, and that what follows it is not taken for a request.
#[tokio::test]
async fn request_must_not_have_a_body() {
    let endpoint = plain().await;
    for length in ["Content-Length: 30", "Transfer-Encoding: chunked"] {
        let mut client = endpoint.connect().await;
        let reply = client.ask(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n")).await;
        assert_eq!((reply.status, reply.header("connection")), (413, "close"), "{length}");
        assert_eq!(client.rest().await, b"");
    }
}

/// Check that what a client accepts, even in several headers, decides the format.
#[tokio::test]
async fn format_is_negotiated() {
    let endpoint = plain().await;
    for (headers, expected) in [
        ("Accept: */*\r\n", "Text\n"),
        ("Accept: application/openmetrics-text; version=1.0.0\r\n", "OpenMetrics\n"),
        ("Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text\r\n", "OpenMetrics\n"),
        ("Accept: \u{fc}\r\n", "Text\n"),
    ] {
        let reply = endpoint.get("/metrics", headers).await;
        assert_eq!((reply.text(), reply.header("vary")), (expected, "Accept, Accept-Encoding"), "{headers}");
    }
}

/// Check that a body of the size of a big host's comes whole, and the next one after it on the same connection.
#[tokio::test]
async fn big_body_comes_whole() {
    let body: Vec<u8> = (0..30_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let expected = body.clone();
    let endpoint = Endpoint::start(options(Auth::None), Fake::new(move |_| body.clone())).await;
    let mut client = endpoint.connect().await;
    for _ in 0..2 {
        let reply = client.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(reply.body == expected, "the body is another");
    }
}

/// Check that a panic costs its own request only, on the same connection too.
#[tokio::test]
async fn panic_is_one_failed_request() {
    let panics = |format| if format == super::Format::Text { panic!("no metrics today") } else { b"fine".to_vec() };
    let endpoint = Endpoint::start(options(Auth::None), Fake::new(panics)).await;
    let mut client = endpoint.connect().await;
    // More often than scrapes are made at a time: a panic gives its slot back.
    for _ in 0..6 {
        let reply = client.ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(reply.status, 500);
        assert!(!reply.text().contains("today"), "{}", reply.text());
    }
    let reply = client.ask("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n").await;
    assert_eq!((reply.status, reply.text()), (200, "fine"));
}

/// Check that two scrapes are made at the same time: each waits for the other in the middle of its work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_overlap() {
    let both = Barrier::new(2);
    let pages = Fake::new(move |_| {
        both.wait();
        b"met".to_vec()
    });
    let endpoint = Endpoint::start(options(Auth::None), pages).await;
    let (one, other) = tokio::join!(endpoint.get("/metrics", ""), endpoint.get("/metrics", ""));
    assert_eq!((one.text(), other.text()), ("met", "met"));
}

/// Check that at the end a request at work gets its answer, an idle connection is closed and a new one is not taken.
#[tokio::test]
async fn open_requests_are_answered_at_the_end() {
    let (begun, begins) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (begun, released) = (Mutex::new(begun), Mutex::new(released));
    let pages = Fake::new(move |_| {
        begun.lock().unwrap().send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        b"the last".to_vec()
    });
    let mut endpoint = Endpoint::start(options(Auth::None), pages).await;
    let (mut idle, mut fresh, mut busy) =
        (endpoint.connect().await, endpoint.connect().await, endpoint.connect().await);
    idle.ask("GET /-/ready HTTP/1.1\r\nHost: x\r\n\r\n").await;
    busy.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await;
    within(tokio::task::spawn_blocking(move || begins.recv().unwrap())).await.unwrap();

    endpoint.begin_to_stop();
    assert_eq!(idle.rest().await, b"");
    assert_eq!(fresh.rest().await, b"");
    let refused = TcpStream::connect(endpoint.address).await;
    release.send(()).unwrap();
    let reply = busy.rest().await;
    assert!(reply.ends_with(b"\r\n\r\nthe last"), "{}", String::from_utf8_lossy(&reply));
    endpoint.ended().await;
    assert!(refused.is_err());
}

/// Check that an address that is taken is named.
#[tokio::test]
async fn address_must_be_free() {
    let endpoint = plain().await;
    let taken = Options { listen: endpoint.address, ..options(Auth::None) };
    check(&taken).unwrap();
    let error = Server::bind(taken).await.unwrap_err();
    assert!(matches!(&error, Error::Listen { address, .. } if *address == endpoint.address), "{error}");
}
