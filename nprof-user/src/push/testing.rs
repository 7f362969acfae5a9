//! For tests: a receiver that does as it is told and keeps what it gets.

use std::convert::Infallible;
use std::fs;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Writes a file that only its owner may read.
pub(super) fn secret(directory: &Path, content: &str) -> PathBuf {
    let path = directory.join("headers");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// What a receiver got.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    /// Decompressed.
    pub(super) body: Vec<u8>,
}

/// What it answers to the request of this number; `None` for ever nothing.
pub(super) type Answers = Box<dyn FnMut(usize) -> Option<Response<Full<Bytes>>> + Send>;

/// An answer with nothing but a status and headers.
pub(super) fn status(status: u16, headers: &[(&str, &str)]) -> Option<Response<Full<Bytes>>> {
    let response =
        headers.iter().fold(Response::builder().status(status), |all, (name, value)| all.header(*name, *value));
    Some(response.body(Full::default()).unwrap())
}

/// A running receiver.
pub(super) struct FakeReceiver {
    pub(super) port: u16,
    got: mpsc::UnboundedReceiver<Got>,
    _task: JoinSet<()>,
}

impl FakeReceiver {
    pub(super) async fn start(answers: Answers) -> Self {
        Self::listen(0, None, answers).await
    }

    /// Listens on a port, 0 for a free one.
    pub(super) async fn listen(port: u16, tls: Option<TlsAcceptor>, answers: Answers) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, got) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new((0, answers)));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tell, answers, tls) = (tell.clone(), Arc::clone(&answers), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => converse(stream, tell, answers).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => converse(stream, tell, answers).await,
                            Err(_distrusted) => {}
                        },
                    }
                });
            }
        });
        Self { port, got, _task: task }
    }

    /// The next request.
    pub(super) async fn next(&mut self) -> Got {
        within(self.got.recv()).await.unwrap()
    }

    /// The requests that have come and were not asked for.
    pub(super) fn rest(&mut self) -> usize {
        std::iter::from_fn(|| self.got.try_recv().ok()).count()
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    tell: mpsc::UnboundedSender<Got>,
    answers: Arc<Mutex<(usize, Answers)>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (tell, answers) = (tell.clone(), Arc::clone(&answers));
        async move {
            let (head, body) = request.into_parts();
            let gzipped = body.collect().await.unwrap().to_bytes();
            let mut body = Vec::new();
            GzDecoder::new(&gzipped[..]).read_to_end(&mut body).unwrap();
            let answer = {
                let mut answers = answers.lock().await;
                let number = answers.0;
                answers.0 += 1;
                (answers.1)(number)
            };
            tell.send(Got { path: head.uri.path().to_owned(), headers: head.headers, body }).unwrap();
            match answer {
                Some(answer) => Ok::<_, Infallible>(answer),
                None => std::future::pending().await,
            }
        }
    });
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

/// What comes of something that must not take for ever.
pub(super) async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("this takes too long")
}
