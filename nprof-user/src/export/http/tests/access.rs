//! Who gets in: credentials, TLS and their change while the endpoint runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion, version};

use crate::export::http::testing::{Client, Endpoint, Fake, options, secret, within};
use crate::export::http::{Auth, Error, Options, TlsFiles, check};

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn basic(credentials: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(credentials))
}

fn users(directory: &Path, password: &str) -> Auth {
    Auth::Basic(secret(directory, "users", &format!("prom:{}\n", bcrypt::hash(password, 4).unwrap())))
}

/// Check that metrics and the short page need a user's password, and that the client is told so.
#[tokio::test]
async fn password_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::start(options(users(directory.path(), "s3cret")), Fake::plain()).await;
    for path in ["/", "/metrics"] {
        for _ in 0..2 {
            assert_eq!(endpoint.get(path, &basic("prom:s3cret")).await.status, 200, "{path}");
        }
        for wrong in ["", &basic("prom:other"), &basic("who:s3cret"), "Authorization: Basic ???\r\n"] {
            let reply = endpoint.get(path, wrong).await;
            assert_eq!(reply.status, 401, "{path} {wrong}");
            assert_eq!(reply.header("www-authenticate"), "Basic realm=\"nprof\", charset=\"UTF-8\"");
            assert_eq!(reply.header("connection"), "close");
        }
    }
}

/// Check that the token is needed, and that the health pages are open to those who have none.
#[tokio::test]
async fn token_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let auth = Auth::Bearer(secret(directory.path(), "token", "t0ken\n"));
    let endpoint = Endpoint::start(options(auth), Fake::plain()).await;
    assert_eq!(endpoint.get("/metrics", "Authorization: Bearer t0ken\r\n").await.status, 200);
    let refused = endpoint.get("/metrics", "Authorization: Bearer token\r\n").await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Bearer realm=\"nprof\""));
    assert!(!refused.text().contains("Text"), "{}", refused.text());
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!(endpoint.get(path, "").await.status, 200, "{path}");
    }
}

/// Check that after a reload only the new password opens, on connections that are open already too.
#[tokio::test]
async fn reload_changes_the_password() {
    let directory = tempfile::tempdir().unwrap();
    let before = options(users(directory.path(), "old"));
    let endpoint = Endpoint::start(before.clone(), Fake::plain()).await;
    let mut client = endpoint.connect().await;
    let with = |password| format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{}\r\n", basic(password));
    assert_eq!(client.ask(&with("prom:old")).await.status, 200);

    users(directory.path(), "new");
    endpoint.reloader.reload(before).unwrap();
    assert_eq!(client.ask(&with("prom:old")).await.status, 401);
    assert_eq!(client.rest().await, b"", "who is refused keeps no connection");
    assert_eq!(endpoint.connect().await.ask(&with("prom:new")).await.status, 200);
}

/// Check that a reload that cannot be used says why and changes nothing.
#[tokio::test]
async fn bad_reload_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let auth = Auth::Bearer(secret(directory.path(), "token", "t0ken"));
    let before = options(auth);
    let endpoint = Endpoint::start(before.clone(), Fake::plain()).await;

    let moved = Options { listen: "127.0.0.1:1".parse().unwrap(), ..before.clone() };
    assert!(matches!(endpoint.reloader.reload(moved), Err(Error::ListenChanged { .. })));
    secret(directory.path(), "token", "");
    assert!(matches!(endpoint.reloader.reload(before), Err(Error::Token { .. })));
    assert_eq!(endpoint.get("/metrics", "Authorization: Bearer t0ken\r\n").await.status, 200);
}

/// A certificate for localhost, made on the spot, and its files.
fn certificate(directory: &Path, name: &str) -> (CertificateDer<'static>, TlsFiles) {
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = directory.join(format!("{name}.pem"));
    fs::write(&file, cert.pem()).unwrap();
    let key = secret(directory, &format!("{name}.key"), &signing_key.serialize_pem());
    (cert.der().clone(), TlsFiles { cert: file, key })
}

fn with_tls(files: &TlsFiles) -> Options {
    Options { tls: Some(files.clone()), ..options(Auth::None) }
}

/// Connects as one that trusts only `certificate` and speaks only `version`.
async fn shake_hands(
    endpoint: &Endpoint,
    certificate: &CertificateDer<'static>,
    version: &'static SupportedProtocolVersion,
) -> std::io::Result<Client<TlsStream<TcpStream>>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(endpoint.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    within(TlsConnector::from(Arc::new(config)).connect(name, stream)).await.map(Client)
}

/// Check that both versions of TLS work, and that who does not speak it gets nothing.
#[tokio::test]
async fn tls_is_spoken() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, files) = certificate(directory.path(), "a");
    let big = Fake::new(|_| vec![b'x'; 3_000_000]);
    let endpoint = Endpoint::start(with_tls(&files), big).await;
    for version in [&version::TLS12, &version::TLS13] {
        let mut client = shake_hands(&endpoint, &certificate, version).await.unwrap();
        let spoken: Option<ProtocolVersion> = client.0.get_ref().1.protocol_version();
        assert_eq!(spoken, Some(version.version));
        for _ in 0..2 {
            assert_eq!(client.ask(GET).await.body.len(), 3_000_000);
        }
    }
    let mut plain = endpoint.connect().await;
    plain.send(GET).await;
    let answer = plain.rest().await;
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
}

/// Check that a client that connects and does not shake hands is cut off.
#[tokio::test]
async fn handshake_must_be_quick() {
    let directory = tempfile::tempdir().unwrap();
    let (_, files) = certificate(directory.path(), "a");
    let mut options = with_tls(&files);
    options.limits.request_time = Duration::from_millis(100);
    let endpoint = Endpoint::start(options, Fake::plain()).await;
    assert_eq!(endpoint.connect().await.rest().await, b"");
}

/// Check that a reload changes the certificate for new connections and leaves the open ones.
#[tokio::test]
async fn reload_changes_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let ((old, old_files), (new, new_files)) = (certificate(directory.path(), "a"), certificate(directory.path(), "b"));
    let endpoint = Endpoint::start(with_tls(&old_files), Fake::plain()).await;
    let mut open = shake_hands(&endpoint, &old, &version::TLS13).await.unwrap();

    endpoint.reloader.reload(with_tls(&new_files)).unwrap();
    assert_eq!(open.ask(GET).await.status, 200);
    assert!(shake_hands(&endpoint, &old, &version::TLS13).await.is_err());
    let mut client = shake_hands(&endpoint, &new, &version::TLS13).await.unwrap();
    assert_eq!(client.ask(GET).await.status, 200);
}

/// Check that files that do not fit together, are no PEM, or are open to all are found before anything listens, and
/// that no message quotes them.
#[test]
fn tls_files_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let ((_, a), (_, b)) = (certificate(directory.path(), "a"), certificate(directory.path(), "b"));
    check(&with_tls(&a)).unwrap();
    let junk = secret(directory.path(), "junk", "-----BEGIN QUOTED\nnonsense\n");
    let swapped = TlsFiles { cert: a.cert.clone(), key: b.key.clone() };
    assert!(matches!(check(&with_tls(&swapped)), Err(Error::KeyMismatch { .. })));
    for (files, what) in [
        (TlsFiles { cert: junk.clone(), key: a.key.clone() }, "no certificate"),
        (TlsFiles { cert: a.cert.clone(), key: junk }, "no unencrypted private key"),
        (TlsFiles { cert: a.key.clone(), key: a.key.clone() }, "no certificate"),
        (TlsFiles { cert: a.cert.clone(), key: a.cert.clone() }, "every user may access it"),
        (TlsFiles { cert: directory.path().join("none"), key: a.key.clone() }, "cannot read"),
    ] {
        let message = check(&with_tls(&files)).unwrap_err().to_string();
        assert!(message.contains(what) && !message.contains("QUOTED"), "{message}");
    }
}
